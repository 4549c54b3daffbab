-- ARGV: now, id. How a job ended, or "" where that is not kept, or no longer.
local base, now = KEYS[2], clock(ARGV[1])
local ends = redis.call('ZSCORE', base .. 'kept', ARGV[2])
return ends and tonumber(ends) > now and redis.call('HGET', base .. 'res', ARGV[2]) or ''
