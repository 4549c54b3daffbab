-- ARGV: now, id, reason, how long the cancelled result is kept (ms), how long the id is remembered
-- (ms). Returns 1 if the job waited here and was removed.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local message, state = remove_waiting(guards, base, ARGV[2])
if not message then return 0 end
keep_cancelled(base, ARGV[2], message, state, ARGV[3], ARGV[4], now)
remember(base, {ARGV[2]}, ARGV[5])
return 1
