-- ARGV: now, due; then id and token of leases. As if they had never been given, but due later.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local put = 0
for at = 3, #ARGV, 2 do
  local id = ARGV[at]
  local state = held(base, id, ARGV[at + 1])
  local message = state and redis.call('HGET', base .. 'jobs', id)
  if is_message(message) then
    state.due, state.deliveries = tonumber(ARGV[2]), math.max(state.deliveries - 1, 0)
    keep_unleased(base, id, state)
    put_place(base, place_of(string.sub(message, 2, 4), state.due, id), now)
    release(guards, id, keys_of(message), false)
    put = put + 1
  end
end
-- Their starts are no starts; where they were counted in another slot, they stay counted.
local slot = tonumber(redis.call('HGET', base .. 'rate', 'slot') or '')
if slot then
  local field = number(math.floor(now / slot))
  local counted = tonumber(redis.call('HGET', base .. 'rate', field) or '') or 0
  if put > 0 and counted >= put then redis.call('HINCRBY', base .. 'rate', field, -put) end
end
return put
