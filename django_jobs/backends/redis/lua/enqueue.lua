-- ARGV: now, and runs of jobs that have no unique_key. Answers how many were made when all were;
-- else for each "1" for one that was made, and "" for one that is there: an id that has ended,
-- and is remembered, is left alone as one that lives.
local now, answer, made = clock(ARGV[1]), {}, 0
name_queues(KEYS[1])
for i = 2, #ARGV do
  local run = run_of(ARGV[i], now)
  made = made + make(run, 1, #run.ids, now, answer)
end
return made == #answer and made or answer
