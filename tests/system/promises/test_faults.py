# Goal of these tests: what fails around dlock (servers, networks, clocks) costs
# time or the command, never exclusion, and is reported as what it was.

import contextlib
import os
import re
import resource
import signal
import socket
import threading
import time

import pytest

with contextlib.suppress(ImportError):  # without it no test is run that needs it
    import redis

from faults import IMPATIENT, IS_GONE, LEASE, LIVING_LEASE, ONCE, SOON, SOON_SECONDS, STUBBORN, assert_goes_on, assert_refused, wait_for_writes
from hostile import GRANTED, RESET, SILENCE, array, granted, waiting
from proxy import BOTH, DOWN, UP
from support import At, DLOCK, RedisServer, boottime, compile_shim, free_port, is_alive, is_free, need, run, spent, stalled, told_at_the_end, wait_for

OTHER_KINDS = {"shared": ("-s",), "limit": ("--limit", "3"), "several": ("-k", "another")}


def kind_words(dlock, place, kind):
    """Options for this kind of lock; the test ends where there are none."""
    words = OTHER_KINDS.get(kind, ())
    if words:
        need(dlock, place, *words)
    return words


def outlasting_a_restart(place):
    """A lease that bears it, on a machine where a server takes its time; zk counts on half of it."""
    return ("-t", "60s" if place.name == "zk" else "20s")


# ---- at the start: nobody there, or nobody who answers ----


def test_closed_port(dlock, remote):
    port = free_port()
    assert_refused(run(dlock, remote.url_at(port), *IMPATIENT), 69, str(port), "refused")


def test_a_port_that_is_closed_for_a_while_is_given_to_nobody(make_proxy, make_hostile):
    """Of the tests' own proxies: each connection to anybody is given a free port of this machine."""
    proxy = make_proxy(make_hostile().port)
    proxy.refuse()
    with socket.socket() as another, pytest.raises(OSError, match="in use"):
        another.bind(("127.0.0.1", proxy.port))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", proxy.port), 5)
    proxy.accept()
    socket.create_connection(("127.0.0.1", proxy.port), 5).close()


def test_missing_socket(dlock, tmp_path):
    assert_refused(run(dlock, f"redis+unix://{tmp_path}/none", *ONCE), 69, f"{tmp_path}/none")


def test_port_that_swallows_connections(dlock, remote):
    # Once the backlog is full, Linux drops the SYNs.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        fill = [socket.socket() for _ in range(4)]
        for s in fill:
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", port))
        assert_refused(run(dlock, remote.url_at(port), *IMPATIENT), 69, str(port))
        for s in fill:
            s.close()


def test_server_that_never_answers(dlock, make_hostile, remote):
    server = make_hostile({"*": SILENCE})
    assert_refused(run(dlock, remote.url_at(server.port), *IMPATIENT), 69, str(server.port))


def test_unknown_host(dlock, remote):
    assert_refused(run(dlock, remote.url_at(7000, "dlock-test.invalid"), *ONCE), 69, "dlock-test.invalid")


def test_resolver_that_hangs(dlock, tmp_path, remote):
    shim = compile_shim(tmp_path, "hang", """
        #include <netdb.h>
        #include <unistd.h>
        int getaddrinfo(const char *n, const char *s, const struct addrinfo *h, struct addrinfo **r)
        { sleep(100); return EAI_AGAIN; }""")
    done = run(dlock, remote.url_at(7000, "slow.example"), *IMPATIENT, env={"LD_PRELOAD": shim})
    assert_refused(done, 69, "slow.example")


def test_answers_that_drip_do_not_stretch_the_deadline(dlock, remote, make_proxy):
    proxy = make_proxy(remote.server.port)
    proxy.drip(DOWN, 1, 0.9)  # the whole answer would take 25 s
    assert_refused(run(dlock, remote.url_at(proxy.port), *IMPATIENT), 69, str(proxy.port))


# ---- at the start: a server that refuses ----


@pytest.mark.parametrize("reply, status, hint", [
    ("READONLY You can't write against a read only replica.", 78, "replica"),
    ("LOADING Redis is loading the dataset in memory", 69, "loading"),
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", 69, "busy"),
    ("OOM command not allowed when used memory > 'maxmemory'.", 69, "memory"),
    ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist", 69, "disk"),
    ("NOREPLICAS Not enough good replicas to write.", 69, "replicas"),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", 69, "replica"),
    ("ERR max number of clients reached", 69, "maxclients"),
    ("NOPERM this user has no permissions to run the 'evalsha' command", 77, "allow"),
    ("NOAUTH Authentication required.", 77, "password"),
    ("WRONGPASS invalid username-password pair or user is disabled.", 77, "password"),
    ("MOVED 3999 127.0.0.1:6381", 78, "cluster"),
    ("CLUSTERDOWN Hash slot not served", 78, "cluster"),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", 76, "another program"),
    ("ERR something never heard of", 69, "never heard of"),
], ids=lambda v: v.split()[0] if isinstance(v, str) and v.isupper() else None)
def test_error_replies_have_their_status_and_a_hint(dlock, make_hostile, reply, status, hint):
    server = make_hostile({"*": b"-" + reply.encode() + b"\r\n"})
    assert_refused(run(dlock, server.url, *ONCE), status, reply.split()[0], hint)


def test_noscript_is_answered_with_the_script(dlock, own_redis):
    with own_redis.client() as c:
        assert run(dlock, own_redis.url).status == 0
        c.script_flush()
        assert run(dlock, own_redis.url).status == 0
        assert c.info("commandstats")["cmdstat_eval"]["calls"] == 2


@pytest.mark.parametrize("options, status", [
    (("--requirepass", "secret"), 77),
    (("--replicaof", "127.0.0.1 1"), 78),
    (("--maxmemory", "1"), 69),
    (("--min-replicas-to-write", "1"), 69),
    (("--cluster-enabled", "yes"), 78),
], ids=["password", "replica", "memory", "replicas", "cluster"])
def test_real_servers_that_refuse(dlock, make_redis, options, status):
    server = make_redis(*options)
    assert_refused(run(dlock, server.url, *ONCE), status, str(server.port))


@pytest.mark.parametrize("rules", ["resetkeys ~other:*", "-evalsha -eval", "-zadd"])
def test_user_without_rights(dlock, own_redis, rules):
    with own_redis.client() as c:
        c.execute_command("ACL", "SETUSER", "worker", "on", "nopass", "~*", "&*", "+@all", *rules.split())
    assert_refused(run(dlock, f"redis://worker:any@127.0.0.1:{own_redis.port}"), 77, "allow")


def test_server_with_too_many_clients(dlock, make_redis):
    server = make_redis()
    with server.client() as c:
        c.config_set("maxclients", "1")  # now that those who saw whether it answers are gone
        assert_refused(run(dlock, server.url, *ONCE), 69, "maxclients")


def test_wrong_password(dlock, make_redis):
    server = make_redis("--requirepass", "right")
    url = f"redis://:{{}}@127.0.0.1:{server.port}"
    done = run(dlock, url.format("wrong-one"))
    assert_refused(done, 77, "password")
    assert "wrong-one" not in done.stderr
    assert run(dlock, url.format("right")).status == 0


# ---- at the start: answers that make no sense ----

SCREEN = b"\x1b[2J\x1b]52;c;cm0=\x07"

NONSENSE = {
    "array-huge": b"*2147483647\r\n",
    "bulk-huge": b"$9223372036854775806\r\n",
    "bulk-announced-100M": b"$104857600\r\n" + b"x" * 100000,
    "nested": b"*1\r\n" * 20 + b":1\r\n",
    "resp3-map": b"%1\r\n+a\r\n+b\r\n",
    "resp3-null": b"_\r\n",
    "integer-not": b":abc\r\n",
    "integer-overflow": b":99999999999999999999\r\n",
    "endless-line": b"+" + b"x" * 300000,
    "error-1M": b"-ERR " + SCREEN + b"x" * (1 << 20) + b"\r\n",
    "bulk-minus-2": b"$-2\r\n",
    "array-minus-2": b"*-2\r\n",
    "bulk-wrong-end": b"$2\r\nabcd\r\n",
    "bare-newline": b"+OK\n",
    "empty-line": b"\r\n",
    "http": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "tls-alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "zeros": b"\0" * 64,
    # well-formed, but no answer to what was asked
    "number": b":1\r\n",
    "empty-array": b"*0\r\n",
    "null-array": b"*-1\r\n",
    "null": b"$-1\r\n",
    "queued": b"+QUEUED\r\n",
    "ok": b"+OK\r\n",
    "text": b"$5\r\nhello\r\n",
    "grant-without-token": array(1),
    "grant-null-token": b"*2\r\n:1\r\n$-1\r\n",
    "grant-number-token": array(1, 17),
    "unknown-code": array(2, b"17", 0),
    "negative-code": array(-7, b"17", 0),
    # a token must be a positive integer below 2^53
    "token-text": granted(b"abc"),
    "token-empty": granted(b""),
    "token-negative": granted(b"-5"),
    "token-zero": granted(b"0"),
    "token-float": granted(b"1.7e15"),
    "token-2^53": granted(b"9007199254740992"),
    "token-2^64": granted(b"18446744073709551617"),
    "token-nul": granted(b"17\0"),
    # a slot, an integer below the highest limit
    "slot-missing": array(1, b"17"),
    "slot-text": granted(slot=b"0"),
    "slot-negative": granted(slot=-1),
    "slot-large": granted(slot=100000),
    # what is said to a waiter
    "place-negative": waiting(place=-1),
    "left-negative": waiting(left=-2),
    "held-text": waiting(held=b"x"),
    "record-missing": array(0, 1, 1000, 5, 7, b"x", 1),
    "ticket-missing": array(0, 1, 1000, 5, b"{}", b"x", 1),
    "ticket-negative": waiting(ticket=-1),
    "ticket-text": waiting(ticket=b"x"),
    "kind-unknown": waiting(kind=b"y"),
    "kind-without-limit": waiting(kind=b"l"),
    "holders-negative": waiting(holders=-1),
    # a kind in use that excludes nothing, and what only a job is told
    "other-kind-exclusive": array(-1, b"x"),
    "done": array(4, 1700000000000, b"root@host"),
    "recent": array(5, 1000),
    # an answer to nothing
    "twice": GRANTED * 2,
    "grant-and-noise": GRANTED + b"noise",
}


@pytest.mark.parametrize("reply", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_is_a_protocol_error(dlock, make_hostile, reply):
    server = make_hostile({"*": reply})
    assert_refused(run(dlock, server.url), 76, str(server.port))


def test_banner_of_another_protocol(dlock, make_hostile):
    for banner in (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", b"220 mail.example ESMTP\r\n"):
        server = make_hostile({"*": SILENCE}, greeting=banner)
        assert_refused(run(dlock, server.url), 76, str(server.port))


def test_flood_takes_no_memory(dlock, make_hostile):
    server = make_hostile({"*": b"$104857600\r\n" + b"x" * (100 << 20) + b"\r\n"})
    limit = 200 << 20
    done = run(dlock, server.url,
               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit // 4, limit // 4)))
    assert_refused(done, 76)


def test_errors_are_printed_without_their_escapes(dlock, make_hostile):
    server = make_hostile({"*": b"-ERR " + SCREEN + b"hi \xff\xe2\x80\xae\r\n"})
    assert_refused(run(dlock, server.url, *ONCE), 69, "\\x1B", "hi")


@pytest.mark.parametrize("record", [
    SCREEN, b"not json", b"[1,2]", b'{"who":7}', b'{"who":"\\u001b[2J","host":"\\u202e","pid":-1}', b"{" * 900,
    b'{"who":"' + b"x" * 900 + b'"}', b"", b"\xff\xfe", b'{"who":"a\\u0000b"}',
], ids=range(10))
def test_holder_record_is_shown_harmlessly(dlock, make_hostile, record):
    server = make_hostile({"acquire": waiting(record=record)})
    assert_refused(run(dlock, server.url, "-n"), 75)


# ---- connections that break while asking ----


def test_reset_after_any_byte_of_the_request(dlock, make_hostile):
    for n in [*range(0, 40), *range(40, 300, 9)]:
        server = make_hostile(reset_after=n)
        assert_refused(run(dlock, server.url, *ONCE), 69, str(server.port))


@pytest.mark.parametrize("direction", [UP, DOWN], ids=["request", "answer"])
def test_lock_is_free_after_a_reset_in_the_middle(dlock, redis_server, make_proxy, direction):
    run(dlock, redis_server.url)  # so that its script is there: one request, one answer
    proxy = make_proxy(redis_server.port)
    for tenth in range(11):
        def cut(_link, piece_direction, piece):  # of each as it comes: a pid may have a digit less in the next request
            if piece_direction == direction:
                proxy.cut(direction, 1 + (len(piece) - 2) * tenth // 10)
            return piece

        proxy.tap = cut
        assert_refused(run(dlock, proxy.url, *ONCE), 69)
        assert is_free(dlock, redis_server), tenth


def test_lost_answer_is_withdrawn(dlock, redis_server, make_proxy):
    run(dlock, redis_server.url)
    proxy = make_proxy(redis_server.port)
    proxy.drop(DOWN)
    done = run(dlock, proxy.url, *IMPATIENT)
    assert_refused(done, 69)
    assert proxy.bytes[UP] > 100
    assert is_free(dlock, redis_server)


def test_late_request_blocks_for_one_lease_at_most(dlock, remote, make_proxy):
    proxy, key = make_proxy(remote.server.port), remote.key()
    proxy.hold(UP)
    assert_refused(run(dlock, remote.url_at(proxy.port), *IMPATIENT, *LEASE, key=key), 69)
    proxy.heal()  # now the server gets it
    assert run(dlock, remote.url, "-w", SOON, key=key).status == 0


# ---- in the queue ----


def queue_length(server):
    with server.client() as c:
        return sum(c.zcard(key) for key in c.scan_iter("dlock:*:q"))


@pytest.mark.parametrize("fault", ["reset", "hold", "refuse"])
def test_waiter_survives_a_partition(dlock, own_redis, make_proxy, fault):
    proxy = make_proxy(own_redis.port)
    holder = dlock.hold(At(own_redis.url), "job")
    waiter = dlock.contend(At(proxy.url), "job", command=("true",)).queued(1)
    wait_for(lambda: proxy.connections == 2, what="the waiter's subscription")
    if fault == "refuse":
        proxy.refuse()
    if fault == "hold":
        proxy.hold(*BOTH)
        wait_for(lambda: proxy.connections > 2, what="a new attempt")
    proxy.reset()
    if fault == "refuse":
        time.sleep(0.5)  # some attempts fail
        proxy.accept()
    proxy.heal()
    wait_for(lambda: proxy.connections > 3 and queue_length(own_redis) == 1, what="the waiter's return")
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    assert queue_length(own_redis) == 0


def are_back(server, n):
    """Has the server the holder and so many waiters again?  Whoever is away for seconds when its turn comes is passed over."""
    if hasattr(server, "asleep"):  # pg and mysql
        return server.asleep() == n and not (hasattr(server, "lacking") and server.lacking())
    if not isinstance(server, RedisServer):
        return not hasattr(server, "connected") or len(server.connected()) == n + 1
    with server.client() as c:  # each hears its own channel
        heard = [channel.rpartition(":")[2] for channel in c.pubsub_channels("dlock:*")]
        queued = [owner for queue in c.scan_iter("dlock:*:q") for owner in c.zrange(queue, 0, -1)]
        return len(queued) == n and set(queued) <= set(heard)


def test_queue_survives_a_crash(dlock, own_durable):
    at, server = At(own_durable.url), own_durable.server
    holder = dlock.hold(at, "job", *outlasting_a_restart(own_durable))
    waiters = [dlock.contend(at, "job", command=("true",)).queued(n) for n in (1, 2, 3)]
    server.restart()
    wait_for_writes(server, holder)
    wait_for(lambda: are_back(server, 3), what="the waiters' return")
    assert holder.finish().status == 0
    assert [w.wait().status for w in waiters] == [0, 0, 0]
    tokens = [s.token for s in (holder, *waiters)]
    assert tokens == sorted(set(tokens))


def test_waiters_queue_again_at_a_server_that_lost_everything(dlock, own_redis):
    at = At(own_redis.url)
    dlock.hold(at, "job", *LEASE)
    waiter = dlock.contend(at, "job", command=("true",)).queued(1)
    own_redis.restart()
    assert waiter.wait().status == 0


def test_waiter_gives_up_after_a_lease_without_server(dlock, own_remote):
    dlock.hold(own_remote, "job")
    waiter = dlock.contend(own_remote, "job", *LEASE).queued(1)
    own_remote.server.kill()
    done = waiter.wait()
    assert (done.status, done.stdout) == (69, "")
    assert str(own_remote.server.port) in done.stderr.splitlines()[-1]


# ---- holding: the server is away for too long ----


def cannot_connect(proxy):
    proxy.refuse()
    proxy.reset()


AWAY = {
    "partition": lambda proxy: proxy.hold(*BOTH),
    "black-hole": lambda proxy: proxy.drop(*BOTH),
    "requests-lost": lambda proxy: proxy.drop(UP),
    "answers-lost": lambda proxy: proxy.drop(DOWN),
    "answers-drip": lambda proxy: proxy.drip(DOWN, 1, 0.9),
    "slow": lambda proxy: setattr(proxy, "delay", 5),
    "refused": cannot_connect,
}


@pytest.mark.parametrize("away, kind", [*((away, "exclusive") for away in AWAY), *(("partition", kind) for kind in OTHER_KINDS)])
def test_command_is_gone_before_the_lease_ends(dlock, remote, make_proxy, tmp_path, away, kind):
    proxy, heard, away, key = make_proxy(remote.server.port), tmp_path / "heard", AWAY[away], remote.key()
    words = kind_words(dlock, remote, kind)
    lease = ("-t", "6s", "--grace", "2s")  # the command has time to hear of TERM, on a busy machine as well
    holder = dlock.contend(At(remote.url_at(proxy.port)), key, *words, *lease, command=("sh", "-c", STUBBORN, heard)).held()
    command = holder.command
    next_ = dlock.contend(remote, key, command=("sh", "-c", IS_GONE, command)).queued(1)
    away(proxy)
    before = boottime()
    done = holder.wait()
    assert done.status == 79
    assert not is_alive(command)
    said = [line for line in told_at_the_end(done.stderr).splitlines() if not re.match("dlock: (waiting|got) ", line)]  # on a busy machine
    assert len(said) == 1 and key in said[0]
    if stalled(before) <= 0.3 or heard.exists():  # else it was too late for a polite word
        assert heard.read_text() == "TERM\n"
    assert len(holder.events("suspect")) == 1 and not holder.events("trusted")
    assert next_.wait().status == 0
    assert next_.token > holder.token
    assert spent(before) < SOON_SECONDS


def test_frozen_server_costs_the_command(dlock, own_remote):
    holder = dlock.hold(own_remote, "job", *LEASE)
    own_remote.server.pause()
    assert holder.wait().status == 79
    own_remote.server.resume()
    assert run(dlock, own_remote.url, "-w", SOON).status == 0


def test_dead_server_costs_the_command(dlock, own_remote):
    holder = dlock.hold(own_remote, "job", *LEASE)
    own_remote.server.kill()
    assert holder.wait().status == 79


# ---- holding: the server is away for a while ----


@pytest.mark.parametrize("fault, kind", [("hold", "exclusive"), ("refuse", "exclusive"), ("pause", "exclusive"),
                                         *(("hold", kind) for kind in OTHER_KINDS)])
def test_short_outage_leaves_the_command_alone(dlock, own_remote, make_proxy, tmp_path, fault, kind):
    server, words = own_remote.server, kind_words(dlock, own_remote, kind)
    proxy, heard = make_proxy(server.port), tmp_path / "heard"
    command = ("sh", "-c", "trap 'echo TERM >>\"$0\"' TERM; cat", heard)
    holder = dlock.hold(At(own_remote.url_at(proxy.port)), "job", *words, *LIVING_LEASE, command=command)
    if fault == "refuse":
        cannot_connect(proxy)
    elif fault == "hold":
        proxy.hold(*BOTH)
    else:
        server.pause()
    holder.event("suspect")
    if fault == "refuse":
        proxy.accept()
    proxy.heal()
    server.resume()
    holder.event("trusted")
    assert holder.finish().status == 0
    assert not heard.exists()
    assert [e["event"] for e in holder.events()].count("suspect") == 1
    assert is_free(dlock, own_remote)


def test_connection_closed_between_renewals_is_opened_anew(dlock, own_redis):
    holder = dlock.hold(At(own_redis.url), "job", *LIVING_LEASE)
    with own_redis.client() as c:
        c.client_kill_filter(_type="normal", skipme=True)
    wait_for_writes(own_redis, holder)
    assert holder.finish().status == 0
    assert not holder.events("suspect")


def test_passing_errors_do_not_end_the_command(dlock, make_hostile):
    errors = [b"-READONLY replica\r\n", b"-LOADING\r\n", b"-BUSY script\r\n", b"-OOM memory\r\n", b"-MISCONF disk\r\n",
              b"-NOREPLICAS few\r\n", b"-NOPERM acl\r\n", b"-NOAUTH first\r\n", b"-MOVED 1 h:1\r\n",
              b"-CLUSTERDOWN\r\n", b"-ERR max number of clients reached\r\n", b"-ERR unheard of\r\n", b"rubbish\r\n",
              b":1\r\n", RESET, SILENCE]
    holders = []
    for error in errors:
        server = make_hostile({"renew": [error, GRANTED]})
        holders.append(dlock.contend(At(server.url), "job", *LIVING_LEASE))
    for error, holder in zip(errors, holders):
        if error is not RESET:  # an idle connection found closed is opened anew, without a word
            holder.event("suspect")
            holder.event("trusted")
    for error, holder in zip(errors, holders):
        assert_goes_on(holder, error)


def test_lasting_errors_end_the_command(dlock, make_hostile):
    errors = [b"-READONLY replica\r\n", b"-NOPERM acl\r\n", b"-NOSCRIPT none\r\n", b"rubbish\r\n", RESET, SILENCE]
    holders = [dlock.contend(At(make_hostile({"renew": error}).url), "job", *LEASE) for error in errors]
    for error, holder in zip(errors, holders):
        done = holder.wait()
        assert (done.status, told_at_the_end(done.stderr).count("\n")) == (79, 1), error


def test_not_yours_ends_the_command_at_once(dlock, make_hostile, tmp_path):
    server, heard = make_hostile({"renew": array(0), "release": array(0)}), tmp_path / "heard"
    holder = dlock.contend(At(server.url), "job", "-t", "12s", command=("sh", "-c", STUBBORN, heard))
    assert holder.wait().status == 79
    assert not heard.exists()  # KILL, without TERM


def test_answer_sent_twice_renews_nothing(dlock, make_hostile):
    server = make_hostile({"acquire": GRANTED, "renew": [GRANTED * 2, SILENCE]})
    holder = dlock.contend(At(server.url), "job", "-t", "6s")
    wait_for(lambda: server.asked.count("renew") >= 1, what="the only renewal that is answered")
    before = boottime()
    assert holder.wait().status == 79
    assert spent(before) < 6


def test_busy_script_of_another_client(dlock, make_redis):
    server = make_redis("--lua-time-limit", "100")
    holder = dlock.hold(At(server.url), "job", "-t", "9s")

    def be_busy():
        with server.client() as c, contextlib.suppress(redis.exceptions.ResponseError):  # that it was killed
            c.eval("while true do end", 0)

    thread = threading.Thread(target=be_busy)
    thread.start()
    holder.event("suspect")
    with server.client() as c:
        c.script_kill()
    thread.join()
    holder.event("trusted")
    assert holder.finish().status == 0


# ---- holding: what is done to the data ----


def keys_of(client):
    return list(client.scan_iter("dlock:*"))


def each_key(action):
    def act(client):
        for key in keys_of(client):
            action(client, key)
    return act


TAMPERED = {
    "flushall": lambda c: c.flushall(),
    "deleted": each_key(lambda c, key: c.delete(key)),
    "renamed": each_key(lambda c, key: c.rename(key, "else:" + key)),
    "other-type": each_key(lambda c, key: c.set(key, "a string")),
    "expired": each_key(lambda c, key: c.pexpire(key, 1)),
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED.keys())
def test_lost_data_cost_the_command(dlock, own_redis, tamper):
    holder = dlock.hold(At(own_redis.url), "job", *LEASE)
    with own_redis.client() as c:
        tamper(c)
    done = holder.wait()
    assert done.status == 79 and told_at_the_end(done.stderr).count("\n") == 1
    with own_redis.client() as c:
        c.flushall()
    assert is_free(dlock, own_redis)


def test_lost_data_are_noticed_at_release(dlock, own_redis):
    holder = dlock.hold(At(own_redis.url), "job")
    with own_redis.client() as c:
        c.flushall()
    done = holder.finish()
    assert done.status == 79 and "job" in done.stderr


def test_lost_lock_is_not_taken_again(dlock, own_redis):
    # The renewal after the loss must create nothing.
    holder = dlock.hold(At(own_redis.url), "job", *LEASE)
    with own_redis.client() as c:
        c.flushall()
        assert holder.wait().status == 79
        assert not any(c.zcard(key) for key in keys_of(c) if c.type(key) == "zset")


def test_expiry_is_restored_by_renewal(dlock, own_redis):
    holder = dlock.hold(At(own_redis.url), "job", *LIVING_LEASE)
    with own_redis.client() as c:
        keys = keys_of(c)
        for key in keys:
            c.persist(key)
        wait_for(lambda: all(c.pttl(key) > 0 for key in keys), what="expiry times")
        assert holder.finish().status == 0
        wait_for(lambda: all(c.pttl(key) != -1 for key in keys_of(c)), what="expiry times")


# ---- holding: restarts ----


@pytest.mark.parametrize("kind", ["exclusive", *OTHER_KINDS])
def test_restart_with_its_data_goes_unnoticed(dlock, own_durable, kind):
    holder = dlock.hold(own_durable, "job", *kind_words(dlock, own_durable, kind), *outlasting_a_restart(own_durable))
    own_durable.server.restart()
    wait_for_writes(own_durable.server, holder)
    done = holder.finish()
    assert done.status == 0
    if "the release was not confirmed" in done.stderr:  # a server just restarted may close the connection once more
        wait_for(lambda: is_free(dlock, own_durable), what="the release in the background, as was told")
    assert is_free(dlock, own_durable)


def test_restart_without_its_data_costs_the_command(dlock, own_redis):
    holder = dlock.hold(At(own_redis.url), "job", *LEASE)
    own_redis.restart()
    assert holder.wait().status == 79
    assert is_free(dlock, own_redis)


# ---- holding: the server's clock ----


@pytest.fixture
def clock(tmp_path, make_redis):
    """A server whose wall clock is wrong by what is written into the file, in seconds."""
    file = tmp_path / "shift"
    shim = compile_shim(tmp_path, "clock", """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <stdlib.h>
        #include <sys/time.h>
        #include <time.h>
        #include <unistd.h>
        static long shift(void)
        {
            char text[32] = "";
            int fd = open(getenv("SHIFT"), O_RDONLY);
            if (fd < 0)
                return 0;
            if (read(fd, text, sizeof text - 1) < 0)
                text[0] = 0;
            close(fd);
            return atol(text);
        }
        int clock_gettime(clockid_t id, struct timespec *t)
        {
            static int (*real)(clockid_t, struct timespec *);
            if (!real)
                real = dlsym(RTLD_NEXT, "clock_gettime");
            int result = real(id, t);
            if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
                t->tv_sec += shift();
            return result;
        }
        int gettimeofday(struct timeval *tv, void *zone)
        {
            struct timespec t;
            (void)zone;
            clock_gettime(CLOCK_REALTIME, &t);
            tv->tv_sec = t.tv_sec;
            tv->tv_usec = t.tv_nsec / 1000;
            return 0;
        }
        time_t time(time_t *ret)
        {
            struct timespec t;
            clock_gettime(CLOCK_REALTIME, &t);
            return ret ? *ret = t.tv_sec : t.tv_sec;
        }""")
    server = make_redis(env={"LD_PRELOAD": shim, "SHIFT": str(file)})

    def shift(seconds):
        (tmp_path / "new").write_text(str(seconds))
        os.rename(tmp_path / "new", file)
        with server.client() as c:
            wait_for(lambda: abs(c.time()[0] - time.time() - seconds) < 5, what="the shifted clock")

    return server, shift


def test_server_clock_set_forward_costs_the_command(dlock, clock):
    server, shift = clock
    holder = dlock.hold(At(server.url), "job", *LEASE)
    shift(3600)
    assert holder.wait().status == 79
    assert is_free(dlock, server)


def test_server_clock_set_back_changes_nothing_for_the_holder(dlock, clock):
    server, shift = clock
    holder = dlock.hold(At(server.url), "job", *LIVING_LEASE)
    waiter = dlock.contend(At(server.url), "job").queued(1)
    shift(-3600)
    wait_for_writes(server, holder)
    assert holder.finish().status == 0
    assert waiter.held().token > holder.token
    assert waiter.finish().status == 0
    assert is_free(dlock, server)


def test_a_first_renewal_that_comes_early_makes_no_room_for_a_long_grace(dlock, remote):
    """A nested run is taken or refused by what the lease is for most of its time, also while the outer one's is young."""
    def nested(later):
        words = ["run", *remote.words, "-k", remote.key()]
        inner = " ".join([f"sleep {later};", DLOCK, *words, "-t", "60s", "--grace", "18s", "--", "true"])
        done = dlock.run(*words, "--", "sh", "-c", inner)
        assert done.status == 0 or done.status == 78 and "too short for two renewals and a grace of 18s" in done.stderr, done
        return done.status

    assert nested(0) == nested(1.2)  # zk and memcached renew so often that there is room


# ---- at the end ----


def test_unanswered_release_keeps_the_commands_status(dlock, remote, make_proxy):
    proxy, key = make_proxy(remote.server.port), remote.key()  # what another test has left on this server is not met
    holder = dlock.contend(At(remote.url_at(proxy.port)), key, *LEASE, command=("sh", "-c", "read x; exit 5")).held()
    proxy.hold(*BOTH)
    holder.popen.stdin.write(b"\n")
    holder.popen.stdin.flush()
    done = holder.wait()
    assert done.status == 5 and done.stderr.count("\n") == 1 and key in done.stderr
    proxy.heal()
    assert run(dlock, remote.url, "-w", SOON, key=key).status == 0


def test_release_while_the_server_is_away_costs_the_next_one_no_lease(dlock, remote, make_proxy):
    """What could not be told at the end is told as soon as the server is there again."""
    proxy, lease, key = make_proxy(remote.server.port), 30, remote.key()
    holder = dlock.contend(At(remote.url_at(proxy.port)), key, "-t", f"{lease}s").held()
    granted = boottime()
    cannot_connect(proxy)
    done = holder.finish()
    assert done.status == 0 and "in the background" in done.stderr
    proxy.accept()
    assert run(dlock, remote.url, "-w", "2m", key=key, timeout=150).status == 0
    assert boottime() < granted + 0.9 * lease


def test_a_first_connection_that_nobody_answers_costs_one_attempt(dlock, remote, make_proxy):
    """And not all the time that there is: another is tried after connect-timeout."""
    proxy, key = make_proxy(remote.server.port), remote.key()
    proxy.hold(*BOTH)
    started = dlock.contend(At(remote.url_at(proxy.port)), key, "-w", "12s", command=("true",))
    wait_for(lambda: proxy.connections, what="a connection")
    proxy.strand()  # this one, and those that are there; not those to come
    proxy.hold()
    done = started.wait()
    assert done.status == 0, done


def test_interrupted_while_connecting(dlock, make_hostile, make_proxy, remote):
    proxy = make_proxy(make_hostile({"*": SILENCE}).port)
    waiter = dlock.contend(At(remote.url_at(proxy.port)), "job")
    wait_for(lambda: proxy.connections, what="a connection")  # in MySQL's language the server has the first word
    waiter.signal(signal.SIGINT)
    done = waiter.wait()
    assert (done.status, done.stdout) == (-signal.SIGINT, "")


def test_lost_answer_to_a_release_is_no_lost_lock(dlock, redis_server, make_proxy):
    """The server has released, its answer got lost, and asked again it knows of nothing: that proves no loss."""
    proxy = make_proxy(redis_server.port)
    holder = dlock.hold(At(proxy.url), dlock.own_key)
    proxy.cut(DOWN, proxy.bytes[DOWN])
    holder.finish()
    done = holder.wait()
    assert done.status == 0 and "the release was not confirmed" in done.stderr
    wait_for(lambda: run(dlock, redis_server.url, "-n").status == 0, what="a free lock")
