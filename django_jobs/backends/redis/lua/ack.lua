-- ARGV: now, how long done work is remembered, how long ids are (ms); then texts that hold, for
-- each lease: id, token and result or "", each after its length (2, 2 and 4 bytes), how long the
-- result is kept in ms (8 bytes), and a byte that is 1 if the work was done. Returns the number of
-- leases if all were settled, else 1 or 0 for each.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local ids, tokens, results, lives, dones = {}, {}, {}, {}, {}
for i = 4, #ARGV do
  local text, at, n = ARGV[i], 1, #ids
  while at <= #text do
    n = n + 1
    ids[n], tokens[n], results[n], lives[n], dones[n], at = struct.unpack('>Hc0Hc0I4c0dB', text, at)
  end
end
local states = redis.call('HMGET', base .. 'state', unpack(ids))
local answer, gone, marked, kept, seen = {}, {}, {}, {}, {}
for i, id in ipairs(ids) do
  local token, text = tokens[i], states[i]
  answer[i] = 0
  if text and not seen[id] and token ~= NO_TOKEN and string.sub(text, 1, 32) == token then
    seen[id], answer[i] = true, 1
    gone[#gone + 1] = id
    -- Most jobs have no keys and no failed runs: their state is what fetch writes at a first lease.
    local is_first = string.sub(text, 33, 41) == '|0:1:0:0:' and string.sub(text, 75, 82) == ':0:0:0::'
    if not is_first then
      marked[#marked + 1] = id
      local attempts, keyed, done_by = string.match(text,
        '^(%d+):%d+:%d+:%d:%-?%d+:%d+:%d+:(%d):%d+:([^:]*)', 34)
      if keyed == '1' then
        local keys = keys_of(redis.call('HGET', base .. 'jobs', id)) or {}
        local done = dones[i] == 1 or done_by ~= ''
        if keys.once and done and done_by == '' and tonumber(ARGV[2]) > 0 then
          redis.call('SET', guards .. 'd:' .. keys.once, number(now + ARGV[2] * 1000) .. ':' .. id,
            'PX', ARGV[2])
        end
        free_unique(guards, base, id, keys)
        release(guards, id, keys, done)
      end
      if results[i] ~= '' then
        keep_attempts(base, id, number(lives[i]))
      elseif attempts ~= '0' then
        redis.call('DEL', base .. 'att:' .. id)
      end
    end
    if results[i] ~= '' then kept[#kept + 1] = i end
  end
end
if #kept > 0 then
  local named = {}
  for k, i in ipairs(kept) do named[k] = ids[i] end
  local messages = redis.call('HMGET', base .. 'jobs', unpack(named))
  local stored, ends, till = {}, {}, {}
  for k, i in ipairs(kept) do
    stored[2 * k - 1], stored[2 * k] = ids[i], results[i] .. body_of(messages[k])
    -- Most are alike, and to write a number costs as much as to store it.
    local life = lives[i]
    till[life] = till[life] or number(now + life * 1000)
    ends[2 * k - 1], ends[2 * k] = till[life], ids[i]
  end
  redis.call('HSET', base .. 'res', unpack(stored))
  redis.call('ZADD', base .. 'kept', unpack(ends))
  -- Storing results also drops expired ones, so that they cannot outgrow the housekeeping.
  drop_over(base, now, math.min(2 * #kept, 1000))
end
if #gone > 0 then
  remember(base, gone, ARGV[3])
  redis.call('HDEL', base .. 'jobs', unpack(gone))
  redis.call('HDEL', base .. 'state', unpack(gone))
  redis.call('ZREM', base .. 'leased', unpack(gone))
  redis.call('SREM', base .. 'stops', unpack(gone))
end
if #marked > 0 then redis.call('HDEL', base .. 'suspects', unpack(marked)) end
return #gone == #ids and #gone or answer
