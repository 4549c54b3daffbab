-- ARGV: now, id, token. Returns when the token leased the job, or -1 if it does not hold it.
local base, now = KEYS[2], clock(ARGV[1])
local state = held(base, ARGV[2], ARGV[3])
local ends = redis.call('ZSCORE', base .. 'leased', ARGV[2])
return state and ends and tonumber(ends) > now and number(state.leased) or '-1'
