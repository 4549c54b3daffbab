-- ARGV: now, id, why, how long it is kept that it was cancelled (ms), how long the id is remembered
-- (ms). 1 when the job waited here and is gone.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local message, state = remove_waiting(guards, base, ARGV[2])
if not message then return 0 end
keep_cancelled(base, ARGV[2], message, state, ARGV[3], ARGV[4], now)
remember(base, {ARGV[2]}, ARGV[5])
return 1
