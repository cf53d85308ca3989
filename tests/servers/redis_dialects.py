# Goal of this file: locks in Redis as other tools keep them: places for the suites, and
# what those tools do, re-enacted command by command where they do not run here.

import time
import uuid

from support import FULL, RedisPlace


class DialectPlace(RedisPlace):
    """Locks on the session's server in the dialect of another tool: a key is called as it is."""

    dialect = "string"
    fair = counted = False
    whole_record = True
    hears = False
    streams = False  # of readers: Redisson has no line

    @property
    def settings(self):
        return (f"dialect={self.dialect}",)

    def take_away(self, keys, key):
        with self.server.client() as c:
            assert c.delete(key) == 1


def _place(dialect, **members):
    return type(f"{dialect}Place", (DialectPlace,), {"dialect": dialect, "id": f"redis-{dialect}", **members})


DIALECTS = ("string", "symfony", "redisson", "redisson-fenced", "redisson-rw", "redisson-semaphore", "redisson-fair")
# (A semaphore is the same with one permit; its number of permits outlasts a test of these.)
DIALECT_PLACES = [_place(d, fair=d == "redisson-fair", counted=d == "redisson-fair") for d in DIALECTS if d != "redisson-semaphore"]
# The first speaks for all of them, unless everything is to be tested.
SOME_DIALECT_PLACES = DIALECT_PLACES if FULL else DIALECT_PLACES[:1]

_FEW = {"shared", "limit", "jobs"}
# What dlock-redis-dialects(7) says that they cannot do, of the NEEDS of the kinds suite; none of them marks grants.
DIALECT_CANNOT = {f"redis-{d}": _FEW - {"redisson-rw": {"shared"}, "symfony": {"shared"}, "redisson-semaphore": {"limit"}}.get(d, set())
                  for d in DIALECTS}


# ---- Redisson, re-enacted ----

CLIENT = "11111111-2222-3333-4444-555555555555"
A, B, D = (f"{CLIENT}:{n}" for n in (1, 2, 3))


def around(prefix, key):
    """How Redisson calls a key beside another."""
    return f"{prefix}:{key}" if "{" in key else f"{prefix}:{{{key}}}"


def behind(key, suffix):
    return f"{key}:{suffix}" if "{" in key else f"{{{key}}}:{suffix}"


class Shard:
    """Listens with SSUBSCRIBE, which this redis-py does not know."""

    def __init__(self, client, channel):
        self.connection = client.connection_pool.get_connection("_")
        self.connection.send_command("SSUBSCRIBE", channel)
        assert self.connection.read_response()[0] == "ssubscribe"

    def get_message(self, timeout):
        if not self.connection.can_read(timeout):
            return None
        kind, _, data = self.connection.read_response()
        return {"data": data} if kind == "smessage" else None


class Redisson:
    """What a Java client asks of the server for one key; each answers what Redisson's own script answers."""

    def __init__(self, client, key="job", lease=30000, sharded=False):
        self.client, self.key, self.lease = client, key, lease
        self.sharded, self.ear = sharded, None  # as in a cluster of Redis 7, where messages stay in the slot

    def _eval(self, script, keys, *arguments):
        if self.sharded:
            script = script.replace("'publish'", "'spublish'")
        return self.client.eval(script, len(keys), *keys, *arguments)

    # RLock

    @property
    def channel(self):
        return around("redisson_lock__channel", self.key)

    def lock(self, owner=A):
        """None, or ms that are left to another."""
        return self._eval("""
            if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
              redis.call('hincrby', KEYS[1], ARGV[2], 1)
              redis.call('pexpire', KEYS[1], ARGV[1])
              return nil
            end
            return redis.call('pttl', KEYS[1])""", [self.key], self.lease, owner)

    def unlock(self, owner=A):
        """1: it is free now; 0: held still; None: it was not this one's."""
        latch = around("redisson_unlock_latch", self.key) + ":" + uuid.uuid4().hex
        done = self._eval("""
            local latch = redis.call('get', KEYS[3])
            if latch then return tonumber(latch) end
            if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
            local left = redis.call('hincrby', KEYS[1], ARGV[3], -1)
            if left > 0 then
              redis.call('pexpire', KEYS[1], ARGV[2])
              redis.call('set', KEYS[3], 0, 'px', 5000)
              return 0
            end
            redis.call('del', KEYS[1])
            redis.call('publish', KEYS[2], ARGV[1])
            redis.call('set', KEYS[3], 1, 'px', 5000)
            return 1""", [self.key, self.channel, latch], "0", self.lease, owner)
        self.client.delete(latch)
        return done

    def renew(self, owner=A):
        return self._eval("""if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
            return redis.call('pexpire', KEYS[1], ARGV[1]) end
            return 0""", [self.key], self.lease, owner)

    # RFencedLock

    def fenced(self, owner=A):
        """(-1, token), or (ms that are left to another, -1)."""
        return self._eval("""
            if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
              redis.call('incr', KEYS[2])
              redis.call('hincrby', KEYS[1], ARGV[2], 1)
              redis.call('pexpire', KEYS[1], ARGV[1])
              return {-1, tonumber(redis.call('get', KEYS[2]))}
            end
            return {redis.call('pttl', KEYS[1]), -1}""",
                          [self.key, around("redisson_lock_token", self.key)], self.lease, owner)

    # what a client hears

    def listen(self, channel=None):
        if self.sharded:
            self.ear = Shard(self.client, channel or self.channel)
            return self
        self.ear = self.client.pubsub(ignore_subscribe_messages=True)
        self.ear.subscribe(channel or self.channel)
        while not self.ear.subscribed:
            pass
        self.ear.get_message(timeout=5)
        return self

    def heard(self, timeout=10):
        """The next message, as Redisson reads it: a decimal number."""
        found = self.ear.get_message(timeout=timeout)
        return found and int(found["data"])

    # RReadWriteLock

    @property
    def rw_channel(self):
        return around("redisson_rwlock", self.key)

    def _strings(self, owner):
        return behind(self.key, f"{owner}:rwlock_timeout")

    def read(self, owner=A, lease=None):
        """None, or ms that are left to a writer."""
        return self._eval("""
            local mode = redis.call('hget', KEYS[1], 'mode')
            if not mode then
              redis.call('hset', KEYS[1], 'mode', 'read', ARGV[2], 1)
              redis.call('set', KEYS[2] .. ':1', 1, 'px', ARGV[1])
              redis.call('pexpire', KEYS[1], ARGV[1])
              return nil
            end
            if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 1 then
              local n = redis.call('hincrby', KEYS[1], ARGV[2], 1)
              redis.call('set', KEYS[2] .. ':' .. n, 1, 'px', ARGV[1])
              local left = redis.call('pttl', KEYS[1])
              redis.call('pexpire', KEYS[1], math.max(left, ARGV[1]))
              return nil
            end
            return redis.call('pttl', KEYS[1])""", [self.key, self._strings(owner)], lease or self.lease, owner)

    def read_unlock(self, owner=A):
        """1: it is free now; 0: others hold it; None: it was not this one's."""
        return self._eval("""
            if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
            local n = redis.call('hincrby', KEYS[1], ARGV[1], -1)
            if n == 0 then redis.call('hdel', KEYS[1], ARGV[1]) end
            redis.call('del', KEYS[3] .. ':' .. (n + 1))
            if redis.call('hlen', KEYS[1]) > 1 then
              local most = -3
              for _, who in ipairs(redis.call('hkeys', KEYS[1])) do
                local count = tonumber(redis.call('hget', KEYS[1], who))
                for i = count or 0, 1, -1 do
                  most = math.max(most, redis.call('pttl', KEYS[4] .. who .. ':rwlock_timeout:' .. i))
                end
              end
              if most > 0 then
                redis.call('pexpire', KEYS[1], most)
                return 0
              end
              if redis.call('hget', KEYS[1], 'mode') == 'write' then return 0 end
            end
            redis.call('del', KEYS[1])
            redis.call('publish', KEYS[2], '0')
            return 1""", [self.key, self.rw_channel, self._strings(owner), behind(self.key, "")], owner)

    def write(self, owner=A):
        """None, or ms that are left to others."""
        return self._eval("""
            local mode = redis.call('hget', KEYS[1], 'mode')
            if not mode then
              redis.call('hset', KEYS[1], 'mode', 'write', ARGV[2], 1)
              redis.call('pexpire', KEYS[1], ARGV[1])
              return nil
            end
            if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
              redis.call('hincrby', KEYS[1], ARGV[2], 1)
              redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
              return nil
            end
            return redis.call('pttl', KEYS[1])""", [self.key], self.lease, f"{owner}:write")

    def write_unlock(self, owner=A):
        return self._eval("""
            if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
            if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end
            redis.call('hdel', KEYS[1], ARGV[1])
            if redis.call('hlen', KEYS[1]) == 1 then
              redis.call('del', KEYS[1])
              redis.call('publish', KEYS[2], '1')
            else
              redis.call('hset', KEYS[1], 'mode', 'read')
            end
            return 1""", [self.key, self.rw_channel], f"{owner}:write")

    # RPermitExpirableSemaphore, by this machine's clock, which is the server's

    NEVER = 922337203685477

    @property
    def sc(self):
        return around("redisson_sc", self.key)

    def set_permits(self, n):
        return self._eval("""
            if redis.call('exists', KEYS[1]) == 1 then return 0 end
            redis.call('set', KEYS[1], ARGV[1])
            redis.call('publish', KEYS[2], ARGV[1])
            return 1""", [self.key, self.sc], n)

    def take_permit(self, permit, now, lease=None):
        """b"OK"; when one ends, ms; None: there are none, or all are for ever."""
        return self._eval("""
            local dead = redis.call('zrangebyscore', KEYS[2], 0, ARGV[4])
            if #dead > 0 then
              redis.call('zrem', KEYS[2], unpack(dead))
              local n = redis.call('incrby', KEYS[1], #dead)
              redis.call('publish', KEYS[3], n)
            end
            local n = redis.call('get', KEYS[1])
            if n and tonumber(n) >= 1 then
              redis.call('decrby', KEYS[1], 1)
              redis.call('zadd', KEYS[2], ARGV[2], ARGV[3])
              return 'OK'
            end
            local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
            if first[2] and first[2] ~= ARGV[1] then return tonumber(first[2]) end
            return nil""", [self.key, behind(self.key, "timeout"), self.sc], self.NEVER,
                          self.NEVER if lease is None else now + lease, permit, now)

    def release_permit(self, permit, now):
        return self._eval("""
            local ends = redis.call('zscore', KEYS[2], ARGV[1])
            if redis.call('zrem', KEYS[2], ARGV[1]) == 0 then return 0 end
            redis.call('publish', KEYS[3], redis.call('incrby', KEYS[1], 1))
            return tonumber(ends) > tonumber(ARGV[2]) and 1 or 0""",
                          [self.key, behind(self.key, "timeout"), self.sc], permit, now)

    # RFairLock, by a clock that the caller names

    def waiter_channel(self, owner):
        return f"{self.channel}:{owner}"

    _EVICT = """
            while true do
              local head = redis.call('lindex', KEYS[2], 0)
              if not head then break end
              if tonumber(redis.call('zscore', KEYS[3], head)) > now then break end
              redis.call('zrem', KEYS[3], head)
              redis.call('lpop', KEYS[2])
            end
            """

    @property
    def _fair_keys(self):
        return [self.key, around("redisson_lock_queue", self.key), around("redisson_lock_timeout", self.key)]

    def fair(self, owner=A, now=None, wait=300000):
        """None, or ms that are left to whoever is before it, behind whom it now stands."""
        return self._eval("local now = tonumber(ARGV[4])" + self._EVICT + """
            if redis.call('exists', KEYS[1]) == 0 and
               (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[2]) then
              redis.call('lpop', KEYS[2])
              redis.call('zrem', KEYS[3], ARGV[2])
              for _, name in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
                redis.call('zincrby', KEYS[3], -ARGV[3], name)
              end
              redis.call('hset', KEYS[1], ARGV[2], 1)
              redis.call('pexpire', KEYS[1], ARGV[1])
              return nil
            end
            if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
              redis.call('hincrby', KEYS[1], ARGV[2], 1)
              redis.call('pexpire', KEYS[1], ARGV[1])
              return nil
            end
            local ends = redis.call('zscore', KEYS[3], ARGV[2])
            if ends then return tonumber(ends) - tonumber(ARGV[3]) - now end
            local last, left = redis.call('lindex', KEYS[2], -1), nil
            if last and last ~= ARGV[2] then
              left = tonumber(redis.call('zscore', KEYS[3], last)) - now
            else
              left = redis.call('pttl', KEYS[1])
            end
            if redis.call('zadd', KEYS[3], left + tonumber(ARGV[3]) + now, ARGV[2]) == 1 then
              redis.call('rpush', KEYS[2], ARGV[2])
            end
            return left""", self._fair_keys, self.lease, owner, wait, self._now(now))

    def fair_unlock(self, owner=A, now=None):
        return self._eval("local now = tonumber(ARGV[2])" + self._EVICT + """
            if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
              redis.call('del', KEYS[1])
              local head = redis.call('lindex', KEYS[2], 0)
              if head then redis.call('publish', ARGV[3] .. ':' .. head, '0') end
              return 1
            end
            return nil""", self._fair_keys, owner, self._now(now), self.channel)

    def fair_leave(self, owner=A, wait=300000):
        """What a waiter does that gives up."""
        self._eval("""
            local queue, behind = redis.call('lrange', KEYS[2], 0, -1), false
            for _, name in ipairs(queue) do
              if behind then redis.call('zincrby', KEYS[3], -ARGV[2], name) end
              behind = behind or name == ARGV[1]
            end
            redis.call('zrem', KEYS[3], ARGV[1])
            redis.call('lrem', KEYS[2], 0, ARGV[1])""", self._fair_keys, owner, wait)

    def _now(self, now):
        return int(1000 * time.time()) if now is None else now
