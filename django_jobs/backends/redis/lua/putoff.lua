-- ARGV: now, due; then for each lease id, token, and until when a rate limit counts its start. Puts
-- the jobs back as if they had never been leased, but due later.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local put = 0
for at = 3, #ARGV, 3 do
  local id = ARGV[at]
  local state = held(base, id, ARGV[at + 1])
  local message = state and redis.call('HGET', base .. 'jobs', id)
  if is_message(message) then
    uncount_starts(base, tonumber(ARGV[at + 2]), 1)
    state.due, state.deliveries = tonumber(ARGV[2]), math.max(state.deliveries - 1, 0)
    keep_unleased(base, id, state)
    put_place(base, place_of(string.sub(message, 2, 4), state.due, id), now)
    release(guards, id, keys_of(message), false)
    put = put + 1
  end
end
return put
