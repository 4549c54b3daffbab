-- ARGV: now; for each queue its limits. Returns now, the microseconds until something can be
-- fetched or -1, the earliest end of a lease or -1, the earliest due time or -1, the number of
-- parked dead letters, and the earliest expiry of a result or -1. Changes nothing but obsolete rate
-- counts.
local now = clock(ARGV[1])
local soonest, lease, due, parked, kept = -1, -1, -1, 0, -1

local function least(a, b)
  if a < 0 then return b end
  return b < 0 and a or math.min(a, b)
end

for i = 2, #KEYS do
  local base, limits = KEYS[i], limits_at(2 + (i - 2) * 6)
  local first = redis.call('ZRANGE', base .. 'later', 0, 0, 'WITHSCORES')[2]
  local _, till = gate(base, limits, now)
  if first then due = least(due, tonumber(first)) end
  if limits.paused then
    till = nil
  elseif redis.call('EXISTS', base .. 'ready') == 1 then
    soonest = least(soonest, till)
  elseif first then
    soonest = least(soonest, math.max(tonumber(first) - now, till))
  end
  local ends = redis.call('ZRANGE', base .. 'leased', 0, 0, 'WITHSCORES')[2]
  if ends then lease = least(lease, tonumber(ends)) end
  local over = redis.call('ZRANGE', base .. 'kept', 0, 0, 'WITHSCORES')[2]
  if over then kept = least(kept, tonumber(over)) end
  parked = parked + redis.call('HLEN', base .. 'dead')
end
return {number(now), number(soonest), number(lease), number(due), parked, number(kept)}
