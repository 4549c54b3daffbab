-- ARGV: now, ids of jobs that were stored in vain, and may be stored again. Answers how many of
-- them waited here and are gone. One that was leased before has a state: it may have run.
local guards, base, gone = KEYS[1], KEYS[2], 0
for i = 2, #ARGV do
  local is_new = redis.call('HEXISTS', base .. 'state', ARGV[i]) == 0
  if is_new and remove_waiting(guards, base, ARGV[i]) then
    redis.call('DEL', base .. 'pushed:' .. ARGV[i])
    gone = gone + 1
  end
end
return gone
