-- Add clients that a process refused in one minute; the least refused give way.
--
-- KEYS   of the minute: limited, since (layout.py)
-- ARGV   seconds to keep; most members; then per client under a rule, three: its member; how often
--        it was refused; when that began, in ms since 1970
-- Reply  nothing
--
-- At most 250 give way in one call, so that it is short; nothing else adds more at once.

for i = 3, #ARGV, 3 do
  redis.call('ZINCRBY', KEYS[1], ARGV[i + 1], ARGV[i])
  redis.call('ZADD', KEYS[2], 'LT', ARGV[i + 2], ARGV[i])
end
local over = math.min(redis.call('ZCARD', KEYS[1]) - ARGV[2], 250)
if over > 0 then
  local least = redis.call('ZRANGE', KEYS[1], 0, over - 1)
  redis.call('ZREM', KEYS[1], unpack(least))
  redis.call('ZREM', KEYS[2], unpack(least))
end
for i = 1, 2 do redis.call('EXPIRE', KEYS[i], ARGV[1]) end
