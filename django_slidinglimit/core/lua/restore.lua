-- Count anew what an earlier reset.lua has forgotten.
--
-- KEYS   per count i (from 1), one: the hash bucket of its window
-- ARGV   per count, four: the client's field; the number of that window; its length in ms; how much
-- Reply  how many counters were raised
--
-- Applies only to the current window and the one before it. What was counted since adds up.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local raised = 0
for i = 1, #KEYS do
  local field, w = ARGV[4 * i - 3], tonumber(ARGV[4 * i - 1])
  local number, this = tonumber(ARGV[4 * i - 2]), math.floor(now / w)
  if number == this or number == this - 1 then
    local kept = redis.call('HGET', KEYS[i], 'w')
    if kept ~= ARGV[4 * i - 2] then -- stale or gone, as take.lua finds it
      redis.call('UNLINK', KEYS[i])
      redis.call('HSET', KEYS[i], 'w', ARGV[4 * i - 2])
      redis.call('PEXPIREAT', KEYS[i], string.format('%.0f', (number + 2) * w))
    end
    redis.call('HINCRBY', KEYS[i], field, ARGV[4 * i])
    raised = raised + 1
  end
end
return raised
