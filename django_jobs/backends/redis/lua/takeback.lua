-- ARGV: now, ids of jobs that were stored in vain and may be stored again. Returns how many of them
-- waited here and were removed. A job with a state was leased before and may have run: it stays.
local guards, base, gone = KEYS[1], KEYS[2], 0
for i = 2, #ARGV do
  local is_new = redis.call('HEXISTS', base .. 'state', ARGV[i]) == 0
  if is_new and remove_waiting(guards, base, ARGV[i]) then
    redis.call('DEL', base .. 'pushed:' .. ARGV[i])
    gone = gone + 1
  end
end
return gone
