-- ARGV: now, limit. Returns the next places in the order in which they would be fetched, each with
-- its message and state.
local base, now, limit = KEYS[2], clock(ARGV[1]), tonumber(ARGV[2])
local places = redis.call('ZRANGE', base .. 'ready', 0, limit - 1)
local due = redis.call('ZRANGEBYSCORE', base .. 'later', '-inf', number(now), 'LIMIT', 0, limit)
for _, place in ipairs(due) do places[#places + 1] = place end
table.sort(places)
local later = redis.call('ZRANGEBYSCORE', base .. 'later', '(' .. number(now), '+inf', 'LIMIT', 0, limit)
for _, place in ipairs(later) do places[#places + 1] = place end
local answer = {number(now)}
for i = 1, math.min(limit, #places) do
  local id = id_of(places[i])
  local message = redis.call('HGET', base .. 'jobs', id)
  if message and is_place(places[i]) then
    answer[#answer + 1] = places[i]
    answer[#answer + 1] = message
    answer[#answer + 1] = redis.call('HGET', base .. 'state', id) or ''
  end
end
return answer
