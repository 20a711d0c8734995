-- Add clients that were seen in one request; the first to come are kept.
--
-- KEYS   of the minute: links (layout.py)
-- ARGV   seconds to keep; most members; then per link, two: its member from either side
-- Reply  nothing

for i = 3, #ARGV, 2 do
  if redis.call('ZCARD', KEYS[1]) + 2 > tonumber(ARGV[2]) then break end
  redis.call('ZADD', KEYS[1], 0, ARGV[i], 0, ARGV[i + 1])
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
