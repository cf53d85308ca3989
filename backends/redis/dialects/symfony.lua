-- symfony.lua - RedisStore of Symfony's Lock (from 5.2): a sorted set, holder -> when its lease
-- ends, ms; a writer is there twice, as itself and as __write__.
local WRITE = '__write__'
local d = {type = 'zset'}

-- Before 5.2 a string is the lock, the holder's name.  Later ones respect that, too.
local older = operation == 'acquire' and type(redis.pcall('ZSCORE', lock, WRITE)) == 'table' and redis.pcall('GET', lock)
older = type(older) == 'string' and older

local function is_alive(who)
  local ends = call('ZSCORE', lock, who)
  return ends and tonumber(ends) > now
end

-- The key ends with the last of them.
local function end_key()
  local last = call('ZRANGE', lock, -1, -1, 'WITHSCORES')[2]
  if last then call('PEXPIREAT', lock, text(last)) end
end

local function put(who, lease) call('ZADD', lock, text(now + lease), who) end

function d.acquire(lease, wanted)
  if older then return refusal(older, older, call('PTTL', lock)) end
  call('ZREMRANGEBYSCORE', lock, '-inf', now)
  local writer, all = call('ZSCORE', lock, WRITE), call('ZRANGE', lock, -2, -1, 'WITHSCORES')
  if writer or (wanted ~= 's' and all[1]) then
    local first = all[1] ~= WRITE and all[1] or all[3] or ''
    return refusal(first, first, tonumber(all[#all]) - now, writer and 'x' or 's', writer and 1 or call('ZCARD', lock))
  end
  local token = next_token()
  put(owner, lease)
  if wanted ~= 's' then put(WRITE, lease) end
  end_key()
  return granted(lease, token, 0, not all[1])
end

-- While it is alive, __write__ is its own or nobody's.
function d.renew(lease)
  if older or not is_alive(owner) then return false end
  put(owner, lease)
  if call('ZSCORE', lock, WRITE) then put(WRITE, lease) end
  end_key()
  return true
end

function d.release(who)
  local alive = is_alive(who)
  if call('ZREM', lock, who) == 0 then return false end
  call('ZREM', lock, WRITE)
  end_key()
  return alive
end

function d.holders(is)
  if not is then return {} end
  local found, page = {}, call('ZRANGEBYSCORE', lock, '(' .. text(now), '+inf', 'WITHSCORES', 'LIMIT', 0, MANY)
  local kind = is_alive(WRITE) and 'x' or 's'
  for i = 1, #page, 2 do
    if page[i] ~= WRITE then
      found[#found + 1] = entry(page[i], page[i], kind, tonumber(page[i + 1]), "a lock of Symfony's, token")
    end
  end
  return found
end

return answer_by(d)
