-- ARGV: now, how long ago (microseconds), where to go on, how many to look at, and "1" to delete.
-- Looks at results, and deletes those of jobs that ended so long ago, with the runs that did not
-- succeed. Answers where to go on ("0" at the end), how many results and how many runs there were.
local base, before = KEYS[2], clock(ARGV[1]) - tonumber(ARGV[2])

-- Where a result has no moment of its end, the enqueue counts, as the id tells.
local function ended_at(id, text)
  local is_read, told = pcall(cjson.decode, string.match(text, '^[^\n]*'))
  local at = is_read and type(told) == 'table' and told.finished_at
  if type(at) == 'number' then return at end
  local made = string.sub(id, 15, 15) == '7' and tonumber(string.sub(id, 1, 8) .. string.sub(id, 10, 13), 16)
  return made and made * 1000 or LAST_MOMENT
end

local results, runs = 0, 0
local step = redis.call('HSCAN', base .. 'res', ARGV[3], 'COUNT', ARGV[4])
for i = 1, #step[2], 2 do
  local id, text = step[2][i], step[2][i + 1]
  if ended_at(id, text) < before then
    results = results + 1
    local lives = redis.call('HEXISTS', base .. 'jobs', id) == 1
    if not lives then runs = runs + redis.call('LLEN', base .. 'att:' .. id) end
    if ARGV[5] == '1' then
      redis.call('HDEL', base .. 'res', id)
      redis.call('ZREM', base .. 'kept', id)
      if not lives then redis.call('DEL', base .. 'att:' .. id) end
    end
  end
end
return {step[1], results, runs}
