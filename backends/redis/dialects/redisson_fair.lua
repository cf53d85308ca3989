-- redisson_fair.lua - RFairLock of Redisson: the hash of RLock, and its waiters in a queue.
--
--   KEYS[3]  channel   behind which each waiter's own is called: KEYS[3] : WAITER, "0"
--   KEYS[4]  queue     list, first come, first served
--   KEYS[5]  timeouts  sorted set  waiter -> when it is put out of the queue once it is the
--                      first, ms: its predecessor's time and what it is given itself
--
-- Redisson never moves these times but at a grant, by which those behind the one granted
-- come as much earlier as that was given.  A dlock is given as long as it counts as alive,
-- and sets its own anew whenever it asks.  Who has no time would be in the way for ever.
--
-- That time may be far, since it counts the whole lease; so the row of a dlock that waits
-- has the token 0 and, for its slot, until when it counts as alive, ms: among dlocks, one
-- that is dead is out after that.
local channel, queue, timeouts = KEYS[3], KEYS[4], KEYS[5]
local GIVEN, PAGE = 9000, 64 -- as redis.c counts who waits
local d = {type = 'hash'}

local function leave(name)
  call('LREM', queue, 0, name)
  return call('ZREM', timeouts, name) == 1
end

local function is_alive(name)
  local ends, r = call('ZSCORE', timeouts, name), row(plain(name))
  return ends and tonumber(ends) > now and not (r and r.token == '0' and r.slot <= now)
end

-- The first in line, once whose time is up is out.
local function first()
  while true do
    local name = call('LINDEX', queue, 0)
    if not name or is_alive(name) then return name end
    leave(name)
    call('HDEL', side, plain(name))
  end
end

local function tell(name)
  if name then publish(channel .. ':' .. name, '0') end
end

-- Who stands behind `position` (from 0) comes earlier by what that one was given.
local function move_up(position)
  for _, name in ipairs(call('LRANGE', queue, position, -1)) do
    if call('ZSCORE', timeouts, name) then call('ZINCRBY', timeouts, -GIVEN, name) end
  end
end

-- Its place, from 1, or nil; the time of the one before it, or of the last.
local function place_of(name)
  local before
  for i, each in ipairs(call('LRANGE', queue, 0, -1)) do
    if each == name then return i, before end
    before = tonumber(call('ZSCORE', timeouts, each) or '') or before
  end
  return nil, before
end

-- Rows of who neither waits nor holds.
local function forget_others()
  for _, who in ipairs(call('HKEYS', side)) do
    if who ~= '#token' and not call('ZSCORE', timeouts, field(who)) then call('HDEL', side, who) end
  end
end

-- In the queue, by its old place or a new one, which is given.
local function enqueue(name, patience)
  local place, before = place_of(name)
  local ends = (before or now + math.max(call('PTTL', lock), 0)) + patience
  local stands = tonumber(place and call('ZSCORE', timeouts, name) or '') or 0
  local r = row(owner)
  call('ZADD', timeouts, text(math.max(ends, stands)), name)
  call('HSET', side, owner, string.format('0 %.0f %.0f %s', r and r.since or us, now + patience, ARGV[7]))
  keep_side(DAY)
  return place or call('RPUSH', queue, name)
end

local function refuse_at(place, head)
  local name = call('HKEYS', lock)[1]
  local left = name and call('PTTL', lock)
  if not name then
    name = head or ''
    left = head and tonumber(call('ZSCORE', timeouts, head)) - now or 0
  end
  local answer = refusal(plain(name), name, left)
  answer[2] = place
  return answer
end

function d.acquire(lease)
  local me, patience = field(owner), tonumber(ARGV[4])
  local head = first()
  if call('EXISTS', lock) == 1 or (head and head ~= me) then
    if patience > 0 then return refuse_at(enqueue(me, patience), head) end
    if leave(me) then call('HDEL', side, owner) end
    return refuse_at(call('LLEN', queue) + 1, head)
  end
  local token = next_token()
  call('HSET', lock, me, '1')
  call('PEXPIRE', lock, lease)
  if head then
    leave(me)
    move_up(0)
  end
  forget_others()
  return granted(lease, token, 0)
end

d.renew = renew_field

-- Also of the place in the queue of one that gives up.
function d.release(who)
  local name = field(who)
  local place = place_of(name)
  if leave(name) then
    call('HDEL', side, who)
    move_up(place and place - 1 or 0)
  end
  local held = call('HDEL', lock, name) == 1
  if (held or place == 1) and call('EXISTS', lock) == 0 then tell(first()) end
  return held
end

function d.holders()
  local waiting = 0
  for _, name in ipairs(call('LRANGE', queue, 0, -1)) do
    if is_alive(name) then waiting = waiting + 1 end
  end
  return fields_as_holders(), waiting
end

-- A page of who waits, as look.lua's; what it calls a ticket is where the next one begins.
-- Whose time is up is not told of: whoever asks next puts it out.
local function waiters(from)
  local names, found = call('LRANGE', queue, from, from + PAGE - 1), {us, '', ''}
  for _, name in ipairs(names) do
    local r = row(plain(name))
    found[#found + 1] = is_alive(name) and {'w', plain(name), 'x', r and r.since or -1, r and string.sub(r.record, 1, 16384) or ''} or nil
  end
  if #names == PAGE then found[3] = text(from + PAGE) end
  return found
end

if operation == 'waiters' then return waiters(tonumber(ARGV[3]) or 0) end
return answer_by(d)
