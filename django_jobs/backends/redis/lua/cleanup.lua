-- ARGV: now, limit, how many holders to name. Makes ready the jobs that are due or wait for a key
-- with free places, and drops expired results. Returns how many were due or dropped, then keys and
-- ids of some jobs that hold a key for which jobs wait here, without being leased here.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local dropped = drop_over(base, now, math.min(tonumber(ARGV[2]), 1000))
local due = redis.call('ZRANGEBYSCORE', base .. 'later', '-inf', number(now), 'LIMIT', 0, ARGV[2])
for _, place in ipairs(due) do
  redis.call('ZADD', base .. 'ready', 0, place)
  redis.call('ZREM', base .. 'later', place)
end
if #due > 0 then wake(base, #due) end

-- Puts a job back in line if it is marked as blocked but is not in the line of its key.
local function unblock(id)
  local message = redis.call('HGET', base .. 'jobs', id)
  local state = state_of(redis.call('HGET', base .. 'state', id) or nil)
  redis.call('HDEL', base .. 'blocked', id)
  local place = place_of('100', 0, id)
  if is_message(message) and state then
    if state.token ~= NO_TOKEN then return end
    local _, own_place = find_waiting(base, id, message, state)
    place = own_place
  end
  -- An unreadable one becomes a dead letter when its turn comes.
  put_place(base, place, now)
  wake(base, 1)
end

local function waits(id, key)
  local state = state_of(redis.call('HGET', base .. 'state', id) or nil)
  local message = redis.call('HGET', base .. 'jobs', id)
  if not string.find(key, '^[ci]:') or not state or not is_message(message) then return false end
  local _, place = find_waiting(base, id, message, state)
  return redis.call('ZSCORE', base .. 'w:' .. key, place)
end

local answer, most = {#due + dropped}, 1 + 2 * tonumber(ARGV[3])

-- A job whose message was damaged while it ran could not release its keys: names such holders.
local function name_holders(key)
  local ids = redis.call('SMEMBERS', guards .. 'h:' .. key)
  -- Begins with another one each time, for not all may be named.
  for i = 1, #ids do
    if #answer >= most then return end
    local id = ids[(now + i) % #ids + 1]
    if not redis.call('ZSCORE', base .. 'leased', id) then
      answer[#answer + 1], answer[#answer + 2] = key, id
    end
  end
end

if redis.call('EXISTS', base .. 'blocked') == 1 then
  local seen, blocked = {}, redis.call('HRANDFIELD', base .. 'blocked', 100, 'WITHVALUES')
  for i = 1, #blocked, 2 do
    if waits(blocked[i], blocked[i + 1]) then
      seen[blocked[i + 1]] = true
    else
      unblock(blocked[i])
    end
  end
  for key in pairs(seen) do
    name_holders(key)
    local once = string.match(key, '^i:(.*)$')
    redis.call('SADD', guards .. 'q:' .. key, base)
    -- Only in this queue: the other queues with jobs waiting for the key are cleaned up as well.
    pass_on_in(base, guards, key, once ~= nil and is_done(guards, once, now) ~= '')
  end
end
return answer
