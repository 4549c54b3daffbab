-- ARGV: now, id. Returns where a live job is: status, place, end of lease or "", message, state
-- text, whether it was asked to stop, and the time.
local base, now = KEYS[2], clock(ARGV[1])
local id = ARGV[2]
local message = redis.call('HGET', base .. 'jobs', id)
if not message then return {} end
local text = redis.call('HGET', base .. 'state', id) or ''
local state = state_of(text ~= '' and text or nil) or state_of(nil)
local _, place, key = find_waiting(base, id, message, state)
local stands = 'ready'
if state.token ~= NO_TOKEN then
  stands = 'running'
elseif key then
  stands = 'blocked'
elseif due_of(place) > now then
  stands = 'scheduled'
end
return {stands, place, redis.call('ZSCORE', base .. 'leased', id) or '', message, text,
        redis.call('SISMEMBER', base .. 'stops', id), number(now)}
