-- redisson.lua - RLock of Redisson, and RFencedLock: a hash of one field, its owner.
--
--   KEYS[3]  the channel on which a release is told, "0"
--   KEYS[4]  of RFencedLock: its counter of tokens
local channel, counter = KEYS[3], KEYS[4]
local d = {type = 'hash'}

function d.acquire(lease)
  if call('EXISTS', lock) == 1 then
    local name = call('HKEYS', lock)[1]
    return refusal(plain(name), name, call('PTTL', lock))
  end
  local token = next_token()
  if counter then token = text(call('INCR', counter)) end
  call('HSET', lock, field(owner), '1')
  call('PEXPIRE', lock, lease)
  return granted(lease, token, 0, true)
end

d.renew = renew_field

function d.release(who)
  if call('HEXISTS', lock, field(who)) == 0 then return false end
  call('DEL', lock)
  publish(channel, '0')
  return true
end

d.holders = fields_as_holders

return answer_by(d)
