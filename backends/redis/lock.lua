-- lock.lua - one lock in Redis: every operation is this script.
--
-- KEYS, all with the same {tag}:
--   1  holders   sorted set  owner -> end of its lease, ms
--   2  info      hash        owner -> its row, "kind lease token slot subscribed granted sum record",
--                            of one that was revoked "... 2 granted sum LENGTH MARKrecord";
--                            '#token' and '#ticket' the last ones dealt, '#shown' see there
--   3  queue     sorted set  owner -> ticket, by which it is served
--   4  alive     sorted set  owner in the queue -> until when it counts as alive, ms; one
--                            whose lock was taken away -> until when it is told who did it
--   6  freeze    hash        while nobody is to be granted it: 'since', 'until', us ('': it
--                            has no end), 'record' of who did it
--   7  last      hash        of a job: its last run; 'good', when the last one that ended
--                            with 0 began, us; if 'good_began' is that, the rest of it in 'good_...';
--                            in 'shown_...' the last run that is no job's, and only shown
--   8  done      hash        of a job with an ID: the run of that ID which ended with 0; or, where its
--                            status is another, one that has ended and counts for those alike (--no-retry)
-- A waiter is told of its grant on the channel KEYS[5] .. its owner (a channel is no key), a
-- holder of its break; what the message says does not matter: it asks.
--
-- A kind is "x", alone; "s", beside others of its kind; or "lN", the same for up to N.
-- All who hold are of one kind.  Of "s" and all "lN" one at most is in use, among
-- holders and waiters; "x" waits beside either.
--
-- ARGV: operation, owner, then
--   acquire  lease ms, ms to be alive in the queue (0: do not queue), subscribed (1: to
--            its channel), kind, record, the ticket it had (0: none), of a job: cooldown ms,
--            and whether any end of its ID counts (1)
--            -> {1, token, slot}
--            -> {0, place in the queue, ms until a lease ends, ms held, holder's record,
--                ticket, kind of those who hold, how many they are}; while it is frozen a 1
--                more, the ms are until that ends, and once nobody holds ms and record its own
--            -> {-1, kind in use}
--            -> {4, ms since 1970 when it began, who ran it, its status}: this ID is done
--            -> {5, ms since it began}: one that ended with 0 is younger than the cooldown
--   renew    lease ms -> {1, token, slot}, {6, token, slot, mark} if it was revoked,
--            {0} if it is not the holder, {0, mark} if it was taken away
--   release  of a run that is remembered: its status, ID ('': none), what it counts for: '0' as a job's,
--            if its status is 0; '1' as that of an ID, whatever it is; 'shown' nothing
--            -> {1} held until now, {2} was in the queue, {0} neither, {0, mark} the same,
--               since it was taken away, {3} held until now, but the run could not be written down
--   revoke   (owner '': whose token it is) token ('0': any), mark, force ('1': take it away)
--            -> {1}, or {0}: it does not hold it
--   freeze   record, ms ('0': without an end) -> {1}
--   thaw     -> {1}, or {0}: it was not frozen
--   clock    -> {us since 1970}, the master's
--   forget   ID, or '' and what look.lua's `last` has told: the last run, the last one that ended
--            with 0 and the one that is shown, unless others have ended since; -> {1}, or {0}: nothing was remembered of it
--
-- Time is the server's alone.  Whose time is up is dropped before anybody is
-- granted anything; grants go to those who wait, in order.  A waiter so granted
-- has GRACE ms to ask again, by which it takes up the full lease.  One that comes
-- too late, or finds that the server has forgotten it, is put back by its ticket.
-- Every answer is preceded by a write, so that a replica can give none.
local holders, info, queue, alive, channel, freeze = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local last, done = KEYS[7], KEYS[8]
local operation, owner = ARGV[1], ARGV[2]
local GRACE, UNSUBSCRIBED_GRACE, MINUTE, DAY = 3000, 1000, 60000, 86400000
local YEAR, REMEMBERED = 366 * DAY, 401 * DAY
local LATEST = 2 ^ 53 / 1000 -- no number is dealt later, in ms since 1970
local RECORD = 1023 -- no dlock writes a longer one: another hand's may be endless
local call = redis.call

local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local function text(n) return string.format('%.0f', n) end

-- A row that another hand has altered is none: its sum tells.
local function sum_of(who, row) return string.sub(redis.sha1hex(who .. ' ' .. row), 1, 8) end

local function row(who)
  local numbers, kind, lease, token, slot, subscribed, granted, sum, record =
    string.match(call('HGET', info, who) or '', '^((%l%d*) (%d+) (%d+) (%d+) (%d) (%d+)) (%x+) (.*)$')
  if not numbers or sum ~= sum_of(who, numbers) then return nil end
  local mark
  if subscribed == '2' then
    local length, rest = string.match(record, '^(%d+) (.*)$')
    length, rest, subscribed = tonumber(length or '0'), rest or record, '0'
    mark, record = string.sub(rest, 1, length), string.sub(rest, length + 1)
  end
  return {kind = kind, lease = tonumber(lease), token = token, slot = tonumber(slot), subscribed = subscribed,
          granted = tonumber(granted), mark = mark, record = record}
end

local function row_text(who, r)
  local numbers = string.format('%s %.0f %s %.0f %s %.0f', r.kind, r.lease, r.token, r.slot, r.mark and '2' or r.subscribed,
                                r.granted)
  return numbers .. ' ' .. sum_of(who, numbers) .. ' ' .. (r.mark and #r.mark .. ' ' .. r.mark or '') .. r.record
end

-- The row of `who` if it holds, by a lease that has not run out.  (Without its row it is nobody.)
local function holds(who)
  local ends = call('ZSCORE', holders, who)
  return ends and tonumber(ends) > now and row(who)
end

-- Nothing stays for ever: the keys end a minute after the last lease in them
-- (longer than any waiter counts as alive; a lease beyond a year is not ours), the
-- numbers dealt a day after, what is remembered of a run REMEMBERED ms after its end.
-- After the clock was set back, a day after it has come to where they were dealt.
local function let_expire()
  local top = call('ZREVRANGE', holders, '0', '0', 'WITHSCORES')[2]
  local ends = math.min(math.max(tonumber(top or '0'), now), now + YEAR) + MINUTE
  local at = text(ends)
  for _, key in ipairs({holders, queue, alive}) do call('PEXPIREAT', key, at) end
  local dealt = tonumber(call('HGET', info, '#token') or '') or 0
  call('PEXPIREAT', info, text(math.max(ends, math.min(dealt / 1000, LATEST)) + DAY))
end

-- Changes nothing, but only where writing is allowed, even without memory.
local function must_write() call('ZREM', holders, '') end

local function lease_to(who, ms)
  call('ZADD', holders, text(now + ms), who)
  let_expire()
end

-- The same for who holds already.  A server without memory refuses a script whose
-- first write may need some; this one does not, and what follows needs none.
local function extend(who, ms)
  call('PEXPIREAT', holders, text(now + ms + MINUTE))
  lease_to(who, ms)
end

local function held(r) return {1, r.token, r.slot} end

-- From whom it was taken away, or nil.  (Whose lease has run out still stands among the holders.)
local function taken(who)
  local r = not call('ZSCORE', holders, who) and row(who)
  return r and r.mark or nil
end

-- ---- renew: the most frequent by far, it needs no more than that ----

if operation == 'renew' then
  local r = holds(owner)
  if not r then
    must_write()
    return {0, taken(owner)}
  end
  extend(owner, tonumber(ARGV[3]))
  return r.mark and {6, r.token, r.slot, r.mark} or held(r)
end

-- ---- acquire, by who has been granted it, or where nobody else is: it needs no more than that ----

-- The number after the last one dealt: grows whatever clock and memory do, one of them at least.
local function after(dealt) return text(math.max(tonumber(call('HGET', info, dealt) or '0') + 1, us)) end

local function leave_queue(who)
  call('ZREM', queue, who)
  call('ZREM', alive, who)
end

-- How many hold; as what, and with which slots, once that is asked; has a waiter been woken?
local count, kind, slots, woken

-- Drops whose time is up; counts who still holds.
local function look()
  local first = call('ZRANGE', holders, '0', '0', 'WITHSCORES')
  while first[1] and tonumber(first[2]) <= now do
    call('ZREM', holders, first[1])
    call('HDEL', info, first[1])
    first = call('ZRANGE', holders, '0', '0', 'WITHSCORES')
  end
  for _, who in ipairs(call('ZRANGEBYSCORE', alive, '-inf', now)) do
    leave_queue(who)
    call('HDEL', info, who)
  end
  count = first[1] and call('ZCARD', holders) or 0
end

-- When the freeze ends, us (math.huge: never); false: it is not frozen.
local freeze_ends
local function frozen()
  if freeze_ends == nil then
    local ends = call('HGET', freeze, 'until')
    ends = ends and (tonumber(ends) or math.huge)
    freeze_ends = ends and ends > us and ends
  end
  return freeze_ends
end

local function grant(who, r)
  r.token, r.granted = after('#token'), us
  call('HSET', info, '#token', r.token, who, row_text(who, r))
  count, kind = count + 1, r.kind
end

-- What the owner is given at once; nil: there is more to be looked at.
local function take()
  local lease = tonumber(ARGV[3])
  local r = holds(owner)
  if r then -- an answer got lost, or we were woken
    extend(owner, lease)
    return held(r)
  end
  look()
  if count > 0 or call('ZCARD', queue) > 0 or frozen() then return nil end
  r = {kind = ARGV[6], lease = lease, slot = 0, subscribed = ARGV[5], record = ARGV[7]}
  grant(owner, r)
  lease_to(owner, lease)
  return held(r)
end

if operation == 'acquire' and not last then
  local answer = take()
  if answer then return answer end
end

-- ---- release, and whom it grants the lock ----

-- What those are who hold.  One whose row is not known may be anything: nobody else may.
local function held_kind()
  if not kind then
    local r = row(call('ZRANGE', holders, '0', '0')[1])
    kind = r and r.kind or 'x'
  end
  return kind
end

-- How many of a kind fit; nil: any number.
local function room(of) return tonumber(string.sub(of, 2)) end

-- The lowest slot that nobody has; nil where somebody's is not known.
local function free_slot()
  if not slots then
    local taken = {}
    for _, who in ipairs(call('ZRANGE', holders, '0', '-1')) do
      local r = row(who)
      if not r then return nil end
      taken[r.slot] = true
    end
    slots = {taken = taken, lowest = 0}
  end
  while slots.taken[slots.lowest] do slots.lowest = slots.lowest + 1 end
  return slots.lowest
end

local function take_slot(kind)
  if not room(kind) then return 0 end
  local slot = free_slot()
  slots.taken[slot] = true
  return slot
end

local function fits(r)
  if frozen() then return false end
  if count == 0 then return true end
  if r.kind == 'x' or r.kind ~= held_kind() then return false end
  return not room(kind) or count < room(kind) and free_slot() ~= nil
end

-- Wakes `who`; how many processes were subscribed.  Without the right to publish:
-- none, and they find out when they next ask.
local function publish_to(who)
  local subscribers = redis.pcall('PUBLISH', channel .. who, '1')
  return type(subscribers) == 'number' and subscribers or 0
end

-- The first in line will ask.
local function tell_first()
  local who = call('ZRANGE', queue, '0', '0')[1]
  if who then publish_to(who) end
end

-- Grants to those who wait, in order, as long as they fit; `asker` is on the
-- line.  A waiter that was subscribed and now is not is dead, or has lost its
-- connection for the moment; it keeps its turn, but a short one, and who waits
-- behind it is woken to see when that is over.  The row of `asker` if it was granted.
local function serve(asker)
  local granted, unsubscribed
  while true do
    local who = call('ZRANGE', queue, '0', '0')[1]
    local r = who and row(who)
    if not who or r and not fits(r) then
      if who and unsubscribed then publish_to(who) end
      return granted
    end
    leave_queue(who)
    if who == asker then
      r.slot = take_slot(r.kind)
      grant(who, r)
      lease_to(who, r.lease)
      granted = r
    elseif r then
      local deaf = publish_to(who) == 0 and r.subscribed == '1'
      r.slot = take_slot(r.kind)
      grant(who, r)
      call('ZADD', holders, text(now + (deaf and UNSUBSCRIBED_GRACE or GRACE)), who)
      woken, unsubscribed = true, unsubscribed or deaf
    end
    if kind == 'x' and not unsubscribed then return granted end -- nobody fits beside it
  end
end

-- Grants what can be granted after something has ended.  Without memory nothing can, but
-- what has ended has.  The first in line finds out when a freeze ends; it may be new there.
local function move_on()
  look()
  pcall(serve)
  if woken then let_expire() end
  if freeze_ends and freeze_ends < math.huge then tell_first() end -- not asked: nobody waits
end

-- `ended` writes the run down that has ended, if it is to be remembered.
local function release(ended)
  local r = holds(owner)
  local mark = not r and taken(owner) or nil
  local result = r and 1 or call('ZREM', queue, owner) == 1 and 2 or 0
  call('ZREM', holders, owner)
  call('ZREM', alive, owner)
  call('HDEL', info, owner)
  if r and ended and not pcall(ended, r) then result = 3 end
  move_on()
  return {result, mark}
end

if operation == 'release' and not ARGV[3] then return release() end

-- ---- jobs ----

local function name_in(record)
  local good, r = pcall(cjson.decode, record)
  local who = good and type(r) == 'table' and type(r.who) == 'string' and r.who or ''
  return (string.gsub(who, '%c', '?'))
end

local function write_down(key, r, status, id, before)
  before = before or ''
  call('HSET', key, before .. 'id', id, before .. 'began', text(r.granted), before .. 'ended', text(us),
       before .. 'status', status, before .. 'token', r.token, before .. 'who', name_in(r.record))
  call('PEXPIREAT', key, text(now + REMEMBERED))
end

-- A run ends: whatever its status it is the last one; only 0 counts, or all (`final`), unless 0 is there.
local function remember(r, status, id, counts)
  if counts == 'shown' then return write_down(last, r, status, '', 'shown_') end
  write_down(last, r, status, id)
  if status ~= '0' then
    if done and counts == '1' and call('HGET', done, 'status') ~= '0' then write_down(done, r, status, id) end
    return
  end
  local before = tonumber(call('HGET', last, 'good') or '') or 0 -- of a run beside ours, perhaps
  if before > r.granted and before <= us then
    call('HSET', last, 'good', text(before))
  else
    call('HSET', last, 'good', text(r.granted), 'good_began', text(r.granted), 'good_id', id, 'good_ended', text(us),
         'good_token', r.token, 'good_who', name_in(r.record))
  end
  if done then write_down(done, r, status, id) end
end

-- The answer if the job has been done.  (A run dated further ahead than the cooldown is long proves nothing.)
local function done_before(cooldown, any)
  local status = done and string.match(call('HGET', done, 'status') or '', '^%d%d?%d?$')
  if status == '0' or status and any then
    local began = tonumber(call('HGET', done, 'began') or '')
    local known = began and began >= 0 and began / 1000 < LATEST
    return {4, known and math.floor(began / 1000) or -1, string.sub(call('HGET', done, 'who') or '', 1, RECORD), tonumber(status)}
  end
  local began = cooldown > 0 and tonumber(call('HGET', last, 'good') or '')
  local age = began and (us - began) / 1000
  return age and math.abs(age) < cooldown and {5, math.max(0, age)}
end

if operation == 'release' then return release(function(r) remember(r, ARGV[3], ARGV[4], ARGV[5]) end) end

-- ---- acquire, where others hold or wait ----

-- By the ticket it had, or by a new one.
local function enqueue(ticket)
  ticket = ticket > 0 and text(math.min(ticket, us))
  if not ticket then
    ticket = after('#ticket')
    call('HSET', info, '#ticket', ticket)
  end
  call('ZADD', queue, ticket, owner)
end

-- The kind in use, of a holder or waiter, beside which `wanted` may not even wait.
local function other_kind(wanted)
  if wanted == 'x' then return nil end
  local used = count > 0 and held_kind() or 'x'
  local waiters = used == 'x' and call('ZREVRANGE', queue, 0, -1) or {}
  for _, who in ipairs(waiters) do
    local r = row(who)
    used = r and r.kind or 'x'
    if used ~= 'x' then break end
  end
  return used ~= 'x' and used ~= wanted and used or nil
end

-- The holder that others are shown: of several the same one for as long as it holds.
local function shown(first)
  if count == 1 then return first end
  local before = call('HGET', info, '#shown')
  if before and call('ZSCORE', holders, before) then return before end
  call('HSET', info, '#shown', first)
  return first
end

-- What who has to wait is told.
local function refusal(place, ticket)
  local first, f = call('ZRANGE', holders, '0', '0', 'WITHSCORES'), frozen()
  local h, ends = first[1] and row(shown(first[1])), tonumber(first[2] or now)
  if f and not first[1] then
    h = {kind = 'x', record = call('HGET', freeze, 'record') or '',
         granted = tonumber(string.match(call('HGET', freeze, 'since') or '', '^%d+$') or '')}
  end
  if f and f < math.huge then ends = math.ceil(f / 1000) end
  return {0, place, math.min(math.max(0, ends - now), YEAR),
          h and h.granted and math.max(-1, math.floor((us - h.granted) / 1000)) or -1,
          string.sub(h and h.record or '', 1, RECORD), ticket,
          h and h.kind or 'x', count, f and 1 or nil}
end

local function acquire(lease, patience, subscribed, wanted, record, ticket, cooldown, any)
  local answer = cooldown and done_before(cooldown, any)
  if answer then
    release() -- our place, or the grant that woke us: it is for the next
    return answer
  end
  answer = last and take()
  if answer then return answer end
  local new = not call('ZSCORE', queue, owner)
  local other = new and other_kind(wanted)
  if other then
    must_write()
    return {-1, other}
  end
  local known = not new and row(owner)
  local r = known
  if not known then
    r = {kind = wanted, lease = lease, token = '0', slot = 0, granted = 0, record = record, subscribed = subscribed}
    if call('ZCARD', queue) == 0 and fits(r) then
      r.slot = take_slot(wanted)
      grant(owner, r)
      lease_to(owner, lease)
      return held(r)
    end
  end
  if not known or r.subscribed ~= subscribed then
    r.subscribed = subscribed
    call('HSET', info, owner, row_text(owner, r))
  end
  if new then enqueue(ticket) end
  call('ZADD', alive, text(now + patience), owner)
  if new or count == 0 then let_expire() end -- without a holder nobody else does
  local granted = serve(owner)
  if woken then let_expire() end
  if granted then return held(granted) end

  local place, dealt = call('ZRANK', queue, owner) + 1, call('ZSCORE', queue, owner)
  if patience == 0 then
    leave_queue(owner)
    call('HDEL', info, owner)
  end
  return refusal(place, tonumber(dealt))
end

if operation == 'acquire' then
  return acquire(tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8]),
                 last and tonumber(ARGV[9]), ARGV[10] == '1')
end

-- ---- steering ----

-- Whose grant has this token ('0': any); of `owner`, unless that is ''.
local function holder_of(token)
  for _, who in ipairs(owner ~= '' and {owner} or token ~= '0' and call('ZRANGE', holders, '0', '-1') or {}) do
    local r = holds(who)
    if r and (token == '0' or r.token == token) then return who, r end
  end
end

-- The mark stands in the row, and goes with it.  From whom the lock is taken away, the
-- row stays for a minute, as if it waited: its next renewal is told.
local function revoke(token, mark, force)
  must_write()
  local who, r = holder_of(token)
  if not who then return {0} end
  r.mark = mark
  if force then call('ZREM', holders, who) end
  call('HSET', info, who, row_text(who, r))
  if force then
    call('ZADD', alive, text(now + math.min(r.lease, MINUTE)), who)
    move_on()
    let_expire()
  end
  publish_to(who)
  return {1}
end

local function end_freeze() call('HDEL', freeze, 'since', 'until', 'record') end

-- Without their fields keys are gone.  A dlock that knows no 'good_began' may have written 'good'.
local function forget_run(key, before)
  before = before or ''
  return call('HDEL', key, before .. 'id', before .. 'began', before .. 'ended', before .. 'status', before .. 'token', before .. 'who')
end

local function forget_good()
  return call('HDEL', last, 'good', 'good_began', 'good_id', 'good_ended', 'good_token', 'good_who')
end

local function is_still(field, sum) return redis.sha1hex(call('HGET', last, field) or '') == sum end

-- An older dlock may have written 'good' without the rest: then the run of the ID that began at that time is it.
local function is_good(id, good)
  return call('HGET', last, 'good_began') == good and call('HGET', last, 'good_id') == id
         or good and call('HGET', done, 'began') == good
end

-- Without an ID: a run that has ended since the look may have an ID that was not forgotten, and so stays.
local function forget(id, sum_of_ended, sum_of_good, sum_of_shown)
  must_write()
  local good, began = call('HGET', last, 'good'), call('HGET', last, 'began')
  local is_last, is_last_good
  if id == '' then
    is_last, is_last_good = is_still('ended', sum_of_ended), is_still('good', sum_of_good)
  else
    is_last = call('HGET', last, 'id') == id
    is_last_good = is_good(id, good) or is_last and good == began
  end
  local found = id ~= '' and forget_run(done) or 0
  if is_last_good then found = found + forget_good() end
  if is_last then found = found + forget_run(last) end
  if id == '' and is_still('shown_ended', sum_of_shown) then found = found + forget_run(last, 'shown_') end
  return {math.min(found, 1)}
end

-- Where something else stands in a key of ours, nobody can take the lock, frozen or not: an error says so.
local function check_lock()
  for _, key in ipairs({holders, queue, alive}) do call('ZCARD', key) end
  call('HGET', info, '')
end

local function begin_freeze(record, ms)
  check_lock()
  end_freeze() -- with its expiry
  local ends = ms > 0 and math.min(us + ms * 1000, 2 ^ 53 - 1)
  call('HSET', freeze, 'since', text(us), 'until', ends and text(ends) or '', 'record', record)
  if ends then
    call('PEXPIREAT', freeze, text(math.ceil(ends / 1000)))
    tell_first()
  end
  return {1}
end

local function thaw()
  local was = frozen()
  end_freeze()
  if not was then return {0} end
  freeze_ends = false
  pcall(move_on) -- where something else stands in a key of ours, nobody can be granted it
  return {1}
end

if operation == 'revoke' then
  return revoke(ARGV[3], ARGV[4], ARGV[5] == '1')
elseif operation == 'freeze' then
  return begin_freeze(ARGV[3], tonumber(ARGV[4]))
elseif operation == 'thaw' then
  return thaw()
elseif operation == 'clock' then
  must_write()
  return {us}
elseif operation == 'forget' then
  return forget(ARGV[3], ARGV[4], ARGV[5], ARGV[6])
end
return redis.error_reply('ERR dlock: no such operation')
