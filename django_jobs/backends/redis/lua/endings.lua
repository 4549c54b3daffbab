-- Shared: what is kept of jobs and runs that ended.

-- Ids with the same start were created within about a minute, so they share a key and its expiry.
-- Calls `each` with every such key and the remaining parts of its ids.
local function by_ended(base, ids, first, last, each)
  local from = first
  while from <= last do
    local start, alike, i = string.sub(ids[from], 1, 8), {}, from
    repeat
      alike[#alike + 1] = string.sub(ids[i], 9)
      i = i + 1
    until i > last or string.sub(ids[i], 1, 8) ~= start
    each(base .. 'ended:' .. start, alike)
    from = i
  end
end

local function remember(base, ids, ms)
  if tonumber(ms) <= 0 then return end
  by_ended(base, ids, 1, #ids, function(key, alike)
    redis.call('SADD', key, unpack(alike))
    redis.call('PEXPIRE', key, ms)
  end)
end

-- Whether each of the ids from `first` to `last` has ended.
local function ended_of(base, ids, first, last)
  local answer = {}
  by_ended(base, ids, first, last, function(key, alike)
    for _, ended in ipairs(redis.call('SMISMEMBER', key, unpack(alike))) do
      answer[#answer + 1] = ended == 1
    end
  end)
  return answer
end

-- The runs that did not succeed are kept as long as the result.
local function keep_attempts(base, id, ttl)
  if redis.call('EXISTS', base .. 'att:' .. id) == 1 then
    redis.call('PEXPIRE', base .. 'att:' .. id, ttl)
  end
end

-- Drops expired results, the oldest first, and returns how many.
local function drop_over(base, now, limit)
  local over = redis.call('ZRANGEBYSCORE', base .. 'kept', '-inf', number(now), 'LIMIT', 0, limit)
  if #over > 0 then
    redis.call('HDEL', base .. 'res', unpack(over))
    redis.call('ZREM', base .. 'kept', unpack(over))
  end
  return #over
end

-- The body of a message, with the newline before it, which also separates it from a result.
local function body_of(message)
  local at = message and string.find(message, '\n', 21, true)
  return at and string.sub(message, at) or ''
end

-- Keeps for a job cancelled while it waited what an ack keeps for one that ran. Numbers are
-- formatted by hand, because cjson rounds those of more than 14 digits.
local function keep_cancelled(base, id, message, state, reason, ttl, now)
  local handler = fields_of(message)[3]
  local result = string.format(
    '{"status":"cancelled","output":%s,"finished_at":%s,"handler":%s,"attempts":%d}',
    cjson.encode(reason), number(now), cjson.encode(type(handler) == 'string' and handler or ''),
    state.attempts)
  redis.call('HSET', base .. 'res', id, result .. body_of(message))
  redis.call('ZADD', base .. 'kept', number(now + ttl * 1000), id)
  keep_attempts(base, id, ttl)
end

local function keep_attempt(base, id, attempt)
  if attempt == '' then return end
  redis.call('RPUSH', base .. 'att:' .. id, attempt)
  redis.call('LTRIM', base .. 'att:' .. id, -ATTEMPTS_KEPT, -1)
end

-- The state of a job if this token holds it, else nil.
local function held(base, id, token)
  local state = state_of(redis.call('HGET', base .. 'state', id) or nil)
  if state and state.token == token and token ~= NO_TOKEN then return state end
  return nil
end

-- A worker that gives back a reaped job is alive: the loss was no crash and makes no suspect.
local function take_loss_back(base, id, token)
  local lost = redis.call('HGET', base .. 'suspects', id)
  local state = lost and state_of(redis.call('HGET', base .. 'state', id) or nil)
  if not state or string.sub(lost, 1, -2) ~= token then return end
  -- If it was a suspect before, it stays one.
  if string.sub(lost, -1) == '1' then
    state.crashes = math.max(state.crashes - 1, 0)
    redis.call('HSET', base .. 'suspects', id, '')
  else
    state.suspect = 0
    redis.call('HDEL', base .. 'suspects', id)
  end
  redis.call('HSET', base .. 'state', id, state_text(state))
end

-- Stores the state of a job without a lease. A suspect keeps the record of its last loss.
local function keep_unleased(base, id, state)
  state.token, state.leased, state.fence, state.done_by, state.worker = NO_TOKEN, 0, 0, '', ''
  redis.call('HSET', base .. 'state', id, state_text(state))
  redis.call('ZREM', base .. 'leased', id)
  if state.suspect == 1 then
    redis.call('HSETNX', base .. 'suspects', id, '')
  else
    redis.call('HDEL', base .. 'suspects', id)
  end
end

-- Stores a dead letter in the format that the relay reads.
local function park(base, id, message, state, failure, now)
  redis.call('HSETNX', base .. 'dead', id, cjson.encode({
    message = message or '', failure = failure, now = number(now), attempts = state.attempts,
    deliveries = state.deliveries, crashes = state.crashes}))
end

-- Turns an unreadable job into a dead letter; otherwise it would be retried forever.
local function park_unreadable(guards, base, id, message, state, now)
  park(base, id, message, state or state_of(nil), cjson.encode({reason = 'rejected-malformed',
    error_type = 'CorruptEntry', error_message = 'what Redis keeps of this job cannot be read'}), now)
  local keys = keys_of(message)
  forget(base, id)
  free_unique(guards, base, id, keys)
  release(guards, id, keys, false)
end
