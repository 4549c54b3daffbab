-- ARGV: now, limit, lease in microseconds, token, worker, how many due jobs to make ready; for each
-- queue its limits. Returns the number of the queue, the end of the leases, the ids of the jobs
-- that were asked to stop during an earlier run (separated by commas), and texts that hold, for
-- each job, the lengths (4 bytes each) of its place, message and state, then these three; the state
-- is empty at the first lease of a job without keys. Many short replies would cost the client more
-- than its jobs. If there was nothing to lease, returns -1 and, for each queue, the microseconds
-- for which it is closed; or -2 if it examined many jobs that cannot be leased and there are more
-- to examine.
local guards, now = KEYS[1], clock(ARGV[1])
local limit, expires = tonumber(ARGV[2]), now + tonumber(ARGV[3])
local token, worker, bound = ARGV[4], ARGV[5], tonumber(ARGV[6])

local EXAMINED, PAGE, CLAIM_BYTES = 1000, 500, 16777216

local function promote(base)
  local due = redis.call('ZRANGEBYSCORE', base .. 'later', '-inf', number(now), 'LIMIT', 0, bound)
  for _, place in ipairs(due) do redis.call('ZADD', base .. 'ready', 0, place) end
  if #due > 0 then redis.call('ZREM', base .. 'later', unpack(due)) end
end

-- Acquires the keys of a job. Returns the job that did its work, or nil and the key to wait for.
local function admit(id, keys)
  if keys.once then
    local done_by = is_done(guards, keys.once, now)
    if done_by ~= '' then return done_by end
  end
  local full
  if keys.once and redis.call('SCARD', guards .. 'h:i:' .. keys.once) >= 1 then
    full = 'i:' .. keys.once
  end
  if keys.lock and redis.call('SCARD', guards .. 'h:c:' .. keys.lock) >= keys.places then
    full = 'c:' .. keys.lock
  end
  if full then return nil, full end
  if keys.once then redis.call('SADD', guards .. 'h:i:' .. keys.once, id) end
  if keys.lock then redis.call('SADD', guards .. 'h:c:' .. keys.lock, id) end
  -- A key of another type is written anew.
  local stored = redis.pcall('GET', guards .. 'fence')
  local last = within(type(stored) == 'string' and tonumber(stored), LAST_MOMENT - 1)
  local fence = math.max(now, last + 1)
  redis.call('SET', guards .. 'fence', number(fence))
  return '', nil, fence
end

local function block(base, place, id, key, keys)
  redis.call('ZREM', base .. 'ready', place)
  redis.call('ZADD', base .. 'w:' .. key, 0, place)
  redis.call('SADD', guards .. 'q:' .. key, base)
  redis.call('HSET', base .. 'blocked', id, key)
  -- The other key may have unblocked this job, and then has a free place for the next in line.
  for kind, name in pairs({['i:'] = keys.once, ['c:'] = keys.lock}) do
    if kind .. name ~= key then pass_on(guards, kind .. name, false) end
  end
end

-- The state of a job without keys at its first lease, as state_text would write it.
local fresh = token .. '|0:1:0:0:'
local after = ':' .. number(now) .. ':0:0:0::' .. worker
local ends = number(expires)
local TEXT = 1000000

-- The leased jobs, packed into texts of limited length.
local texts, parts, size, bytes = {}, {}, 0, 0

local function pack(place, message, text)
  local at = #parts
  parts[at + 1] = struct.pack('>I4I4I4', #place, #message, #text)
  parts[at + 2], parts[at + 3], parts[at + 4] = place, message, text
  size, bytes = size + #message, bytes + #message
  if size > TEXT then
    texts[#texts + 1] = table.concat(parts)
    parts, size = {}, 0
  end
end

local function take(base, wanted)
  local places, taken, stops, examined, page = {}, {}, {}, 0, wanted
  local alone = false
  while #places < wanted and bytes < CLAIM_BYTES and not alone do
    if examined >= EXAMINED then break end
    local seen = redis.call('ZRANGE', base .. 'ready', 0, page - 1)
    if #seen == 0 then break end
    examined, page = examined + #seen, math.max(math.min(page * 2, PAGE), wanted)
    local ids = {}
    for i, place in ipairs(seen) do ids[i] = id_of(place) end
    local messages = redis.call('HMGET', base .. 'jobs', unpack(ids))
    local states = redis.call('HMGET', base .. 'state', unpack(ids))
    local ended = ended_of(base, ids, 1, #ids)
    local gone, leased, changed = {}, {}, {}
    for i, place in ipairs(seen) do
      if #places == wanted or bytes >= CLAIM_BYTES then break end
      local id, message, state = ids[i], messages[i], nil
      local is_copy = ended[i]
      local is_fresh = message and not states[i] and not is_copy and string.byte(message, 1) == 45
      if not is_fresh then state = state_of(states[i] or nil) end
      if taken[id] then
        -- A copy of the place that it was taken from.
        gone[#gone + 1] = place
      elseif is_fresh and is_message(message) and is_place(place) then
        taken[id] = true
        local text = fresh .. string.sub(place, 4, 19) .. after
        gone[#gone + 1] = place
        leased[#leased + 1], leased[#leased + 2] = ends, id
        changed[#changed + 1], changed[#changed + 2] = id, text
        places[#places + 1] = place
        pack(place, message, '')
      elseif not is_message(message) or not state or state.token ~= NO_TOKEN or not is_place(place) then
        redis.call('ZREM', base .. 'ready', place)
        -- If the job runs, this place is a copy: its worker or the end of its lease settles it.
        if not redis.call('ZSCORE', base .. 'leased', id) then
          park_unreadable(guards, base, id, message, state, now)
        end
      elseif state.suspect == 1 and #places > 0 then
        alone = true
        break
      else
        local done_by, full, fence = '', nil, 0
        local keys = keys_of(message)
        if is_copy then
          -- It was put back: the worker refuses it when it opens the message.
          done_by = id
        elseif keys then
          done_by, full, fence = admit(id, keys)
        end
        if full then
          block(base, place, id, full, keys)
        else
          taken[id] = true
          state.token, state.leased, state.worker = token, now, worker
          state.deliveries, state.due = state.deliveries + 1, due_of(place)
          state.fence, state.done_by, state.keyed = fence or 0, done_by, keys and 1 or 0
          local text = state_text(state)
          gone[#gone + 1] = place
          leased[#leased + 1], leased[#leased + 2] = ends, id
          changed[#changed + 1], changed[#changed + 2] = id, text
          places[#places + 1] = place
          pack(place, message, text)
          if redis.call('SISMEMBER', base .. 'stops', id) == 1 then stops[#stops + 1] = id end
          if state.suspect == 1 then
            alone = true
            break
          end
        end
      end
    end
    -- In this order: if a key has the wrong type, the jobs to be leased stay where they are.
    -- None is leased if all of them were copies.
    if #leased > 0 then
      redis.call('ZADD', base .. 'leased', unpack(leased))
      redis.call('HSET', base .. 'state', unpack(changed))
    end
    if #gone > 0 then redis.call('ZREM', base .. 'ready', unpack(gone)) end
  end
  return #places, stops, examined >= EXAMINED
end

local closed = {-1}
for i = 2, #KEYS do
  local base, limits = KEYS[i], limits_at(7 + (i - 2) * 6)
  promote(base)
  local free, till = gate(base, limits, now)
  if limits.paused then free, till = 0, 500000 end
  closed[#closed + 1] = number(till)
  if free > 0 then
    local count, stops, more = take(base, math.min(limit, free))
    if more and count == 0 then return {-2} end
    if count > 0 then
      count_starts(base, limits, count, now)
      if redis.call('EXISTS', base .. 'ready') == 0 then redis.call('DEL', base .. 'wake') end
      if size > 0 then texts[#texts + 1] = table.concat(parts) end
      return {i - 1, ends, table.concat(stops, ','), unpack(texts)}
    end
  end
end
return closed
