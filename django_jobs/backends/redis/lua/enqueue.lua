-- ARGV: now, on_conflict, how many, how long ids are remembered (ms); for each job: which of KEYS, id, due or "+" and a delay,
-- the flag, rank and rest of the message, the digest of its unique_key or "".
-- All of them or none. Answers for each its id and whether it was made; or the conflict.
-- "push" for on_conflict: each id is noted, and one that was noted within a day is left alone.
-- An id that has ended, and is remembered, is left alone as one that is there.
local guards, now = KEYS[1], clock(ARGV[1])
local on_conflict, count = ARGV[2], tonumber(ARGV[3])
local WIDTH = 5
local PUSH_NOTED_MS = 86400000

local function holder(unique)
  local id, base = string.match(redis.call('GET', guards .. 'u:' .. unique) or '', '^([^|]*)|(.*)$')
  if id and is_reached(guards, base) and redis.call('HEXISTS', base .. 'jobs', id) == 1 then return id, base end
  return nil
end

local function runs(base, id)
  local state = state_of(redis.call('HGET', base .. 'state', id) or nil)
  return state ~= nil and state.token ~= NO_TOKEN
end

if on_conflict == 'raise' or on_conflict == 'replace' then
  local seen = {}
  for i = 0, count - 1 do
    local at = 4 + i * WIDTH
    local base, id, unique = KEYS[tonumber(ARGV[at + 1])], ARGV[at + 2], ARGV[at + 5]
    if unique ~= '' and redis.call('HEXISTS', base .. 'jobs', id) == 0 and not has_ended(base, id) then
      local other, where = holder(unique)
      local refused = other and (on_conflict == 'raise' or runs(where, other))
      if not refused and on_conflict == 'raise' and seen[unique] and seen[unique] ~= id then
        other, refused = seen[unique], true
      end
      if refused then return {'conflict', i, other} end
      seen[unique] = id
    end
  end
end

local answer, woken = {}, {}
for i = 0, count - 1 do
  local at = 4 + i * WIDTH
  local base, id, unique = KEYS[tonumber(ARGV[at + 1])], ARGV[at + 2], ARGV[at + 5]
  local existing, where
  if redis.call('HEXISTS', base .. 'jobs', id) == 1 or has_ended(base, id) then
    existing = id
  elseif on_conflict == 'push' then
    local noted = redis.call('SET', base .. 'pushed:' .. id, '1', 'NX', 'PX', PUSH_NOTED_MS)
    if not noted then existing = id end
  elseif unique ~= '' then
    existing, where = holder(unique)
    if existing and on_conflict == 'replace' then
      remove_waiting(guards, where, existing)
      keep_result(where, existing, '{"status":"cancelled"}', 86400000)
      remember(where, {existing}, ARGV[4])
      existing = nil
    end
  end
  if existing then
    answer[#answer + 1] = existing
    answer[#answer + 1] = 0
  else
    local due, message = tonumber(ARGV[at + 3]), ARGV[at + 4]
    if string.byte(ARGV[at + 3]) == 43 then due = now + due end
    local place = place_of(string.sub(message, 2, 4), due, id)
    redis.call('HSET', base .. 'jobs', id,
      string.sub(message, 1, 1) .. string.sub(place, 1, 19) .. string.sub(message, 5))
    if unique ~= '' then redis.call('SET', guards .. 'u:' .. unique, id .. '|' .. base) end
    put_place(base, place, now)
    woken[base] = (woken[base] or 0) + 1
    answer[#answer + 1] = id
    answer[#answer + 1] = 1
  end
end
for base, times in pairs(woken) do wake(base, times) end
return answer
