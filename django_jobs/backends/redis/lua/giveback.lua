-- ARGV: now; then id and token of each lease. Puts each job back in its place, without a charge.
-- Returns for each lease 1 if it was held, else 0.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local answer, back = {}, 0
for at = 2, #ARGV, 2 do
  local id = ARGV[at]
  local state = held(base, id, ARGV[at + 1])
  answer[#answer + 1] = state and 1 or 0
  if state then
    local message = redis.call('HGET', base .. 'jobs', id)
    if is_message(message) then
      keep_unleased(base, id, state)
      put_place(base, place_of(string.sub(message, 2, 4), state.due, id), now)
      release(guards, id, keys_of(message), false)
      back = back + 1
    else
      park_unreadable(guards, base, id, message, state, now)
    end
  else
    take_loss_back(base, id, ARGV[at + 1])
  end
end
if back > 0 then wake(base, back) end
return answer
