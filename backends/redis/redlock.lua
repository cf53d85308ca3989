-- redlock.lua - one lock on one of several independent masters: every operation is this script.
--
-- KEYS:
--   1  lock   string  its owner, until its lease ends; as other clients of Redlock have it
--   2  data   hash    'token', the highest that was ever heard of;
--                     of our own holder: 'owner', 'granted' (its token), 'since' (us), 'record';
--                     'marked' (an owner), 'mark' (who wants the lock back from it, or took it)
--   3  wake   list    has an element for a moment when somebody has released the lock
--   4  run    hash    of all locks: 'run', the ID of the process that somebody has met here; 'sure' (1: its votes count);
--                     'at ' and the name of a clock: when that clock's host met it, ms; 'hosts', the number of these
--
-- ARGV: operation, owner, then
--   acquire  lease ms, record, name of the caller's clock, its time ms, how long is enough ms
--            -> {1, token, known ms, run ID}: the vote is given
--            -> {0, token, known ms, run ID, left ms (-1: for ever), held ms (-1: not known), owner, record}
--            known: by that clock this process has been running for so long, at least; -1: its host has not met it
--   meet     (owner: the run ID that was told) name of a clock, its time ms after that, sure -> {1}: its votes count; {0}
--   extend   lease ms, record, token, heal (1: give the vote if nobody has it)
--            -> {1, mark}: it has the vote; {2, ''}: it has been given it
--            -> {3, mark}: nobody has it; {0, mark}: another has
--            whatever it is, the token is remembered
--   release  wake (1: tell one who waits) -> {1}: it had the vote; {0, mark}
--   revoke   token ('0': any), mark, force ('1': take it away) -> {1}; {0}: it does not have the vote
--   look     -> {now us, owner ('': none), token, since us, until us, revoked (0, 1), record, known (1: there is data)}
--   scan     cursor -> {next cursor, NAME ...}: keys that may be locked
--
-- Time is this server's alone.  What changes something, or says that an owner does not hold,
-- is preceded by a write, so that a replica cannot say it.
local lock, data, wake, met = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local operation, owner = ARGV[1], ARGV[2]
local DAY, MOST, HOSTS = 86400000, 2 ^ 53 - 1, 10000
local call = redis.call

local time = call('TIME')
local us = time[1] * 1000000 + time[2]

local function text(n) return string.format('%.0f', n) end

local function number(digits)
  local n = tonumber(string.match(digits or '', '^%d+$') or '')
  return n and n <= MOST and n or 0
end

local function short(bytes, most) return string.sub(bytes or '', 1, most) end

local function field(name) return call('HGET', data, name) end

-- It stays for longer than anybody who was given one can hold.
local function remember(token)
  call('HSET', data, 'token', text(token))
  call('PEXPIRE', data, DAY)
end

local function write_down(record)
  call('HSET', data, 'owner', owner, 'granted', '0', 'since', text(us), 'record', record)
end

-- Which process this is; '': we are not told.
local function process()
  local info = redis.pcall('INFO', 'server')
  return type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
end

-- Who has known it for long enough knows it for all.
local function known(run, clock, now, enough)
  if call('HGET', met, 'run') ~= run then return -1 end
  if call('HGET', met, 'sure') == '1' then return enough end
  local at = call('HGET', met, 'at ' .. clock)
  if not at or number(at) > now then return -1 end
  if now - number(at) >= enough then call('HSET', met, 'sure', '1') end
  return math.min(now - number(at), enough)
end

-- What an earlier process has met, or what a backup brought, is of no use.
local function meet(run, clock, now, sure)
  if call('HGET', met, 'run') ~= run or number(call('HGET', met, 'hosts')) >= HOSTS then
    call('DEL', met)
    call('HSET', met, 'run', run, 'sure', sure)
  end
  local at = call('HGET', met, 'at ' .. clock)
  if not at then call('HSET', met, 'hosts', text(number(call('HGET', met, 'hosts')) + 1)) end
  if not at or number(at) > now then call('HSET', met, 'at ' .. clock, text(now)) end
  return call('HGET', met, 'sure') == '1' and 1 or 0
end

local function mark_of(who) return field('marked') == who and short(field('mark'), 1023) or '' end

local function tell_one()
  call('LPUSH', wake, '1')
  call('LTRIM', wake, 0, 0)
  call('PEXPIRE', wake, 1000)
end

if operation == 'scan' then
  local page = call('SCAN', owner, 'MATCH', 'dlock:{*}:redlock-data', 'COUNT', 200)
  local names = {page[1]}
  for _, name in ipairs(page[2]) do names[#names + 1] = string.sub(name, 8, -15) end
  return names
end

local holder = call('GET', lock) or ''
local ours = holder ~= '' and field('owner') == holder

if operation == 'look' then
  local left = call('PTTL', lock)
  return {text(us), short(holder, 64), ours and text(number(field('granted'))) or '0', ours and short(field('since'), 20) or '-1',
          left >= 0 and text(us + left * 1000) or '-1', holder ~= '' and field('marked') == holder and 1 or 0,
          ours and short(field('record'), 1023) or '', call('EXISTS', data)}
end

call('HDEL', data, '')

if operation == 'acquire' then
  local lease, run = tonumber(ARGV[3]), process()
  local so_long = known(run, ARGV[5], number(ARGV[6]), number(ARGV[7]))
  if holder ~= '' and holder ~= owner then
    local since = ours and number(field('since')) or 0
    return {0, text(number(field('token'))), so_long, run, call('PTTL', lock),
            since > 0 and math.max(math.floor((us - since) / 1000), 0) or -1, short(holder, 64),
            ours and short(field('record'), 1023) or ''}
  end
  local token = math.max(number(field('token')) + 1, us)
  if token > MOST then return redis.error_reply('ERR its clock or the last token is beyond all reason') end
  call('SET', lock, owner, 'PX', text(lease))
  write_down(ARGV[4])
  remember(token)
  return {1, text(token), so_long, run}
end

if operation == 'meet' then
  return {owner ~= '' and owner == process() and meet(owner, ARGV[3], number(ARGV[4]), ARGV[5]) or 0}
end

if operation == 'extend' then
  local lease, token = tonumber(ARGV[3]), number(ARGV[5])
  local verdict = holder == owner and 1 or holder ~= '' and 0 or 3
  local mark = mark_of(owner)
  if verdict == 1 then
    call('PEXPIRE', lock, text(lease))
  elseif verdict == 3 and ARGV[6] == '1' and mark == '' then
    call('SET', lock, owner, 'PX', text(lease))
    verdict, ours = 2, false
  end
  if verdict == 2 or verdict == 1 and not ours then write_down(ARGV[4]) end
  if verdict == 1 or verdict == 2 then call('HSET', data, 'granted', text(token)) end
  remember(math.max(number(field('token')), token))
  return {verdict, mark}
end

if operation == 'release' then
  if holder ~= owner then return {0, mark_of(owner)} end
  call('DEL', lock)
  if ours then call('HDEL', data, 'owner', 'granted', 'since', 'record') end
  -- asked twice, it is not to look as if it had been taken away
  if field('marked') == owner then call('HDEL', data, 'marked', 'mark') end
  if ARGV[3] == '1' then tell_one() end
  return {1}
end

if operation == 'revoke' then
  if holder == '' or owner ~= '' and holder ~= owner then return {0} end
  if ARGV[3] ~= '0' and (not ours or field('granted') ~= ARGV[3]) and owner == '' then return {0} end
  call('HSET', data, 'marked', holder, 'mark', ARGV[4])
  if ARGV[5] == '1' then
    call('DEL', lock)
    tell_one()
  end
  return {1}
end

return redis.error_reply('ERR no such operation')
