-- Returns the numbers of the queues with a lease that has expired or that no script wrote (see
-- "reap"). Changes nothing.
local now, numbers = clock(ARGV[1]), {}
for i = 2, #KEYS do
  local first = redis.call('ZRANGE', KEYS[i] .. 'leased', 0, 0, 'WITHSCORES')[2]
  local last = first and redis.call('ZRANGE', KEYS[i] .. 'leased', -1, -1, 'WITHSCORES')[2]
  if first and (tonumber(first) <= now or tonumber(last) >= now + ENDLESS) then
    numbers[#numbers + 1] = i - 1
  end
end
return numbers
