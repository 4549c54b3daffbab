-- Shared: how new jobs are encoded and created.

-- A run of new jobs: consecutive jobs that differ only in id, signature and body. It starts with
-- the index in KEYS, whether the due is a delay, the due, flag, rank and the digest of the
-- unique_key or nothing; then come, for each job, its id and the rest of its message. Each length
-- precedes what it measures.
local function run_of(text, now)
  local key, is_delay, due, flag, rank, unique, at = struct.unpack('>HBdc1c3Bc0', text)
  local ids, rests, run, size = {}, {}, {base = KEYS[key], flag = flag, unique = unique}, #text
  run.due = within(math.max(due + is_delay * now, 0), LAST_MOMENT)
  run.head = place_of(rank, run.due, '')
  while at <= size do
    ids[#ids + 1], rests[#rests + 1], at = struct.unpack('>Hc0I4c0', text, at)
  end
  run.ids, run.rests = ids, rests
  return run
end

-- Stores the names of the queues for housekeeping and for workers that serve every queue.
local function name_queues(guards)
  if not is_named_here(guards) then return end
  local names = guards .. 'queues'
  for i = 2, #KEYS do
    local name = name_of(guards, KEYS[i])
    local added = redis.pcall('SADD', names, name)
    if type(added) == 'table' then
      if not string.find(added.err, 'WRONGTYPE', 1, true) then error(added.err) end
      redis.call('DEL', names)
      redis.call('SADD', names, name)
    end
    redis.call('DEL', KEYS[i] .. 'unused')
  end
end

-- Creates the jobs of a run from `first` to `last`, except those whose id exists or that another
-- job stands in for. Adds to the answer, for each: "1" if created, "" if its id exists, else the
-- other's id.
local function make(run, first, last, now, answer, there)
  local base, seen, messages, places = run.base, {}, {}, {}
  local alive = redis.call('HMGET', base .. 'jobs', unpack(run.ids, first, last))
  local ended = ended_of(base, run.ids, first, last)
  local score = run.due > now and number(run.due) or 0
  local start = run.flag .. run.head
  for i = first, last do
    local id, k = run.ids[i], i - first + 1
    local existing = (alive[k] or ended[k] or seen[id]) and '' or there and there(base, id, run.unique)
    answer[#answer + 1] = existing or '1'
    if not existing then
      seen[id] = true
      messages[#messages + 1], messages[#messages + 2] = id, start .. run.rests[i]
      places[#places + 1], places[#places + 2] = score, run.head .. id
    end
  end
  if #places > 0 then
    redis.call('HSET', base .. 'jobs', unpack(messages))
    redis.call('ZADD', base .. (score == 0 and 'ready' or 'later'), unpack(places))
    wake(base, #places / 2)
  end
  return #places / 2
end
