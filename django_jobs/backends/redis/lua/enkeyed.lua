-- ARGV: now, on_conflict, how long ids are remembered (ms), how long they are noted as pushed (ms)
-- or 0, and runs of jobs. Creates all of them or none. Returns what "enqueue" returns, with the id
-- of the existing job that stands in for a new one; or the conflict. A job that is noted as pushed
-- is left alone.
local guards, now = KEYS[1], clock(ARGV[1])
local on_conflict, remembered, noted_ms = ARGV[2], ARGV[3], tonumber(ARGV[4])
local KEPT_MS = 86400000

local function holder(unique)
  local id, base = string.match(redis.call('GET', guards .. 'u:' .. unique) or '', '^([^|]*)|(.*)$')
  if id and is_reached(guards, base) and redis.call('HEXISTS', base .. 'jobs', id) == 1 then return id, base end
  return nil
end

local function runs(base, id)
  local state = state_of(redis.call('HGET', base .. 'state', id) or nil)
  return state ~= nil and state.token ~= NO_TOKEN
end

local function is_noted(base, id)
  return noted_ms > 0 and redis.call('EXISTS', base .. 'pushed:' .. id) == 1
end

-- Whether a job with this id exists or existed.
local function is_known(base, id)
  return redis.call('HEXISTS', base .. 'jobs', id) == 1 or ended_of(base, {id}, 1, 1)[1] or is_noted(base, id)
end

-- The id of the job that stands in for a new one: "" for the job itself, nil if it has to be
-- created.
local function there(base, id, unique)
  if is_noted(base, id) then return '' end
  local existing, where
  if unique ~= '' then existing, where = holder(unique) end
  if existing and on_conflict == 'replace' then
    local message, state = remove_waiting(guards, where, existing)
    if message then keep_cancelled(where, existing, message, state, 'replaced by ' .. id, KEPT_MS, now) end
    remember(where, {existing}, remembered)
    existing = nil
  end
  if noted_ms > 0 and not existing then
    redis.call('SET', base .. 'pushed:' .. id, '1', 'PX', noted_ms)
  end
  return existing
end

local batches, answer, made = {}, {}, 0
for i = 5, #ARGV do batches[#batches + 1] = run_of(ARGV[i], now) end

if on_conflict == 'raise' or on_conflict == 'replace' then
  local seen, at = {}, 0
  for _, run in ipairs(batches) do
    local base, unique = run.base, run.unique
    for i, id in ipairs(run.ids) do
      if unique ~= '' and not is_known(base, id) then
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

name_queues(guards)
for _, run in ipairs(batches) do
  if run.unique == '' then
    made = made + make(run, 1, #run.ids, now, answer, there)
  else
    -- The first of them may stand in for the next.
    for i, id in ipairs(run.ids) do
      local added = make(run, i, i, now, answer, there)
      if added == 1 then redis.call('SET', guards .. 'u:' .. run.unique, id .. '|' .. run.base) end
      made = made + added
    end
  end
end
return made == #answer and made or answer
