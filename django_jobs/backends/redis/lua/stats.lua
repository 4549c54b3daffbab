-- ARGV: now. Returns the numbers of ready, scheduled, running, blocked and suspect jobs, and how
-- long the oldest ready job has waited (microseconds).
local base, now = KEYS[2], clock(ARGV[1])
local early = redis.call('ZCOUNT', base .. 'later', '-inf', number(now))
local later = redis.call('ZCARD', base .. 'later') - early
local oldest = redis.call('ZRANGE', base .. 'later', 0, 0)[1]
local since = now
if oldest and is_place(oldest) then since = math.min(since, due_of(oldest)) end
-- The first place of every rank; there are at most two hundred ranks.
local from = '-'
while true do
  local place = redis.call('ZRANGEBYLEX', base .. 'ready', from, '+', 'LIMIT', 0, 1)[1]
  if not place then break end
  if is_place(place) then since = math.min(since, due_of(place)) end
  from = '(' .. string.sub(place, 1, 3) .. ':'
end
return {redis.call('ZCARD', base .. 'ready') + early, later, redis.call('ZCARD', base .. 'leased'),
        redis.call('HLEN', base .. 'blocked'),
        redis.call('HLEN', base .. 'suspects'), number(now - since)}
