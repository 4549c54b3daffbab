-- ARGV: now, limit. Returns jobs with a result, those whose result is kept longest first: for each
-- its id and its result.
local base, now = KEYS[2], clock(ARGV[1])
local answer = {}
for _, id in ipairs(redis.call('ZRANGE', base .. 'kept', '+inf', '(' .. number(now), 'BYSCORE', 'REV', 'LIMIT', 0, ARGV[2])) do
  answer[#answer + 1] = id
  answer[#answer + 1] = redis.call('HGET', base .. 'res', id) or ''
end
return answer
