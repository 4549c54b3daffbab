-- ARGV: now, token. Gives back every job that a claim with this token leased in one of the queues,
-- to its place and without a charge. Returns how many. Examines only leased jobs.
local guards, now, token = KEYS[1], clock(ARGV[1]), ARGV[2]
local LOOKED_AT, PAGE = 20000, 500
local returned = 0
for i = 2, #KEYS do
  local base, back = KEYS[i], 0
  local ids = redis.call('ZRANGEBYSCORE', base .. 'leased', number(now), '+inf', 'LIMIT', 0, LOOKED_AT)
  for at = 1, #ids, PAGE do
    local last = math.min(at + PAGE - 1, #ids)
    local states = redis.call('HMGET', base .. 'state', unpack(ids, at, last))
    for k, text in ipairs(states) do
      local state = text and string.sub(text, 1, 32) == token and state_of(text)
      local id = ids[at + k - 1]
      local message = state and redis.call('HGET', base .. 'jobs', id)
      if state and is_message(message) then
        state.deliveries = math.max(state.deliveries - 1, 0)
        keep_unleased(base, id, state)
        put_place(base, place_of(string.sub(message, 2, 4), state.due, id), now)
        release(guards, id, keys_of(message), false)
        back = back + 1
      end
    end
  end
  if back > 0 then wake(base, back) end
  returned = returned + back
end
return returned
