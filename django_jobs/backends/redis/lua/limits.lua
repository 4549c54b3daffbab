-- Shared: what closes a queue.

-- How many jobs of a queue may start now, and, if none, the microseconds until one may.
local function gate(base, limits, now)
  local free = math.huge
  if limits.places >= 0 then
    free = limits.places - redis.call('ZCOUNT', base .. 'leased', '(' .. number(now), '+inf')
    if free <= 0 then return 0, 100000 end
  end
  if limits.rate > 0 then
    local slot = math.floor(limits.window / limits.slots)
    -- A clock may step back, but by no more than its window: starts later than that no longer
    -- count.
    local first, last = math.floor(now / slot) - limits.slots, math.floor(now / slot) + 2 * limits.slots
    local fields, sum, counts = redis.call('HGETALL', base .. 'rate'), 0, {}
    for i = 1, #fields, 2 do
      local start = tonumber(fields[i])
      if fields[i] == 'slot' then
        if tonumber(fields[i + 1]) ~= slot then
          redis.call('DEL', base .. 'rate')
          counts, sum = {}, 0
          break
        end
      elseif not start or start < first or start > last or #fields[i + 1] > 10
        or not string.find(fields[i + 1], '^%d+$') then
        redis.call('HDEL', base .. 'rate', fields[i])
      else
        counts[#counts + 1] = {start, tonumber(fields[i + 1])}
        sum = sum + tonumber(fields[i + 1])
      end
    end
    if sum >= limits.rate then
      table.sort(counts, function(a, b) return a[1] < b[1] end)
      local over, till = sum - limits.rate + 1, 0
      for _, pair in ipairs(counts) do
        over = over - pair[2]
        if over <= 0 then
          till = math.max((pair[1] + limits.slots + 1) * slot - now, 0)
          break
        end
      end
      return 0, till
    end
    free = math.min(free, limits.rate - sum)
  end
  return free, 0
end

-- Each job may start as late as `limits.late`, and counts in the slot of that moment.
local function count_starts(base, limits, count, now)
  if limits.rate > 0 and count > 0 then
    local slot = math.floor(limits.window / limits.slots)
    redis.call('HSET', base .. 'rate', 'slot', number(slot))
    redis.call('HINCRBY', base .. 'rate', number(math.floor((now + limits.late) / slot)), count)
    redis.call('PEXPIRE', base .. 'rate', number(math.ceil(limits.window / 1000) * 2 + 60000))
  end
end

-- Removes starts that were counted until a moment but did not happen. Only its slot counts them.
local function uncount_starts(base, moment, count)
  local slot = tonumber(redis.call('HGET', base .. 'rate', 'slot') or '')
  if moment <= 0 or not slot or slot < 1 then return end
  local field = number(math.floor(moment / slot))
  local stored = redis.call('HGET', base .. 'rate', field) or ''
  if #stored > 10 or not string.find(stored, '^%d+$') then return end
  local back = math.min(tonumber(stored), count)
  if back > 0 then redis.call('HINCRBY', base .. 'rate', field, -back) end
end

-- The limits in ARGV: paused, rate, window, slots, late, places. They are absent if no queue has
-- any.
local function limits_at(place)
  if not ARGV[place] then return {paused = false, rate = 0, places = -1} end
  return {paused = ARGV[place] == '1', rate = tonumber(ARGV[place + 1]),
          window = tonumber(ARGV[place + 2]), slots = tonumber(ARGV[place + 3]),
          late = tonumber(ARGV[place + 4]), places = tonumber(ARGV[place + 5])}
end
