-- string.lua - SET NX PX and compare-and-delete: the lock is a string, its value the owner.
local d = {type = 'string'}

function d.acquire(lease)
  local value = call('GET', lock)
  if value then return refusal(value, value, call('PTTL', lock)) end
  local token = next_token()
  call('SET', lock, owner, 'NX', 'PX', lease)
  return granted(lease, token, 0, true)
end

function d.renew(lease) return call('GET', lock) == owner and call('PEXPIRE', lock, lease) end

function d.release(who) return call('GET', lock) == who and call('DEL', lock) end

function d.holders(is)
  if not is then return {} end
  local value = call('GET', lock)
  return {entry(value, string.sub(value, 1, 1024), 'x', ends_of(lock), 'a lock of another client, value')}
end

return answer_by(d)
