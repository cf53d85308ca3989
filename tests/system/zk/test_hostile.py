# Goal of these tests: a server that is no ZooKeeper, or one that talks nonsense, runs no
# command and ends no dlock but with one clear sentence.

import contextlib
import http.server
import re
import socket
import struct
import sys
import threading

import pytest

from faults import IMPATIENT, LEASE, assert_refused
from hostile import RESET, SILENCE
from support import DLOCK, At, free_port, run, told_at_the_end, wait_for
from zk import (CREATE_CONTAINER, DELETE, EXISTS, EXPIRED, GET_CHILDREN, GET_DATA, LISTS, MAKES, MULTI, NO_NODE, SET_DATA,
                SYNC, ZkHostile, buffer, reply, stat, text_at, to_all, welcome)


# ---- servers that are not what they should be ----


class Http(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(params=["redis", "pg", "http"])
def other(request):
    """The port of a server that is something else."""
    if request.param == "redis":
        yield request.getfixturevalue("redis_server").port
    elif request.param == "pg":
        yield request.getfixturevalue("pg_server").port
    else:
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Http) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield server.server_port
            server.shutdown()


def test_server_that_is_something_else(dlock, other):
    """It is said at once, not after a time-out."""
    url = f"zk://127.0.0.1:{other}"
    for options in (("-O", "connect-timeout=60s"), ("-w", "inf"), ("-n", "-O", "connect-timeout=60s")):
        assert_refused(run(dlock, url, *options, timeout=15), 76, str(other), "is this a ZooKeeper?")


def test_server_that_is_something_else_and_silent_at_first(dlock):
    """It is asked again, by the same session."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client = stack.enter_context(listener.accept()[0])
                    client.settimeout(0.2)
                    with contextlib.suppress(TimeoutError):
                        if client.recv(100).startswith(b"srvr"):
                            asked.append(client)
                    if len(asked) > 1:
                        asked[-1].sendall(b"ERROR\r\n")

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        assert_refused(run(dlock, f"zk://127.0.0.1:{port}", "-O", "connect-timeout=60s", timeout=30), 76, str(port), "is this a ZooKeeper?")
        listener.shutdown(socket.SHUT_RDWR)
    assert len(asked) == 2


@pytest.mark.parametrize("late", [False, True], ids=["prompt", "late"])
def test_what_a_server_says_of_itself_is_not_believed_of_the_next(dlock, make_hostile, late):
    """The first connection is to a server that is alone, or a leader that looks so; the second to a follower.

    `late`: the first answers no request but the question who it is, with the end of the connection behind it.
    """
    asked = []  # one question a connection

    def nothing(xid):
        return reply(xid, 0, buffer(b""), stat())

    def who(xid, request):
        if text_at(request, 8) != "/zookeeper/config":
            return reply(xid, 0, buffer(b"{}"), stat(version=server.version, length=2))
        asked.append(xid)
        if len(asked) > 1:
            return reply(xid, 0, buffer(b"server.1=a:1:2"), stat(length=14))
        return SILENCE if late else nothing(xid)

    def create(xid, request):
        return nothing(asked[0]) if late and len(asked) == 1 else server.make(xid, request)

    def lists(xid, _):
        if late and len(asked) == 1:
            raise ConnectionResetError
        return reply(xid, 0, server.listed(), stat())

    def write(xid, request):
        if server.version == 1 and len(asked) == 1:
            raise ConnectionResetError
        return server.set(xid, request)

    server = make_hostile(program=ZkHostile, first=welcome(12000), answers={
        GET_DATA: who, SET_DATA: write, **to_all(MAKES, create), **to_all(LISTS, lists)})
    holder = dlock.hold(At(server.url), "job", "-t", "12s", "-v")
    wait_for(lambda: len(asked) == 2 and holder.stderr().count("renew: ok") == 3, what="renewals")
    leases = [float(left) for left in re.findall(r"renew: ok .* lease for ([\d.]+) s", holder.stderr())]
    assert [left > 11 for left in leases[:2]] == [not late, False]
    assert holder.finish().status == 0


@pytest.mark.parametrize("n", [-1 << 63, -1, 0, (1 << 63) - 1])
def test_odd_numbers_of_nodes(dlock, make_hostile, n):
    small = max(-1 << 31, min(n, (1 << 31) - 1))
    odd = struct.pack(">qqqqiiiqiiq", 7, n, n, n, small, small, small, n, small, small, n)

    def children_(xid, _):
        return reply(xid, 0, struct.pack(">i", 2), buffer(b"!-lock-0000000000"), buffer(server.name), odd)

    server = make_hostile(program=ZkHostile, answers={
        **to_all(LISTS, children_), GET_DATA: lambda xid, _: reply(xid, 0, buffer(b"{}"), odd),
        EXISTS: lambda xid, _: reply(xid, 0, odd)})
    assert_refused(run(dlock, server.url, "-w", "2s", timeout=20), 75)


def test_read_only_server(dlock, make_zk):
    # A member of an ensemble whose other members are not there.
    dead = {f"server.{n}": f"127.0.0.1:{free_port()}:{free_port()}" for n in (1, 2, 3)}
    server = make_zk(["-Dreadonlymode.enabled=true"], member=1, **dead)
    assert wait_for(server.mode) == "read-only"
    # It turns clients away that do not ask for reading only, as one without a quorum does.
    assert_refused(run(dlock, server.url, "-n"), 69, "quorum")


def test_server_without_quorum(dlock, make_zk):
    dead = {f"server.{n}": f"127.0.0.1:{free_port()}:{free_port()}" for n in (1, 2, 3)}
    server = make_zk(member=1, wait=False, **dead)
    wait_for(lambda: "not currently serving" in (server.try_four("srvr") or ""), what="a server that serves nobody")
    assert_refused(run(dlock, server.url, *IMPATIENT), 69, str(server.port))


def test_server_with_too_many_clients(dlock, make_zk):
    server = make_zk(maxClientCnxns=1)
    with server.client():
        assert_refused(run(dlock, server.url, *IMPATIENT), 69, str(server.port))


GARBAGE = {
    "length-minus-1": b"\xff\xff\xff\xff",
    "length-int-max": b"\x7f\xff\xff\xff" + b"x" * 5000,
    "length-int-min": b"\x80\0\0\0",
    "length-0": b"\0\0\0\0",
    "length-10M": struct.pack(">i", 10 << 20) + b"x" * 100000,
    "truncated": welcome(30000)[:20],
    "short": buffer(welcome(30000)[4:20]),
    "password-length": welcome(30000)[:20] + b"\x7f\xff\xff\xff" + b"x" * 16,
    "password-negative": welcome(30000)[:20] + b"\xff\xff\xff\xff" + b"x" * 16,
    "ssh": b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
    "http": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "redis": b"-ERR unknown command\r\n",
    "zeros": bytes(100),
    "reply-before": welcome(30000) + reply(77, 0, b"x" * 100),
    "replies-before": welcome(30000) + reply(1, 0) * 50,
    "event-unasked": welcome(30000) + reply(-1, 0, struct.pack(">ii", 2, 3), buffer(b"/x")),
    "event-torn": welcome(30000) + reply(-1, 0, struct.pack(">ii", 2, 3), b"\x7f\xff\xff\xff/x"),
    "auth-failed": welcome(30000) + reply(-4, -115),
}


def assert_all_survived(dlock, servers, *options):
    """Nothing was run, and one line says so, whatever these servers (by name) do; all at once, for time's sake."""
    started = {name: dlock.contend(At(server.url), "job", "-q", *IMPATIENT, *options, command=("echo", "ran"))
               for name, server in servers.items()}
    odd = {}
    for name, one in started.items():
        done = one.wait()
        told = [line for line in done.stderr.splitlines() if "waited" not in line]  # a slow machine waits, and says so
        if done.status not in (69, 76, 77) or done.stdout or len(told) != 1:
            odd[name] = done
    assert not odd


def test_garbage_for_a_welcome(dlock, make_hostile):
    silent = {o: SILENCE for o in (*MAKES, *LISTS, CREATE_CONTAINER)}
    assert_all_survived(dlock, {name: make_hostile(program=ZkHostile, first=first, answers=silent)
                                for name, first in GARBAGE.items()})


def test_banner_of_another_protocol(dlock, make_hostile):
    banners = {"ssh": b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", "smtp": b"220 mail.example ESMTP\r\n", "zeros": b"\0" * 10}
    assert_all_survived(dlock, {name: make_hostile(program=ZkHostile, first=SILENCE, greeting=banner)
                                for name, banner in banners.items()})


def test_reset_after_any_byte(dlock, make_hostile):
    assert_all_survived(dlock, {n: make_hostile(program=ZkHostile, reset_after=n)
                                for n in (0, 1, 3, 4, 5, 20, 40, 41, 42, 50, 80, 100)})


@pytest.mark.parametrize("timeout", [0, -1, -(1 << 31), 1, 999])
def test_lease_of_no_use(dlock, make_hostile, timeout):
    server = make_hostile(program=ZkHostile, first=welcome(timeout))
    done = run(dlock, server.url, *IMPATIENT)
    assert done.status in (69, 76, 78), done
    assert_refused(done, done.status, str(server.port))


def test_lease_of_25_days(dlock, make_hostile):
    # The library reckons with twice of that, as an int.
    server = make_hostile(program=ZkHostile, first=welcome((1 << 31) - 1))
    done = run(dlock, server.url, *IMPATIENT)
    assert done.status in (0, 69, 76, 78), done


def test_hostile_server_can_also_be_good(dlock, make_hostile):
    server = make_hostile(program=ZkHostile)
    done = run(dlock, server.url)
    assert (done.status, done.stdout, done.stderr) == (0, "ran\n", "")
    assert server.count(DELETE) == 1


@pytest.mark.parametrize("before", ["nothing", "unanswered"])
def test_session_that_expires_while_its_node_is_given_back(dlock, make_hostile, tmp_path, before):
    """It is not known whether the lock was ours until then, also where it was asked for before."""
    ended = tmp_path / "ended"  # until then a renewal, of a machine that is late, finds it

    def read(xid, request):
        if text_at(request, 8) == "/zookeeper/config":
            return reply(xid, 0, buffer(b""), stat())
        if not ended.exists() or (before == "unanswered" and not server.count(DELETE)):
            return reply(xid, 0, buffer(b"{}"), stat(length=2))
        return reply(xid, EXPIRED)

    server = make_hostile(program=ZkHostile, answers={GET_DATA: read, DELETE: RESET})
    done = run(dlock, server.url, "-O", "layout=plain", command=("sh", "-c", 'echo ran; : >"$0"', ended), timeout=20)
    assert done.status == 79 and done.stdout == "ran\n", done
    assert "the session has expired" in done.stderr
    assert server.count(DELETE) == (before == "unanswered")


def children(count, *names):
    return lambda xid, _: reply(xid, 0, struct.pack(">i", count), *(buffer(n) for n in names), stat())


NONSENSE = {
    "create-no-body": to_all(MAKES, lambda xid, _: reply(xid)),
    "create-no-stat": to_all(MAKES, lambda xid, _: reply(xid, 0, buffer(b"/job/_c_x-lock-0000000000"))),
    "create-path-huge": to_all(MAKES, lambda xid, _: reply(xid, 0, b"\x7f\xff\xff\xff", stat())),
    "create-path-negative": to_all(MAKES, lambda xid, _: reply(xid, 0, b"\xff\xff\xff\xfe", stat())),
    "create-path-none": to_all(MAKES, lambda xid, _: reply(xid, 0, b"\xff\xff\xff\xff", stat())),
    "create-path-empty": to_all(MAKES, lambda xid, _: reply(xid, 0, buffer(b""), stat())),
    "create-path-other": to_all(MAKES, lambda xid, _: reply(xid, 0, buffer(b"/elsewhere"), stat())),
    "create-path-long": to_all(MAKES, lambda xid, _: reply(xid, 0, buffer(b"/job/" + b"x" * 100000), stat())),
    "create-error": to_all(MAKES, lambda xid, _: reply(xid, -99999)),
    "create-other-xid": to_all(MAKES, lambda xid, _: reply(xid + 7, 0, buffer(b"/job/x"), stat())),
    "children-count-huge": to_all(LISTS, children((1 << 31) - 1, b"a")),
    "children-count-negative": to_all(LISTS, children(-5, b"a")),
    "children-count-1M": to_all(LISTS, children(1000000, b"a")),
    "children-name-huge": to_all(LISTS, lambda xid, _: reply(xid, 0, struct.pack(">ii", 1, (1 << 31) - 1))),
    "children-no-body": to_all(LISTS, lambda xid, _: reply(xid)),
    "children-error": to_all(LISTS, lambda xid, _: reply(xid, -4)),
    "children-none": to_all(LISTS, children(-1)),
}


def test_nonsense_for_an_answer(dlock, make_hostile):
    servers = {name: make_hostile(program=ZkHostile, answers=answers) for name, answers in NONSENSE.items()}
    assert_all_survived(dlock, servers, *LEASE)


@pytest.mark.parametrize("czxid", [0, -5])
def test_token_that_is_none(dlock, make_hostile, czxid):
    def create(xid, request):
        server.node = server.created(request)
        return reply(xid, 0, buffer(server.node), stat(czxid=czxid))

    server = make_hostile(program=ZkHostile, answers=to_all(MAKES, create))
    assert_refused(run(dlock, server.url), 76, str(server.port))


def test_nonsense_for_a_renewal(dlock, make_hostile):
    answers = {
        "error": lambda xid, _: reply(xid, -99999), "silence": SILENCE, "reset": RESET,
        "torn": b"\0\0\0\x50\0\0", "huge": b"\x7f\xff\xff\xff", "negative": b"\xff\xff\xff\xff",
        "cut": lambda xid, _: reply(xid), "half": lambda xid, _: reply(xid, 0, stat(version=1)[:60]),
        "not-yours": lambda xid, _: reply(xid, NO_NODE), "denied": lambda xid, _: reply(xid, -102),
    }
    holders = {}
    for name, answer in answers.items():
        server = make_hostile(program=ZkHostile, first=welcome(3000), answers={SET_DATA: answer})
        holders[name] = dlock.contend(At(server.url), "job", *LEASE)
    ended = {}
    for name, holder in holders.items():
        done = holder.wait()
        ended[name] = done.status, told_at_the_end(done.stderr).count("\n")
    assert ended == dict.fromkeys(answers, (79, 1))


def test_an_answer_that_comes_twice_has_come(dlock, make_hostile):
    """The second one breaks the connection, which libzookeeper would not survive."""
    def twice(xid, request):
        return server.set(xid, request) + reply(xid, 0, stat(version=server.version))

    server = make_hostile(program=ZkHostile, first=welcome(3000), answers={SET_DATA: twice})
    holder = dlock.hold(At(server.url), "job", *LEASE, "-v")
    wait_for(lambda: holder.stderr().count("renew: ok") >= 3, what="renewals")
    assert holder.finish().status == 0


# ---- answers that end too early, or never ----

CUT = {"create": (*MAKES, CREATE_CONTAINER), "list": LISTS, "get": (GET_DATA,), "exists": (EXISTS,), "sync": (SYNC,),
       "multi": (MULTI,)}
COMMANDS = {"run": ("run", "-q", "-k", "job"), "status": ("status", "-k", "job"), "ls": ("ls",),
            "freeze": ("freeze", "-k", "job"), "unit": ("run", "-q", "-k", "job", "--limit", "2")}


# Runs a program, and says how many KiB of memory the largest of its processes took.
MEASURED = """if True:
    import resource, subprocess, sys
    done = subprocess.run(sys.argv[1:])
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    sys.exit(done.returncode)"""


def start(dlock, server, command, before=(), **options):
    words, more = COMMANDS[command], ("--", "true") if "run" in COMMANDS[command] else ()
    return dlock.start(*before, words[0], "-u", server.url, *IMPATIENT, *words[1:], *more, events=False, **options)


@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_that_ends_after_its_header(dlock, make_hostile, command):
    """It ends no dlock but with a sentence: libzookeeper frees what it has not read."""
    started = {}
    for name, operations in CUT.items():
        server = make_hostile(program=ZkHostile, answers=to_all(operations, lambda xid, _: reply(xid)))
        server.node = b"/job/x-lock-0000000000" if command in ("status", "ls") else b""
        started[name] = start(dlock, server, command)
    odd = {}
    for name, one in started.items():
        done = one.wait()
        if done.status not in (0, 1, 69, 76) or (done.status > 1 and done.stderr.count("\n") != 1):
            odd[name] = done
    assert not odd


def test_a_waiter_whose_answers_end_after_their_header(dlock, make_hostile):
    def listed(xid, request):
        if struct.unpack_from(">i", request, 4) == (GET_CHILDREN,):
            return reply(xid)  # it watches the node ahead
        return reply(xid, 0, struct.pack(">i", 2), buffer(b"!-lock-0000000000"), buffer(server.name), stat())

    server = make_hostile(program=ZkHostile, answers=to_all(LISTS, listed))
    done = run(dlock, server.url, "-q", "-w", "3s")
    assert done.status in (69, 75) and done.stdout == "" and done.stderr.count("\n") <= 1, done


# Made when they are needed: what stays in memory is copied by each fork of the process of tests.
ENDLESS = {
    "length-int-max": lambda: b"\x7f\xff\xff\xff" + b"x" * (64 << 20),
    "length-64M": lambda: struct.pack(">i", 64 << 20) + b"x" * (64 << 20),
    "names": None,  # 7 MiB of them, each with a byte
}


@pytest.mark.parametrize("answer", ENDLESS)
@pytest.mark.parametrize("command", ("run", "status", "ls"))
def test_answers_without_end_take_no_memory(dlock, make_hostile, answer, command):
    names, endless = struct.pack(">i", 1 << 20) + buffer(b"x") * (1 << 20), ENDLESS[answer] and ENDLESS[answer]()
    server = make_hostile(program=ZkHostile, answers=to_all(LISTS, lambda xid, _: endless or reply(xid, 0, names, stat())))
    done = start(dlock, server, command, program=sys.executable, before=("-c", MEASURED, DLOCK)).wait()
    assert done.status == 69 and ("more than 8 MiB" in done.stderr) == (answer != "names"), done
    assert int(done.stdout.split()[-1]) < 60 << 10, done


def test_flood_of_events_does_no_harm(dlock, make_hostile):
    event = reply(-1, 0, struct.pack(">ii", 3, 3), buffer(b"/job/x"))
    server = make_hostile(program=ZkHostile, first=welcome(30000) + event * 20000)
    assert run(dlock, server.url).status == 0
