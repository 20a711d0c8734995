-- Keep what a process says of itself, with the time. It never fails: whoever asks beside it, such
-- as for the rules' version on a server without room, gets an answer.
--
-- KEYS   processes (layout.py)
-- ARGV   seconds to keep; the process's field; what it says, as JSON
-- Reply  nothing

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.pcall('HSET', KEYS[1], ARGV[2], '[' .. now .. ',' .. ARGV[3] .. ']')
redis.pcall('EXPIRE', KEYS[1], ARGV[1])
