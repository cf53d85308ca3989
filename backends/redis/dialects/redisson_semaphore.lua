-- redisson_semaphore.lua - RPermitExpirableSemaphore of Redisson: a string, how many permits
-- are free; and a sorted set, permit -> when it ends, ms.
--
--   KEYS[3]  the channel on which the number of free permits is told
--   KEYS[4]  the sorted set; a permit is 16 bytes, for us the owner's
local channel, permits = KEYS[3], KEYS[4]
local NEVER = 922337203685477
local d = {type = 'string'}

local function bytes_of(who)
  if not string.match(who, '^%x+$') or #who ~= 32 then return who end
  return (string.gsub(who, '%x%x', function(xx) return string.char(tonumber(xx, 16)) end))
end

local function name_of(permit)
  return (string.gsub(permit, '.', function(c) return string.format('%02x', string.byte(c)) end))
end

local function tell() publish(channel, call('GET', lock)) end

local function is_alive(permit)
  local ends = call('ZSCORE', permits, permit)
  return ends and tonumber(ends) > now
end

-- Gives back those whose time is up; the number of free ones, or nil: there are none at all.
local function free()
  local value = call('GET', lock)
  if not value then return nil end
  local n = tonumber(string.match(value, '^%-?%d+$') or '')
  if not n then return error('WRONGTYPE what stands under the key is no semaphore') end
  local dead = call('ZRANGEBYSCORE', permits, '-inf', now, 'LIMIT', 0, 1000)
  for _, permit in ipairs(dead) do
    call('ZREM', permits, permit)
    call('HDEL', side, name_of(permit))
  end
  if #dead > 0 then
    call('INCRBY', lock, #dead)
    tell()
  end
  return n + #dead
end

-- The lowest slot that no dlock has; those of others are not known.
local function free_slot()
  local rows, taken, slot = call('HGETALL', side), {}, 0
  for i = 1, #rows, 2 do
    local n = string.match(rows[i + 1], '^%d+ %d+ (%d+) ')
    if n then
      if is_alive(bytes_of(rows[i])) then taken[tonumber(n)] = true else call('HDEL', side, rows[i]) end
    end
  end
  while taken[slot] do slot = slot + 1 end
  return slot
end

-- One permit excludes everybody else.
local function kind_of(limit) return limit == 1 and 'x' or 'l' .. text(limit) end

local function refuse(limit)
  local first = call('ZRANGE', permits, 0, 0, 'WITHSCORES')
  local ends = tonumber(first[2] or now)
  return refusal(name_of(first[1] or ''), name_of(first[1] or ''), ends >= NEVER and -1 or ends - now, kind_of(limit),
                 call('ZCARD', permits))
end

function d.acquire(lease, wanted)
  local me, limit = bytes_of(owner), wanted == 'x' and 1 or tonumber(string.sub(wanted, 2))
  local n = free()
  local all = n and n + call('ZCARD', permits) or limit
  if all ~= limit then
    must_write()
    if all < 1 or all > 100000 then return redis.error_reply('WRONGTYPE a semaphore of ' .. text(all) .. ' permits stands there') end
    return {-1, 'l' .. text(all)}
  end
  if n and n < 1 then return refuse(limit) end
  local token, slot = next_token(), free_slot()
  if not n then
    call('SET', lock, limit)
    tell()
  end
  call('ZADD', permits, text(now + lease), me)
  call('DECRBY', lock, 1)
  return granted(lease, token, slot)
end

function d.renew(lease)
  return is_alive(bytes_of(owner)) and call('ZADD', permits, 'XX', text(now + lease), bytes_of(owner))
end

function d.release(who)
  local alive = is_alive(bytes_of(who))
  if call('ZREM', permits, bytes_of(who)) == 0 then return false end
  call('INCRBY', lock, 1)
  tell()
  return alive
end

function d.holders(is)
  if not is then return {} end
  local found, n = {}, tonumber(string.match(call('GET', lock), '^%-?%d+$') or '')
  if not n then return {{'u', 'a string that is no number stands under this key'}} end
  local page = call('ZRANGEBYSCORE', permits, '(' .. text(now), '+inf', 'WITHSCORES', 'LIMIT', 0, MANY)
  local limit = math.min(math.max(n + call('ZCARD', permits), 1), 100000)
  for i = 1, #page, 2 do
    local ends, name = tonumber(page[i + 1]), name_of(page[i])
    found[#found + 1] = entry(name, name, kind_of(limit), ends >= NEVER and -1 or ends, "a permit of Redisson's,")
  end
  return found
end

return answer_by(d)
