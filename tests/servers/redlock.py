# Goal of this file: independent Redis masters for Redlock, and a lock's place on them.

import contextlib
import mmap
import os
import struct
import tempfile
from urllib.parse import quote

with contextlib.suppress(ImportError):  # without it no test is run that needs it
    import redis

from redis_tls import RedisTls
from support import At, RedisServer, RemotePlace, boottime, compile_shim, wait_for

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")  # their votes count as soon as they are up
FORGETFUL = ("--save", "")
RUN = "dlock:redlock-run"

# By how much a clock is set forward, as a page of shared memory says.
AHEAD = r"""
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <sys/time.h>
    #include <time.h>

    static long ahead(void) /* seconds */
    {
        static volatile double *page;

        if (!page)
            page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, open(getenv("CLOCK_FILE"), O_RDONLY), 0);
        return (long)*page;
    }
"""

# The wall clock of a server, which it takes for its own; other clocks go on as they do.
CLOCK = AHEAD + r"""
    int gettimeofday(struct timeval *restrict tv, void *restrict tz)
    {
        int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
        int result = real(tv, tz);

        tv->tv_sec += ahead();
        return result;
    }

    int clock_gettime(clockid_t id, struct timespec *t)
    {
        int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
        int result = real(id, t);

        if (id == CLOCK_REALTIME)
            t->tv_sec += ahead();
        return result;
    }

    time_t time(time_t *t)
    {
        struct timeval tv;

        gettimeofday(&tv, NULL);
        if (t)
            *t = tv.tv_sec;
        return tv.tv_sec;
    }
"""


def compile_clock(directory):
    return compile_shim(directory, "clock", CLOCK)


class SteppedRedis(RedisServer):
    """One whose wall clock can be set: step(seconds)."""

    def __init__(self, shim, *options):
        with tempfile.NamedTemporaryFile(prefix="dlock-clock-", delete=False) as f:
            f.write(bytes(4096))
            f.flush()
            self._path, self._page = f.name, mmap.mmap(f.fileno(), 4096)
        super().__init__(*options, env={"LD_PRELOAD": shim, "CLOCK_FILE": self._path})

    def step(self, seconds):
        self._page[:8] = struct.pack("d", seconds)

    def stop(self):
        super().stop()
        self._page.close()
        os.unlink(self._path)


class Masters:
    """N of them, with the same options."""

    scheme = "redlock"

    def __init__(self, n=3, options=DURABLE, shim=None):
        self.all = [SteppedRedis(shim, *options) if shim else RedisServer(*options) for _ in range(n)]

    def __getitem__(self, i):
        return self.all[i]

    def __len__(self):
        return len(self.all)

    @property
    def hosts(self):
        return [f"127.0.0.1:{s.port}" for s in self.all]

    @property
    def url(self):
        return f"{self.scheme}://" + ",".join(self.hosts)

    def at(self, **instead):
        """The place, or what leads there through other ports: at(m2=PORT)."""
        hosts = self.hosts
        for name, port in instead.items():
            hosts[int(name[1:])] = f"127.0.0.1:{port}"
        return At(f"{self.scheme}://" + ",".join(hosts))

    def votes(self, key="job"):
        """Who has each master's vote; None: nobody; "away": it does not answer."""

        def vote(server):
            try:
                with server.client(socket_timeout=1) as c:
                    return c.get(f"dlock:{{{key}}}:redlock")
            except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
                return "away"

        return [vote(server) for server in self.all]

    def listener(self):
        """The number of the master where a waiter listens, as soon as one does."""

        def blocked():
            for i, server in enumerate(self.all):
                with server.client() as c:
                    if c.info("clients")["blocked_clients"]:
                        return (i,)
            return None

        return wait_for(blocked, what="a waiter that listens")[0]

    def known(self):
        """Makes their votes count, as if somebody had met these processes long ago."""
        for server in self.all:
            with server.client() as c:
                c.delete(RUN)
                c.hset(RUN, mapping={"run": c.info("server")["run_id"], "sure": 1})

    def stop(self):
        for server in self.all:
            server.stop()


class TlsMasters(Masters):
    """Each speaks TLS alone, with a certificate of its own that is for its address."""

    scheme = "redlocks"

    def __init__(self, authority, n=3, options=DURABLE, san="IP:127.0.0.1", **more):
        self.all = [RedisTls(authority, *options, certificate=authority.sign(f"master{i}-{san}", san), **more) for i in range(n)]


class RedlockPlace(RemotePlace):
    """Locks on three masters of the session."""

    name, id = "redis", "redlock"
    fair = counted = False

    def __init__(self, request):
        self.masters = request.getfixturevalue("redlock_masters")
        self.server = self.masters[0]
        self.prefix = f"t{next(self._numbers)}:"

    def url_at(self, port, host="127.0.0.1"):
        return f"{self.masters.scheme}://" + ",".join([f"{host}:{port}", *self.masters.hosts[1:]])

    def stored(self):
        return b"".join(_dump(server) for server in self.masters.all)

    def take_away(self, keys, key):
        for server in self.masters.all:
            with server.client() as c:
                assert c.delete(f"dlock:{{{quote(key, safe=':')}}}:redlock") == 1

    def crashable(self, request):
        self.masters = request.getfixturevalue("make_masters")()
        self.server = self.masters[0]
        return lambda: [server.restart() for server in self.masters.all]


class RedlockTlsPlace(RedlockPlace):
    """The same with TLS to each."""

    id = "redlock-tls"

    def __init__(self, request):
        self.authority = request.getfixturevalue("authority")
        self.masters = request.getfixturevalue("redlock_tls_masters")
        self.server = self.masters[0]
        self.prefix = f"t{next(self._numbers)}:"

    @property
    def settings(self):
        return (f"cacert={self.authority.cert}",)

    def crashable(self, request):
        self.masters = request.getfixturevalue("make_tls_masters")()
        self.server = self.masters[0]
        return lambda: [server.restart() for server in self.masters.all]


def _dump(server):
    with server.client(decode_responses=False) as c:
        return b"".join(k + (c.dump(k) or b"") for k in c.scan_iter("*"))


def seconds_of(do):
    began = boottime()
    result = do()
    return result, boottime() - began
