-- ARGV: now, then ids of dead letters that are now in the database.
local base = KEYS[2]
for i = 2, #ARGV do
  redis.call('HDEL', base .. 'dead', ARGV[i])
  redis.call('DEL', base .. 'att:' .. ARGV[i])
end
return #ARGV - 1
