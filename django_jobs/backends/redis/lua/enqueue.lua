-- ARGV: now, and runs of jobs without a unique_key. Returns the number of jobs if all were created;
-- else, for each, "1" if it was created and "" if it exists. The id of an ended job, while it is
-- remembered, is left alone like that of a live one.
local now, answer, made = clock(ARGV[1]), {}, 0
name_queues(KEYS[1])
for i = 2, #ARGV do
  local run = run_of(ARGV[i], now)
  made = made + make(run, 1, #run.ids, now, answer)
end
return made == #answer and made or answer
