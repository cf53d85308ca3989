# Goal of this file: the fixtures of Redis: servers alone, behind sentinels, in a cluster, with TLS, and independent masters.  A test that uses one of them needs that server
# (tests/system/conftest.py).

import functools

import pytest

from redis_forms import RedisCluster, RedisSentinels
from redis_tls import Chatty, RedisTls
from redlock import Masters, TlsMasters
from support import SHARED, RedisServer, compile_shim, making


@pytest.fixture(scope="session")
def redis_server():
    server = RedisServer()
    SHARED.add(server.port)
    yield server
    server.stop()


@pytest.fixture
def make_redis(nothing_is_left):
    """Starts servers of the test's own, with any options of redis-server."""
    yield from making(RedisServer)


@pytest.fixture
def own_redis(make_redis):
    """A server that the test may break."""
    return make_redis()


@pytest.fixture(scope="session")
def redis_sentinels():
    forms = RedisSentinels()
    yield forms
    forms.stop()


@pytest.fixture(scope="session")
def redis_cluster():
    forms = RedisCluster()
    yield forms
    forms.stop()


@pytest.fixture
def make_forms(nothing_is_left):
    """Starts sentinels with their servers, or clusters, that the test may break."""
    yield from making(RedisSentinels)


@pytest.fixture(scope="session")
def redis_tls_server(authority):
    server = RedisTls(authority)
    yield server
    server.stop()


@pytest.fixture
def make_redis_tls(authority, nothing_is_left):
    """Starts servers of the test's own that speak TLS, with any options of redis-server."""
    yield from making(functools.partial(RedisTls, authority))


@pytest.fixture
def make_chatty(authority, nothing_is_left):
    """TLS fronts of a plain port that send tickets unasked."""
    yield from making(Chatty, "close")


@pytest.fixture(scope="session")
def redlock_masters():
    masters = Masters()
    yield masters
    masters.stop()


@pytest.fixture(scope="session")
def redlock_tls_masters(authority):
    masters = TlsMasters(authority)
    yield masters
    masters.stop()


@pytest.fixture
def make_tls_masters(authority, nothing_is_left):
    """Starts independent masters that speak TLS, for the test to break."""
    yield from making(functools.partial(TlsMasters, authority))


@pytest.fixture
def make_masters(nothing_is_left):
    """Starts independent masters of the test's own."""
    yield from making(Masters)


@pytest.fixture
def masters(make_masters):
    """Three that the test may break, and whose crashes lose nothing."""
    return make_masters()


# Names "m0" to "m9" are this machine's, but for those in $LOST: they fail, or (after a "?") hang.
NAMES = r"""
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <netdb.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>

    int getaddrinfo(const char *name, const char *port, const struct addrinfo *how, struct addrinfo **ret)
    {
        int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
        char lost[100] = "", *at;
        FILE *f = fopen(getenv("LOST"), "r");

        if (f) {
            fgets(lost, sizeof lost, f);
            fclose(f);
        }
        if (!name || *name != 'm')
            return real(name, port, how, ret);
        at = strstr(lost, name);
        if (at && at > lost && at[-1] == '?')
            sleep(100);
        if (at && at > lost && at[-1] == '-')
            return EAI_NONAME;
        if (at && at[strlen(name)] == '=')
            return real("127.0.0.1", at + strlen(name) + 1, how, ret);
        return at ? EAI_AGAIN : real("127.0.0.1", port, how, ret);
    }
"""


@pytest.fixture
def lost(tmp_path, dlock):
    """The names that the resolver no longer knows."""
    file = tmp_path / "lost"
    dlock.env.update(LD_PRELOAD=compile_shim(tmp_path, "names", NAMES), LOST=str(file))
    return file
