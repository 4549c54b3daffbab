-- ARGV: now, id, token, delay in microseconds or "", charge, attempt or "".
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local id, token, delay, charge = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local state = held(base, id, token)
if not state then
  if charge == 'nothing' then take_loss_back(base, id, token) end
  return 0
end
local message = redis.call('HGET', base .. 'jobs', id)
if not is_message(message) then
  park_unreadable(guards, base, id, message, state, now)
  return 1
end
if delay ~= '' then state.due = math.max(now + tonumber(delay), state.due) end
if charge == 'attempt' then state.attempts = state.attempts + 1 end
if charge == 'crash' then state.crashes = state.crashes + 1 end
if charge ~= 'nothing' or delay ~= '' then
  state.suspect = (charge == 'crash' or charge == 'suspicion') and 1 or 0
  if charge ~= 'put-off' then
    state.put_off = 0
  elseif state.put_off == 0 or state.put_off > now then
    state.put_off = now
  end
  -- The verdict of this lease counts, and not an earlier loss.
  redis.call('HDEL', base .. 'suspects', id)
end
keep_unleased(base, id, state)
keep_attempt(base, id, ARGV[6])
put_place(base, place_of(string.sub(message, 2, 4), state.due, id), now)
wake(base, 1)
release(guards, id, keys_of(message), false)
return 1
