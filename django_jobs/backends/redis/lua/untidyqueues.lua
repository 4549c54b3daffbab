-- Of the queues that tidy has something to do in: the number, whether jobs wait for a key there,
-- and whether dead letters are parked. It changes nothing.
local now, found = clock(ARGV[1]), {}

local function is_over(set)
  local first = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]
  return first and tonumber(first) <= now
end

for i = 2, #KEYS do
  local blocked = redis.call('EXISTS', KEYS[i] .. 'blocked')
  local dead = redis.call('EXISTS', KEYS[i] .. 'dead')
  if blocked + dead > 0 or is_over(KEYS[i] .. 'later') or is_over(KEYS[i] .. 'kept') then
    for _, told in ipairs({i - 1, blocked, dead}) do found[#found + 1] = told end
  end
end
return found
