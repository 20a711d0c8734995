-- Decide hits together, then count all of them or none.
--
-- KEYS   per counter i (from 1), two: KEYS[2i-1] its hash bucket for even windows, KEYS[2i] for odd
-- ARGV   per counter, two: the client's field in the bucket; the window in ms
--        then per hit, four: its counter's i; limit; cost; 1 if it may veto, 0 if it only observes
-- Reply  the time in ms since 1970 UTC, then per counter the previous and the current window's
--        count, as they were before this call
--
-- A bucket is a hash: field -> count, and under "w" the number of the window it belongs to,
-- floor(time / window). A bucket with another number is stale: read as empty, replaced only when
-- something is counted. A script with costs of 0 alone writes nothing.
--
-- Numbers are doubles: Rate keeps limit x window below 2^53, so all products here are exact, and so
-- are the floors of quotients (a quotient of numbers below 2^53 never rounds across a whole number).

local time = redis.call('TIME') -- read once: it moves while a script runs (Redis 7.0)
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local counters = #KEYS / 2
local number, window, bucket, fresh, stale, previous, current = {}, {}, {}, {}, {}, {}, {}
local reply = {now}

for i = 1, counters do
  local w = tonumber(ARGV[2 * i])
  local k = math.floor(now / w)
  local this = KEYS[2 * i - 1 + k % 2]
  local kept = redis.call('HMGET', this, 'w', ARGV[2 * i - 1])
  local before = redis.call('HMGET', KEYS[2 * i - k % 2], 'w', ARGV[2 * i - 1])
  window[i], number[i], bucket[i] = w, k, this
  fresh[i] = tonumber(kept[1]) == k
  stale[i] = kept[1] and not fresh[i]
  current[i] = fresh[i] and tonumber(kept[2]) or 0
  previous[i] = tonumber(before[1]) == k - 1 and tonumber(before[2]) or 0
  reply[2 * i] = previous[i]
  reply[2 * i + 1] = current[i]
end

local due = {}
for h = 2 * counters + 1, #ARGV, 4 do
  local i = tonumber(ARGV[h])
  local cost = tonumber(ARGV[h + 2])
  local w = window[i]
  if previous[i] * (w - (now - number[i] * w)) <= (ARGV[h + 1] - current[i] - cost) * w then
    due[i] = math.max(due[i] or 0, cost)
  elseif ARGV[h + 3] == '1' then
    return reply
  end
end

local made = {} -- counters of this call may share a bucket: only the first replaces a stale one
for i, cost in pairs(due) do
  if cost > 0 then
    if fresh[i] or made[bucket[i]] then
      redis.call('HINCRBY', bucket[i], ARGV[2 * i - 1], cost)
    else
      if stale[i] then redis.call('UNLINK', bucket[i]) end
      -- %.0f: tostring() would write large numbers as 1e+15
      redis.call('HSET', bucket[i], 'w', string.format('%.0f', number[i]), ARGV[2 * i - 1], cost)
      -- useful until the end of the next window, whose previous window this then is
      redis.call('PEXPIREAT', bucket[i], string.format('%.0f', (number[i] + 2) * window[i]))
      made[bucket[i]] = true
    end
  end
end
return reply
