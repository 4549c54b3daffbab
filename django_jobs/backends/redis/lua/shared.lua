-- What scripts share. Each script consists of the parts of this text, endings.lua, limits.lua and
-- runs.lua that it uses, and of its own text; values come only as KEYS and ARGV. An empty line
-- separates two parts, so a part contains none.
--
-- KEYS[1] is the base of the keys that jobs share (`guards`), the others are the bases of queues. A
-- queue's keys are its base and one of these words:
--   jobs     hash: id -> the message, written once
--   state    hash: id -> counters and lease; absent until the first lease
--   ready    sorted set of places, all with score 0, and therefore in lexical order
--   later    sorted set of places by the moment they are due
--   suspects hash: ids of jobs that have to run alone -> the token of the lease reaped last, and
--            "1" if a crash was charged for it, else "0"; or "" if nothing can be taken back
--   stops    set: ids of jobs that were asked to stop while they ran
--   leased   sorted set of the ids of all running jobs by the end of their lease
--   blocked  hash: id -> the key that it waits for
--   w:<key>  sorted set of places that wait for a key
--   dead     hash: id -> a dead letter that has not been copied to the database yet
--   rate     hash: the starts of a queue with a rate limit, by slot
--   unused   since when housekeeping has seen the queue empty; the next enqueue deletes it
--   wake     list: one entry for each idle worker that has to look
--   pushed:<id> set while it is remembered that a relay has pushed the job
--   ended:<first 8 of id> set of the remaining parts of ended ids, while these are remembered
--   res      hash: id -> the result, a line of JSON, and the body of the job
--   kept     sorted set of the ids of results by their expiry
--   att:<id> the runs that did not succeed
-- In addition, `guards` has the set "queues": the names of queues that may hold something. In a
-- cluster that set has a place of its own, not beside the keys that jobs share.
--
-- A place is rank (3 digits), due (16 digits) and id. A message is "k" if the job has keys, else
-- "-", then its place without the id, a line of JSON, and the body.

local NO_TOKEN = '--------------------------------'

local ATTEMPTS_KEPT = 100

local KEY_FIELDS = {unique = 5, lock = 6, places = 7, once = 8}

local LAST_MOMENT, LAST_COUNT = 9007199254740991, 2147483646

-- No script writes a lease that ends a hundred years from now.
local ENDLESS = 3200000000000000

local MESSAGE_HEAD = '^[k-]' .. string.rep('%d', 19)

local PLACE = '^' .. string.rep('%d', 19) .. '[%w_-]+$'

local STATE = '^(' .. string.rep('.', 32)
  .. ')|(%-?%d+):(%-?%d+):(%-?%d+):(%d):(%-?%d+):(%d+):(%d+):(%d):(%d+):([^:]*):(.*)$'

-- Makes a number finite and safe to store again: other programs may have written it.
local function within(n, most)
  if not n or n ~= n then return 0 end
  return math.min(math.max(n, -most), most)
end

local function count(text)
  return math.max(within(tonumber(text), LAST_COUNT), 0)
end

local function number(n)
  return string.format('%.0f', within(n, LAST_MOMENT))
end

local function clock(fixed)
  if fixed ~= '' then return tonumber(fixed) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function id_of(place)
  return string.sub(place, 20)
end

local function due_of(place)
  return within(tonumber(string.sub(place, 4, 19)), LAST_MOMENT)
end

local function place_of(rank, due, id)
  return rank .. string.format('%016.0f', within(math.max(due, 0), LAST_MOMENT)) .. id
end

-- Whether a script may have written this place: digits, and an id that survives a round trip.
local function is_place(place)
  return #place <= 83 and string.find(place, PLACE)
end

-- Counters and lease of a job; those of a new job if there are none.
local function state_of(text)
  local state = {token = NO_TOKEN, attempts = 0, deliveries = 0, crashes = 0, suspect = 0,
                 due = -1, leased = 0, fence = 0, keyed = 0, put_off = 0, done_by = '', worker = ''}
  if not text then return state end
  local token, a, d, c, s, due, leased, fence, keyed, put_off, done_by, worker =
    string.match(text, STATE)
  if not token then return nil end
  state.token, state.suspect, state.keyed = token, tonumber(s), tonumber(keyed)
  state.attempts, state.deliveries, state.crashes = count(a), count(d), count(c)
  state.due = within(tonumber(due), LAST_MOMENT)
  state.leased, state.fence = within(tonumber(leased), LAST_MOMENT), within(tonumber(fence), LAST_MOMENT)
  state.put_off = within(tonumber(put_off), LAST_MOMENT)
  state.done_by, state.worker = done_by, worker
  return state
end

local function state_text(state)
  return state.token .. string.format('|%d:%d:%d:%d:%.0f:%.0f:%.0f:%d:%.0f:', state.attempts,
    state.deliveries, state.crashes, state.suspect, state.due, state.leased, state.fence,
    state.keyed, state.put_off) .. state.done_by .. ':' .. state.worker
end

-- The fields in a message's line of JSON, empty if it cannot be read, and whether it could be.
local function fields_of(message)
  local line = string.match(message, '^.' .. string.rep('%d', 19) .. '([^\n]*)\n')
  local is_read, fields = pcall(cjson.decode, line or '')
  return is_read and type(fields) == 'table' and fields or {}, is_read and type(fields) == 'table'
end

-- The keys of a job, from the line of JSON in its message.
local function keys_of(message)
  if not message or string.byte(message, 1) ~= 107 then return nil end
  local fields, is_known = fields_of(message)
  if not is_known then return nil end
  local keys = {}
  for name, place in pairs(KEY_FIELDS) do
    local value = fields[place]
    if type(value) == 'string' or type(value) == 'number' then keys[name] = value end
  end
  -- With less than one place no job could ever have it.
  keys.places = math.max(tonumber(keys.places) or 1, 1)
  return keys
end

local function is_message(message)
  return message and string.find(message, MESSAGE_HEAD) and string.find(message, '\n', 21, true) ~= nil
end

-- Wakes idle workers. This is only a hint, so a key of another type is simply replaced.
local function wake(base, count)
  local length = redis.pcall('LLEN', base .. 'wake')
  if type(length) == 'table' then
    redis.call('DEL', base .. 'wake')
    length = 0
  end
  if length < 64 then
    redis.call('LPUSH', base .. 'wake', unpack({1, 1, 1, 1, 1, 1, 1, 1}, 1, math.min(count, 8)))
  end
end

-- Puts a job in line, or schedules it if it is not due yet.
local function put_place(base, place, now)
  if due_of(place) > now then
    redis.call('ZADD', base .. 'later', number(due_of(place)), place)
  else
    redis.call('ZADD', base .. 'ready', 0, place)
  end
end

-- Whether a script with these KEYS may access a queue whose base it read from a shared key.
local function is_reached(guards, base)
  return guards ~= KEYS[2] .. 'shared:' or base == KEYS[2]
end

-- Whether the names of queues are beside what jobs share. In a cluster they are on a server that
-- scripts on a queue cannot reach.
local function is_named_here(guards)
  return guards ~= KEYS[2] .. 'shared:'
end

-- The name of a queue, from the guards "{prefix}:3:" and its base "{prefix:name}:3:".
local function name_of(guards, base)
  local first = #string.match(guards, '^[^}]*}') + 1
  return string.sub(base, first, first - #guards - 3)
end

-- Makes the jobs of a queue ready that wait for a key with free places.
local function pass_on_in(base, guards, key, all)
  local taken = redis.call('SCARD', guards .. 'h:' .. key)
  local line, woken, moved = base .. 'w:' .. key, 0, 0
  while moved < 1000 do
    local place = is_reached(guards, base) and redis.call('ZRANGE', line, 0, 0)[1]
    if not place then
      redis.call('SREM', guards .. 'q:' .. key, base)
      break
    end
    local id = id_of(place)
    local keys = keys_of(redis.call('HGET', base .. 'jobs', id))
    local places = keys and keys.places or 1
    if string.sub(key, 1, 2) == 'i:' then places = 1 end
    -- An unreadable job takes no place of a key; it will become a dead letter.
    if keys and not all and taken + woken >= places then break end
    redis.call('ZREM', line, place)
    redis.call('HDEL', base .. 'blocked', id)
    redis.call('ZADD', base .. 'ready', 0, place)
    woken, moved = woken + (keys and 1 or 0), moved + 1
  end
  if woken > 0 then wake(base, woken) end
end

-- Does the same in every queue where jobs wait for the key. If a queue has a key of another type,
-- running jobs of other queues can still be settled.
local function pass_on(guards, key, all)
  for _, base in ipairs(redis.call('SMEMBERS', guards .. 'q:' .. key)) do
    pcall(pass_on_in, base, guards, key, all)
  end
end

local function is_done(guards, once, now)
  local stored = redis.call('GET', guards .. 'd:' .. once)
  local till, id = string.match(stored or '', '^(%d+):([%w_-]+)$')
  return till and tonumber(till) > now and id or ''
end

-- Releases what a lease held, and lets the next jobs in line go on.
local function release(guards, id, keys, done)
  if not keys then return end
  if keys.once then
    redis.call('SREM', guards .. 'h:i:' .. keys.once, id)
    pass_on(guards, 'i:' .. keys.once, done)
  end
  if keys.lock then
    redis.call('SREM', guards .. 'h:c:' .. keys.lock, id)
    pass_on(guards, 'c:' .. keys.lock, false)
  end
end

local function free_unique(guards, base, id, keys)
  if keys and keys.unique then
    local name = guards .. 'u:' .. keys.unique
    if redis.call('GET', name) == id .. '|' .. base then redis.call('DEL', name) end
  end
end

-- Removes a job in any state; the caller releases what it held.
local function forget(base, id)
  redis.call('HDEL', base .. 'jobs', id)
  redis.call('HDEL', base .. 'state', id)
  redis.call('ZREM', base .. 'leased', id)
  redis.call('HDEL', base .. 'suspects', id)
  redis.call('SREM', base .. 'stops', id)
end

-- Where a waiting job is: the set, its place, and the key it waits for.
local function find_waiting(base, id, message, state)
  local due = state.due
  if due < 0 then due = tonumber(string.sub(message, 5, 20)) or 0 end
  local place = place_of(string.sub(message, 2, 4), due, id)
  if redis.call('ZSCORE', base .. 'ready', place) then return base .. 'ready', place end
  if redis.call('ZSCORE', base .. 'later', place) then return base .. 'later', place end
  local key = redis.call('HGET', base .. 'blocked', id)
  if key then return base .. 'w:' .. key, place, key end
  return nil, place
end

-- Removes a waiting job. Returns its message and counters, or nil if it runs or does not exist.
local function remove_waiting(guards, base, id)
  local message = redis.call('HGET', base .. 'jobs', id)
  if not message then return nil end
  local state = state_of(redis.call('HGET', base .. 'state', id) or nil) or state_of(nil)
  if state.token ~= NO_TOKEN then return nil end
  local set, place, key = find_waiting(base, id, message, state)
  if set then redis.call('ZREM', set, place) end
  if key then redis.call('HDEL', base .. 'blocked', id) end
  forget(base, id)
  local keys = keys_of(message)
  free_unique(guards, base, id, keys)
  -- The job may have been unblocked already; then others wait for the place it will not take.
  release(guards, id, keys, false)
  return message, state
end
