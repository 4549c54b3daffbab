-- ARGV: now, after how many microseconds an empty queue is forgotten. Returns, for each queue in
-- which cleanup has work: its number, whether jobs wait for a key there, and whether dead letters are
-- parked. Then, in a second list, the numbers of the queues whose names this step forgot; the next
-- enqueue stores them again. In a cluster none is forgotten, because the names are on another
-- server.
local guards, now, numbers, gone = KEYS[1], clock(ARGV[1]), {}, {}

local function is_over(set)
  local first = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]
  return first and tonumber(first) <= now
end

local function is_named(base)
  return is_named_here(guards) and redis.pcall('SISMEMBER', guards .. 'queues', name_of(guards, base)) == 1
end

local function is_unused(base)
  for _, word in ipairs({'jobs', 'res', 'kept', 'ready', 'later', 'leased', 'blocked', 'dead'}) do
    if redis.call('EXISTS', base .. word) == 1 then return false end
  end
  return true
end

for i = 2, #KEYS do
  local base = KEYS[i]
  local blocked, dead = redis.call('EXISTS', base .. 'blocked'), redis.call('EXISTS', base .. 'dead')
  if blocked + dead > 0 or is_over(base .. 'later') or is_over(base .. 'kept') then
    for _, value in ipairs({i - 1, blocked, dead}) do numbers[#numbers + 1] = value end
  elseif is_named(base) and is_unused(base) then
    local since = tonumber(redis.call('GET', base .. 'unused') or '')
    if not since or since > now then
      redis.call('SET', base .. 'unused', number(now))
    elseif since + tonumber(ARGV[2]) <= now then
      redis.call('SREM', guards .. 'queues', name_of(guards, base))
      redis.call('DEL', base .. 'wake', base .. 'stops', base .. 'unused')
      gone[#gone + 1] = i - 1
    end
  end
end
return {numbers, gone}
