-- ARGV: now, id, result, its life in ms, how long the id is remembered (ms). Without a
-- result it was stored in vain, and may be stored again. 1 when the job waited here and is gone.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
if not remove_waiting(guards, base, ARGV[2]) then return 0 end
if ARGV[3] ~= '' then
  keep_result(base, ARGV[2], ARGV[3], ARGV[4], now)
else
  redis.call('DEL', base .. 'pushed:' .. ARGV[2])
end
remember(base, {ARGV[2]}, ARGV[5])
return 1
