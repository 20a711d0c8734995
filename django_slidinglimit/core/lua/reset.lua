-- Forget what counters hold.
--
-- KEYS   per counter i (from 1), two: its hash buckets, those of take.lua
-- ARGV   per counter, one: the client's field in both
-- Reply  per bucket that held something, three: its counter's i; the number of its window; how much

local reply = {}
for k = 1, #KEYS do
  local i = math.ceil(k / 2)
  local kept = redis.call('HMGET', KEYS[k], 'w', ARGV[i])
  if kept[1] and kept[2] then
    redis.call('HDEL', KEYS[k], ARGV[i])
    reply[#reply + 1] = i
    reply[#reply + 1] = kept[1]
    reply[#reply + 1] = kept[2]
  end
end
return reply
