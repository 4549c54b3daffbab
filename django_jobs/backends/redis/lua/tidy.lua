-- ARGV: now, limit. Readies what is due, and what waits for a key that nobody holds any more.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local due = redis.call('ZRANGEBYSCORE', base .. 'later', '-inf', number(now), 'LIMIT', 0, ARGV[2])
for _, place in ipairs(due) do
  redis.call('ZADD', base .. 'ready', 0, place)
  redis.call('ZREM', base .. 'later', place)
end
if #due > 0 then wake(base, #due) end
if redis.call('EXISTS', base .. 'blocked') == 1 then
  local seen = {}
  for _, key in ipairs(redis.call('HRANDFIELD', base .. 'blocked', 100, 'WITHVALUES')) do seen[key] = true end
  for key in pairs(seen) do
    if string.find(key, '^[ci]:') then
      local once = string.match(key, '^i:(.*)$')
      pass_on(guards, key, once ~= nil and is_done(guards, once, now) ~= '')
    end
  end
end
return #due
