-- ARGV: now, id. Returns the result of a job, or "" if none is kept or it has expired.
local base, now = KEYS[2], clock(ARGV[1])
local ends = redis.call('ZSCORE', base .. 'kept', ARGV[2])
return ends and tonumber(ends) > now and redis.call('HGET', base .. 'res', ARGV[2]) or ''
