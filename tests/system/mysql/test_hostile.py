# Goal of these tests: a MySQL server that is not ours, or no longer the one that gives locks, gets
# no password, no memory and no hold out of dlock; and nobody is forgotten when one is taken away.

import contextlib
import itertools
import socket
import threading
import time

import pytest

from faults import assert_refused
from mysql_server import mysql_url, packet
from proxy import DOWN, Proxy
from support import At, run, wait_for

PASSWORD = b"tell-nobody"
TLS = 0x800  # a capability
SECRET_URL = "mysql://app:tell-nobody@127.0.0.1:{}/app"


# ---- passwords ----


class Asker:
    """A server that wants to be told the password, by caching_sha2_password; `heard` is what came up to it."""

    def __init__(self, plugin=b"caching_sha2_password", greeted=b"mysql_native_password"):
        self.plugin, self.greeted, self.heard = plugin, greeted, b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = SECRET_URL.format(self.listener.getsockname()[1])
        threading.Thread(target=self.serve, daemon=True).start()

    def greeting(self):
        capabilities = 0x81bff7ff & ~TLS
        return (b"\x0a5.5.5-10.11.6-MariaDB\0" + bytes(4) + b"12345678\0" + (capabilities & 0xffff).to_bytes(2, "little") + b"\x21\2\0"
                + (capabilities >> 16).to_bytes(2, "little") + b"\x15" + bytes(10) + b"123456789012\0" + self.greeted + b"\0")

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                link, _ = self.listener.accept()
                with link, contextlib.suppress(OSError):
                    link.settimeout(10)
                    self.ask(link)

    def ask(self, link):
        def hear():
            self.heard += link.recv(65536)

        link.sendall(packet(0, self.greeting()))
        hear()  # the login
        link.sendall(packet(2, b"\xfe" + self.plugin + b"\0" + b"A" * 20 + b"\0"))
        hear()  # a proof, or already the password or the wish for a key
        link.sendall(packet(4, b"\x01\x04"))  # "the hash is not here: tell me"
        hear()

    def close(self):
        self.listener.close()


@pytest.mark.parametrize("settings", [(), ("tls=encrypt",), ("tls=off",)], ids=lambda s: "-".join(s) or "plain")
def test_who_asks_is_not_told_the_password(dlock, settings):
    """Neither in the clear, nor by a key that could be anybody's; also where TLS was asked for, and is not there."""
    for greeted, plugin in itertools.product((b"mysql_native_password", b"caching_sha2_password", b"sha256_password"),
                                             (b"caching_sha2_password", b"sha256_password", b"mysql_clear_password")):
        with contextlib.closing(Asker(plugin, greeted)) as asker:
            done = run(dlock, asker.url, "-n", *[w for s in settings for w in ("-O", s)])
            assert_refused(done, 78)
            assert "tls=verify" in done.stderr or "does not speak TLS" in done.stderr
            assert PASSWORD not in asker.heard
            assert not asker.heard.endswith((b"\x01\0\0\x03\x02", b"\x01\0\0\x03\x01", b"\x01\0\0\x05\x02"))  # "send me your key"


def test_option_files_that_want_tls_get_it(dlock, tmp_path):
    (tmp_path / ".my.cnf").write_text("[client]\nssl-enforce=1\n")
    with contextlib.closing(Asker()) as asker:
        done = run(dlock, asker.url, "-n", env={"HOME": str(tmp_path)})
        assert_refused(done, 78, "TLS")
        assert PASSWORD not in asker.heard


# ---- too much ----


class Endless:
    """Makes many rows of the one that follows a column with this name, far more than an answer has."""

    def __init__(self, column):
        self.column, self.armed = column, False

    def __call__(self, number, body):
        if self.column in body or body[:1] == b"\xfe":
            self.armed = self.armed or self.column in body
            return [body]
        rows = (6 << 20) // (len(body) + 4) if self.armed else 1
        self.armed = False
        return [body] * rows


def test_an_answer_without_an_end_is_cut_off(dlock, mysql_db, make_mysql_tamper):
    """What a server sends is neither kept nor listened to for longer than an answer of dlock's can be."""
    assert run(dlock, mysql_db.url).status == 0
    tamper = make_mysql_tamper(mysql_db.server.port, Endless(b"v_token"))
    done = run(dlock, mysql_url(tamper.port, db=mysql_db.name), "-n", "-q")
    assert (done.status, done.stdout) == (69, "") and "does not end its answer" in done.stderr


# ---- a greeting in pieces ----


class Pieces(Proxy):
    """A proxy from which the first `n` bytes that a server says come alone."""

    def __init__(self, port, n):
        super().__init__(port)
        self.n, self.cut = n, set()
        self.tap = self.hold_back

    def hold_back(self, link, direction, data):
        if direction != DOWN or link in self.cut:
            return data
        self.cut.add(link)
        link.client.sendall(data[:self.n])
        time.sleep(0.3)
        return data[self.n:]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_greeting_may_come_in_pieces(dlock, mysql_db, n):
    with contextlib.closing(Pieces(mysql_db.server.port, n)) as pieces:
        done = run(dlock, mysql_db.through(pieces), "-n")
        assert (done.status, done.stdout) == (0, "ran\n"), done


@pytest.mark.parametrize("words, status", [(b"", 69), (b"x", 69), (b"SSH-", 69), (b"SSH-2.0-OpenSSH_9.6\r\n", 76)])
def test_who_says_little_and_goes_is_not_waited_for(dlock, words, status):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    link, _ = listener.accept()
                    with link:
                        link.sendall(words)

        threading.Thread(target=serve, daemon=True).start()
        done = run(dlock, mysql_url(listener.getsockname()[1]), "-n")
        assert_refused(done, status)


# ---- a server that has become a replica ----


@pytest.mark.parametrize("mode", ["row", "named"])
def test_a_lock_of_a_session_ends_when_the_server_is_demoted(dlock, make_mysql, mode):
    """It would say for ever that the lock is ours, and the new primary knows nothing of it."""
    server = make_mysql()
    holder = dlock.hold(At(server.url, mode), "job", "-t", "9s")
    waiter = dlock.contend(At(server.url, mode), "job", "-w", "1h").queued(1)
    server.ask("SET GLOBAL read_only = 1")
    done = holder.wait()
    assert done.status == 79 and "read-only" in done.stderr
    assert not waiter.events("started")
    server.ask("SET GLOBAL read_only = 0")
    assert waiter.held().finish().status == 0


def test_who_waits_for_a_name_without_a_table_is_not_granted_it_by_a_replica(dlock, make_mysql):
    server = make_mysql()
    server.ask("CREATE USER poor@'%'")
    at = At(mysql_url(server.port, "poor", ""), "named")
    holder = dlock.hold(at, "job", "-t", "1h")
    waiter = dlock.contend(at, "job", "-w", "1h").queued()
    server.ask("SET GLOBAL read_only = 1")
    holder.finish()
    waiter.event("retrying")
    assert not waiter.events("started")
    server.ask("SET GLOBAL read_only = 0")
    assert waiter.held().finish().status == 0


def test_a_replica_is_not_written_to_with_the_rights_of_another(dlock, make_mysql):
    """The procedures are those of an administrator, who may write there; also for a session from before."""
    server = make_mysql()
    server.ask("REVOKE ALL ON app.* FROM app@'%'")
    server.ask("GRANT EXECUTE ON app.* TO app@'%'")
    assert run(dlock, mysql_url(server.port, "root")).status == 0
    holder = dlock.hold(At(server.url), "job", "-t", "1h")
    with contextlib.closing(server.connect(user="app", db="app")) as c, c.cursor() as cursor:
        server.ask("SET GLOBAL read_only = 1")
        token = server.value("SELECT token FROM app.dlock_holds")
        before = server.ask("SELECT * FROM app.dlock_holds"), server.writes()
        for call in ("freeze_3('job', '{}', NULL)", "thaw_3('job')", f"ask_back_3('job', {token}, NULL, '{{}}')",
                     f"take_away_3('job', {token}, NULL, '{{}}')", "release_3('job', 'somebody', NULL, NULL, 0)"):
            with pytest.raises(Exception, match="1290"):
                cursor.execute(f"CALL dlock_{call}")
        holder.popen.stdin.close()
        wait_for(lambda: "1290" in holder.stderr(), what="a release that is refused")
        assert (server.ask("SELECT * FROM app.dlock_holds"), server.writes()) == before
        server.ask("SET GLOBAL read_only = 0")
    holder.wait()


# ---- force ----


def test_force_by_another_user_forgets_nobody(dlock, mysql_db):
    """Who may not wake those who wait: they find their grants when they wake, and nobody overtakes them."""
    writer = dlock.hold(At(mysql_db.url), "job", "-t", "30s")
    readers = [dlock.contend(At(mysql_db.url), "job", "-s", "-t", "30s").queued(n + 1) for n in range(3)]
    last = dlock.contend(At(mysql_db.url), "job", "-t", "30s").queued(4)
    mysql_db.ask("CREATE OR REPLACE USER other@'%'")
    try:
        mysql_db.ask(f"GRANT EXECUTE ON `{mysql_db.name}`.* TO other@'%'")
        other = At(mysql_url(mysql_db.port, "other", mysql_db.name))
        assert dlock.run("break", *other.words, "-k", "job", "--force", "-y").status == 0
    finally:
        mysql_db.ask("DROP USER other@'%'")
    for reader in readers:
        reader.held()
    assert not last.events("started")
    assert [reader.finish().status for reader in readers] == [0] * 3
    assert last.held().finish().status == 0
    assert writer.wait().status == 79
