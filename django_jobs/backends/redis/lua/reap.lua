-- ARGV: now, limit, how long jobs wait after their first crash, their second and so on (us). Puts
-- back jobs whose lease ended without a verdict. Returns how many, and for each job that was
-- charged a crash: its place, its message without the body, and its previous state.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local lost = redis.call('ZRANGEBYSCORE', base .. 'leased', '-inf', number(now), 'LIMIT', 0, ARGV[2])
local never = redis.call('ZRANGEBYSCORE', base .. 'leased', number(now + ENDLESS), '+inf', 'LIMIT', 0, ARGV[2])
for _, id in ipairs(never) do lost[#lost + 1] = id end
local answer = {#lost}
for _, id in ipairs(lost) do
  local message = redis.call('HGET', base .. 'jobs', id)
  local text = redis.call('HGET', base .. 'state', id)
  local state = state_of(text or nil)
  redis.call('ZREM', base .. 'leased', id)
  if is_message(message) and state then
    if state.suspect == 1 then
      answer[#answer + 1] = place_of(string.sub(message, 2, 4), state.due, id)
      answer[#answer + 1] = string.match(message, '^[^\n]*')
      answer[#answer + 1] = text
      state.due = math.max(now + tonumber(ARGV[math.min(3 + state.crashes, #ARGV)]), state.due)
    end
    redis.call('HSET', base .. 'suspects', id, state.token .. state.suspect)
    state.crashes = state.crashes + state.suspect
    state.suspect = 1
    keep_unleased(base, id, state)
    put_place(base, place_of(string.sub(message, 2, 4), state.due, id), now)
  else
    park_unreadable(guards, base, id, message, state, now)
  end
  release(guards, id, keys_of(message), false)
end
if #lost > 0 then wake(base, #lost) end
return answer
