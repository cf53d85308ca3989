# Goal of these tests: rediss://: whom dlock believes, whom it shows its certificate, and that a lock is kept
# through TLS as it is without.

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from certificates import RSA, Authority
from databases import wait_for_renewals
from faults import LIVING_LEASE
from proxy import BOTH
from redis_script import ears
from redis_tls import trust_bundle
from support import boottime, compile_shim, is_alive, run, spent, wait_for

LEASE = ("-t", "3s")
LISTENS_FOR = 75  # ms: a fortieth of it, and then it tries again with its next renewal
RAN = ("echo", "ran")
SECRET = "s3cr3t/P%55 x"
ENCODED = "s3cr3t%2FP%2555%20x"


def trust(authority):
    return ("-O", f"cacert={authority.cert}")


def ours(certificate):
    return ("-O", f"cert={certificate.cert}", "-O", f"key={certificate.key}")


def is_refused(done, status, *words):
    """One line, this status, and nothing was run."""
    assert done.status == status and done.stdout == "", done
    lines = [line for line in done.stderr.splitlines() if not line.startswith("dlock: waiting")]
    assert len(lines) == 1 and lines[0].startswith("dlock: "), done
    assert [w for w in words if w not in lines[0]] == [], done
    assert "PRIVATE" not in lines[0]


def has_run(done):
    assert done.status == 0 and done.stdout == "ran\n" and done.stderr == "", done


def connections(server):
    with server.client() as c:
        return c.info("stats")["total_connections_received"]


def calls(server):
    with server.client() as c:
        return c.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)


class Listener:
    """A port that greets, and keeps what it is sent; connections are counted."""

    def __init__(self, greeting=b"", end=False):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.url = f"rediss://127.0.0.1:{self.port}"
        self.greeting, self.end, self.clients, self.heard = greeting, end, [], b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        try:
            while True:
                client, _ = self.socket.accept()
                self.clients.append(client)
                self.heard += client.recv(65536)
                client.sendall(self.greeting)
                if self.end:
                    client.close()
        except OSError:
            pass

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for client in self.clients:
            client.close()


@pytest.fixture
def listener(request):
    made = []

    def make(*arguments, **options):
        made.append(Listener(*arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


# ---- it works ----


@pytest.mark.parametrize("kind", [(), ("--tls-protocols", "TLSv1.2"), ("--tls-protocols", "TLSv1.3")], ids=["any", "1.2", "1.3"])
def test_a_lock_is_taken_kept_and_given_back(dlock, make_redis_tls, authority, kind):
    server = make_redis_tls(*kind)
    before = connections(server)
    held = dlock.start("run", "-v", "-u", server.url, *trust(authority), "-k", "job", *LEASE, "--", "sleep", "5")
    done = held.wait()
    assert done.status == 0 and len(re.findall(": renew: ok", done.stderr)) >= 3, done
    closed = done.stderr.count("no answer") + done.stderr.count("stopped")  # with an answer on its way
    times = [float(ms) for ms in re.findall(r": renew: ok in ([0-9.]+) ms", done.stderr)]
    closed += sum(ms >= LISTENS_FOR for ms in times)  # it did not get to listen in its share of a renewal
    assert connections(server) - before <= 3 + closed, done  # one is ours, and it listens on another


def test_an_rsa_certificate_will_do(dlock, make_redis_tls, authority):
    has_run(run(dlock, make_redis_tls(certificate=authority.sign("rsa", kind=RSA)).url, *trust(authority)))


def test_a_waiter_is_called(dlock, make_redis_tls, authority):
    """Three times in a row it does not have to find out by itself, which takes it more than three seconds."""
    server = make_redis_tls()

    class At:
        words = ["-u", server.url, *trust(authority)]

    late = []
    for _ in range(3):
        holder = dlock.hold(At, "job")
        waiter = dlock.contend(At, "job").queued(1)
        wait_for(lambda: ears(server.client()), what="a subscription")
        time.sleep(0.3)
        before = time.monotonic()
        holder.finish()
        waiter.held()
        late.append(time.monotonic() - before)
        waiter.finish()
    assert min(late) < 1, late


def test_password_and_url_come_from_where_they_come_without_tls(dlock, make_redis_tls, authority, tmp_path):
    server = make_redis_tls("--requirepass", SECRET)
    (tmp_path / "pw").write_text(SECRET + "\n")
    (tmp_path / "pw").chmod(0o600)
    has_run(run(dlock, server.url, *trust(authority), "-O", f"password-file={tmp_path}/pw"))
    has_run(run(dlock, server.url.replace("//", f"//:{ENCODED}@"), *trust(authority)))
    has_run(dlock.run("run", "-b", "redis", "-k", "job", *trust(authority), "--", *RAN,
                      env={"DLOCK_REDIS_URL": server.url.replace("//", f"//:{ENCODED}@")}))
    done = run(dlock, server.url.replace("//", "//:wr0ng-wr0ng@"), *trust(authority))
    assert done.status == 77 and "wr0ng" not in done.stderr


def test_status_and_ls_and_break_go_through_tls(dlock, make_redis_tls, authority):
    server = make_redis_tls()
    at = ["-u", server.url, *trust(authority)]
    held = dlock.start("run", *at, "-k", "job", *LEASE, "--", "sleep", "60").held()
    assert "job" in dlock.run("ls", *at).stdout and dlock.run("status", *at, "-k", "job").status == 0
    assert dlock.run("break", *at, "-k", "job", "-y").status == 0
    assert held.wait().status == 79


def test_a_name_and_addresses_of_both_kinds_are_looked_for_in_the_certificate(dlock, make_redis_tls, authority):
    server = make_redis_tls("--bind", "127.0.0.1", "::1")
    for host in ("127.0.0.1", "localhost", "[::1]"):
        has_run(run(dlock, f"rediss://{host}:{server.port}/3", *trust(authority)))
    has_run(run(dlock, server.url, *trust(authority), "-O", "tls-name=::1%eth0"))  # as a link-local address has it in a URL


def test_a_common_name_counts_without_others_and_for_hosts_only(dlock, make_redis_tls, authority):
    server = make_redis_tls(certificate=authority.sign("localhost", san=None))
    has_run(run(dlock, f"rediss://localhost:{server.port}", *trust(authority)))
    is_refused(run(dlock, server.url, *trust(authority)), 78, "not for 127.0.0.1")


def test_a_chain_is_followed(dlock, make_redis_tls, authority, tmp_path):
    """Of the server's certificate, and of ours."""
    between = Authority(tmp_path, "between", authority)
    server, client = between.sign("chained"), between.sign("client")
    for end in (server, client):
        with open(end.cert, "a", encoding="ascii") as f, open(between.cert, encoding="ascii") as more:
            f.write(more.read())
    at = make_redis_tls(certificate=server, clients="yes")
    has_run(run(dlock, at.url, *trust(authority), *ours(client)))
    lone = make_redis_tls(certificate=between.sign("lone"))
    is_refused(run(dlock, lone.url, *trust(authority)), 78, "no CA we trust", "-O cacert=FILE")


# ---- whom dlock believes ----


CASES = {"expired": ({"days": -1}, "has expired"),
         "name": ({"san": "DNS:elsewhere.example"}, "is not for 127.0.0.1", "-O tls-name=NAME"),
         "address": ({"san": "IP:10.0.0.1"}, "is not for 127.0.0.1")}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_certificate_is_refused_with_its_reason(dlock, make_redis_tls, authority, case):
    options, *words = CASES[case]
    server = make_redis_tls(certificate=authority.sign("wrong", **options))
    begun = calls(server)
    is_refused(run(dlock, server.url.replace("//", f"//:{ENCODED}@"), *trust(authority)), 78, f"127.0.0.1:{server.port}", *words)
    assert calls(server) == begun


def test_a_name_is_compared_with_the_certificate_and_the_address_is_not(dlock, make_redis_tls, authority):
    server = make_redis_tls(certificate=authority.sign("named", san="DNS:r.example.org,DNS:*.shard.example.org,DNS:x*.example.org"))
    is_refused(run(dlock, f"rediss://localhost:{server.port}", *trust(authority)), 78, "is not for localhost")
    for name in ("r.example.org", "R.example.org.", "a.shard.example.org"):
        has_run(run(dlock, server.url, *trust(authority), "-O", f"tls-name={name}"))
    for name in ("a.b.shard.example.org", "xy.example.org", "shard.example.org"):
        is_refused(run(dlock, server.url, *trust(authority), "-O", f"tls-name={name}"), 78, f"not for {name}")


def test_nobody_is_believed_who_signed_for_himself(dlock, make_redis_tls, authority, tmp_path):
    own = Authority(tmp_path, "self")
    server = make_redis_tls(certificate=own)
    for more in ((), trust(authority)):
        is_refused(run(dlock, server.url, *more), 78, "self-signed certificate", "-O cacert=FILE")
    is_refused(run(dlock, make_redis_tls().url), 78, "no CA we trust")
    has_run(run(dlock, server.url, "-O", f"cacert={own.cert}", "-O", "tls-name=self"))


def test_a_certificate_that_goes_bad_while_we_hold_is_an_outage(dlock, make_redis_tls, authority):
    """The lock is not lost by that, until its lease is over."""
    server = make_redis_tls("--appendonly", "yes", "--appendfsync", "always", certificate=authority.sign("turns"))
    held = dlock.start("run", "-v", "-u", server.url, *trust(authority), "-k", "job", "-t", "9s", "--", "sleep", "60").held()
    authority.sign("turns", days=-1)
    server.restart()
    wait_for(lambda: "has expired" in held.stderr() or held.poll() is not None, what="a renewal that meets it")
    assert ": renew: no answer" in held.stderr()
    authority.sign("turns")
    server.restart()
    begun = len(re.findall(": renew: ok", held.stderr()))
    wait_for(lambda: len(re.findall(": renew: ok", held.stderr())) > begun + 1 or held.poll() is not None, what="renewals")
    assert held.poll() is None, held.result()
    held.signal(signal.SIGTERM)
    held.wait()


# ---- which CAs ----


def test_the_system_s_ways_to_name_cas_work(dlock, make_redis_tls, authority, tmp_path):
    server = make_redis_tls()
    env = {"SSL_CERT_FILE": authority.cert}
    has_run(run(dlock, server.url, env=env))
    (tmp_path / "hashed").mkdir()
    shutil.copy(authority.cert, tmp_path / "hashed" / "ca.pem")
    subprocess.run(["openssl", "rehash", tmp_path / "hashed"], check=True)
    dlock.env.pop("SSL_CERT_FILE", None)
    has_run(run(dlock, server.url, env={"SSL_CERT_DIR": str(tmp_path / "hashed")}))
    is_refused(run(dlock, server.url, env={"SSL_CERT_DIR": str(tmp_path)}), 78, "no CA we trust")
    is_refused(run(dlock, server.url, env={"SSL_CERT_FILE": str(tmp_path / "none")}), 78, "SSL_CERT_FILE", "No such file")


def test_the_bundle_is_read_only_for_a_ca_that_the_directory_has_not(dlock, make_redis_tls, authority, tmp_path):
    server = make_redis_tls()
    trust_bundle(dlock, authority, tmp_path)
    has_run(run(dlock, server.url))
    assert (tmp_path / "read").read_text() == "read\n"
    has_run(run(dlock, server.url, *trust(authority)))
    wrong = make_redis_tls(certificate=authority.sign("wrong", san="DNS:elsewhere"))
    is_refused(run(dlock, wrong.url, *trust(authority)), 78, "is not for")
    assert (tmp_path / "read").read_text() == "read\n"


# ---- whom it shows its own certificate ----


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_server_that_wants_a_certificate_gets_one_or_says_so(dlock, make_redis_tls, authority, tmp_path, version):
    server = make_redis_tls("--tls-protocols", version, clients="yes")
    has_run(run(dlock, server.url, *trust(authority), *ours(authority.sign("client"))))
    is_refused(run(dlock, server.url, *trust(authority)), 77, "wants a client certificate", "-O cert=FILE -O key=FILE")
    for wrong in (Authority(tmp_path, "other").sign("stranger"), authority.sign("old", days=-1)):
        is_refused(run(dlock, server.url, *trust(authority), *ours(wrong)), 77, "does not accept the client certificate", wrong.cert)


def test_a_client_certificate_that_nobody_wants_does_no_harm(dlock, make_redis_tls, authority):
    for clients in ("no", "optional"):
        has_run(run(dlock, make_redis_tls(clients=clients).url, *trust(authority), *ours(authority.sign("client"))))


# ---- files and settings, before anything is touched ----


def spoil(path, text="nonsense\n", mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("setting", ["cacert", "cert", "key"])
@pytest.mark.parametrize("how", ["missing", "garbage", "empty", "directory", "fifo"])
def test_a_file_that_is_no_good_is_named(dlock, listener, authority, tmp_path, setting, how):
    at, path = listener(), tmp_path / "the-file"
    if how == "directory":
        path.mkdir()
    elif how == "fifo":
        os.mkfifo(path, 0o600)
    elif how != "missing":
        spoil(path, "" if how == "empty" else "nonsense\n")
    client = authority.sign("client")
    files = {"cacert": authority.cert, "cert": client.cert, "key": client.key, setting: str(path)}
    is_refused(run(dlock, at.url, *[w for name, file in files.items() for w in ("-O", f"{name}={file}")]), 78, f"{setting} {path}")
    assert at.clients == []


# root's may be read by their group
@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604] + [0o640] * (os.geteuid() != 0))
def test_a_key_that_others_may_read_is_refused(dlock, listener, authority, mode):
    at, client = listener(), authority.sign("client")
    os.chmod(client.key, mode)
    is_refused(run(dlock, at.url, *trust(authority), *ours(client)), 78, client.key, "chmod ")
    assert at.clients == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a file of root's")
def test_a_key_of_root_may_be_read_by_its_group(dlock, make_redis_tls, authority):
    client = authority.sign("client")
    os.chmod(client.key, 0o640)
    has_run(run(dlock, make_redis_tls(clients="yes").url, *trust(authority), *ours(client)))


def test_an_encrypted_key_makes_dlock_ask_nobody(dlock, listener, authority):
    at, client = listener(), authority.sign("client")
    subprocess.run(["openssl", "pkey", "-in", client.key, "-aes256", "-passout", "pass:xyzzy", "-out", client.key + ".enc"], check=True)
    os.chmod(client.key + ".enc", 0o600)
    client.key += ".enc"
    is_refused(run(dlock, at.url, *trust(authority), *ours(client)), 78, client.key, "encrypted")


def test_a_key_of_another_certificate_is_refused(dlock, listener, authority):
    client, other = authority.sign("client"), authority.sign("client2")
    client.key = other.key
    is_refused(run(dlock, listener().url, *trust(authority), *ours(client)), 78, client.key, "mismatch")


@pytest.mark.parametrize("settings, words", [
    (["cert=/c"], ["cert=FILE", "key=FILE"]), (["key=/k"], ["cert=FILE", "key=FILE"]),
    (["cacert="], ["cacert="]), (["tls-name="], ["tls-name="]), (["cert="], ["cert="]), (["key="], ["key="]),
])
def test_settings_that_make_no_sense_are_refused(dlock, listener, settings, words):
    at = listener()
    is_refused(run(dlock, at.url, *[w for s in settings for w in ("-O", s)]), 64, *words)
    assert at.clients == []


@pytest.mark.parametrize("setting", ["cacert=/x", "cert=/x", "key=/x", "tls-name=x"])
def test_without_tls_its_settings_are_refused_and_not_ignored(dlock, listener, setting):
    at = listener()
    is_refused(run(dlock, at.url.replace("rediss", "redis"), "-O", setting), 64, "rediss://")
    assert at.clients == []


# ---- who speaks no TLS, or nonsense ----


@pytest.mark.parametrize("greeting", [b"-ERR Protocol error\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 100, os.urandom(1) + b"x" + os.urandom(62),
                                      b"\x16\x03\x03\x40\x00" + b"A" * 20000], ids=["redis", "http", "zeros", "random", "record"])
def test_garbage_instead_of_a_handshake_is_another_protocol(dlock, listener, greeting):
    """With 3 as the second byte it would be the beginning of a record, whose rest is awaited."""
    is_refused(run(dlock, listener(greeting).url.replace("//", f"//:{ENCODED}@"), "-n"), 76, "does not answer in TLS", "TLS port")


def test_a_port_without_tls_is_asked_about(dlock, own_redis, listener):
    is_refused(run(dlock, own_redis.url.replace("redis", "rediss"), "-w", "1s"), 69, "TLS port?")
    is_refused(run(dlock, listener(end=True).url, "-n"), 69, "closed the connection", "TLS port?")


def test_nothing_is_said_before_the_server_is_known(dlock, listener):
    at = listener(b"\x15\x03\x03\x00\x02\x02\x28")
    is_refused(run(dlock, at.url.replace("//", f"//user:{ENCODED}@"), "-n"), 78, "refuses TLS with us", "handshake failure")
    assert at.heard[:1] == b"\x16" and b"user" not in at.heard and SECRET.encode()[:6] not in at.heard


def test_a_port_with_tls_is_asked_about(dlock, make_redis_tls, listener):
    is_refused(run(dlock, make_redis_tls().url.replace("rediss", "redis"), "-n"), 69, "closed the connection", "rediss://")
    at = listener(b"\x15\x03\x03\x00\x02\x02\x46")
    is_refused(run(dlock, at.url.replace("rediss", "redis"), "-n"), 76, "answers in TLS", "rediss://")


def test_a_server_of_old_versions_only_is_refused(dlock, listener):
    at = listener(b"\x16\x03\x02\x00\x2a\x02\x00\x00\x26\x03\x02" + b"r" * 32 + b"\0\xc0\x13\0")
    is_refused(run(dlock, at.url, "-n"), 78, "TLS 1.2")


# ---- the network ----


@pytest.mark.parametrize("direction", BOTH)
@pytest.mark.parametrize("after", [1, 5, 100, 250, 500, 900, 1300, 2000])
def test_a_wire_cut_anywhere_is_tried_again(dlock, redis_tls_server, authority, make_proxy, direction, after):
    proxy = make_proxy(redis_tls_server.port)
    proxy.cut(direction, after, once=True)
    done = run(dlock, f"rediss://127.0.0.1:{proxy.port}", *trust(authority))
    assert done.status == 0 and done.stdout == "ran\n", done


@pytest.mark.parametrize("direction", BOTH)
def test_a_trickle_is_understood(dlock, redis_tls_server, authority, make_proxy, direction):
    has_run(run(dlock, redis_tls_server.url, *trust(authority)))  # and its script need not go up
    proxy = make_proxy(redis_tls_server.port)
    proxy.drip(direction, 7, 0.0002)
    has_run(run(dlock, f"rediss://127.0.0.1:{proxy.port}", *trust(authority)))


@pytest.mark.parametrize("direction", BOTH)
def test_a_handshake_keeps_the_deadline(dlock, redis_tls_server, authority, make_proxy, direction):
    proxy = make_proxy(redis_tls_server.port)
    proxy.hold(direction)
    begun = boottime()
    is_refused(run(dlock, f"rediss://127.0.0.1:{proxy.port}", *trust(authority), "-w", "2s"), 69, "does not answer in TLS")
    assert boottime() - begun >= 2 and spent(begun) < 4


def test_a_frozen_server_is_left_in_time(dlock, make_redis_tls, authority):
    server = make_redis_tls()
    server.pause()
    begun = boottime()
    is_refused(run(dlock, server.url, *trust(authority), "-w", "2s"), 69, "does not answer in TLS")
    assert boottime() - begun >= 2 and spent(begun) < 4
    server.resume()


def test_a_held_lock_bears_resets_and_knows_its_own_connection(dlock, redis_tls_server, authority, make_proxy):
    proxy = make_proxy(redis_tls_server.port)
    held = dlock.start("run", "-v", "-u", f"rediss://127.0.0.1:{proxy.port}", *trust(authority), "-k", "resets", *LEASE,
                       "--", "sleep", "60").held()
    for n in range(1, 4):
        proxy.reset()
        wait_for(lambda n=n: len(re.findall(": renew: ok", held.stderr())) > n or held.poll() is not None, what="renewals")
        assert held.poll() is None, held.result()
    held.signal(signal.SIGTERM)
    assert held.wait().status == -signal.SIGTERM


@pytest.mark.parametrize("fault", ["killed", "paused", "dropped"])
def test_who_loses_its_server_ends_in_time_and_not_by_a_signal(dlock, make_redis_tls, authority, make_proxy, fault):
    server = make_redis_tls()
    proxy = make_proxy(server.port)
    held = dlock.start("run", "-u", f"rediss://127.0.0.1:{proxy.port}", *trust(authority), "-k", "job", *LEASE, "--grace", "0",
                       "--", "sleep", "60").held()
    command, begun = held.command, boottime()
    if fault == "killed":
        server.kill()
    elif fault == "paused":
        server.pause()
    else:
        proxy.drop(*BOTH)
    wait_for(lambda: not is_alive(command), what="the end of the command")
    assert spent(begun) < 4
    done = held.wait()
    assert done.status == 79, done
    if fault == "paused":
        server.resume()


# Reads no more than so many bytes at a time (dlock's recv() is recvfrom()).
PIECES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/socket.h>
ssize_t
recvfrom(int fd, void *to, size_t size, int flags, struct sockaddr *from, socklen_t *length)
{
	ssize_t (*next)(int, void *, size_t, int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "recvfrom");
	size_t most = atoi(getenv("TEST_MOST"));
	int domain = 0;
	socklen_t n = sizeof domain;
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n);
	return next(fd, to, domain != AF_INET || size < most ? size : most, flags, from, length);
}
"""


def test_it_does_not_matter_in_how_many_pieces_all_comes(dlock, redis_tls_server, authority, tmp_path):
    dlock.env["LD_PRELOAD"] = compile_shim(tmp_path, "pieces", PIECES)
    for most in range(30, 60):
        has_run(run(dlock, redis_tls_server.url, *trust(authority), "-n", env={"TEST_MOST": str(most)}))


# ---- a server that talks of itself ----


def test_tickets_that_come_unasked_are_no_answers(dlock, own_redis, authority, make_chatty):
    """Neither between renewals nor while it waits to be called does a connection end by them."""
    chatty = make_chatty(own_redis.port, authority.sign("server"))

    class At:
        words = ["-u", chatty.url, *trust(authority)]

    holder = dlock.start("run", "-v", *At.words, "-k", "job", *LIVING_LEASE, "--", "sleep", "60").held()
    waiter = dlock.contend(At, "job", "-v").queued(1)
    # each has two connections; that of a holder who listens may have taken several attempts on a slow machine
    wait_for(lambda: ears(own_redis.client()) and len(own_redis.client().pubsub_channels("dlock:*")) == 2, what="two subscriptions")
    connections = chatty.connections
    for _ in range(2):
        tickets = chatty.tickets
        wait_for(lambda n=tickets: chatty.tickets > n + 20, what="tickets")
        wait_for_renewals(holder)
    assert chatty.connections == connections
    assert ears(own_redis.client()) == 1
    begun = calls(own_redis)
    time.sleep(1)
    assert calls(own_redis) - begun < 6
    before = boottime()
    holder.signal(signal.SIGTERM)
    waiter.held()
    assert spent(before) < 3
    waiter.finish()


# Reads so slowly that there is always more.
SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>
ssize_t
recvfrom(int fd, void *to, size_t size, int flags, struct sockaddr *from, socklen_t *length)
{
	ssize_t (*next)(int, void *, size_t, int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "recvfrom");
	usleep(10000);
	return next(fd, to, size < 300 ? size : 300, flags, from, length);
}
"""


def test_a_flood_of_tickets_is_left_in_time(dlock, own_redis, authority, make_chatty, tmp_path):
    dlock.env["LD_PRELOAD"] = compile_shim(tmp_path, "slow", SLOW)
    chatty = make_chatty(own_redis.port, authority.sign("server"), flood=True)
    begun = boottime()
    is_refused(run(dlock, chatty.url, *trust(authority), "-w", "2s"), 69, "does not answer")
    assert spent(begun) < 5


# ---- the library ----


NONE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
static int failed;
void *
dlopen(const char *file, int flags)
{
	void *(*next)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
	failed = file && strncmp(file, "libssl", 6) == 0;
	return failed ? NULL : next(file, flags);
}
char *
dlerror(void)
{
	char *(*next)(void) = dlsym(RTLD_NEXT, "dlerror");
	return failed ? "libssl.so.3: cannot open shared object file: No such file or directory" : next();
}
"""


def test_without_openssl_it_says_what_to_install(dlock, listener, own_redis, tmp_path):
    at, dlock.env["LD_PRELOAD"] = listener(), compile_shim(tmp_path, "none", NONE)
    is_refused(run(dlock, at.url), 78, "OpenSSL is not installed", "libssl3")
    assert at.clients == []
    has_run(run(dlock, own_redis.url))


SPY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
void *
dlopen(const char *file, int flags)
{
	void *(*next)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
	FILE *f = fopen(getenv("TEST_OPENED"), "a");
	fprintf(f, "%s\n", file ? file : "?");
	fclose(f);
	return next(file, flags);
}
"""


def test_nothing_is_loaded_without_tls(dlock, redis_server, redis_tls_server, authority, tmp_path):
    opened = tmp_path / "opened"
    dlock.env.update(LD_PRELOAD=compile_shim(tmp_path, "spy", SPY), TEST_OPENED=str(opened))
    has_run(run(dlock, redis_server.url))
    assert not opened.exists()
    has_run(run(dlock, redis_tls_server.url, *trust(authority)))
    assert opened.read_text() == "libssl.so.3\n"
