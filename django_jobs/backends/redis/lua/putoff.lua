-- ARGV: now, due; then id and token of leases. As if they had never been given, but due later.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local put, claimed = 0, {}
for at = 3, #ARGV, 2 do
  local id = ARGV[at]
  local state = held(base, id, ARGV[at + 1])
  local message = state and redis.call('HGET', base .. 'jobs', id)
  if is_message(message) then
    claimed[state.leased] = (claimed[state.leased] or 0) + 1
    state.due, state.deliveries = tonumber(ARGV[2]), math.max(state.deliveries - 1, 0)
    keep_unleased(base, id, state)
    put_place(base, place_of(string.sub(message, 2, 4), state.due, id), now)
    release(guards, id, keys_of(message), false)
    put = put + 1
  end
end
-- Their starts are no starts, and were counted when they were claimed.
local slot = tonumber(redis.call('HGET', base .. 'rate', 'slot') or '')
if slot then
  for moment, count in pairs(claimed) do
    local field = number(math.floor(moment / slot))
    local counted = tonumber(redis.call('HGET', base .. 'rate', field) or '') or 0
    local back = math.min(counted, count)
    if back > 0 then redis.call('HINCRBY', base .. 'rate', field, -back) end
  end
end
return put
