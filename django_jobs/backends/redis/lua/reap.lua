-- ARGV: now, limit. Returns what was leased and ended without a verdict; how many.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local lost = redis.call('ZRANGEBYSCORE', base .. 'leased', '-inf', number(now), 'LIMIT', 0, ARGV[2])
-- A lease that would end in a hundred years is none that a script gave.
local never = redis.call('ZRANGEBYSCORE', base .. 'leased', number(now + 3200000000000000), '+inf', 'LIMIT', 0, ARGV[2])
for _, id in ipairs(never) do lost[#lost + 1] = id end
for _, id in ipairs(lost) do
  local message = redis.call('HGET', base .. 'jobs', id)
  local state = state_of(redis.call('HGET', base .. 'state', id) or nil)
  redis.call('ZREM', base .. 'leased', id)
  if is_message(message) and state then
    state.crashes = state.crashes + state.suspect
    state.suspect = 1
    keep_unleased(base, id, state)
    put_place(base, place_of(string.sub(message, 2, 4), state.due, id), now)
  else
    bury(guards, base, id, message, state, now)
  end
  release(guards, id, keys_of(message), false)
end
if #lost > 0 then wake(base, #lost) end
return #lost
