-- ARGV: now, on_conflict, how long ids are remembered (ms), and runs of jobs. All of them or none.
-- Answers as "enqueue" does, where an id is what stands in the place of a job; or the conflict.
-- "push" for on_conflict: each id is noted, and one that was noted within a day is left alone.
local guards, now = KEYS[1], clock(ARGV[1])
local on_conflict, remembered = ARGV[2], ARGV[3]
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

-- What stands in the place of a job: "" for itself, nothing for what is to be made.
local function there(base, id, unique)
  if on_conflict == 'push' then
    local noted = redis.call('SET', base .. 'pushed:' .. id, '1', 'NX', 'PX', PUSH_NOTED_MS)
    return not noted and '' or nil
  end
  if unique == '' then return nil end
  local existing, where = holder(unique)
  if existing and on_conflict == 'replace' then
    remove_waiting(guards, where, existing)
    keep_result(where, existing, '{"status":"cancelled"}', 86400000, now)
    remember(where, {existing}, remembered)
    return nil
  end
  return existing
end

local told, answer, made = {}, {}, 0
for i = 4, #ARGV do told[#told + 1] = run_of(ARGV[i], now) end

if on_conflict == 'raise' or on_conflict == 'replace' then
  local seen, at = {}, 0
  for _, run in ipairs(told) do
    local base, unique = run.base, run.unique
    for i, id in ipairs(run.ids) do
      if unique ~= '' and redis.call('HEXISTS', base .. 'jobs', id) == 0 and not ended_of(base, {id}, 1, 1)[1] then
        local other, where = holder(unique)
        local refused = other and (on_conflict == 'raise' or runs(where, other))
        if not refused and on_conflict == 'raise' and seen[unique] and seen[unique] ~= id then
          other, refused = seen[unique], true
        end
        if refused then return {'conflict', at + i - 1, other} end
        seen[unique] = id
      end
    end
    at = at + #run.ids
  end
end

for _, run in ipairs(told) do
  if run.unique == '' then
    made = made + make(run, 1, #run.ids, now, answer, there)
  else -- the first of them may be what stands in the place of the next
    for i, id in ipairs(run.ids) do
      local one = make(run, i, i, now, answer, there)
      if one == 1 then redis.call('SET', guards .. 'u:' .. run.unique, id .. '|' .. run.base) end
      made = made + one
    end
  end
end
return made == #answer and made or answer
