-- ARGV: now, id, token, charge, attempt or "", failure as JSON, how long the id is remembered (ms).
-- Replaces the job by its dead letter in one step.
local guards, base, now = KEYS[1], KEYS[2], clock(ARGV[1])
local id, token, charge = ARGV[2], ARGV[3], ARGV[4]
local state = held(base, id, token)
if not state then return 0 end
local message = redis.call('HGET', base .. 'jobs', id) or ''
if charge == 'attempt' then state.attempts = state.attempts + 1 end
if charge == 'crash' then state.crashes = state.crashes + 1 end
keep_attempt(base, id, ARGV[5])
park(base, id, message, state, ARGV[6], now)
local keys = keys_of(message)
forget(base, id)
remember(base, {id}, ARGV[7])
free_unique(guards, base, id, keys)
release(guards, id, keys, false)
return 1
