-- ARGV: now, how long done work is remembered, and how long ids are (ms); for each lease: id, token, result or "",
-- its life in ms, and "1" when its work was done. Answers 1 for each that counted.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local ids, answer, gone = {}, {}, {}
for at = 4, #ARGV, 5 do ids[#ids + 1] = ARGV[at] end
local states = redis.call('HMGET', base .. 'state', unpack(ids))
local seen = {}
for i, id in ipairs(ids) do
  local at = 4 + (i - 1) * 5
  local token, result = ARGV[at + 1], ARGV[at + 2]
  local text = states[i]
  if text and not seen[id] and token ~= NO_TOKEN and string.sub(text, 1, 32) == token then
    seen[id] = true
    -- Only what is needed here: most jobs have no keys and no failed runs.
    local attempts, keyed, done_by = string.match(text,
      '^(%d+):%d+:%d+:%d:%-?%d+:%d+:%d+:(%d):([^:]*)', 34)
    if keyed == '1' then
      local keys = keys_of(redis.call('HGET', base .. 'jobs', id)) or {}
      local done = ARGV[at + 4] == '1' or done_by ~= ''
      if keys.once and done and done_by == '' and tonumber(ARGV[2]) > 0 then
        redis.call('SET', guards .. 'd:' .. keys.once, number(now + ARGV[2] * 1000) .. ':' .. id,
          'PX', ARGV[2])
      end
      free_unique(guards, base, id, keys)
      release(guards, id, keys, done)
    end
    if result ~= '' then
      keep_result(base, id, result, ARGV[at + 3])
    elseif attempts ~= '0' then
      redis.call('DEL', base .. 'att:' .. id)
    end
    gone[#gone + 1] = id
    answer[i] = 1
  else
    answer[i] = 0
  end
end
if #gone > 0 then
  remember(base, gone, ARGV[3])
  redis.call('HDEL', base .. 'jobs', unpack(gone))
  redis.call('HDEL', base .. 'state', unpack(gone))
  redis.call('ZREM', base .. 'leased', unpack(gone))
  redis.call('SREM', base .. 'suspects', unpack(gone))
  redis.call('SREM', base .. 'stops', unpack(gone))
end
return answer
