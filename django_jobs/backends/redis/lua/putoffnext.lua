-- ARGV: now, due, handler, how many to examine. Postpones the next jobs of this handler in the
-- queue and returns how many. Jobs of other handlers that wait in front of them are still fetched
-- first.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local due, handler, left = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local put, passed, PAGE = 0, 0, 250
while left > 0 do
  local places = redis.call('ZRANGE', base .. 'ready', passed, passed + math.min(PAGE, left) - 1)
  if #places == 0 then break end
  left = left - #places
  local ids = {}
  for i, place in ipairs(places) do ids[i] = id_of(place) end
  local messages = redis.call('HMGET', base .. 'jobs', unpack(ids))
  local states = redis.call('HMGET', base .. 'state', unpack(ids))
  for i, place in ipairs(places) do
    local id, message, state = ids[i], messages[i], state_of(states[i] or nil)
    local is_its = is_message(message) and is_place(place) and fields_of(message)[3] == handler
    if is_its and state and state.token == NO_TOKEN then
      state.due = due
      redis.call('ZREM', base .. 'ready', place)
      redis.call('HSET', base .. 'state', id, state_text(state))
      put_place(base, place_of(string.sub(message, 2, 4), due, id), now)
      release(guards, id, keys_of(message), false)
      put = put + 1
    else
      passed = passed + 1
    end
  end
end
return put
