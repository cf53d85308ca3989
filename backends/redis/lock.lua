-- lock.lua - one lock in Redis: every operation is this script.
--
-- KEYS, all with the same {tag}:
--   1  holders   sorted set  owner -> end of its lease, ms
--   2  info      hash        owner -> "weight lease token subscribed granted record",
--                            '#cap' capacity, '#token' and '#ticket' the last ones dealt
--   3  queue     sorted set  owner -> ticket, by which it is served
--   4  alive     sorted set  owner in the queue -> until when it counts as alive, ms
-- A waiter is told of its grant on the channel KEYS[5] .. its owner (a channel is no key).
--
-- ARGV: operation, owner, then
--   acquire  lease ms, ms to be alive in the queue (0: do not queue), subscribed (1: to
--            its channel), weight, capacity, record, the ticket it had (0: none)
--            -> {1, token}
--            -> {0, place in the queue, ms until a lease ends, ms held, holder's record, ticket}
--            -> {-1, capacity in use}
--   renew    lease ms -> {1} or {0}: not the holder
--   release  -> {1} held until now, {2} was in the queue, {0} neither
--
-- Time is the server's alone.  Whose time is up is dropped before anybody is
-- granted anything; grants go to those who wait, in order.  A waiter so granted
-- has GRACE ms to ask again, by which it takes up the full lease.  One that comes
-- too late, or finds that the server has forgotten it, is put back by its ticket.
-- Every answer is preceded by a write, so that a replica can give none.
local holders, info, queue, alive, channel = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local operation, owner = ARGV[1], ARGV[2]
local GRACE, UNSUBSCRIBED_GRACE, MINUTE, DAY, YEAR = 3000, 1000, 60000, 86400000, 366 * 86400000
local call = redis.call

local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local function text(n) return string.format('%.0f', n) end

local function row(who)
  local weight, lease, token, subscribed, granted, record =
    string.match(call('HGET', info, who) or '', '^(%d+) (%d+) (%d+) (%d) (%d+) (.*)$')
  return weight and {weight = tonumber(weight), lease = tonumber(lease), token = token, subscribed = subscribed,
                     granted = tonumber(granted), record = record}
end

local function write(who, r)
  call('HSET', info, who, text(r.weight) .. ' ' .. text(r.lease) .. ' ' .. r.token .. ' ' .. r.subscribed .. ' ' ..
       text(r.granted) .. ' ' .. r.record)
end

-- Does `who` hold, by a lease that has not run out?  (Without its row it is nobody.)
local function holds(who)
  local ends = call('ZSCORE', holders, who)
  return ends and tonumber(ends) > now and call('HEXISTS', info, who) == 1
end

-- Nothing stays for ever: the keys end a minute after the last lease in them
-- (longer than any waiter counts as alive; a lease beyond a year is not ours), the
-- numbers dealt a day after.
local function limit()
  local top = call('ZREVRANGE', holders, 0, 0, 'WITHSCORES')[2]
  local last = math.min(math.max(tonumber(top or '0'), now), now + YEAR) + MINUTE
  for _, key in ipairs({holders, queue, alive}) do call('PEXPIREAT', key, text(last)) end
  call('PEXPIREAT', info, text(last + DAY))
end

-- Changes nothing, but only where writing is allowed, even without memory.
local function must_write() call('ZREM', holders, '') end

local function lease_to(who, ms)
  call('ZADD', holders, text(now + ms), who)
  limit()
end

-- The same for who holds already.  A server without memory refuses a script whose
-- first write may need some; this one does not, and what follows needs none.
local function extend(who, ms)
  call('PEXPIREAT', holders, text(now + ms + MINUTE))
  lease_to(who, ms)
end

-- The next number of a kind: grows whatever clock and memory do, one of them at least.
local function number(kind)
  local n = text(math.max(tonumber(call('HGET', info, kind) or '0') + 1, us))
  call('HSET', info, kind, n)
  return n
end

local function leave_queue(who)
  call('ZREM', queue, who)
  call('ZREM', alive, who)
end

local capacity, used, woken

-- Drops whose time is up; learns how much of the lock is taken.
local function look()
  for _, who in ipairs(call('ZRANGEBYSCORE', holders, '-inf', now)) do
    call('ZREM', holders, who)
    call('HDEL', info, who)
  end
  for _, who in ipairs(call('ZRANGEBYSCORE', alive, '-inf', now)) do
    leave_queue(who)
    call('HDEL', info, who)
  end
  capacity = tonumber(call('HGET', info, '#cap') or '0')
  used = 0
  for _, who in ipairs(call('ZRANGE', holders, 0, -1)) do
    local r = row(who)
    used = used + (r and r.weight or math.huge) -- whoever that is: nobody else may
  end
end

local function grant(who, r)
  leave_queue(who)
  r.token, r.granted = number('#token'), us
  write(who, r)
  used = used + r.weight
end

-- Wakes `who`; how many processes were subscribed.  Without the right to publish:
-- none, and waiters find out when they next ask.
local function publish_to(who)
  local subscribers = redis.pcall('PUBLISH', channel .. who, '1')
  return type(subscribers) == 'number' and subscribers or 0
end

-- Grants to those who wait, in order, as long as they fit; `asker` is on the
-- line.  A waiter that was subscribed and now is not is dead, or has lost its
-- connection for the moment; it keeps its turn, but a short one, and the next
-- in line is woken to see when that is over.  The token if `asker` was granted.
local function serve(asker)
  local token
  while true do
    local who = call('ZRANGE', queue, 0, 0)[1]
    local r = who and row(who)
    if not who then return token end
    if not r then
      leave_queue(who)
    elseif used + r.weight > capacity then
      return token
    elseif who == asker then
      grant(who, r)
      lease_to(who, r.lease)
      token = r.token
    else
      local unsubscribed = publish_to(who) == 0 and r.subscribed == '1'
      grant(who, r)
      call('ZADD', holders, text(now + (unsubscribed and UNSUBSCRIBED_GRACE or GRACE)), who)
      woken = true
      if unsubscribed then publish_to(call('ZRANGE', queue, 0, 0)[1] or '') end
    end
  end
end

local function acquire(lease, patience, subscribed, weight, wanted, record, ticket)
  if holds(owner) then -- an answer got lost, or we were woken
    extend(owner, lease)
    return {1, row(owner).token}
  end
  look()
  local waiting = call('ZCARD', queue)
  if capacity ~= wanted then
    if used > 0 or waiting > 0 then
      must_write()
      return {-1, text(capacity)}
    end
    capacity = wanted
    call('HSET', info, '#cap', text(capacity))
  end
  local new = not call('ZSCORE', queue, owner)
  local r = row(owner)
  if new or not r then
    r = {weight = weight, lease = lease, token = '0', granted = 0, record = record, subscribed = subscribed}
    if waiting == 0 and used + weight <= capacity then
      grant(owner, r)
      lease_to(owner, lease)
      return {1, r.token}
    end
  end
  if new then call('ZADD', queue, ticket > 0 and text(math.min(ticket, us)) or number('#ticket'), owner) end
  r.subscribed = subscribed
  write(owner, r)
  call('ZADD', alive, text(now + patience), owner)
  if new then limit() end
  local token = serve(owner)
  if token then return {1, token} end

  local place, dealt = call('ZRANK', queue, owner) + 1, call('ZSCORE', queue, owner)
  if patience == 0 then
    leave_queue(owner)
    call('HDEL', info, owner)
  end
  local first = call('ZRANGE', holders, 0, 0, 'WITHSCORES')
  local h = first[1] and row(first[1])
  return {0, place, first[2] and math.min(math.max(0, tonumber(first[2]) - now), YEAR) or 0,
          h and math.max(-1, math.floor((us - h.granted) / 1000)) or -1, h and h.record or '', tonumber(dealt)}
end

local function renew(lease)
  if not holds(owner) then
    must_write()
    return {0}
  end
  extend(owner, lease)
  return {1}
end

local function release()
  local result = holds(owner) and 1 or call('ZREM', queue, owner) == 1 and 2 or 0
  call('ZREM', holders, owner)
  call('ZREM', alive, owner)
  call('HDEL', info, owner)
  look()
  pcall(serve) -- without memory nobody can be granted, but released is released
  if woken then limit() end
  return {result}
end

if operation == 'acquire' then
  return acquire(tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8],
                 tonumber(ARGV[9]))
elseif operation == 'renew' then
  return renew(tonumber(ARGV[3]))
elseif operation == 'release' then
  return release()
end
return redis.error_reply('ERR dlock: no such operation')
