-- KEYS: the bases of all queues that share the guards. ARGV: now, then keys, each with the id of a
-- job that seems to hold a place of it. Frees the places of jobs that are leased nowhere, and lets
-- others go on.
local guards, now = KEYS[1], clock(ARGV[1])

local function is_leased(id)
  for i = 2, #KEYS do
    -- If this key of a queue has another type, the queue cannot lease anything.
    if type(redis.pcall('ZSCORE', KEYS[i] .. 'leased', id)) == 'string' then return true end
  end
  return false
end

local freed = 0
for at = 2, #ARGV, 2 do
  local key, id = ARGV[at], ARGV[at + 1]
  if not is_leased(id) then
    freed = freed + redis.call('SREM', guards .. 'h:' .. key, id)
    local once = string.match(key, '^i:(.*)$')
    pass_on(guards, key, once ~= nil and is_done(guards, once, now) ~= '')
  end
end
return freed
