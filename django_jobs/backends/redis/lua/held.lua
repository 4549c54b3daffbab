-- ARGV: now, limit. Returns jobs that are not in line for a worker: the running ones, the earliest
-- end of a lease first, then those that wait for a key. For each: status, place, end of the lease
-- or "", message, state text.
local base, limit = KEYS[2], tonumber(ARGV[2])
local answer = {}

local function add(stands, id, ends)
  local message = redis.call('HGET', base .. 'jobs', id)
  local text = redis.call('HGET', base .. 'state', id) or ''
  local state = state_of(text ~= '' and text or nil)
  if not is_message(message) or not state then return end
  local _, place = find_waiting(base, id, message, state)
  if not is_place(place) then return end
  for _, part in ipairs({stands, place, ends, message, text}) do answer[#answer + 1] = part end
end

local leased = redis.call('ZRANGE', base .. 'leased', 0, limit - 1, 'WITHSCORES')
for i = 1, #leased, 2 do add('running', leased[i], number(tonumber(leased[i + 1]))) end
local left = limit - #leased / 2
if left > 0 then
  for _, id in ipairs(redis.call('HRANDFIELD', base .. 'blocked', left)) do add('blocked', id, '') end
end
return answer
