-- ARGV: now, age (microseconds), cursor, how many results to examine, and "1" to delete. Counts the
-- results of jobs that ended longer ago and, if asked, deletes them with the runs that did not
-- succeed. Returns the cursor ("0" at the end) and the numbers of such results and runs.
local base, before = KEYS[2], clock(ARGV[1]) - tonumber(ARGV[2])

-- A result without a finish time counts from its enqueue, whose time is part of the id.
local function ended_at(id, text)
  local is_read, result = pcall(cjson.decode, string.match(text, '^[^\n]*'))
  local at = is_read and type(result) == 'table' and result.finished_at
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
