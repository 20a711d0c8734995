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

local call, floor = redis.call, math.floor
local time = redis.call('TIME') -- read once: it moves while a script runs (Redis 7.0)
local now = time[1] * 1000 + floor(time[2] / 1000)

local counters = #KEYS / 2
local number, held = {}, {} -- of the running window, and of the one that its bucket holds
local reply = {now}

for i = 1, counters do
  local field = ARGV[2 * i - 1]
  local k = floor(now / ARGV[2 * i])
  local odd = k % 2
  local kept = call('HMGET', KEYS[2 * i - 1 + odd], 'w', field)
  local before = call('HMGET', KEYS[2 * i - odd], 'w', field)
  number[i], held[i] = k, tonumber(kept[1])
  reply[2 * i] = tonumber(before[1]) == k - 1 and tonumber(before[2]) or 0
  reply[2 * i + 1] = held[i] == k and tonumber(kept[2]) or 0
end

local due = {}
for h = 2 * counters + 1, #ARGV, 4 do
  local i = tonumber(ARGV[h])
  local cost = tonumber(ARGV[h + 2])
  local w = tonumber(ARGV[2 * i])
  local previous, current = reply[2 * i], reply[2 * i + 1]
  if previous * (w - (now - number[i] * w)) <= (ARGV[h + 1] - current - cost) * w then
    if cost > (due[i] or 0) then due[i] = cost end
  elseif ARGV[h + 3] == '1' then
    return reply
  end
end

local made = {} -- counters of this call may share a bucket: only the first replaces a stale one
for i, cost in pairs(due) do
  local k, field = number[i], ARGV[2 * i - 1]
  local bucket = KEYS[2 * i - 1 + k % 2]
  if held[i] == k or made[bucket] then
    call('HINCRBY', bucket, field, cost)
  else
    if held[i] then call('UNLINK', bucket) end
    -- %.0f: tostring() would write large numbers as 1e+15
    call('HSET', bucket, 'w', string.format('%.0f', k), field, cost)
    -- useful until the end of the next window, whose previous window this then is
    call('PEXPIREAT', bucket, string.format('%.0f', (k + 2) * ARGV[2 * i]))
    made[bucket] = true
  end
end
return reply
