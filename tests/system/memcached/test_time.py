# Goal of these tests: that a lock in memcached is never free before its holder has stopped, however the server counts
# its seconds, and that what the server has forgotten is noticed before anybody else is granted it.

import signal
import time

import pytest

from memcached import LEASE, run, status
from proxy import DOWN, UP
from support import At, boottime, compile_shim, is_alive, wait_for

OBSTINATE = ("sh", "-c", "trap : TERM; while :; do sleep 0.05; done")


def ticks(client):
    """When the server's clock goes on."""
    before = client.stats()["time"]
    while client.stats()["time"] == before:
        time.sleep(0.002)
    return boottime()


def through(proxy):
    return At(f"memcached://127.0.0.1:{proxy.port}")


# ---- its clock ----


def test_a_timer_that_is_late(dlock, at, client, make_proxy):
    """By as much as cannot be seen, and nothing can be renewed after that."""
    proxy, stores = make_proxy(at.server.port), []

    def tap(link, direction, data):
        if direction == UP and b"ms dlock:job" in data:
            stores.append(boottime())
        return data

    proxy.tap = tap
    time.sleep((ticks(client) + 0.85 - boottime()) % 1)  # when it is the most behind
    holder = dlock.hold(through(proxy), "job", "-t", "6s", command=OBSTINATE)
    command = holder.command
    wait_for(lambda: len(stores) >= 2, what="a renewal")
    time.sleep(0.15)
    before = len(stores)
    at.server.step(-1)
    wait_for(lambda: len(stores) > before, what="the one that is to end early")
    time.sleep(0.05)
    proxy.drop(UP, DOWN)
    at.server.step(1)
    while not client.add("dlock:job"):
        time.sleep(0.005)
    assert not is_alive(command)


def test_the_clock_of_a_machine_that_was_paused(dlock, at):
    """It stays behind for good, which takes nothing away from any hold."""
    holder = dlock.hold(at, "job", "-t", "12s")
    time.sleep(2.5)
    at.server.pause()
    at.server.step(-3)
    time.sleep(3)
    at.server.resume()
    time.sleep(12)
    assert holder.finish().status == 0


@pytest.mark.parametrize("ttl", ["3s", "6s"])
def test_a_clock_that_stands_still_is_seen_however_often_it_is_asked(dlock, make_pretender, ttl):
    holder = dlock.hold(At(make_pretender().url), "job", "-t", ttl)
    assert holder.wait().status == 79


def test_nothing_is_granted_by_a_clock_that_stands_still(dlock, make_pretender):
    held = [True]
    pretender = make_pretender({"mg": lambda words: b"VA 1 c9 t3\r\nx\r\n" if held and words[1] == "dlock:job" else b"EN\r\n"})
    waiter = dlock.contend(At(pretender.url), "job", "-t", "6s").queued()
    time.sleep(3)
    held.clear()
    time.sleep(1.5)
    assert not waiter.running and "ms" not in pretender.commands()


def test_a_lease_begins_before_its_request(dlock, at, make_proxy):
    """However late the answer is, and nothing can be renewed after that: the item ends 13 s after the request at the earliest."""
    proxy, asked, late = make_proxy(at.server.port), [], []

    def tap(link, direction, data):
        if direction == UP and asked:
            return b""
        if direction == UP and b" ME\r\n" in data:
            asked.append(boottime())
        elif direction == DOWN and asked and not late:
            late.append(link)
            time.sleep(3)
        return data

    proxy.tap = tap
    holder = dlock.hold(through(proxy), "job", "-t", "12s", command=OBSTINATE)
    command = holder.command
    time.sleep(max(0, asked[0] + 13 - boottime()))
    assert not is_alive(command) and holder.wait().status == 79


# ---- a server that forgets ----


def test_a_long_lease_does_not_hide_a_flush_from_a_short_one(dlock, at, client):
    holder = dlock.contend(at, "job", "-t", "60s", command=("sleep", "1000")).held()
    next_ = dlock.contend(at, "job", *LEASE, command=("sh", "-c", f"[ ! -e /proc/{holder.command}/exe ]")).queued()
    assert client.ask("flush_all") == "OK"
    assert next_.wait().status == 0
    assert holder.wait().status == 79


def test_a_flush_that_is_no_longer_counted(dlock, at, client):
    assert client.ask("flush_all") == "OK" and client.ask("stats reset") == "RESET"
    done = run(dlock, at.url, "-n")
    assert done.status == 69 and "may not know who holds the lock" in done.stderr


def test_what_was_read_of_a_former_life_grants_nothing(dlock, at, make_proxy):
    """It had been running for long when we asked, and is another one when we add."""
    proxy, said = make_proxy(at.server.port, patience=20), []

    def tap(link, direction, data):
        if direction == UP and not said:
            proxy.hold(DOWN)
        said.extend([data] if direction == UP else [])
        return data

    proxy.tap = tap
    asks = dlock.contend(through(proxy), "job", *LEASE)
    wait_for(lambda: said, what="the question")
    time.sleep(0.2)  # for the answer to reach the proxy
    asks.signal(signal.SIGSTOP, "keeper")
    proxy.heal()
    time.sleep(0.2)  # and us
    at.server.kill()
    began = boottime()
    at.server.start(age=0)
    asks.signal(signal.SIGCONT, "keeper")
    asks.held()
    assert boottime() - began > 2.5


# ---- several servers behind one name ----

NAMES = r"""
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <netdb.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>

    int getaddrinfo(const char *name, const char *port, const struct addrinfo *how, struct addrinfo **ret)
    {
        int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
        struct addrinfo *more;
        int error;

        if (!name || strncmp(name, "cache", 5) != 0)
            return real(name, port, how, ret);
        if (getenv("LOOKED_UP")) {
            FILE *f = fopen(getenv("LOOKED_UP"), "a");

            fputs("x", f);
            fclose(f);
        }
        error = real("127.0.0.1", port, how, ret);
        if (!error && strcmp(name, "caches") == 0 && !(error = real("127.0.0.2", port, how, &more)))
            (*ret)->ai_next = more;
        return error;
    }
"""


@pytest.mark.parametrize("name, status_", [("cache", 0), ("caches", 78)])
def test_a_name_stands_for_one_server(dlock, at, tmp_path, name, status_):
    shim = compile_shim(tmp_path, "names", NAMES)
    done = dlock.run("run", "-u", f"memcached://{name}:{at.server.port}", "-k", "job", "-n", "--", "true", env={"LD_PRELOAD": shim})
    assert done.status == status_ and ("several servers" in done.stderr) == (status_ != 0), done


def test_a_name_is_looked_up_once(dlock, at, tmp_path):
    """Another answer might be of another server than the one that was found to be alone."""
    shim, looked_up = compile_shim(tmp_path, "names", NAMES), tmp_path / "looked-up"
    done = dlock.run("run", "-u", f"memcached://cache:{at.server.port}", "-k", "job", "--", "true",
                     env={"LD_PRELOAD": shim, "LOOKED_UP": str(looked_up)})
    assert done.status == 0 and looked_up.read_text() == "x", done


# ---- what others do with an item ----


@pytest.mark.parametrize("made", ["mg dlock:job N60 t", "md dlock:job I T60"], ids=["vivified", "invalidated"])
def test_an_item_that_others_have_marked_is_waited_for(dlock, at, client, made):
    if made.startswith("md"):
        client.add("dlock:job")
    client.ask(made)
    assert run(dlock, at.url, "-n").status == 75
    assert status(dlock, at.url)["holders"][0]["foreign"]
