-- KEYS: the hash of all breakers. ARGV: now, the name of one; then, to change it: what it has
-- to stand at, and what it is to stand at ("" for nothing). Answers the time, where it stood,
-- and whether it was changed. What a breaker does is decided elsewhere.
local now = clock(ARGV[1])
local stood = redis.pcall('HGET', KEYS[1], ARGV[2]) or ''
if type(stood) == 'table' then -- of another type it holds no breakers at all, and is written anew
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
