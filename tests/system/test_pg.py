# Goal of these tests: locks on PostgreSQL are kept through what happens to
# databases (restarts, fail-over, poolers, administrators), and whatever a server
# says or refuses is reported as what it was.  All of it holds for the default
# mode, a lease in a table; test_pg_modes.py has the other ones.

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import psycopg2
import pytest

from pg import DB, PG_PLACES, USER, PgServer, Tamper, columns, data_row, error, make_directory, pg_url, tool
from proxy import BOTH, DOWN, UP
from support import DLOCK, ROOT, free_port, wait_for
from test_fault import IMPATIENT, IS_GONE, LEASE, LIVING_LEASE, SOON, STUBBORN, assert_refused, compile_shim

MODES = ["lease", "advisory", "row"]
SCREEN = "\x1b[2J\x1b]52;c;cm0=\x07"


class At:
    """A place as tests of one backend make them."""

    def __init__(self, url, mode="lease"):
        self.words = ["-u", url, *(["-O", f"mode={mode}"] if mode != "lease" else [])]


def run(dlock, url, *options, command=("echo", "ran"), mode="lease", **arguments):
    return dlock.run("run", *At(url, mode).words, "-k", "job", *options, "--", *command, **arguments)


def is_free(dlock, url, mode="lease"):
    return run(dlock, url, "-n", mode=mode).status == 0


def psql(database, sql, user="postgres"):
    tool("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", pg_url(database.port, user, database.name), input=sql)


def wait_for_renewals(holder, count=1):
    """Waits until as many more renewals have succeeded as dlock -v tells of."""
    def told():
        return holder.stderr().count("renew: ok")

    before = told()
    wait_for(lambda: told() >= before + count, what="a renewal")
    assert holder.poll() is None


@pytest.fixture(params=PG_PLACES, ids=lambda p: p.id)
def pg_place(request):
    """Each of the modes, and the pooler."""
    return request.param(request)


# ---- where a server is ----


def test_unix_socket(dlock, pg_server):
    done = dlock.run("run", "-u", pg_server.unix_url, "-k", "socket", "-n", "--", "printenv", "DLOCK_BACKEND")
    assert (done.status, done.stdout, done.stderr) == (0, "pg\n", "")


def test_variables_of_libpq_name_the_server(dlock, pg_server):
    env = {"PGHOST": "127.0.0.1", "PGPORT": str(pg_server.port), "PGUSER": USER, "PGDATABASE": DB}
    done = dlock.run("run", "-b", "pg", "-k", "variables", "-n", "--", "printenv", "PGHOST", env=env)
    assert (done.status, done.stdout) == (0, "127.0.0.1\n")


def test_service_file_names_the_server(dlock, pg_server, tmp_path):
    services = tmp_path / "services"
    services.write_text(f"[locks]\nhost=127.0.0.1\nport={pg_server.port}\nuser={USER}\ndbname={DB}\n")
    for words, extra in ((["-u", "postgresql:///?service=locks"], {}), (["-b", "pg"], {"PGSERVICE": "locks"}),
                         (["-b", "pg", "-u", "service=locks"], {})):
        env = {"PGSERVICEFILE": str(services), **extra}
        assert dlock.run("run", *words, "-k", "service", "-n", "--", "true", env=env).status == 0


@pytest.mark.parametrize("url", ["postgresql://{user}@127.0.0.1:{port}/{db}", "postgres://{user}@127.0.0.1:{port}/{db}",
                                 "host=127.0.0.1 port={port} user={user} dbname={db}",
                                 "postgresql://{user}@127.0.0.1:{closed},127.0.0.1:{port}/{db}",
                                 "postgresql://127.0.0.1:{port}/{db}?user={user}&application_name=mine&keepalives=0"])
def test_forms_of_an_address(dlock, pg_server, url):
    url = url.format(user=USER, db=DB, port=pg_server.port, closed=free_port())
    assert dlock.run("run", "-b", "pg", "-u", url, "-k", "forms", "-n", "--", "true").status == 0


def test_all_forms_lead_to_the_same_lock(dlock, pg_server):
    dlock.hold(At(pg_server.unix_url), "form")
    for url in (pg_server.url, pg_server.url.replace("postgresql", "postgres")):
        assert dlock.run("run", "-u", url, "-k", "form", "-n", "--", "true").status == 75


@pytest.mark.parametrize("url", [
    "postgresql://127.0.0.1:99999/app", "postgresql://127.0.0.1:port/app", "postgresql://127.0.0.1/app?colour=red",
    "host='127.0.0.1", "host=127.0.0.1 colour=red", "host", "postgresql://127.0.0.1/app?sslmode=maybe",
    "postgresql://[::1/app", "postgresql://127.0.0.1/%zz", "postgresql://h/app?target_session_attrs=king",
])
def test_addresses_that_make_no_sense(dlock, url):
    done = dlock.run("run", "-b", "pg", "-u", url, "-k", "job", "--", "echo", "ran")
    assert done.status in (64, 78)
    assert_refused(done, done.status)


def test_missing_service(dlock, tmp_path):
    (tmp_path / "services").write_text("[other]\nhost=127.0.0.1\n")
    done = dlock.run("run", "-b", "pg", "-u", "service=missing", "-k", "job", "--", "echo", "ran",
                     env={"PGSERVICEFILE": str(tmp_path / "services")})
    assert done.status in (64, 78)
    assert_refused(done, done.status, "missing")


@pytest.mark.parametrize("setting", ["mode=", "mode=LEASE", "mode=magic", "key=7", "derive=flyway", "colour=red"])
def test_settings_that_make_no_sense(dlock, pg_server, setting):
    """Also those that belong to another mode."""
    assert_refused(run(dlock, pg_server.url, "-O", setting), 64, setting.split("=")[0])


# ---- at the start: nobody there, or nobody who answers ----


def test_missing_socket(dlock, tmp_path):
    assert_refused(run(dlock, f"postgresql:///app?host={tmp_path}/none", *IMPATIENT), 69, f"{tmp_path}/none")
    port = free_port()
    assert_refused(run(dlock, f"postgresql:///app?port={port}", *IMPATIENT), 69, "cannot reach pg /", f":{port}/app")


def test_nobody_who_is_silent_is_waited_for(dlock, own_pg, redis_server):
    """A frozen server, and one that waits for more."""
    own_pg.pause()
    started = {port: dlock.contend(At(pg_url(port)), "job", *IMPATIENT) for port in (own_pg.port, redis_server.port)}
    for port, waiter in started.items():
        assert_refused(waiter.wait(), 69, str(port))


@pytest.mark.parametrize("tls", ["prefer", "disable"])
@pytest.mark.parametrize("banner", [b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
                                    b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", b"-ERR unknown command\r\n",
                                    b"\x15\x03\x01\x00\x02\x02\x46", b"N" * 9])
def test_another_kind_of_server_is_known_at_once(dlock, banner, tls):
    """However long one would wait for a PostgreSQL."""
    with talker(banner) as port:
        done = run(dlock, pg_url(port, extra=f"?sslmode={tls}"), "-w", "inf", timeout=20)
        assert_refused(done, 76, str(port), "is this a PostgreSQL?")


@contextlib.contextmanager
def talker(banner):
    """A port where everybody hears this."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, contextlib.suppress(ConnectionError):
                        client.recv(8)
                        client.sendall(banner)
                        client.recv(1000)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("banner", [b"E" + b"\xff" * 64, b"R\x7f\xff\xff\xff", b"N"])
def test_servers_that_begin_like_it(dlock, banner):
    with talker(banner) as port:
        done = run(dlock, pg_url(port), *IMPATIENT)
        assert done.status in (69, 76)
        assert_refused(done, done.status, str(port))


# ---- at the start: a server that is away for a moment ----


@pytest.mark.parametrize("mode", MODES)
def test_a_named_wait_covers_a_server_that_is_down(dlock, make_pg, mode):
    server = make_pg()
    server.signal(signal.SIGQUIT)
    started = dlock.contend(At(server.url, mode), "job", "-w", "60s", "-O", "connect-timeout=1s", command=("echo", "ran"))
    assert_refused(run(dlock, server.url, "-n", mode=mode), 69, "cannot reach")  # asks once
    time.sleep(2)  # longer than the bound that -w replaces
    assert started.popen.poll() is None
    server.start()
    assert started.wait(30).status == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_restart_of_a_moment_costs_no_run(dlock, make_pg, mode):
    """Without --wait, too: a cron job does not name it."""
    server = make_pg()
    server.signal(signal.SIGQUIT)
    started = dlock.contend(At(server.url, mode), "job", "-O", "connect-timeout=30s", command=("echo", "ran"))
    server.start()
    assert started.wait(40).status == 0


@pytest.mark.parametrize("state", ["57P03", "53300"])
def test_a_server_that_is_not_ready_is_asked_again(dlock, pg_server, make_tamper, state):
    def change(kind, body):
        if kind != b"R" or len(refusals) >= 2:
            return [(kind, body)]
        refusals.append(kind)
        return [(b"E", error(state, "not yet", "FATAL"))]

    refusals = []
    assert run(dlock, make_tamper(pg_server.port, change, early=True).url()).status == 0
    assert len(refusals) == 2


def test_who_does_not_wait_asks_once(dlock, pg_server, make_tamper):
    def change(kind, body):
        if kind == b"R":
            refusals.append(kind)
        return [(b"E", error("57P03", "not yet", "FATAL"))] if kind == b"R" else []

    refusals = []
    assert_refused(run(dlock, make_tamper(pg_server.port, change, early=True).url(), "-n"), 69, "not yet")
    assert len(refusals) == 1


def test_console_of_a_pooler(dlock, pg_server, make_pooler):
    pooler = make_pooler(pg_server)
    done = run(dlock, pg_url(pooler.port, "postgres", "pgbouncer"))
    assert done.status in (76, 78)
    assert_refused(done, done.status)


def test_library_that_is_not_installed(dlock, pg_server, tmp_path):
    shim = compile_shim(tmp_path, "absent", """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <string.h>
        void *dlopen(const char *file, int flags)
        {
            if (file && strstr(file, "libpq"))
                return NULL;
            return ((void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen"))(file, flags);
        }""")
    assert_refused(run(dlock, pg_server.url, env={"LD_PRELOAD": shim}), 78, "libpq", "apt")


@pytest.mark.parametrize("limit", ["-v 12000", "-n 7", "-n 9"])
def test_a_machine_that_cannot_load_the_library(dlock, pg_server, limit):
    """For want of memory or descriptors: to install it again would not help."""
    limited = ["sh", "-c", f'ulimit {limit}; exec "$0" "$@"', DLOCK, "run", "-u", pg_server.url, "-k", "job", "--", "true"]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (71, "", 1)
    assert "installed" not in done.stderr and ("memory" in done.stderr or "open files" in done.stderr or "map" in done.stderr)


def test_the_library_is_not_linked():
    linked = subprocess.run(["ldd", DLOCK], capture_output=True, text=True, check=True).stdout
    assert "libc.so" in linked and "libpq" not in linked


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can look into dlock's memory")
def test_the_library_is_not_loaded_by_other_backends(dlock, tmp_path):
    done = dlock.run("run", "-u", f"file://{tmp_path}", "-k", "job", "--", "sh", "-c", "cat /proc/$PPID/maps")
    assert done.status == 0 and "libc.so" in done.stdout and "libpq" not in done.stdout


# ---- at the start: a server that refuses ----


@pytest.fixture(scope="module")
def guarded():
    """A server that wants a password of `guarded`, lets in everybody else but `banned`."""
    server = PgServer(hba=["host all guarded 127.0.0.1/32 scram-sha-256", "host all banned 127.0.0.1/32 reject"],
                      max_connections=12)
    server.ask("CREATE ROLE guarded LOGIN PASSWORD 'right-one'")
    server.ask("CREATE ROLE banned LOGIN")
    psql(server, pathlib.Path(ROOT, "backends/pg/schema.sql").read_text(encoding="utf-8"))
    server.ask("GRANT USAGE ON SCHEMA dlock TO PUBLIC")
    yield server
    server.stop()


def url_with(server, credentials):
    return f"postgresql://{credentials}@127.0.0.1:{server.port}/{DB}"


def test_password(dlock, guarded, tmp_path):
    assert run(dlock, url_with(guarded, "guarded:right-one")).status == 0
    assert run(dlock, url_with(guarded, "guarded"), env={"PGPASSWORD": "right-one"}).status == 0
    passfile = tmp_path / "pgpass"
    passfile.write_text("*:*:*:guarded:right-one\n")
    passfile.chmod(0o600)
    assert run(dlock, url_with(guarded, "guarded"), env={"PGPASSFILE": str(passfile)}).status == 0


def test_wrong_password(dlock, guarded):
    done = run(dlock, url_with(guarded, "guarded:wrong-one"), "-v")
    assert done.status == 77 and "password" in done.stderr and "wrong-one" not in done.stderr


@pytest.mark.parametrize("credentials, word", [("guarded", "password"), ("banned", "banned"), ("nobody", "nobody")])
def test_who_is_not_let_in(dlock, guarded, credentials, word):
    assert_refused(run(dlock, url_with(guarded, credentials), env={"PGPASSFILE": "/dev/null"}), 77, word)


def test_database_that_does_not_exist(dlock, pg_server):
    assert_refused(run(dlock, pg_url(pg_server.port, db="none")), 78, "none")


def test_database_that_may_not_be_entered(dlock, db):
    db.ask(f"REVOKE CONNECT ON DATABASE {db.name} FROM PUBLIC")
    db.ask("CREATE ROLE passer LOGIN")
    done = run(dlock, pg_url(db.server.port, "passer", db.name))
    assert_refused(done, 77, db.name, "permission denied for database")
    assert "pg-schema" not in done.stderr
    db.ask("DROP ROLE passer")


def test_too_many_connections_is_not_busy(dlock, guarded):
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(psycopg2.OperationalError):
            while True:
                stack.enter_context(contextlib.closing(guarded.connect("app")))
        assert_refused(run(dlock, guarded.url, "-n"), 69, "53300")


@pytest.mark.parametrize("mode", MODES)
def test_full_lock_table_is_not_busy(dlock, guarded, mode):
    """Any role may fill it."""
    assert run(dlock, guarded.url, mode=mode).status == 0
    with contextlib.closing(guarded.connect(USER)) as c:
        with pytest.raises(psycopg2.errors.OutOfMemory), c.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(g) FROM generate_series(1, 100000) g")
        done = run(dlock, guarded.url, "-n", mode=mode)
        if mode == "advisory" or done.status != 0:  # a table's lock may go another way
            assert_refused(done, 69, "53200")


@pytest.fixture(scope="module")
def pair(pg_server):
    """A primary and a standby that no test breaks."""
    standby = pg_server.standby(synchronous=False)
    yield pg_server, standby
    standby.stop()


@pytest.mark.parametrize("mode", MODES)
def test_standby_is_refused(dlock, pair, mode):
    _, standby = pair
    assert_refused(run(dlock, standby.url, mode=mode), 78, "standby")
    stated = standby.url + "?target_session_attrs=any"
    assert_refused(run(dlock, stated, mode=mode), 78)


def test_the_primary_is_found_among_several_hosts(dlock, pair):
    primary, standby = pair
    ports = f"127.0.0.1:{free_port()},127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
    url = f"postgresql://{USER}@{ports}/{DB}"
    holder = dlock.hold(At(url), "job")
    assert run(dlock, primary.url, "-n").status == 75
    assert holder.finish().status == 0


@pytest.mark.parametrize("primary", ["refuses", "is silent"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_standby_without_its_primary_is_an_outage(dlock, pair, primary, order):
    """A fail-over: some of the hosts named will have a primary again, by promotion or repair."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1] if primary == "is silent" else free_port()
        hosts = ",".join([f"127.0.0.1:{port}", f"127.0.0.1:{pair[1].port}"][::order])
        done = run(dlock, f"postgresql://{USER}@{hosts}/{DB}", "-w", "1s", timeout=30)
        assert_refused(done, 69)


def test_a_run_that_begins_in_a_fail_over_waits_for_its_end(dlock, make_pg):
    primary = make_pg()
    standby = primary.standby(synchronous=False)
    try:
        primary.signal(signal.SIGQUIT)
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        started = dlock.contend(At(f"postgresql://{USER}@{hosts}/{DB}"), "job", "-w", "60s", command=("true",))
        time.sleep(1)
        assert started.popen.poll() is None
        standby.promote()
        assert started.wait(30).status == 0
    finally:
        standby.stop()


def test_a_host_that_does_not_answer_is_passed_over(dlock, pg_server):
    """As the old primary's, after a fail-over, when its machine is gone."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hosts = f"127.0.0.1:{listener.getsockname()[1]},127.0.0.1:{pg_server.port}"
        done = run(dlock, f"postgresql://{USER}@{hosts}/{DB}")
        assert (done.status, done.stdout) == (0, "ran\n")


# ---- at the start: what a server says ----

STATES = {
    "08006": 69, "08P01": 69, "53200": 69, "53300": 69, "53400": 69, "57P01": 69, "57P02": 69, "57P03": 69,
    "28000": 77, "28P01": 77, "42501": 77,
    "25006": 78, "3D000": 78,
    "XX000": 76, "22P02": 76, "42601": 76,
    "40001": (69, 76), "40P01": (69, 76),  # asked again a few times before
}


def failing_with(state, text="not now"):
    """Every result is this error instead."""
    def change(kind, body):
        if kind == b"T":
            return [(b"E", error(state, text))]
        return [] if kind in (b"D", b"C") else [(kind, body)]
    return change


@pytest.mark.parametrize("state, status", STATES.items())
def test_errors_have_their_status(dlock, pg_server, make_tamper, state, status):
    assert run(dlock, pg_server.url).status == 0  # the schema is there
    change = failing_with(state, f"no such thing{SCREEN} as luck\nand more")
    done = run(dlock, make_tamper(pg_server.port, change).url(), "-n")
    assert done.status in (status if isinstance(status, tuple) else (status,))
    assert_refused(done, done.status, *(["GRANT"] if state == "42501" else ["\\x1B", "no such thing"]))
    assert "and more" not in done.stderr


@pytest.mark.parametrize("state, status", [("57P03", 69), ("53300", 69), ("28000", 77), ("3D000", 78)])
def test_errors_at_the_door_have_their_status(dlock, pg_server, make_tamper, state, status):
    def change(kind, body):
        return [(b"E", error(state, f"go away{SCREEN}", "FATAL"))] if kind == b"R" else []

    done = run(dlock, make_tamper(pg_server.port, change, early=True).url(), *IMPATIENT)
    assert_refused(done, status, "go away", "\\x1B")


@pytest.mark.parametrize("early", [True, False], ids=["at-the-door", "later"])
def test_a_password_that_a_server_repeats_is_not_shown(dlock, pg_server, make_tamper, early):
    assert run(dlock, pg_server.url).status == 0  # the schema is there
    text = "no luck with c0rrect-h@rse!, as c0rrect-h%40rse!"
    refusal = (b"E", error("28P01", text, "FATAL"))
    change = (lambda kind, body: [refusal] if kind == b"R" else []) if early else failing_with("XX000", text)
    url = make_tamper(pg_server.port, change, early=early).url().replace("app@", "app:c0rrect-h%40rse!@", 1)
    done = run(dlock, url, "-n")
    assert_refused(done, 77 if early else 76, "no luck with ***, as ***")


def each_row(change):
    """Rows are what `change` makes of their columns: a list of rows."""
    return lambda kind, body: [(b"D", data_row(r)) for r in change(columns(body))] if kind == b"D" else [(kind, body)]


NONSENSE = {
    "no-row": each_row(lambda row: []),
    "two-rows": each_row(lambda row: [row, row]),
    "nulls": each_row(lambda row: [[None] * len(row)]),
    "empty": each_row(lambda row: [[b""] * len(row)]),
    "words": each_row(lambda row: [[b"hello"] * len(row)]),
    "nuls": each_row(lambda row: [[b"t\0"] * len(row)]),
    "negative": each_row(lambda row: [[b"-1"] * len(row)]),
    "huge": each_row(lambda row: [[b"9" * 30] * len(row)]),
    "floats": each_row(lambda row: [[b"1.7e15"] * len(row)]),
    "large": each_row(lambda row: [[b"x" * 100000] * len(row)]),
    "one-column-less": each_row(lambda row: [row[:-1]]),
    "no-result": lambda kind, body: [] if kind in (b"T", b"D") else [(kind, body)],
    "no-end": lambda kind, body: [] if kind == b"Z" else [(kind, body)],
    "copy": lambda kind, body: [(b"G", b"\0\0\0")] if kind == b"T" else [] if kind in (b"D", b"C") else [(kind, body)],
    "unknown-message": lambda kind, body: [(b"!", b"?"), (kind, body)] if kind == b"D" else [(kind, body)],
}


@pytest.mark.parametrize("mode", ["lease", "advisory"])
@pytest.mark.parametrize("change", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_runs_nothing(dlock, db, make_tamper, change, mode):
    run(dlock, db.url, mode=mode)
    tamper = make_tamper(db.server.port, change)
    done = run(dlock, tamper.url(db.name), *IMPATIENT, mode=mode)
    assert done.status in (69, 76, 77, 78)
    assert_refused(done, done.status)


def test_notices_are_not_printed(dlock, pg_server, make_tamper):
    notice = (b"N", error("01000", f"look here{SCREEN}", "WARNING"))

    def change(kind, body):
        return [notice] * 2000 + [(kind, body)]

    done = run(dlock, make_tamper(pg_server.port, change).url(), "-v")
    assert (done.status, done.stdout) == (0, "ran\n")
    assert "look" not in done.stderr and "\x1b" not in done.stderr


def parameter(name, value):
    """Lies about a parameter of the server."""
    def change(kind, body):
        if kind == b"S" and body.startswith(name.encode() + b"\0"):
            body = f"{name}\0{value}\0".encode()
        return [(kind, body)]
    return change


def test_a_crowd_where_transactions_are_serializable(dlock, db):
    """They lose races against each other, which nobody needs to know."""
    db.ask(f"ALTER DATABASE {db.name} SET default_transaction_isolation = 'serializable'")
    holder = dlock.hold(At(db.url), "job")
    crowd = [dlock.contend(At(db.url), "job", command=("true",)) for _ in range(20)]
    for waiter in crowd:
        waiter.queued()
    assert holder.finish().status == 0
    assert [(w.wait().status, w.stderr()) for w in crowd] == [(0, "")] * 20


def test_a_server_of_another_encoding_or_style(dlock, make_db):
    """What a database or role sets for itself changes nothing."""
    database = make_db()
    settings = {"datestyle": "German", "timezone": "Pacific/Apia", "extra_float_digits": -5, "bytea_output": "escape",
                "intervalstyle": "sql_standard", "standard_conforming_strings": "off", "client_encoding": "LATIN1",
                "default_transaction_isolation": "serializable", "default_transaction_deferrable": "on",
                "statement_timeout": "3s", "lock_timeout": "50ms", "row_security": "off", "lc_monetary": "C",
                "plan_cache_mode": "force_generic_plan", "search_path": '"$user", nowhere'}
    for name, value in settings.items():
        value = value if name == "search_path" else f"'{value}'"
        database.ask(f"ALTER DATABASE {database.name} SET {name} = {value}")
    key = "schlüssel"
    holder = dlock.hold(At(database.url), key, "--why", "größer", *LIVING_LEASE, "-v")
    waiter = dlock.contend(At(database.url), key, command=("true",)).queued(1)
    wait_for_renewals(holder)
    assert json.loads(waiter.event("waiting")["holder"])["why"] == "größer"
    assert holder.finish().status == 0
    assert waiter.wait().status == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_database_that_lacks_letters(dlock, db, mode):
    """Where it is not in Unicode: what it cannot store is refused, not mangled."""
    db.drop()
    db.server.ask(f"CREATE DATABASE {db.name} OWNER {USER} TEMPLATE template0 ENCODING LATIN1", db="postgres")
    at = At(db.url, mode)
    holder = dlock.hold(at, "schlüssel", "--why", "größer")
    assert dlock.run("run", *at.words, "-k", "schlüssel", "-n", "--", "true").status == 75
    assert holder.finish().status == 0
    done = dlock.run("run", *at.words, "-k", "ключ", "-n", "--", "echo", "ran")
    if mode != "advisory" or done.status != 0:  # which is a number to the server
        assert_refused(done, 78)


def test_a_database_that_is_read_only_by_default(dlock, db):
    """The setting is a default, which dlock either overrides or names; the lock is never half there."""
    db.ask(f"ALTER DATABASE {db.name} SET default_transaction_read_only = on")
    done = run(dlock, db.url)
    if done.status != 0:
        assert_refused(done, 78, "read-only")


@pytest.mark.parametrize("mode, version, word", [("advisory", "13.9", "14"), ("lease", "9.4.26", "older")])
def test_servers_that_are_too_old(dlock, pg_server, make_tamper, mode, version, word):
    """Before 14, the server does not end idle sessions."""
    tamper = make_tamper(pg_server.port, parameter("server_version", version), early=True)
    assert_refused(run(dlock, tamper.url(), mode=mode), 78, word)


# ---- connections that break while asking ----


@pytest.mark.parametrize("direction", [UP, DOWN], ids=["request", "answer"])
def test_lock_is_free_after_a_reset_in_the_middle(dlock, db, make_proxy, direction):
    proxy = make_proxy(db.server.port)
    url = pg_url(proxy.port, db=db.name)
    assert run(dlock, url).status == 0
    proxy.bytes = {UP: 0, DOWN: 0}
    assert run(dlock, url).status == 0
    length = proxy.bytes[direction]  # of a whole run: all that comes before the release is lost on the way
    refused = 0
    for n in range(1, length, max(1, length // 25)):
        proxy.cut(direction, n)
        done = run(dlock, url, *LEASE, "-n")
        proxy.cut(direction, 1 << 30)
        if done.status == 0:  # only the release got lost
            assert "not confirmed" in done.stderr or not done.stderr
        else:
            assert_refused(done, 69)
            refused += 1
        assert run(dlock, db.url, "-w", SOON).status == 0
    assert refused > 5


def test_lost_answer_is_withdrawn(dlock, db, make_proxy):
    """The request arrives, its answer does not: what it took is given back."""
    run(dlock, db.url)
    proxy = make_proxy(db.server.port)
    deaf = lose_first_answer(proxy)
    done = run(dlock, pg_url(proxy.port, db=db.name), *IMPATIENT)
    assert_refused(done, 69)
    assert deaf
    assert is_free(dlock, db.url)


def lose_first_answer(proxy):
    """Of the first connection that asks for something of dlock's; returns a list which that one is put into."""
    deaf = []

    def rewrite(link, direction, data):
        if direction == UP and not deaf and b"dlock." in data:
            deaf.append(link)
        return b"" if direction == DOWN and link in deaf else data

    proxy.tap = rewrite
    return deaf


# ---- the schema ----


def schema_sql(dlock):
    done = dlock.run("help", "pg-schema")
    assert (done.status, done.stderr) == (0, "")
    return done.stdout


def readme_sql():
    """What README.md tells an administrator to grant, for a role `worker`."""
    text = pathlib.Path(ROOT, "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^(GRANT [^;]*dlock[^;]*;)", text, re.M)
    assert found
    return found


@pytest.fixture
def worker(db):
    """A role that may enter the database, and no more."""
    db.ask("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    db.ask(f"REVOKE ALL ON DATABASE {db.name} FROM PUBLIC")
    db.ask("CREATE ROLE worker LOGIN")
    db.ask(f"GRANT CONNECT ON DATABASE {db.name} TO worker")
    yield pg_url(db.server.port, "worker", db.name)
    db.drop()
    db.server.ask("DROP ROLE worker", db="postgres")


def test_a_crowd_at_first_use(dlock, db):
    """Each finds no schema, and none of them fails for the others."""
    crowd = [dlock.contend(At(db.url), f"key{n % 4}", command=("true",)) for n in range(16)]
    assert [c.wait(60).status for c in crowd] == [0] * 16


@pytest.mark.parametrize("mode", ["lease", "row"])
def test_a_role_that_may_not_make_the_schema_is_told_who_can(dlock, worker, mode):
    assert_refused(run(dlock, worker, mode=mode), 77, "dlock help pg-schema", "psql")


def test_the_least_rights_of_the_readme_are_enough(dlock, db, worker):
    """An administrator installs the schema twice and grants what the README says; then the role can do all."""
    for _ in range(2):
        psql(db, schema_sql(dlock))
    for grant in readme_sql():
        db.ask(grant.replace("deploy", "worker"))
    at = At(worker)
    holder = dlock.hold(at, "job", *LIVING_LEASE, "-v")
    quitter = dlock.contend(at, "job", "-w", "1s").queued(1)
    waiter = dlock.contend(at, "job", command=("true",)).queued(2)
    wait_for_renewals(holder)
    assert quitter.wait().status == 75
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    for mode in ("advisory", "row"):
        done = run(dlock, worker, mode=mode)
        assert (done.status, done.stderr) == (0, "")
    with contextlib.closing(db.connect("worker")) as c, c.cursor() as cursor:
        for sql in ("DROP SCHEMA dlock CASCADE", "CREATE TABLE dlock.mine (a int)", "ALTER TABLE dlock.claims ADD a int",
                    "CREATE OR REPLACE FUNCTION dlock.version() RETURNS int LANGUAGE sql AS 'SELECT 1'"):
            with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute(sql)


def test_the_schema_is_the_same_whoever_makes_it(dlock, make_db):
    """At first use, or by the administrator: columns, functions, indexes, sequences."""
    first, second = make_db(), make_db()
    assert run(dlock, first.url).status == 0
    psql(second, schema_sql(dlock), USER)
    assert shape(first) == shape(second)
    assert run(dlock, second.url).status == 0


def shape(database):
    columns_ = database.ask("SELECT table_name, column_name, data_type, column_default FROM information_schema.columns"
                            " WHERE table_schema = 'dlock' ORDER BY 1, 2")
    functions = database.ask("SELECT oid::regprocedure::text, prosrc, prosecdef, proconfig, proacl::text FROM pg_proc"
                             " WHERE pronamespace = 'dlock'::regnamespace ORDER BY 1")
    indexes = database.ask("SELECT indexdef FROM pg_indexes WHERE schemaname = 'dlock' ORDER BY 1")
    assert columns_ and functions and indexes
    return columns_, functions, indexes


EVIL = """
    CREATE SCHEMA evil;
    CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
    CREATE FUNCTION evil.now() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
    CREATE FUNCTION evil.pg_backend_pid() RETURNS int LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
    CREATE FUNCTION evil.nextval(regclass) RETURNS bigint LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
    CREATE FUNCTION evil.cheat(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE 'evil'; END$$;
    CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.cheat);
    CREATE TABLE evil.claims (a int); CREATE TABLE evil.rows (a int);
    GRANT ALL ON SCHEMA evil TO PUBLIC;
"""


def test_a_schema_made_by_somebody_else_gets_no_rights_of_the_administrators(dlock, db):
    """Whoever may create schemas may have made this one before, with traps in it."""
    db.ask("CREATE SCHEMA dlock; CREATE TABLE dlock.rows (key text PRIMARY KEY, token bigint NOT NULL DEFAULT 0)", user=USER)
    psql(db, schema_sql(dlock))
    owners = db.ask("SELECT DISTINCT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace = 'dlock'::regnamespace"
                    " UNION SELECT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'dlock'::regnamespace")
    assert owners == [(USER,)]
    assert run(dlock, db.url).status == 0


def test_a_view_in_place_of_an_old_table_gets_no_rights_of_the_administrators(dlock, db):
    db.ask("CREATE SEQUENCE public.victims; GRANT ALL ON SEQUENCE public.victims TO PUBLIC; GRANT CREATE ON SCHEMA public TO app")
    db.ask("CREATE SCHEMA dlock; CREATE FUNCTION public.evil() RETURNS timestamptz LANGUAGE plpgsql AS $$BEGIN"
           " PERFORM set_config('role', 'none', false); IF current_user <> 'app' THEN PERFORM nextval('public.victims');"
           " END IF; RETURN NULL; END$$; CREATE VIEW dlock.holds AS SELECT public.evil() AS ends", user=USER)
    words = ("psql", "-X", "-q", f"--dbname={pg_url(db.port, 'postgres', db.name)}")
    subprocess.run(words, input=schema_sql(dlock), capture_output=True, text=True, check=False)
    assert not db.value("SELECT is_called FROM public.victims")


POWERS = {"SUPERUSER": "SUPERUSER", "BYPASSRLS": "BYPASSRLS", "CREATEROLE": "CREATEROLE", "REPLICATION": "REPLICATION",
          "program": "IN ROLE pg_execute_server_program", "member": "IN ROLE postgres"}


@pytest.fixture
def role(db):
    """Makes a role with a power; it may use the database and no more."""
    made = []

    def make(power):
        made.append(f"powerful{db.name}")
        db.ask(f"CREATE ROLE {made[-1]} LOGIN {power}")
        return made[-1]

    yield make
    for name in made:
        db.ask(f"DROP OWNED BY {name}")
        db.ask(f"DROP ROLE {name}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("power", POWERS)
def test_functions_of_a_stranger_get_no_power(dlock, db, role, power, mode):
    """The owner of the database has made the schema."""
    assert run(dlock, db.url).status == 0
    db.ask("GRANT USAGE ON SCHEMA dlock TO PUBLIC", user=USER)
    db.ask("CREATE SEQUENCE public.victims; CREATE SEQUENCE public.calls; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO PUBLIC")
    for name, in db.ask("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'dlock'::regnamespace"):
        db.ask(f"ALTER FUNCTION {name} SECURITY INVOKER", user=USER)
    source = (f"BEGIN PERFORM nextval('public.calls'); IF current_user <> '{USER}' THEN"
              " PERFORM nextval('public.victims'); END IF; END")  # numbers drawn stay drawn
    db.ask("UPDATE pg_proc SET prosrc = %s, prosqlbody = NULL, prolang = (SELECT oid FROM pg_language WHERE"
           " lanname = 'plpgsql') WHERE pronamespace = 'dlock'::regnamespace", source)
    assert_refused(run(dlock, pg_url(db.port, role(POWERS[power]), db.name), mode=mode), 78, "schema dlock")
    assert not db.value("SELECT is_called FROM public.calls")
    run(dlock, db.url, mode=mode)  # with the owner's own rights they are called
    assert db.value("SELECT is_called FROM public.calls") and not db.value("SELECT is_called FROM public.victims")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("power", POWERS)
def test_a_schema_of_an_administrators_serves_everybody(dlock, db, role, power, mode):
    psql(db, schema_sql(dlock))
    db.ask("GRANT USAGE ON SCHEMA dlock TO PUBLIC")
    assert run(dlock, db.url, mode=mode).status == 0
    assert run(dlock, pg_url(db.port, role(POWERS[power]), db.name), mode=mode).status == 0
    assert run(dlock, pg_url(db.port, "postgres", db.name), mode=mode).status == 0


@pytest.mark.parametrize("trap", [
    "GRANT CREATE ON SCHEMA dlock TO app", "GRANT CREATE ON SCHEMA dlock TO PUBLIC",
    "ALTER FUNCTION dlock.number() OWNER TO app", "ALTER SEQUENCE dlock.numbers OWNER TO app",
    "ALTER SCHEMA dlock OWNER TO app", "GRANT TRIGGER ON dlock.rows TO app", "ALTER TABLE dlock.rows OWNER TO app"])
def test_whatever_lets_a_stranger_in_is_seen(dlock, db, trap):
    psql(db, schema_sql(dlock))
    db.ask("GRANT USAGE, CREATE ON SCHEMA dlock TO app")
    db.ask(trap)
    db.ask("REVOKE CREATE ON SCHEMA dlock FROM app") if "GRANT CREATE" not in trap else None
    assert_refused(run(dlock, pg_url(db.port, "postgres", db.name)), 78, "schema dlock")


def poison(db):
    """The owner of the database makes every function of its schema a trap that steps back to who has logged in."""
    db.ask("GRANT USAGE ON SCHEMA dlock TO PUBLIC", user=USER)
    db.ask("CREATE SEQUENCE public.victims; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO PUBLIC")
    for name, in db.ask("SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'dlock'::regnamespace"):
        db.ask(f"ALTER FUNCTION {name} SECURITY INVOKER; ALTER FUNCTION {name} RESET ALL", user=USER)
    db.ask("UPDATE pg_proc SET prosrc = %s, prosqlbody = NULL, prolang = (SELECT oid FROM pg_language WHERE"
           " lanname = 'plpgsql') WHERE pronamespace = 'dlock'::regnamespace",
           "BEGIN PERFORM set_config('session_authorization', 'postgres', false), set_config('role', 'none', false);"
           f" IF current_user <> '{USER}' THEN PERFORM nextval('public.victims'); END IF; END")


@pytest.mark.parametrize("setting", ["role", "session_authorization"])
@pytest.mark.parametrize("mode", MODES)
def test_who_was_made_another_at_the_login_keeps_the_power_and_is_guarded(dlock, db, mode, setting):
    """The owner of a database may set for it as whom sessions begin; a function may set that back."""
    assert run(dlock, db.url).status == 0
    poison(db)
    db.ask(f"ALTER DATABASE {db.name} SET {setting} = '{USER}'", user=USER)
    done = run(dlock, pg_url(db.port, "postgres", db.name), mode=mode)
    assert not db.value("SELECT is_called FROM public.victims")
    assert_refused(done, 78, "schema dlock")


@pytest.mark.parametrize("mode", MODES)
def test_a_schema_that_comes_right_behind_the_guard_is_not_called(dlock, db, make_proxy, mode):
    """The owner of the database has it ready, and is faster than our next question."""
    assert run(dlock, db.url, mode=mode).status == 0
    poison(db)
    db.ask("ALTER SCHEMA dlock RENAME TO hidden", user=USER)
    proxy = make_proxy(db.port)

    def tap(_, direction, data):
        if direction == UP and re.search(rb"dlock\.(take|number|lock_row)\((?!\))|SELECT dlock\.number|t\.got, CASE.*dlock", data):
            with contextlib.suppress(psycopg2.Error):  # we may have made ours by now
                db.ask("ALTER SCHEMA hidden RENAME TO dlock", user=USER)
        return data

    proxy.tap = tap
    run(dlock, pg_url(proxy.port, "postgres", db.name, extra="?sslmode=disable"), mode=mode)
    assert not db.value("SELECT is_called FROM public.victims")


def test_a_role_without_power_pays_no_round_trip_for_the_guard(dlock, db, make_proxy):
    """What goes up after the handshake: one packet for the grab, one for the release, one good-bye."""
    assert run(dlock, db.url).status == 0
    proxy = make_proxy(db.port)
    turns = []

    def tap(link, direction, data):
        if not turns or turns[-1] != (link, direction):
            turns.append((link, direction))
        return data

    proxy.tap = tap
    assert run(dlock, pg_url(proxy.port, db=db.name, extra="?sslmode=disable")).status == 0
    assert sum(direction == UP for _, direction in turns) <= 4, turns


@pytest.mark.parametrize("arguments", [
    "'job', 'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz', '{}', {lease}, {more}1, 1, 0, 0",
    "'job', '0123456789abcdef', '{}', {lease}, {more}1, 1, 0, 0",
    "'job', repeat('a', 32), '{}', {lease}, {more}0, 1, 0, 0", "'job', repeat('a', 32), '{}', {lease}, {more}-1, 1, 0, 0",
    "'job', repeat('a', 32), '{}', {lease}, {more}1, 0, 0, 0",
    "'job', repeat('a', 32), '{}', {endless}, {more}1, 1, 0, 0",
])
def test_nobody_wedges_a_key_with_strange_arguments(dlock, db, arguments):
    """Any role that may use the schema may call its functions."""
    holder = dlock.hold(At(db.url), "job")
    for key in ("job", "other"):
        for function, lease, endless, more in (("queue", "1000", "-9000000000000000", "600000, "),
                                               ("take", "'1 s'", "'-300000 years'", "")):
            words = arguments.replace("'job'", f"'{key}'").replace("{lease}", lease).replace("{endless}", endless)
            if function == "take":  # of mutexes alone: no weight, no capacity
                if "{more}1, 1, " not in words:
                    continue
                words = words.replace("{more}1, 1, ", "")
            with contextlib.suppress(psycopg2.Error):
                db.ask(f"SELECT dlock.{function}({words.replace('{more}', more)})", user=USER)
    waiter = dlock.contend(At(db.url), "job", command=("true",)).queued()
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    assert db.value("SELECT count(*) FROM dlock.claims WHERE slot IS NULL") == 0
    assert dlock.run("run", "-u", db.url, "-k", "other", "-n", "--", "true").status == 0


@pytest.mark.parametrize("mode", MODES)
def test_search_path_is_no_way_in(dlock, db, mode):
    """A schema of somebody else's in front of everything is not looked into."""
    db.ask(EVIL)
    db.ask(f"ALTER DATABASE {db.name} SET search_path = evil, pg_catalog")
    url = db.url + "?options=-csearch_path%3Devil,pg_catalog"
    holder = dlock.hold(At(url, mode), "job", *LIVING_LEASE, "-v")
    waiter = dlock.contend(At(url, mode), "job", command=("true",))
    waiter.event("waiting")
    wait_for_renewals(holder)
    assert holder.finish().status == 0
    assert waiter.wait().status == 0


@pytest.mark.parametrize("key", ["'; DROP SCHEMA dlock CASCADE; --", "$1", "\\'", "a'b", "%s%n", "$$", "x\"y", "E'\\n'"])
def test_keys_are_no_sql(dlock, pg_place, key):
    key = pg_place.key(key)
    holder = dlock.hold(pg_place, key)
    assert dlock.run("run", *pg_place.words, "-k", key, "-n", "--", "true").status == 75
    assert holder.finish().status == 0


# ---- in the queue ----


AWAY = """NOT EXISTS (SELECT FROM pg_locks l WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND mode = 'ExclusiveLock' AND (classid::bigint << 32) | objid::bigint = dlock.wake_lock(c.owner))"""


def first_is_away(db, key="job"):
    """Has the first one in the queue no session, and so no wake-up lock?"""
    return db.value(f"SELECT {AWAY} FROM dlock.claims c WHERE key = %s AND slot IS NULL ORDER BY ticket LIMIT 1", key)


def test_waiters_survive_partitions(dlock, db, make_proxy):
    """Each of them comes back to its place."""
    run(dlock, db.url)
    proxies = {fault: make_proxy(db.server.port) for fault in ("reset", "hold", "refuse")}
    holders = {fault: dlock.contend(At(db.url), fault) for fault in proxies}
    for holder in holders.values():
        holder.held()
    waiters = {fault: dlock.contend(At(pg_url(proxy.port, db=db.name)), fault, command=("true",))
               for fault, proxy in proxies.items()}
    for waiter in waiters.values():
        waiter.queued(1)
    before = {fault: proxy.connections for fault, proxy in proxies.items()}
    proxies["refuse"].refuse()
    proxies["hold"].hold(*BOTH)
    proxies["reset"].reset()
    proxies["refuse"].reset()
    wait_for(lambda: proxies["hold"].connections > before["hold"], what="a new attempt")
    proxies["hold"].reset()
    proxies["hold"].heal()
    proxies["refuse"].accept()  # some attempts have failed
    late = {}
    for fault, proxy in proxies.items():
        wait_for(lambda p=proxy, f=fault: p.connections > before[f] and not first_is_away(db, f), what=f"the return of {fault}")
        late[fault] = dlock.contend(At(db.url), fault, command=("true",)).queued(2)
    for fault, holder in holders.items():
        assert holder.finish().status == 0
        assert waiters[fault].wait().status == 0 and late[fault].wait().status == 0
        assert waiters[fault].token < late[fault].token, fault


class CutAfterAnswer(Tamper):
    """Once armed, the first row that comes is passed on; whatever is said next on that connection breaks it."""

    def __init__(self, port):
        super().__init__(port, self.look)
        self.armed, self.heard, self.cut = False, False, 0

    def look(self, kind, body):
        self.heard = self.heard or (self.armed and kind == b"D")
        return [(kind, body)]

    def rewrite(self, link, direction, data):
        if direction == UP and self.heard:
            self.armed, self.heard, self.cut = False, False, self.cut + 1
            raise ConnectionResetError
        return super().rewrite(link, direction, data)


@pytest.mark.parametrize("mode", MODES)
def test_waiter_cut_off_as_it_is_served_does_not_run_without_the_lock(dlock, db, mode, request):
    """It has heard that it is served; but what it says next, by which the lock becomes its own, breaks the connection."""
    proxy = CutAfterAnswer(db.server.port)
    request.addfinalizer(proxy.close)
    holder = dlock.hold(At(db.url, mode), "job", *LEASE)
    alone = f'env -u DLOCK_KEEPER "{DLOCK}" run {" ".join(At(db.url, mode).words)} -k job -n -- true'
    waiter = dlock.contend(At(proxy.url(db.name), mode), "job", *LEASE, command=("sh", "-c", f"{alone}; echo $?"))
    waiter.event("waiting")
    time.sleep(0.3)  # it sleeps in the server
    proxy.armed = True
    assert holder.finish().status == 0
    done = waiter.wait()
    assert proxy.cut == 1
    assert (done.status, done.stdout) == (0, "75\n")


def test_waiter_behind_a_partition_blocks_for_a_moment_only(dlock, db, make_proxy):
    proxy = make_proxy(db.server.port)
    holder = dlock.hold(At(db.url), "job")
    lost = dlock.contend(At(pg_url(proxy.port, db=db.name)), "job", *LEASE).queued(1)
    behind = dlock.contend(At(db.url), "job", command=("true",)).queued(2)
    proxy.drop(*BOTH)
    assert holder.finish().status == 0
    assert behind.wait().status == 0
    assert not lost.running


def test_dead_waiters_in_a_row_are_passed_over(dlock, db):
    """Their sessions have ended, so the lock is not offered to one after the other."""
    holder = dlock.hold(At(db.url), "job")
    dead = [dlock.contend(At(db.url), "job").queued(n + 1) for n in range(5)]
    for waiter in dead:
        waiter.signal(signal.SIGKILL, "keeper")
    wait_for(lambda: db.value(f"SELECT every({AWAY}) FROM dlock.claims c WHERE slot IS NULL"), what="silence")
    assert holder.finish().status == 0
    assert is_free(dlock, db.url)


def test_who_is_away_is_passed_over_and_keeps_its_place(dlock, db, make_proxy):
    proxy = make_proxy(db.server.port)
    holder = dlock.hold(At(db.url), "job")
    lost = dlock.contend(At(pg_url(proxy.port, db=db.name)), "job").queued(1)
    behind = dlock.contend(At(db.url), "job").queued(2)
    proxy.refuse()
    proxy.reset()
    wait_for(lambda: first_is_away(db), what="silence")
    assert holder.finish().status == 0
    behind.held()
    late = dlock.contend(At(db.url), "job", command=("true",)).queued(2)
    proxy.accept()
    wait_for(lambda: not first_is_away(db), what="its return")
    assert behind.finish().status == 0
    lost.held()
    assert lost.finish().status == 0
    assert late.wait().status == 0
    assert lost.token < late.token


def test_silent_waiters_with_a_session_are_not_passed_over(dlock, db):
    """A keeper that stands still for a moment keeps its place, and what it is granted, for that moment."""
    holder = dlock.hold(At(db.url), "job")
    first = dlock.contend(At(db.url), "job").queued(1)
    first.signal(signal.SIGSTOP, "keeper")
    time.sleep(4)  # longer than a server needs to see that a session has ended
    assert not first_is_away(db)
    assert holder.finish().status == 0
    assert not is_free(dlock, db.url)
    first.signal(signal.SIGCONT, "keeper")
    assert first.held().finish().status == 0


def test_a_wake_up_lock_that_somebody_keeps_costs_time_only(dlock, db):
    """Whoever may connect may take the advisory locks by which waiters are woken."""
    holder = dlock.hold(At(db.url), "job")
    owner = db.value("SELECT owner FROM dlock.claims")
    taken = threading.Event()

    def take():
        with contextlib.closing(db.connect()) as c, c.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(dlock.wake_lock(%s))", (owner,))
            taken.wait(120)

    thief = threading.Thread(target=take)
    thief.start()
    wait_for(lambda: db.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"),
             what="the thief in the queue")
    waiter = dlock.contend(At(db.url), "job", command=("true",)).queued(1)
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    taken.set()
    thief.join()


def test_terminated_waiters_come_back_to_their_places(dlock, db, tmp_path):
    order = tmp_path / "order"
    holder = dlock.hold(At(db.url), "job")
    waiters = [dlock.contend(At(db.url), "job", command=("sh", "-c", f"echo {n} >>{order}")).queued(n)
               for n in (1, 2, 3)]
    assert db.terminate() >= 3
    wait_for(lambda: len(db.sessions()) >= 3, what="their return")
    assert holder.finish().status == 0
    assert [w.wait().status for w in waiters] == [0, 0, 0]
    assert order.read_text().split() == list("123")


# ---- a crowd ----


def transactions(database):
    return database.value("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")


def test_a_waiter_is_no_burden_while_it_waits(dlock, db):
    """It sleeps for many seconds at a time, and asks nothing in between: whatever the length of the queue."""
    holder = dlock.hold(At(db.url), "job")
    waiters = [dlock.contend(At(db.url), "job", command=("true",)) for _ in range(20)]
    for waiter in waiters:
        waiter.queued()
    time.sleep(2)  # the server counts what a session has done after a second or so
    begin, before = time.monotonic(), transactions(db)
    time.sleep(15)
    done, seconds = transactions(db) - before, time.monotonic() - begin
    assert done / len(waiters) / seconds < 0.3, done
    assert holder.finish().status == 0
    assert [w.wait(60).status for w in waiters] == [0] * len(waiters)


class Turns(Tamper):
    """Counts how often the client spoke, and how often it was spoken to."""

    def __init__(self, port):
        self.said, self.last = {UP: 0, DOWN: 0}, None
        super().__init__(port, lambda kind, body: [(kind, body)])

    def rewrite(self, link, direction, data):
        if direction != self.last:
            self.said[direction] += 1
        self.last = direction
        return super().rewrite(link, direction, data)


def test_a_hand_off_is_two_statements_and_wakes_one(dlock, db, request):
    """The release of the one, a renewal by the other: whoever else there is hears nothing of it."""
    run(dlock, db.url)
    proxies = [Turns(db.port) for _ in range(6)]
    for proxy in proxies:
        request.addfinalizer(proxy.close)
    all_of_them = [dlock.contend(At(p.url(db.name)), "job", "-t", "60s") for p in proxies[:1]]
    all_of_them[0].held()
    for n, proxy in enumerate(proxies[1:], 1):
        all_of_them.append(dlock.contend(At(proxy.url(db.name)), "job", "-t", "60s").queued(n))
    time.sleep(1)  # all are asleep
    before = [dict(p.said) for p in proxies]
    assert all_of_them[0].finish().status == 0
    all_of_them[1].held()
    after = [dict(p.said) for p in proxies]
    up = [a[UP] - b[UP] for a, b in zip(after, before)]
    assert up[0] <= 2 and up[1] == 1, up  # a release and a good-bye; a renewal
    assert sum(up[2:]) <= 1, up  # a chunk may just have ended
    for each in all_of_them[1:]:
        assert each.held().finish().status == 0


def test_the_queue_forgets_the_dead(dlock, db):
    """Those whose sessions have ended no longer count, though the holder holds on."""
    holder = dlock.hold(At(db.url), "job")
    dead = [dlock.contend(At(db.url), "job").queued(n + 1) for n in range(5)]
    last = dlock.contend(At(db.url), "job", command=("true",)).queued(6)
    for waiter in dead:
        waiter.signal(signal.SIGKILL, "keeper")
    last.event("waiting", 60, position=1)
    assert holder.finish().status == 0
    assert last.wait().status == 0
    assert run(dlock, db.url).status == 0


def test_more_than_one_may_hold(dlock, db):
    """The functions know capacities, though no option asks for them yet."""
    run(dlock, db.url)

    def queue(owner, weight):
        return db.ask("SELECT code, granted, place FROM dlock.queue('pool', repeat(%s, 32), '{}', 60000, 9000, %s, 3, 0, 0)",
                      owner, weight)[0]

    assert [queue(o, w)[0] for o, w in (("a", 1), ("b", 2), ("c", 2), ("d", 1))] == [1, 1, 0, 0]  # in order: d fits no sooner
    assert db.value("SELECT dlock.release('pool', repeat('b', 32), 0)") == 1
    assert db.ask("SELECT left(owner, 1), slot FROM dlock.claims WHERE key = 'pool' ORDER BY ticket") == [
        ("a", 0), ("c", 1), ("d", None)]
    assert db.value("SELECT dlock.release('pool', repeat('a', 32), 0)") == 1
    assert queue("d", 1)[0] == 1
    assert db.value("SELECT array_agg(slot ORDER BY slot)::text FROM dlock.claims") == "{0,1}"
    assert db.ask("SELECT code FROM dlock.queue('pool', repeat('e', 32), '{}', 60000, 9000, 1, 1, 0, 0)") == [(-1,)]


def test_an_older_schema_is_brought_up_to_date(dlock, db):
    db.ask("CREATE SCHEMA dlock; CREATE TABLE dlock.holds (key text, ends timestamptz); CREATE TABLE dlock.keys (a int);"
           " CREATE TABLE dlock.waiters (a int); INSERT INTO dlock.holds VALUES ('job', now() + interval '1 hour')", user=USER)
    assert_refused(run(dlock, db.url, "-n"), 69, "an older dlock holds locks")
    db.ask("UPDATE dlock.holds SET ends = now()")
    assert run(dlock, db.url).status == 0
    assert db.value("SELECT to_regclass('dlock.holds')") is None
    psql(db, schema_sql(dlock), USER)  # again changes nothing
    assert run(dlock, db.url).status == 0


def test_a_newer_schema_is_left_alone(dlock, db):
    """Its functions would not go together with ours."""
    assert run(dlock, db.url).status == 0
    db.ask("COMMENT ON SCHEMA dlock IS 'dlock 3: locks for commands'; ALTER FUNCTION dlock.take RENAME TO take3", user=USER)
    assert_refused(run(dlock, db.url), 78, "newer dlock")
    assert db.value("SELECT obj_description('dlock'::regnamespace)").startswith("dlock 3:")
    assert not db.ask("SELECT FROM pg_proc WHERE pronamespace = 'dlock'::regnamespace AND proname = 'take'")


CREATE_INDEX = """
import psycopg2, sys
c = psycopg2.connect(sys.argv[1])
c.autocommit = True
sys.stdin.read()
c.cursor().execute("CREATE INDEX CONCURRENTLY ON things (g)")
"""


def test_index_is_built_concurrently_while_others_wait(dlock, make_db, make_pooler):
    """A waiter that keeps a snapshot, or the holder's own, would block it for ever."""
    holders, waiters = {}, {}
    for name in (*MODES, "pooled"):
        database = make_db()
        database.ask("CREATE TABLE things AS SELECT g FROM generate_series(1, 1000) g")
        port = make_pooler(database.server).port if name == "pooled" else database.port
        at = At(pg_url(port, db=database.name), name if name in MODES else "lease")
        command = ["/usr/bin/python3", "-c", CREATE_INDEX, pg_url(database.port, "postgres", database.name)]
        holders[name] = dlock.contend(at, "job", "-t", "6s", command=command).held()
        waiters[name] = [dlock.contend(at, "job", "-t", "6s", command=("true",)) for _ in range(3)]
    for waiter in (w for ws in waiters.values() for w in ws):
        waiter.event("waiting")
    time.sleep(0.5)  # they wait as they will
    for holder in holders.values():
        holder.popen.stdin.close()
    for name, holder in holders.items():
        assert holder.wait().status == 0, name
        assert [w.wait().status for w in waiters[name]] == [0, 0, 0]


# ---- holding: a server that is there, but ----


def test_terminated_session_leaves_the_command_alone(dlock, db):
    """A lease is no session."""
    holder = dlock.hold(At(db.url), "job", *LIVING_LEASE, "-v")
    assert db.terminate() >= 1
    wait_for_renewals(holder)
    assert run(dlock, db.url, "-n").status == 75
    assert holder.finish().status == 0
    assert not holder.events("suspect")
    assert is_free(dlock, db.url)


def test_passing_errors_do_not_end_the_command(dlock, db, make_tamper):
    """Of a renewal; the next one succeeds."""
    run(dlock, db.url)
    holders = {}
    for state in STATES:
        failing = threading.Event()

        def change(kind, body, fail=failing_with(state), failing=failing):
            return fail(kind, body) if failing.is_set() else [(kind, body)]

        url = make_tamper(db.server.port, change).url(db.name)
        holders[state] = dlock.contend(At(url), state, "-t", "6s"), failing
    for holder, failing in holders.values():
        holder.held()
        failing.set()
    for state, (holder, failing) in holders.items():
        if state not in ("40001", "40P01"):
            holder.event("suspect")
        else:
            wait_for(lambda h=holder: h.events("suspect") or h.poll() is not None, what=state)
        failing.clear()
    for holder, _ in holders.values():
        holder.event("trusted")
    for state, (holder, _) in holders.items():
        done = holder.finish()
        assert (done.status, done.stderr) == (0, ""), state


def test_lasting_errors_end_the_command(dlock, db, make_tamper):
    """As does nonsense, which is no renewal."""
    run(dlock, db.url)
    changes = {state: failing_with(state) for state in ("25006", "42501", "57P03", "XX000", "40001")}
    changes.update((name, change) for name, change in NONSENSE.items() if name != "unknown-message")
    holders = {}
    for name, change in changes.items():
        lying = threading.Event()

        def now_and_then(kind, body, change=change, lying=lying):
            return change(kind, body) if lying.is_set() else [(kind, body)]

        url = make_tamper(db.server.port, now_and_then).url(db.name)
        holders[name] = dlock.contend(At(url), name, *LEASE), lying
    for holder, lying in holders.values():
        holder.held()
        lying.set()
    for name, (holder, _) in holders.items():
        done = holder.wait()
        assert (done.status, done.stderr.count("\n")) == (79, 1), name


# ---- holding: what is done to the data ----

TAMPERED = {
    "deleted": ["DELETE FROM dlock.claims WHERE slot IS NOT NULL"],
    "truncated": ["TRUNCATE dlock.claims"],
    "everything-deleted": ["DELETE FROM dlock.claims"],
    "dropped": ["DROP TABLE dlock.claims CASCADE"],
    "schema-dropped": ["DROP SCHEMA dlock CASCADE"],
    "another-owner": ["UPDATE dlock.claims SET owner = repeat('f', 32)"],
    "expired": ["UPDATE dlock.claims SET ends = clock_timestamp() - interval '1 hour'"],
}


def tamper_with(database, statements):
    for sql in statements:
        database.ask(sql)


def test_lost_data_cost_the_command(dlock, make_db):
    holders = {}
    for name in TAMPERED:
        database = make_db()
        holders[name] = database, dlock.contend(At(database.url), "job", *LEASE)
    for name, (database, holder) in holders.items():
        holder.held()
        tamper_with(database, TAMPERED[name])
        if name == "expired":  # it is not lost while nobody else has it
            assert run(dlock, database.url, "-n").status == 0
    for name, (database, holder) in holders.items():
        done = holder.wait()
        assert done.status == 79 and done.stderr.count("\n") == 1, name
        if name == "dropped":
            database.ask("DROP SCHEMA dlock CASCADE")
        if name != "another-owner":
            assert is_free(dlock, database.url), name


def test_lost_data_are_noticed_at_release(dlock, db):
    holder = dlock.hold(At(db.url), "job")
    db.ask("DELETE FROM dlock.claims WHERE slot IS NOT NULL")
    done = holder.finish()
    assert done.status == 79 and "job" in done.stderr


def test_lost_lock_is_not_taken_again(dlock, db):
    holder = dlock.hold(At(db.url), "job", *LEASE)
    db.ask("DELETE FROM dlock.claims WHERE slot IS NOT NULL")
    assert holder.wait().status == 79
    assert db.value("SELECT count(*) FROM dlock.claims WHERE slot IS NOT NULL") == 0


def test_nothing_is_left_of_locks_that_were_released(dlock, db):
    for n in range(5):
        holder = dlock.hold(At(db.url), f"key{n}")
        waiter = dlock.contend(At(db.url), f"key{n}", command=("true",)).queued(1)
        assert holder.finish().status == 0 and waiter.wait().status == 0
    assert db.value("SELECT count(*) FROM dlock.claims WHERE slot IS NOT NULL") == 0
    assert db.value("SELECT count(*) FROM dlock.claims WHERE slot IS NULL") == 0


# ---- restarts and fail-over ----


def test_a_grant_is_on_disk_before_the_command_runs(dlock, make_pg):
    """Even where commits are told not to wait for it."""
    server = make_pg(safe=True, synchronous_commit="off", wal_writer_delay="10s")
    run(dlock, server.url)
    first = dlock.hold(At(server.url), "job")
    server.restart()
    assert run(dlock, server.url, "-n").status == 75
    waiter = dlock.contend(At(server.url), "job").queued(1)
    assert first.finish().status == 0
    token = waiter.held().token
    server.restart()
    assert run(dlock, server.url, "-n").status == 75  # so is the grant of one who waited
    assert waiter.finish().status == 0
    assert first.token < token


def test_numbers_are_on_disk_before_they_are_told(dlock, make_pg):
    """Those that are drawn outside a grant of the default mode too."""
    server = make_pg(safe=True, synchronous_commit="off", wal_writer_delay="10s")
    run(dlock, server.url)
    server.ask("CHECKPOINT")
    drawn = server.value("SELECT max(dlock.number()) FROM generate_series(1, 100)")
    server.restart()
    assert server.value("SELECT dlock.number()") > drawn


@pytest.fixture
def fleet(make_pg, request):
    """A primary and its synchronous standby."""
    primary = make_pg(safe=True)
    standby = primary.standby()
    request.addfinalizer(standby.stop)
    return primary, standby


def test_promotion_keeps_the_lock(dlock, fleet):
    """The primary dies; the standby, which has every acknowledged write, goes on as the server."""
    primary, standby = fleet
    url = f"postgresql://{USER}@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/{DB}"
    run(dlock, url)
    holder = dlock.hold(At(url), "job", "-t", "6s", "-v")
    waiter = dlock.contend(At(url), "job", "-t", "6s", command=("true",)).queued(1)
    primary.kill()
    time.sleep(1)  # all that they find is a standby
    standby.promote()
    wait_for_renewals(holder)
    assert run(dlock, standby.url, "-n").status == 75
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    last = dlock.hold(At(standby.url), "job")
    assert holder.token < waiter.token < last.token


def test_old_primary_keeps_nobody(dlock, fleet, tmp_path):
    """The standby is promoted while the primary lives: whoever sees the old one only has lost."""
    primary, standby = fleet
    run(dlock, primary.url)
    holder = dlock.contend(At(primary.url), "job", *LEASE, command=("sh", "-c", STUBBORN, tmp_path / "heard")).held()
    standby.promote()
    next_ = dlock.contend(At(standby.url), "job", command=("sh", "-c", IS_GONE, holder.command))
    assert holder.wait().status == 79
    assert next_.wait().status == 0
    assert next_.token > holder.token


def waiting_for_a_standby(server):
    """(process, start of its statement) of whoever does."""
    return server.ask("SELECT pid, query_start FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


def test_a_grant_that_its_standby_does_not_have_is_none(dlock, fleet):
    """An administrator cancels the wait for it; the server then says that all is well, and a warning."""
    primary, standby = fleet
    run(dlock, primary.url)
    standby.pause()
    starter = dlock.contend(At(primary.url), "job", "-O", "connect-timeout=60s")
    first = wait_for(lambda: waiting_for_a_standby(primary), what="a commit")
    primary.ask("SELECT pg_cancel_backend(%s)", first[0][0])
    wait_for(lambda: starter.running or waiting_for_a_standby(primary) not in ([], first), what="another one")
    assert not starter.running
    standby.resume()
    assert starter.held().finish().status == 0


# ---- the server's clock ----


@pytest.fixture
def clock(request, make_pg):
    """A server whose wall clock is wrong by what is written into the file, in seconds."""
    directory = pathlib.Path(make_directory("dlock-clock-"))  # the server may not enter tmp_path
    request.addfinalizer(lambda: shutil.rmtree(directory, ignore_errors=True))
    file = directory / "shift"
    file.write_text("0")
    shim = compile_shim(directory, "clock", """
        #include <fcntl.h>
        #include <stdlib.h>
        #include <sys/time.h>
        #include <time.h>
        #include <unistd.h>
        int gettimeofday(struct timeval *tv, void *zone)
        {
            struct timespec t;
            char text[32] = "";
            int fd = open(getenv("SHIFT"), O_RDONLY);
            (void)zone;
            if (fd >= 0) {
                if (read(fd, text, sizeof text - 1) < 0)
                    text[0] = 0;
                close(fd);
            }
            clock_gettime(CLOCK_REALTIME, &t);
            tv->tv_sec = t.tv_sec + atol(text);
            tv->tv_usec = t.tv_nsec / 1000;
            return 0;
        }""")
    server = make_pg(env={"LD_PRELOAD": shim, "SHIFT": str(file)})

    def shift(seconds):
        (directory / "new").write_text(str(seconds))
        os.rename(directory / "new", file)
        now = server.value("SELECT extract(epoch FROM clock_timestamp())::float8")
        assert abs(now - time.time() - seconds) < 60

    return server, shift


def test_server_clock_set_forward_costs_the_command(dlock, clock):
    server, shift = clock
    holder = dlock.hold(At(server.url), "job", *LEASE)
    shift(3600)
    assert is_free(dlock, server.url)  # by its clock, the lease has ended
    assert holder.wait().status == 79


def test_server_clock_set_back_changes_nothing_for_the_holder(dlock, clock):
    server, shift = clock
    holder = dlock.hold(At(server.url), "job", *LIVING_LEASE, "-v")
    waiter = dlock.contend(At(server.url), "job").queued(1)
    shift(-3600)
    wait_for_renewals(holder)
    assert holder.finish().status == 0
    assert waiter.held().token > holder.token
    assert waiter.finish().status == 0
    assert is_free(dlock, server.url)


# ---- at the end ----


def test_lost_answer_to_a_release_is_no_lost_lock(dlock, db, make_proxy):
    """The server has released, its answer got lost, and asked again it knows of nothing: that proves no loss."""
    proxy = make_proxy(db.server.port)
    holder = dlock.hold(At(pg_url(proxy.port, db=db.name)), "job")
    proxy.cut(DOWN, 1)  # resets at the next answer
    done = holder.finish()
    assert done.status == 0 and "the release was not confirmed" in done.stderr
    wait_for(lambda: is_free(dlock, db.url), what="a free lock")


# ---- poolers ----


def test_leases_through_poolers(dlock, db, make_pooler):
    """And with directly connected ones in the same queue."""
    run(dlock, db.url)
    holders, waiters = {}, {}
    for pooling, size in (("session", 10), ("transaction", 2), ("statement", 2)):
        pooled = At(pg_url(make_pooler(db.server, pooling, default_pool_size=size).port, db=db.name))
        holders[pooling] = dlock.hold(pooled, pooling, *LIVING_LEASE, "-v")
        waiters[pooling] = [dlock.contend(at, pooling, command=("true",)).queued(n + 1)
                            for n, at in enumerate((At(db.url), pooled, At(db.url), pooled))]
    for pooling, holder in holders.items():
        wait_for_renewals(holder)
        assert holder.finish().status == 0
        assert [w.wait().status for w in waiters[pooling]] == [0] * 4
        tokens = [s.token for s in (holder, *waiters[pooling])]
        assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("mode, pooling", [("advisory", "session"), ("advisory", "transaction"), ("advisory", "statement"),
                                           ("row", "statement")])
def test_what_a_pooler_cannot_carry_is_refused(dlock, db, make_pooler, pooling, mode):
    """And nothing is left in the sessions that the pooler keeps."""
    run(dlock, db.url, mode=mode)
    pooler = make_pooler(db.server, pooling)
    assert_refused(run(dlock, pg_url(pooler.port, db=db.name), mode=mode), 78, "pool")
    assert db.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    assert is_free(dlock, db.url, mode)
    with contextlib.closing(psycopg2.connect(pg_url(pooler.port, db=db.name))) as c, c.cursor() as cursor:
        c.autocommit = True
        cursor.execute("SHOW idle_session_timeout")
        assert cursor.fetchone() == ("0",)
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


def test_a_row_through_a_pooler(dlock, db, make_pooler):
    """A transaction has a connection of its own while it is open."""
    pooler = make_pooler(db.server)
    pooled = At(pg_url(pooler.port, db=db.name), "row")
    holder = dlock.hold(pooled, "job", *LIVING_LEASE, "-v")
    waiters = [dlock.contend(at, "job", command=("true",)) for at in (At(db.url, "row"), pooled)]
    for waiter in waiters:
        waiter.event("waiting")
    wait_for_renewals(holder)
    assert holder.finish().status == 0
    assert [w.wait().status for w in waiters] == [0, 0]
    with contextlib.closing(psycopg2.connect(pg_url(pooler.port, db=db.name))) as c, c.cursor() as cursor:
        for setting in ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout"):
            cursor.execute(f"SHOW {setting}")
            assert cursor.fetchone() == ("0",)


def test_a_pooler_that_restarts_costs_nothing(dlock, db, make_pooler):
    run(dlock, db.url)
    pooler = make_pooler(db.server)
    at = At(pg_url(pooler.port, db=db.name))
    holder = dlock.hold(at, "job", "-t", "6s", "-v")
    waiter = dlock.contend(at, "job", "-t", "6s", command=("true",)).queued(1)
    pooler.restart()
    wait_for_renewals(holder)
    assert holder.finish().status == 0
    assert waiter.wait().status == 0


# ---- secrets ----


@pytest.mark.parametrize("url, words", [
    ("postgresql://127.0.0.1:x/app", 'for connection option "port";'),
    ("postgresql://127.0.0.1:99999/app", "invalid port number;"),
    ("postgresql://127.0.0.1/app?sslmode=maybe", "invalid sslmode value;"),
])
def test_what_is_wrong_with_an_address(dlock, url, words):
    assert_refused(run(dlock, url), 64, words)


@pytest.mark.parametrize("url", [
    "postgresql://u:at@hunter2@127.0.0.1:{closed}/app", "postgresql://u:at@x/hunter2@127.0.0.1/app",
    "postgresql://u:a@b@hunter2@127.0.0.1/app", "postgresql://u:at@hunter2@127.0.0.1:x/app",
    "postgresql://u:at@127.0.0.1:{open}/hunter2@app", "postgresql://u:hunter2@127.0.0.1:{closed}/app", "postgresql://u:hunter2@127.0.0.1:{open}/none",
    "postgresql://u:hunter2@[::1/app", "host=127.0.0.1 port={closed} password=hunter2",
    "host=127.0.0.1 password='hunter2", "postgresql://127.0.0.1:{closed}/app?user=u&password=hunter2",
    "postgresql://u:hunter2@127.0.0.1:{closed}/app?colour=red", "postgresql://u:hunter2@dlock-test.invalid/app",
    "postgresql://u:hunter2%zz@h/app", "host=h password=hunter2 colour=red", "password=hunter2 =x",
    "postgresql://u:hunter2@127.0.0.1:x/app", "postgresql://u:hunter2@127.0.0.1,127.0.0.1:1,127.0.0.1,127.0.0.1/app",
    "postgresql://u:hunter2 host=127.0.0.1",
])
def test_no_message_tells_a_password(dlock, pg_server, url):
    url = url.format(closed=free_port(), open=pg_server.port)
    for words in (["-u", url], ["-u", url, "-v"]):
        started = dlock.start("run", "-b", "pg", *words, "-k", "job", *IMPATIENT, "--", "echo", "ran")
        done = started.wait(30)
        assert done.status in (64, 69, 77, 78) and done.stdout == ""
        assert "hunter2" not in done.stderr and done.stderr
        assert "hunter2" not in str(started.events())


def test_nobody_sees_the_password_of_a_holder(dlock, guarded):
    holder = dlock.hold(At(url_with(guarded, "guarded:right-one")), "job", "-v")
    for pid in (holder.front, holder.keeper):
        assert "right-one" not in pathlib.Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    waiter = dlock.contend(At(guarded.url), "job").queued()
    assert "right-one" not in str(waiter.events()) + holder.stderr() + str(holder.events())
    activity = guarded.ask("SELECT * FROM pg_stat_activity") + guarded.ask("SELECT * FROM dlock.claims")
    assert "right-one" not in str(activity)
