-- look.lua - shows the locks in Redis, page by page, and changes nothing.
--
-- KEYS as lock.lua has them, with the last run (7), which says what is in them; `scan` and `jobs` have none.
-- ARGV: operation, then
--   scan     cursor -> {next cursor, NAME ...}: of locks that may be held, waited for or frozen
--   jobs     cursor, pattern -> {next cursor, now, {NAME, entry ...} ...}: what is remembered under the keys that fit it
--   lock     brief (1: waiters are counted), job (1: its last runs, too; 2: or an error) -> {now, many, waiting, {holder ...}, {entry ...}}:
--            its holders in the order of their grants, but none of them if they are `many` (1);
--            how many wait (not brief: or are dead); what else there is
--   last     -> {of when the last run ended, of when the last one that ended with 0 began, of when the
--            one that is shown ended}: their SHA-1
--   holders  cursor -> {next cursor, "token owner" ...}; the token in 16 digits, 0: not known
--   rows     owner ... -> {now, n, entry ...}: of the first n of them, if they hold
--   waiters  owner, ticket ('', '': from the first), as the page before gave them
--            -> {now, owner, ticket ('': that was all), entry ...}
--
-- An entry is one of
--   {'h', owner, kind, token, slot, since, until, revoked (0, 1), record, mark}   holder; mark: who has
--                                                                 revoked it
--   {'w', owner, kind, since, record}                             waiter
--   {'f', since, until, record}                                   freeze
--   {'r', ID, began, ended, status, token, record ('': none)}     last run
--   {'g', the same}                                             the last one that ended with 0, if that is another
--   {'d', the same}                                             the run by which an ID is done
--   {'s', the same}                                             the last run that is no job's
--   {'u', what}                                                   no lock
-- Times are us since 1970, -1: not known, or never.
--
-- Nothing here is to take long, whatever there is: a page ends early where rows are long.
-- Whose time is up is not shown.
local holders, info, queue, alive, freeze, last = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6], KEYS[7]
local FEW, PAGE, DEAD_MOST, SCANNED = 32, 64, 5000, 500
local NAME_MOST, RECORD_MOST, OWNER_MOST, ROWS_MOST = 1536, 16384, 32, 524288
local ID_MOST, TOKEN_MOST, WHO_MOST = RECORD_MOST, RECORD_MOST, RECORD_MOST -- of a run
local call = redis.call

local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local function text(n) return string.format('%.0f', n) end

-- The number that is written there, or -1.
local function number(digits)
  local n = tonumber(string.match(digits or '', '^%d+$') or '')
  return n and n < 2 ^ 53 and n or -1
end

local function short(record) return string.sub(record or '', 1, RECORD_MOST) end

local function may_be_owner(who) return #who <= OWNER_MOST and string.match(who, '^%w+$') end

-- So many bytes of rows have been read; is that enough for a page?  (Not of dlock's: they
-- have some two thousand at most.)
local bytes = 0
local function enough() return bytes > ROWS_MOST end

-- As in lock.lua; but a record may have a megabyte, and is not gone through.
local function row(who)
  local stored = call('HGET', info, who) or ''
  bytes = bytes + #stored
  local numbers, kind, token, slot, subscribed, granted, sum, at =
    string.match(stored, '^((%l%d*) %d+ (%d+) (%d+) (%d) (%d+)) (%x+) ()')
  if not numbers or sum ~= string.sub(redis.sha1hex(who .. ' ' .. numbers), 1, 8) then return nil end
  local mark = ''
  if subscribed == '2' then
    local length, behind = string.match(stored, '^(%d+) ()', at)
    local from = behind or at
    at = from + math.min(tonumber(length or '0'), #stored)
    mark = string.sub(stored, from, math.min(at, from + RECORD_MOST) - 1)
  end
  return {kind = kind, token = token, slot = number(slot), granted = number(granted), revoked = subscribed == '2' and 1 or 0,
          mark = mark, record = string.sub(stored, at, at + RECORD_MOST - 1)}
end

local function damaged(what) return {'u', what .. ' whose row is damaged or missing'} end

-- nil: it does not hold (any more).
local function holder(who)
  local ends = tonumber(call('ZSCORE', holders, who) or '0')
  if ends <= now then return nil end
  local r = may_be_owner(who) and row(who)
  if not r then return damaged('a holder') end
  return {'h', who, r.kind, r.token, r.slot, r.granted, math.min(ends * 1000, 2 ^ 53 - 1), r.revoked, r.record, r.mark}
end

-- nil: it is dead.
local function waiter(who, ticket)
  local ends = call('ZSCORE', alive, who)
  if ends and tonumber(ends) <= now then return nil end
  local r = may_be_owner(who) and row(who)
  return r and {'w', who, r.kind, number(ticket), r.record} or damaged('a waiter')
end

local function kind_of(key) return call('TYPE', key).ok end

-- ---- one lock ----

-- Which of its keys can be read; of the others it is told what they are.
local function readable(entries)
  local can = {}
  for key, wanted in pairs({[holders] = 'zset', [info] = 'hash', [queue] = 'zset', [alive] = 'zset', [freeze] = 'hash', [last] = 'hash'}) do
    local found = kind_of(key)
    can[key] = found == wanted or found == 'none'
    if not can[key] then entries[#entries + 1] = {'u', 'a ' .. found .. ' stands under ' .. key} end
  end
  return can
end

-- nil: that would be too many.
local function holders_of(entries)
  if call('ZCARD', holders) > FEW then return nil end
  local found, unknown = {}, {}
  for _, who in ipairs(call('ZRANGE', holders, 0, -1)) do
    if enough() then return nil end
    local h = holder(who)
    found[#found + 1] = h and h[1] == 'h' and h or nil
    unknown[#unknown + 1] = h and h[1] == 'u' and h or nil
  end
  for _, e in ipairs(unknown) do entries[#entries + 1] = e end
  table.sort(found, function(a, b) return tonumber(a[4]) < tonumber(b[4]) end)
  return found
end

local function count_waiters(brief)
  local n = call('ZCARD', queue)
  local dead = brief and n > 0 and call('ZRANGEBYSCORE', alive, '-inf', now, 'LIMIT', 0, DEAD_MOST) or {}
  for _, who in ipairs(dead) do
    if call('ZSCORE', queue, who) then n = n - 1 end
  end
  return n
end

local function frozen()
  local ends = call('HGET', freeze, 'until')
  local at = ends and (tonumber(ends) or math.huge)
  return at and at > us and {'f', number(call('HGET', freeze, 'since')), number(ends), short(call('HGET', freeze, 'record'))}
end

local function run(letter, key, before)
  local function field(name) return call('HGET', key, before .. name) end
  local function cut(name, most) return string.sub(field(name) or '', 1, most) end
  return {letter, cut('id', ID_MOST), number(field('began')), number(field('ended')),
          letter ~= 'g' and number(field('status')) or 0, cut('token', TOKEN_MOST),
          field('who') and cjson.encode({who = cut('who', WHO_MOST)}) or ''}
end

-- Of the last good run nothing but when it began may be known, since an older dlock has written it.
local function last_runs(entries, key)
  local status, began, good = call('HGET', key, 'status'), call('HGET', key, 'began'), call('HGET', key, 'good')
  if status then entries[#entries + 1] = run('r', key, '') end
  if good and not (status == '0' and good == began) then
    entries[#entries + 1] = good == call('HGET', key, 'good_began') and run('g', key, 'good_')
                            or {'g', '', number(good), -1, 0, '', ''}
  end
  if call('HGET', key, 'shown_status') then entries[#entries + 1] = run('s', key, 'shown_') end
end

local function sum(field) return redis.sha1hex(call('HGET', last, field) or '') end

local function read_lock(brief, job)
  local entries = {}
  local can = readable(entries)
  local found = {}
  if can[holders] and can[info] then found = holders_of(entries) end
  entries[#entries + 1] = can[freeze] and frozen() or nil
  if job == '2' or job == '1' and can[last] then last_runs(entries, last) end
  return {us, found and 0 or 1, can[info] and can[queue] and can[alive] and count_waiters(brief) or 0, found or {}, entries}
end

-- ---- pages of one lock ----

local function read_holders(cursor)
  local page = call('ZSCAN', holders, cursor, 'COUNT', PAGE)
  local found = {page[1]}
  for i = 1, #page[2], 2 do
    local who, ends = page[2][i], page[2][i + 1]
    if tonumber(ends) > now and may_be_owner(who) then
      local r = not enough() and row(who)
      found[#found + 1] = string.format('%016.0f ', math.max(r and number(r.token) or 0, 0)) .. who
    end
  end
  return found
end

local function read_rows(first)
  local found = {us, 0}
  for i = first, #ARGV do
    if enough() then break end
    found[2] = found[2] + 1
    found[#found + 1] = holder(ARGV[i])
  end
  return found
end

-- The next page begins behind the last one of this; if that has left, by its ticket.
local function read_waiters(behind, ticket)
  local rank = behind ~= '' and call('ZRANK', queue, behind)
  local from = rank and rank + 1 or ticket ~= '' and call('ZCOUNT', queue, '-inf', ticket) or 0
  local page = call('ZRANGE', queue, from, from + PAGE - 1, 'WITHSCORES')
  local found = {us, '', ''}
  for i = 1, #page, 2 do
    local who = page[i]
    if enough() then return found end
    if may_be_owner(who) then found[2] = who end
    found[3] = page[i + 1]
    found[#found + 1] = waiter(who, page[i + 1])
  end
  if #page < 2 * PAGE then found[3] = '' end
  return found
end

-- ---- all locks ----

-- Each lock is found by one of its keys: by the first of these that exists.
local function is_first(names, letter)
  for _, before in ipairs({'h', 'q', 'f'}) do
    if before == letter then return true end
    if kind_of(names .. before) ~= 'none' then return false end
  end
end

local function scan(cursor)
  local page = call('SCAN', cursor, 'MATCH', 'dlock:{*}*:[hqf]', 'COUNT', SCANNED)
  local found = {page[1]}
  for _, key in ipairs(page[2]) do
    local names, name, letter = string.match(key, '^(dlock:{([%w%%._~:@=-]+)}:)(%l)$')
    if not name then -- in a cluster, of a key with a {tag}: see dialects.c
      names, name, letter = string.match(key, '^(dlock:{[^}]+}:([%w%%._~:@=-]+):)(%l)$')
    end
    if name and #name <= NAME_MOST and is_first(names, letter) then found[#found + 1] = name end
  end
  return found
end

-- What is no run of ours, nobody is told of: no lock is missed.  A page has all of its keys, however long
-- what others have written there: so they are few, and what is told of each is cut.
local function jobs(cursor, pattern)
  local page = call('SCAN', cursor, 'MATCH', pattern, 'COUNT', PAGE)
  local found = {page[1], us}
  ID_MOST, TOKEN_MOST, WHO_MOST = 200, 20, 128
  for _, key in ipairs(page[2]) do
    local entries, done = {key}, {key}
    if #key <= NAME_MOST and kind_of(key) == 'hash' then
      if string.match(key, ':r$') then last_runs(entries, key) end
      local status = number(call('HGET', key, 'status'))
      if string.find(key, ':r:', 1, true) and status >= 0 and status <= 255 then done[2] = run('d', key, '') end
    end
    for _, e in ipairs({entries, done}) do -- of which one is no name of ours
      if e[2] then found[#found + 1] = e end
    end
  end
  return found
end

local operation = ARGV[1]
if operation == 'scan' then return scan(ARGV[2]) end
if operation == 'jobs' then return jobs(ARGV[2], ARGV[3]) end
if operation == 'lock' then return read_lock(ARGV[2] == '1', ARGV[3]) end
if operation == 'last' then return {sum('ended'), sum('good'), sum('shown_ended')} end
if operation == 'holders' then return read_holders(ARGV[2]) end
if operation == 'rows' then return read_rows(2) end
if operation == 'waiters' then return read_waiters(ARGV[2], ARGV[3]) end
return redis.error_reply('ERR dlock: no such operation')
