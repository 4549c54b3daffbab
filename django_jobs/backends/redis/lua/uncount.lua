-- ARGV: now; then, for each lease that was given back without a start, until when a rate limit
-- counts its start.
for at = 2, #ARGV do uncount_starts(KEYS[2], tonumber(ARGV[at]), 1) end
return #ARGV - 1
