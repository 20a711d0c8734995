-- Add what a process counted of one rule in one minute, and of its clients.
--
-- KEYS   of the minute: rules, counts, bytes; the rule's sorted sets top, asked, over (layout.py)
-- ARGV   seconds to keep; most rules; most clients a rule; fewest clients a rule; bytes for the
--        sorted sets of all rules; bytes of one member; the rule's field; its name; allowed;
--        refused; would-be-refused; then per client, four: its member; the counter's value; what it
--        asked; what of that was over
-- Reply  how many rules the minute has, whether this one is among them (1) or came too late (0)
--
-- The sorted sets share their bytes: each may have as many clients as there is room for when it is
-- divided among all rules that the minute has by now, and never more than is left.

local keep, field = tonumber(ARGV[1]), ARGV[7]
local rules = redis.call('HLEN', KEYS[1])
if redis.call('HEXISTS', KEYS[1], field) == 0 then
  if rules >= tonumber(ARGV[2]) then return {rules, 0} end
  redis.call('HSET', KEYS[1], field, ARGV[8])
  rules = rules + 1
end
for i, what in ipairs({'allowed', 'refused', 'would'}) do
  if ARGV[8 + i] ~= '0' then
    redis.call('HINCRBY', KEYS[2], field .. ':' .. what, ARGV[8 + i])
  end
end

for i = 12, #ARGV, 4 do
  redis.call('ZADD', KEYS[4], 'GT', ARGV[i + 1], ARGV[i])
  if ARGV[i + 2] ~= '0' then redis.call('ZINCRBY', KEYS[5], ARGV[i + 2], ARGV[i]) end
  if ARGV[i + 3] ~= '0' then redis.call('ZINCRBY', KEYS[6], ARGV[i + 3], ARGV[i]) end
end

local room, member = tonumber(ARGV[5]), tonumber(ARGV[6])
-- Of a minute that is over, housekeeping has written more than a number here.
local own = tonumber(redis.call('HGET', KEYS[3], field) or '') or 0
local others = tonumber(redis.call('HGET', KEYS[3], 'sum') or '') or own
others = others - own
local share = math.min(room / rules, room - others)
local most = math.floor(share / (3 * member))
most = math.min(tonumber(ARGV[3]), math.max(tonumber(ARGV[4]), most))
local members = 0
for i = 4, 6 do
  local card = redis.call('ZCARD', KEYS[i])
  if card > most then
    redis.call('ZREMRANGEBYRANK', KEYS[i], 0, card - most - 1)
    card = most
  end
  members = members + card
end
redis.call('HSET', KEYS[3], field, members * member, 'sum', others + members * member)
for i = 1, 6 do redis.call('EXPIRE', KEYS[i], keep) end
return {rules, 1}
