# Goal of these tests: whatever a MySQL server says, whenever, and wherever the connection
# breaks: nonsense and errors are reported as what they were, and grant nothing.

import threading

import pytest

from databases import wait_for_renewals
from faults import IMPATIENT, LEASE, LIVING_LEASE, SOON, UntilTold, assert_goes_on, assert_refused
from mysql_server import MODES, error, mysql_url
from proxy import DOWN, UP
from support import At, compile_shim, run, told_at_the_end

SCREEN = "\x1b[2J\x1b]52;c;cm0=\x07"
AFTER_LOGIN = 2  # the greeting and its OK


# ---- errors ----

STATUSES = {
    1040: 69, 1053: 69, 1158: 69, 1203: 69, 1226: 69, 1317: 69, 1927: 69, 1969: 69, 3024: 69, 1047: 69, 1180: 69, 3032: 69, 3101: 69,
    1205: 69, 1213: 69, 1062: 69,  # asked again a few times before
    1044: 77, 1045: 77, 1129: 77, 1130: 77, 1142: 77, 1227: 77, 1370: 77, 1698: 77, 1820: 77, 4151: 77,
    1036: 78, 1874: 78, 1881: 78,  # InnoDB is read-only
    1020: 69, 1412: 69,  # somebody has altered a table meanwhile
    1049: 78, 1235: 78, 1290: 78, 1665: 78, 1792: 78, 1836: 78, 3159: 78,
    1054: 78, 1153: 78,
    1064: 76,
    1105: 69, 9999: 69,  # what nobody has foreseen
}


def failing_with(code, text="not now"):
    """Every answer is this error instead."""
    return lambda number, body: [error(code, text)] if number == 1 else []


def packets_before_the_question(make_mysql_tamper, db):
    """How many come down until the session is set up."""
    seen = []
    assert run(Runner.dlock, db.url).status == 0  # the schema is there
    tamper = make_mysql_tamper(db.server.port, lambda number, body: seen.append(body) or [body], ready=0)
    assert run_at(tamper, db).status == 0
    return next(i for i, body in enumerate(seen) if b"v_token" in body) - 1


class Runner:
    """dlock, for run_at(); set by the fixture."""


def run_at(tamper, db, *options, **arguments):
    return run(Runner.dlock, mysql_url(tamper.port, db=db.name), *options, **arguments)


@pytest.fixture(autouse=True)
def _dlock(dlock):
    Runner.dlock = dlock


@pytest.mark.parametrize("when", ["setting-up", "asking"])
def test_errors_have_their_status(mysql_db, make_mysql_tamper, when):
    ready = packets_before_the_question(make_mysql_tamper, mysql_db) if when == "asking" else AFTER_LOGIN
    wrong = {}
    for code, status in STATUSES.items():
        change = failing_with(code, f"no such thing{SCREEN} as luck\nand more")
        done = run_at(make_mysql_tamper(mysql_db.server.port, change, ready), mysql_db, "-n")
        said = "GRANT" in done.stderr or "\\x1B" in done.stderr
        last = done.stderr.splitlines()[-1]  # before it perhaps that it waits
        if done.status != status or done.stdout or not said or "and more" in done.stderr or "nothing was run" not in last:
            wrong[code] = (done.status, done.stderr)
    assert wrong == {}


@pytest.mark.parametrize("code, status", [(1040, 69), (1045, 77), (1049, 78), (1130, 77), (1129, 77), (3159, 78)])
def test_errors_at_the_door_have_their_status(mysql_db, make_mysql_tamper, code, status):
    def change(number, body):
        return [error(code, f"go away{SCREEN}")]

    done = run_at(make_mysql_tamper(mysql_db.server.port, change, ready=0), mysql_db, *IMPATIENT)
    assert_refused(done, status, "go away", "\\x1B")


@pytest.mark.parametrize("ready", [1, AFTER_LOGIN], ids=["login", "later"])
def test_a_password_that_a_server_repeats_is_not_shown(dlock, mysql_db, make_mysql_tamper, ready):
    def change(number, body):
        return [error(1045 if ready == 1 else 1105, "no luck with c0rrect-h@rse!, as c0rrect-h%40rse!")]

    tamper = make_mysql_tamper(mysql_db.server.port, change, ready)
    if ready == AFTER_LOGIN:
        mysql_db.server.ask("CREATE OR REPLACE USER carl@'%' IDENTIFIED BY 'c0rrect-h@rse!'")
        mysql_db.ask(f"GRANT ALL ON {mysql_db.name}.* TO carl@'%'")
    url = mysql_url(tamper.port, user="carl:c0rrect-h%40rse!", db=mysql_db.name)
    done = run(dlock, url, "-n")
    assert_refused(done, 77 if ready == 1 else 69, "no luck with ***, as ***")


# ---- nonsense ----

def lenenc(value):
    if value is None:
        return b"\xfb"
    if len(value) < 251:
        return bytes([len(value)]) + value
    return b"\xfd" + len(value).to_bytes(3, "little") + value


class Rows:
    """Changes rows, which come behind the columns of a result, to what `make` gives for their number of columns."""

    def __init__(self, make):
        self.make, self.columns, self.left = make, 0, 0

    def __call__(self, number, body):
        if self.columns == 0 and len(body) == 2 and body[1] == 1 and 0 < body[0] < 251:  # "and their types are told"
            self.columns, self.left = body[0], body[0] + 1  # and the EOF behind them
            return [body]
        if self.left > 0:
            self.left -= 1
            return [body]
        if self.columns and not (body[:1] == b"\xfe" and len(body) < 9):
            return [b"".join(map(lenenc, row)) for row in self.make(self.columns)]
        self.columns = 0
        return [body]


NONSENSE = {
    "no-row": lambda: Rows(lambda n: []),
    "two-rows": lambda: Rows(lambda n: [[b"1"] * n] * 2),
    "empty": lambda: Rows(lambda n: [[b""] * n]),
    "words": lambda: Rows(lambda n: [[b"hello"] * n]),
    "nuls": lambda: Rows(lambda n: [[b"1\0"] * n]),
    "negative": lambda: Rows(lambda n: [[b"-1"] * n]),
    "huge": lambda: Rows(lambda n: [[b"9" * 30] * n]),
    "floats": lambda: Rows(lambda n: [[b"1.7e15"] * n]),
    "large": lambda: Rows(lambda n: [[b"x" * 100000] * n]),
    "fewer-columns": lambda: Rows(lambda n: [[b"x"] * (n - 1)]),
    "an-ok": lambda: lambda number, body: [b"\0\0\0\2\0\0\0"] if number == 1 else [],
    "an-empty-packet": lambda: lambda number, body: [b""] if number == 1 else [],
    "asks-for-a-file": lambda: lambda number, body: [b"\xfb/etc/passwd"] if number == 1 else [],
    "wrong-numbers": lambda: lambda number, body: [b"\xff", body],
    "rubbish": lambda: lambda number, body: [bytes(range(1, 200))],
}


@pytest.mark.parametrize("name", NONSENSE)
@pytest.mark.parametrize("when", ["setting-up", "asking"])
def test_nonsense_runs_nothing(mysql_db, make_mysql_tamper, name, when):
    ready = packets_before_the_question(make_mysql_tamper, mysql_db) if when == "asking" else AFTER_LOGIN
    done = run_at(make_mysql_tamper(mysql_db.server.port, NONSENSE[name](), ready), mysql_db, *IMPATIENT)
    assert done.status in (69, 76, 78)
    assert_refused(done, done.status)


def test_nulls_are_nobodys_grant(dlock, mysql_db, make_mysql_tamper):
    """To the first question it says that there is somebody, to the next one nothing."""
    ready = packets_before_the_question(make_mysql_tamper, mysql_db)
    done = run_at(make_mysql_tamper(mysql_db.server.port, Rows(lambda n: [[None] * n]), ready), mysql_db, *IMPATIENT)
    assert_refused(done, 76)


def test_no_file_is_handed_out(mysql_db, make_mysql_tamper, tmp_path):
    """LOAD DATA LOCAL: what goes up never has a file's contents in it, also where an option file allows that."""
    (tmp_path / ".my.cnf").write_text("[client]\nlocal-infile=1\n")
    secret = tmp_path / "secret"
    secret.write_text("tell-nobody" * 10)
    up = []
    tamper = make_mysql_tamper(mysql_db.server.port,
                               lambda number, body: [b"\xfb" + str(secret).encode()] if number == 1 else [], AFTER_LOGIN)
    tap = tamper.tap
    tamper.tap = lambda link, direction, data: (up.append(data) if direction == UP else None) or tap(link, direction, data)
    run_at(tamper, mysql_db, *IMPATIENT, env={"HOME": str(tmp_path)})
    assert up and b"tell-nobody" not in b"".join(up)


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog", b"mysql_old_password"])
@pytest.mark.parametrize("settings", [(), ("-O", "tls=off")], ids=["", "off"])
def test_a_password_is_not_sent_as_it_is(dlock, mysql_db, make_mysql_tamper, plugin, settings):
    """The server, or who sits before it, asks for that."""
    def change(number, body):
        return [b"\xfe" + plugin + b"\0" + (b"\4Password: " if plugin == b"dialog" else b"x" * 20 + b"\0")] if number == 2 else []

    up = []
    tamper = make_mysql_tamper(mysql_db.server.port, change, ready=1)
    tap = tamper.tap
    tamper.tap = lambda link, direction, data: (up.append(data) if direction == UP else None) or tap(link, direction, data)
    done = run(dlock, mysql_url(tamper.port, user="app:tell-nobody", db=mysql_db.name), *IMPATIENT, *settings)
    assert_refused(done, done.status)
    assert done.status in (76, 77, 78) and up and b"tell-nobody" not in b"".join(up)


# ---- holding ----


def test_passing_errors_do_not_end_the_command(dlock, mysql_db, make_mysql_tamper):
    """Of a renewal; the next one succeeds."""
    run(dlock, mysql_db.url)
    holders = {}
    for code in (1040, 1205, 1213, 1317, 1290, 1142, 1105):
        failing = UntilTold()

        def change(number, body, fail=failing_with(code), failing=failing):
            if number == 1:
                failing.decide()
            return fail(number, body) if failing.on else [body]

        url = mysql_url(make_mysql_tamper(mysql_db.server.port, change).port, db=mysql_db.name)
        holders[code] = dlock.hold(At(url), f"job{code}", *LIVING_LEASE)
        failing.begin(holders[code])
    for code, holder in holders.items():
        holder.event("trusted")
        assert_goes_on(holder, code)


def test_lasting_errors_end_the_command(dlock, mysql_db, make_mysql_tamper):
    """As does nonsense, which is no renewal."""
    run(dlock, mysql_db.url)
    changes = {code: lambda code=code: failing_with(code) for code in (1290, 1142, 1105, 1205)}
    changes.update(NONSENSE)
    holders = {}
    for name, make in changes.items():
        lying = threading.Event()

        def now_and_then(number, body, change=make(), lying=lying):
            return change(number, body) if lying.is_set() else [body]

        url = mysql_url(make_mysql_tamper(mysql_db.server.port, now_and_then).port, db=mysql_db.name)
        holders[name] = dlock.hold(At(url), f"job{name}", *LEASE)
        lying.set()
    for name, holder in holders.items():
        done = holder.wait()
        assert (done.status, told_at_the_end(done.stderr).count("\n")) == (79, 1), name


def test_who_does_not_hold_is_told(dlock, mysql_db):
    """The server's word: the row has gone, or is another's, or its lease has run out."""
    sabotage = ["DELETE FROM dlock_holds WHERE k = %s", "UPDATE dlock_holds SET owner = 'x' WHERE k = %s",
                "UPDATE dlock_holds SET ends = 1 WHERE k = %s", "UPDATE dlock_holds SET token = token + 1 WHERE k = %s"]
    holders = [dlock.hold(At(mysql_db.url), f"job{i}", *LEASE) for i in range(len(sabotage))]
    for i, sql in enumerate(sabotage):
        mysql_db.ask(sql, f"job{i}")
    for holder in holders:
        assert holder.wait().status == 79


# ---- connections that break while asking ----


@pytest.mark.parametrize("mode", MODES)
def test_who_asks_again_does_not_wait_for_himself(dlock, mysql_db, make_proxy, mode):
    """The first attempt may have been granted, and its answer lost: wherever that was, the second one gets the lock."""
    proxy = make_proxy(mysql_db.server.port)
    url = mysql_url(proxy.port, db=mysql_db.name)
    assert run(dlock, url, mode=mode).status == 0
    proxy.bytes = {UP: 0, DOWN: 0}
    assert run(dlock, url, mode=mode).status == 0
    length = proxy.bytes[DOWN]
    for n in range(1, length, max(1, length // 10)):
        proxy.cut(DOWN, n, once=True)
        done = run(dlock, url, "-w", SOON, "-t", "10m", mode=mode)
        assert done.status == 0, (n, done)


NO_LOGIN = """
    #include <errno.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/socket.h>
    ssize_t sendto(int fd, const void *bytes, size_t n, int flags, const struct sockaddr *to, socklen_t length)
    {
        FILE *lengths = fopen(getenv("LENGTHS"), "a");
        fprintf(lengths, "%zu\\n", n - 4);
        fclose(lengths);
        errno = EPIPE;
        return -1;
    }"""


def test_a_login_that_cannot_be_sent_is_a_broken_connection(dlock, mysql_server, tmp_path):
    """A packet of 254 bytes, as one that asks for another plugin begins, libmariadb takes for the server's."""
    shim, lengths = compile_shim(tmp_path, "no-login", NO_LOGIN), tmp_path / "lengths"

    def length(user):
        lengths.unlink(missing_ok=True)
        done = run(dlock, mysql_url(mysql_server.port, user=user, db="d" * 60), "-n", env={"LD_PRELOAD": shim, "LENGTHS": lengths})
        assert_refused(done, 69, str(mysql_server.port))
        return int(lengths.read_text().split()[0])

    missing = 254 - length("u")
    assert 0 < missing < 100  # else another database is to be named
    assert any(length("u" * (1 + missing + more)) == 254 for more in (0, -1, 1))  # a number of a process is as long as it is


def test_a_killed_session_is_no_lost_lock(dlock, mysql_db):
    holder = dlock.hold(At(mysql_db.url), "job", "-t", "6s", "-v")
    waiter = dlock.contend(At(mysql_db.url), "job", command=("true",)).queued(1)
    for _ in range(3):
        mysql_db.terminate()
        wait_for_renewals(holder)
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
