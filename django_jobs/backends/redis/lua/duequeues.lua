-- Returns the numbers of the queues with a job that is ready or due. Changes nothing.
local now, numbers = clock(ARGV[1]), {}
for i = 2, #KEYS do
  local is_due = redis.call('EXISTS', KEYS[i] .. 'ready') == 1
  if not is_due then
    local first = redis.call('ZRANGE', KEYS[i] .. 'later', 0, 0, 'WITHSCORES')[2]
    is_due = first and tonumber(first) <= now
  end
  if is_due then numbers[#numbers + 1] = i - 1 end
end
return numbers
