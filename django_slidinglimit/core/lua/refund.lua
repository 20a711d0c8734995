-- Give back what an earlier take.lua counted.
--
-- KEYS   per counter i (from 1), one: the hash bucket of the window that was charged
-- ARGV   per counter, three: the client's field; the number of that window; how much
-- Reply  how many counters were lowered
--
-- Applies only where the bucket still belongs to that window; a count stops at 0.

local lowered = 0
for i = 1, #KEYS do
  local field = ARGV[3 * i - 2]
  local kept = redis.call('HMGET', KEYS[i], 'w', field)
  if kept[1] == ARGV[3 * i - 1] and kept[2] then
    local left = math.max(0, kept[2] - ARGV[3 * i])
    redis.call('HSET', KEYS[i], field, string.format('%.0f', left))
    lowered = lowered + 1
  end
end
return lowered
