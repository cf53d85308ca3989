-- redisson_rw.lua - RReadWriteLock of Redisson: a hash with `mode`, read or write, and its
-- holders; and for each reader a string that ends with its lease.
--
--   KEYS[3]  the channel on which a release is told, "0" of a reader, "1" of a writer
--   KEYS[4]  the beginning of the readers' strings: KEYS[4] OWNER :rwlock_timeout: NUMBER
--
-- A field is the owner, of a writer with :write behind it; its value how often.
local channel, strings = KEYS[3], KEYS[4]
local d = {type = 'hash'}

local function string_of(name, n) return strings .. name .. ':rwlock_timeout:' .. text(n) end

-- Its field if it holds; how often.
local function held_as(who)
  local name = field(who)
  for _, each in ipairs({name, name .. ':write'}) do
    local count = call('HGET', lock, each)
    if count then return each, tonumber(count) or 1 end
  end
end

local function is_writer(name) return string.match(name, ':write$') end

-- {field, count ...} of the holders.
local function fields()
  local all, found = call('HGETALL', lock), {}
  for i = 1, #all, 2 do
    if all[i] ~= 'mode' then found[#found + 1] = {all[i], tonumber(all[i + 1]) or 1} end
  end
  return found
end

-- The longest that a reader is alive for, ms; <= 0: none is.
local function longest()
  local most = -2
  for _, f in ipairs(fields()) do
    for n = 1, math.min(f[2], 1000) do most = math.max(most, call('PTTL', string_of(f[1], n))) end
  end
  return most
end

-- Never less than it has: others may hold it for longer.
local function extend_lock(lease)
  local left = call('PTTL', lock)
  if left ~= -1 and left < lease then call('PEXPIRE', lock, lease) end
end

-- A reader whose string has ended counts as gone among all others, and is.
local function is_alive(name) return is_writer(name) or call('EXISTS', string_of(name, 1)) == 1 end

local function extend(name, count, lease)
  if is_writer(name) then return call('PEXPIRE', lock, lease) end
  if not is_alive(name) then return false end
  extend_lock(lease)
  for n = 1, count do call('PEXPIRE', string_of(name, n), lease) end
  return true
end

function d.acquire(lease, wanted)
  d.release(owner) -- what is left of a reader whose string has ended
  local mode = call('HGET', lock, 'mode')
  if not mode and call('EXISTS', lock) == 1 then -- a lock without modes: RLock's
    local other = call('HKEYS', lock)[1]
    return refusal(plain(other), other, call('PTTL', lock))
  end
  if mode and not (mode == 'read' and wanted == 's') then
    local all = fields()
    local first = all[1] and all[1][1] or ''
    return refusal(plain(first), first, call('PTTL', lock), mode == 'read' and 's' or 'x', math.max(#all, 1))
  end
  local token = next_token()
  if wanted == 's' then
    call('HSET', lock, 'mode', 'read', field(owner), '1')
    call('SET', string_of(field(owner), 1), '1', 'PX', lease)
    if mode then extend_lock(lease) else call('PEXPIRE', lock, lease) end
  else
    call('HSET', lock, 'mode', 'write', field(owner) .. ':write', '1')
    call('PEXPIRE', lock, lease)
  end
  return granted(lease, token, 0, not mode)
end

function d.renew(lease)
  local name, count = held_as(owner)
  return name and extend(name, count, lease)
end

-- Whom nobody follows leaves nothing; a reader that others follow, the time they have left.
function d.release(who)
  local name, count = held_as(who)
  if not name then return false end
  local alive, writer = is_alive(name), is_writer(name)
  call('HDEL', lock, name)
  for n = 1, writer and 0 or count do call('DEL', string_of(name, n)) end
  local rest = #fields() > 0
  local left = rest and longest() or -2
  if left > 0 then
    if writer then call('HSET', lock, 'mode', 'read') end -- its owner reads, too
    call('PEXPIRE', lock, left)
  elseif not rest or writer or call('HGET', lock, 'mode') == 'read' then
    call('DEL', lock)
  else
    return alive -- a writer that has read, too, writes on
  end
  if writer or left <= 0 then publish(channel, writer and '1' or '0') end
  return alive
end

function d.holders()
  local found = {}
  for i, f in ipairs(fields()) do
    if i > MANY then break end
    local writes = is_writer(f[1])
    local ends = writes and ends_of(lock) or ends_of(string_of(f[1], 1))
    found[i] = entry(plain(f[1]), f[1], writes and 'x' or 's', ends, "a lock of Redisson's, owner")
  end
  return found
end

return answer_by(d)
