-- lock.lua - one lock in Redis: every operation is this script.
--
-- KEYS, all with the same {tag}:
--   1  holders   sorted set  owner -> end of its lease, ms
--   2  info      hash        owner -> "weight lease token hears granted record",
--                            '#cap' capacity, '#token' and '#ticket' the last ones dealt
--   3  queue     sorted set  owner -> ticket, by which it is served
--   4  alive     sorted set  owner in the queue -> until when it counts as alive, ms
-- A waiter hears of its grant on the channel KEYS[5] .. its owner (a channel is no key).
--
-- ARGV: operation, owner, then
--   acquire  lease ms, ms to be alive in the queue (0: do not queue), hears (1: it
--            listens on its channel), weight, capacity, record
--            -> {1, token}
--            -> {0, place in the queue, ms until a lease ends, ms held, holder's record}
--            -> {-1, capacity in use}
--   renew    lease ms -> {1} or {0}: not the holder
--   release  -> {1} held until now, {2} was in the queue, {0} neither
--
-- Time is the server's alone.  Each operation first drops whose time is up, and
-- grants what can be granted to those who wait, in order.  A waiter so granted
-- has GRACE ms to ask again, by which it takes up the full lease.
local holders, info, queue, alive, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local operation, owner = ARGV[1], ARGV[2]
local GRACE, DAY = 3000, 86400000

local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local function text(n) return string.format('%.0f', n) end

local function row(who)
  local weight, lease, token, hears, granted, record =
    string.match(redis.call('HGET', info, who) or '', '^(%d+) (%d+) (%d+) (%d) (%d+) (.*)$')
  return weight and {weight = tonumber(weight), lease = tonumber(lease), token = token, hears = hears,
                     granted = tonumber(granted), record = record}
end

local function write(who, r)
  redis.call('HSET', info, who, table.concat(
    {text(r.weight), text(r.lease), r.token, r.hears, text(r.granted), r.record}, ' '))
end

local function leave_queue(who)
  redis.call('ZREM', queue, who)
  redis.call('ZREM', alive, who)
end

for _, who in ipairs(redis.call('ZRANGEBYSCORE', holders, '-inf', now)) do
  redis.call('ZREM', holders, who)
  redis.call('HDEL', info, who)
end
for _, who in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', now)) do
  leave_queue(who)
  redis.call('HDEL', info, who)
end

local capacity = tonumber(redis.call('HGET', info, '#cap') or '0')
local used = 0
for _, who in ipairs(redis.call('ZRANGE', holders, 0, -1)) do
  local r = row(who)
  used = used + (r and r.weight or capacity)
end

-- The next number of a kind: grows whatever clock and memory do, one of them at least.
local function number(kind)
  local n = math.max(tonumber(redis.call('HGET', info, kind) or '0') + 1, us)
  redis.call('HSET', info, kind, text(n))
  return text(n)
end

local function grant(who, r, lease)
  leave_queue(who)
  r.token, r.granted = number('#token'), us
  write(who, r)
  redis.call('ZADD', holders, text(now + lease), who)
  used = used + r.weight
end

-- How many processes hear a call to `who`.  Without the right to publish: none,
-- and waiters find out when they next ask.
local function call(who)
  local heard = redis.pcall('PUBLISH', channel .. who, '1')
  return type(heard) == 'number' and heard or 0
end

-- Grants to those who wait, in order, as long as they fit.  Passes over a waiter
-- that used to hear and now does not: its process is dead, or its connection
-- lost for the moment (then it keeps its place).  `asker` is on the line.
local function serve(asker)
  local place = 0
  while true do
    local who = redis.call('ZRANGE', queue, place, place)[1]
    local r = who and row(who)
    if not who then return end
    if not r then
      leave_queue(who)
    elseif used + r.weight > capacity then
      return
    elseif who == asker then
      grant(who, r, r.lease)
    elseif call(who) > 0 or r.hears == '0' then
      grant(who, r, math.min(r.lease, GRACE))
    else
      place = place + 1
    end
  end
end

-- Nothing stays for ever: keys end a minute after the last lease in them, the
-- numbers dealt a day after.
local function expire()
  local last = now
  for _, set in ipairs({holders, alive}) do
    local top = redis.call('ZREVRANGE', set, 0, 0, 'WITHSCORES')[2]
    last = math.max(last, tonumber(top or '0'))
  end
  for _, key in ipairs({holders, queue, alive}) do
    redis.call('PEXPIREAT', key, text(last + 60000))
  end
  redis.call('PEXPIREAT', info, text(last + DAY))
end

if operation == 'acquire' then
  local lease, patience, hears = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
  local weight, wanted, record = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
  if capacity ~= wanted then
    if redis.call('ZCARD', holders) > 0 or redis.call('ZCARD', queue) > 0 then
      return {-1, text(capacity)}
    end
    capacity = wanted
    redis.call('HSET', info, '#cap', text(capacity))
  end
  if redis.call('ZSCORE', holders, owner) then -- an answer got lost, or we were called
    redis.call('ZADD', holders, text(now + lease), owner)
  else
    local r = row(owner)
    if not r then
      r = {weight = weight, lease = lease, token = '0', granted = 0, record = record}
      redis.call('ZADD', queue, number('#ticket'), owner)
    end
    r.hears = hears
    write(owner, r)
    redis.call('ZADD', alive, text(now + patience), owner)
    serve(owner)
  end
  if redis.call('ZSCORE', holders, owner) then
    expire()
    return {1, row(owner).token}
  end
  local place = redis.call('ZRANK', queue, owner) + 1
  if patience == 0 then
    leave_queue(owner)
    redis.call('HDEL', info, owner)
  end
  expire()
  local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
  local r = first[1] and row(first[1])
  return {0, place, first[2] and tonumber(first[2]) - now or 0,
          r and math.floor((us - r.granted) / 1000) or -1, r and r.record or ''}
end

if operation == 'renew' then
  local ours = redis.call('ZSCORE', holders, owner)
  if ours then redis.call('ZADD', holders, text(now + tonumber(ARGV[3])), owner) end
  serve()
  expire()
  return {ours and 1 or 0}
end

if operation == 'release' then
  local result = redis.call('ZREM', holders, owner) == 1 and 1 or
    redis.call('ZREM', queue, owner) == 1 and 2 or 0
  local r = row(owner)
  redis.call('ZREM', alive, owner)
  redis.call('HDEL', info, owner)
  if result == 1 and r then used = used - r.weight end
  pcall(serve) -- without memory nobody can be granted, but released is released
  expire()
  return {result}
end
return redis.error_reply('ERR dlock: no such operation')
