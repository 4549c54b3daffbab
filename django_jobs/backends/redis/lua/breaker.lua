-- KEYS: the hash of all breakers. ARGV: now, the name of a breaker; then, to change it: its
-- expected value and its new one ("" for none). Returns the time, the value before, and whether it
-- was changed. The states of a breaker are computed elsewhere.
local now = clock(ARGV[1])
local stood = redis.pcall('HGET', KEYS[1], ARGV[2]) or ''
-- A key of another type holds no breakers at all, and is written anew.
if type(stood) == 'table' then
  redis.call('DEL', KEYS[1])
  stood = ''
end
if not ARGV[3] or ARGV[3] ~= stood then return {number(now), stood, 0} end
if ARGV[4] == '' then
  redis.call('HDEL', KEYS[1], ARGV[2])
else
  redis.call('HSET', KEYS[1], ARGV[2], ARGV[4])
end
return {number(now), stood, 1}
