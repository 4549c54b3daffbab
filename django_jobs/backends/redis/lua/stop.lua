-- ARGV: now, id. Notes that a running job has to stop. Returns 0 if it does not run or was already
-- asked.
local base = KEYS[2]
local state = state_of(redis.call('HGET', base .. 'state', ARGV[2]) or nil)
if not state or state.token == NO_TOKEN or redis.call('HEXISTS', base .. 'jobs', ARGV[2]) == 0 then return 0 end
return redis.call('SADD', base .. 'stops', ARGV[2])
