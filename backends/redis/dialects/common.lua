-- common.lua - what each script of another tool's dialect begins with.
--
-- The lock is kept as that tool keeps it.  Beside it stands one key of ours, which that
-- tool never looks at, and without which the lock is as safe; it is lost with the token:
--   KEYS[1]  the lock          as its users call it
--   KEYS[2]  side  hash        owner of ours that holds -> "token since slot record",
--                              since in us; '#token', the last one dealt
--
-- ARGV and answers are those of lock.lua, as far as a dialect has them: acquire (the place
-- in the queue is 0 where there is none), renew (with the token, for the case that the
-- side was lost), release, revoke with force; `lock` and `scan` those of look.lua, and an
-- entry more: {'o', owner, kind, until, what}, a holder that is no dlock.
--
-- Each dialect says: how its holds are written, in functions of these names:
--   acquire(lease, wanted)  grants to `owner`, who does not hold, or refuses
--   renew(lease)            true if `owner` holds: then it has extended its lease
--   release(who)            true if `who` held: then it has ended that, and woken others
--   holders()               entries
-- Every "no" is preceded by a write, so that a replica can say none.
local lock, side = KEYS[1], KEYS[2]
local operation, owner = ARGV[1], ARGV[2]
local sharded = ARGV[#ARGV] == 'sharded' -- behind all others, in a cluster
local DAY, YEAR, SCANNED, QUOTED, MANY = 86400000, 366 * 86400000, 500, 100, 32
local RECORD = 1023 -- no dlock writes a longer one
local call = redis.call

local time = call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

local function text(n) return string.format('%.0f', n) end

-- ---- the side ----

-- Changes nothing, but only where writing is allowed, even without memory.
local function must_write() call('HDEL', side, '') end

local function row(who)
  local token, since, slot, record = string.match(call('HGET', side, who) or '', '^(%d+) (%d+) (%d+) (.*)$')
  return token and {token = token, since = tonumber(since), slot = tonumber(slot), record = record}
end

local function next_token() return text(math.max((tonumber(call('HGET', side, '#token') or '') or 0) + 1, us)) end

-- It stays for a day longer than the lease, and than the last token is ahead of the clock.
local function keep_side(lease)
  local dealt = tonumber(call('HGET', side, '#token') or '') or 0
  call('PEXPIREAT', side, text(math.max(now + math.min(lease, YEAR), math.min(dealt / 1000, 2 ^ 43)) + DAY))
end

-- `alone`: nobody else holds, and what is written there of others is old.
local function granted(lease, token, slot, alone)
  if alone then call('DEL', side) end
  call('HSET', side, '#token', token, owner, string.format('%s %.0f %d %s', token, us, slot, ARGV[7]))
  keep_side(lease)
  return {1, token, slot}
end

-- ---- who is told ----

-- In a cluster of Redis 7, Redisson's clients listen where the slot is (SSUBSCRIBE), older
-- ones anywhere.
local function publish(to, message)
  redis.pcall('PUBLISH', to, message)
  if sharded then redis.pcall('SPUBLISH', to, message) end
end

-- ---- others ----

-- What another tool calls its holder, made fit to be read.
local function quoted(name) return (string.gsub(string.sub(name, 1, QUOTED), '[^%w%p ]', '?')) end

-- Of who holds; ms left (< 0: no end); how many they are.
local function refusal(who, name, left, kind, count)
  must_write()
  local r = row(who)
  local held = r and math.max(0, math.floor((us - r.since) / 1000)) or -1
  local record = r and string.sub(r.record, 1, RECORD) or
    cjson.encode({who = 'another client, ' .. quoted(name), why = left < 0 and 'it has no end (TTL)' or nil})
  return {0, 0, math.min(math.max(left, 0), YEAR), held, record, 0, kind or 'x', count or 1}
end

-- A holder, as a look tells of it; `ends` in ms, < 0: never.
local function entry(who, name, kind, ends, what)
  local r = row(who)
  local at = ends < 0 and -1 or math.min(ends * 1000, 2 ^ 53 - 1)
  if r then return {'h', who, kind, r.token, r.slot, r.since, at, 0, string.sub(r.record, 1, 16384)} end
  return {'o', name, kind, at, what .. ' ' .. quoted(name) .. (ends < 0 and ', without an end' or '')}
end

-- When a key ends, ms; -1: never.
local function ends_of(key)
  local left = call('PTTL', key)
  return left < 0 and -1 or now + left
end

-- Redisson's owners are a UUID, a colon and the number of a thread.
local function field(who)
  if not string.match(who, '^%x+$') or #who ~= 32 then return who end
  return string.gsub(who, '^(%x%x%x%x%x%x%x%x)(%x%x%x%x)(%x%x%x%x)(%x%x%x%x)(%x+)$', '%1-%2-%3-%4-%5') .. ':1'
end

-- Ours again, of a writer too; another's as it is.
local function plain(name)
  local a, b, c, e, f = string.match(string.gsub(name, ':write$', ''), '^(%x+)-(%x+)-(%x+)-(%x+)-(%x+):1$')
  return a and a .. b .. c .. e .. f or name
end

-- Of a hash whose fields are owners: RLock's.
local function renew_field(lease) return call('HEXISTS', lock, field(owner)) == 1 and call('PEXPIRE', lock, lease) end

local function fields_as_holders()
  local found = {}
  for i, name in ipairs(call('HKEYS', lock)) do
    if i > MANY then break end
    found[i] = entry(plain(name), name, 'x', ends_of(lock), "a lock of Redisson's, owner")
  end
  return found
end

-- ---- what every dialect does alike ----

-- Who holds already has missed an answer.
local function acquire_by(d)
  local lease = tonumber(ARGV[3])
  if not d.renew(lease) then return d.acquire(lease, ARGV[6]) end
  local r = row(owner)
  return r and {1, r.token, r.slot} or granted(lease, next_token(), 0)
end

local function renew_by(renew)
  local lease = tonumber(ARGV[3])
  if not renew(lease) then
    must_write()
    return {0}
  end
  keep_side(lease)
  local r = row(owner)
  return {1, r and r.token or ARGV[4], r and r.slot or 0}
end

-- Whose token it is, or the owner that was shown.
local function target(token)
  if owner ~= '' then
    local r = row(owner)
    return (not r or token == '0' or r.token == token) and owner
  end
  local rows = call('HGETALL', side)
  for i = 1, #rows, 2 do
    if string.match(rows[i + 1], '^%d+') == token and rows[i] ~= '#token' then return rows[i] end
  end
end

-- Ends the hold of `who`, its own or another hand's.
local function release_by(release, who)
  must_write()
  if not who or not release(who) then return {0} end
  call('HDEL', side, who)
  return {1}
end

local function look_by(holders, types)
  local found = call('TYPE', lock).ok
  if found ~= types and found ~= 'none' then return {us, 0, 0, {}, {{'u', 'a ' .. found .. ' stands under this key'}}} end
  local entries, waiting = holders(found ~= 'none')
  return {us, 0, waiting or 0, entries, {}}
end

-- Locks of which something stands at our side; ours, as long as they hold.
local function scan(cursor, prefix)
  local page = call('SCAN', cursor, 'MATCH', prefix .. '*', 'COUNT', SCANNED)
  local found = {page[1]}
  for _, key in ipairs(page[2]) do
    local rest = string.sub(key, #prefix + 1)
    found[#found + 1] = string.match(rest, '^{(.+)}$') or string.match(rest, '^:(.+)$')
  end
  return found
end

local function answer_by(d)
  if operation == 'renew' then return renew_by(d.renew) end
  if operation == 'acquire' then return acquire_by(d) end
  if operation == 'release' then return release_by(d.release, owner) end
  if operation == 'revoke' then return release_by(d.release, target(ARGV[3])) end
  if operation == 'lock' then return look_by(d.holders, d.type) end
  if operation == 'scan' then return scan(ARGV[2], ARGV[3]) end
  return redis.error_reply('ERR dlock: no such operation')
end

