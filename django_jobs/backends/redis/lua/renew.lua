-- ARGV: now, lease in microseconds; for each lease: id, token. Returns 1 for each that is held,
-- else 0.
local base, now = KEYS[2], clock(ARGV[1])
local answer = {}
for at = 3, #ARGV, 2 do
  if held(base, ARGV[at], ARGV[at + 1]) then
    redis.call('ZADD', base .. 'leased', number(now + ARGV[2]), ARGV[at])
    answer[#answer + 1] = 1
  else
    answer[#answer + 1] = 0
  end
end
return answer
