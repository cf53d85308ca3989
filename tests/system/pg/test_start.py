# Goal of these tests: a PostgreSQL server is found in each way that libpq knows, and one
# that is away or refuses is waited for or reported as what it is, with no password in it.

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

import psycopg2
import pytest

from databases import a_hold_leaves_its_directory
from faults import IMPATIENT, assert_password_is_not_shown, assert_refused
from pg import DB, MODES, USER, PgServer, account, error, pg_url, psql
from strangers import STRANGERS, stranger
from support import DLOCK, ROOT, At, compile_shim, free_port, is_free, run, wait_for


# ---- where a server is ----


def test_what_another_test_has_left_is_in_no_way(dlock, pg_server, make_tamper):
    """On the server of all tests, also by way of a proxy, each has a key of its own, unless it names one."""
    holder = dlock.hold(At(pg_server.url), "job", "-t", "9s")
    for at in (pg_server, pg_server.url, At(pg_server.url), make_tamper(pg_server.port, lambda kind, body: [(kind, body)]).url()):
        assert is_free(dlock, at) and run(dlock, at, "-n").status == 0
    assert run(dlock, pg_server, "-n", key="job").status == 75
    assert holder.finish().status == 0


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


def test_nobody_who_is_silent_is_waited_for(dlock, own_pg):
    own_pg.pause()
    assert_refused(run(dlock, own_pg.url, *IMPATIENT), 69, str(own_pg.port))


@pytest.mark.parametrize("name", [name for name in STRANGERS if name != "PostgreSQL"])
def test_a_server_that_waits_for_more_is_known_soon(dlock, name):
    """However long one would wait for a PostgreSQL."""
    with stranger(name) as port:
        assert_refused(run(dlock, pg_url(port), "-w", "inf", timeout=20), 76, str(port), "is no PostgreSQL", f"{name} answers there")


def test_a_server_of_another_kind_that_is_slow_is_known(dlock):
    with stranger("Redis", pause=0.5) as port:
        assert_refused(run(dlock, pg_url(port), "-n"), 76, str(port), "Redis answers there")


def test_a_postgresql_that_wakes_while_it_is_asked_is_no_stranger(dlock):
    with stranger("PostgreSQL", wakes=True) as port:
        assert_refused(run(dlock, pg_url(port), "-O", "connect-timeout=2s"), 69, str(port))


def test_a_login_goes_on_as_soon_as_its_server_speaks(dlock, pg_server):
    """It has too much to do: then it is not asked again what it is, and nobody waits for what it says to that."""
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        def pump(source, sink):
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    sink.sendall(data)

        def serve():
            with contextlib.suppress(OSError):
                login = stack.enter_context(listener.accept()[0])
                while True:
                    other = stack.enter_context(listener.accept()[0])
                    heard.append(other.recv(100))
                    if len(heard) == 1:
                        server = stack.enter_context(socket.create_connection(("127.0.0.1", pg_server.port)))
                        for ends in ((login, server), (server, login)):
                            threading.Thread(target=pump, args=ends, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        done = run(dlock, pg_url(listener.getsockname()[1], extra="?sslmode=disable"), "-n", key="spoken")
        listener.shutdown(socket.SHUT_RDWR)
    assert done.status == 0 and heard == [b"srvr\r\n"], (done, heard)


def test_a_server_that_says_nothing_is_not_asked_again_and_again_what_it_is(dlock):
    """Each look at a switch is a connection of its own: one that is overloaded would have the more to do the slower it is."""
    heard = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                while True:
                    client = stack.enter_context(listener.accept()[0])
                    heard.append(client.recv(8))

        threading.Thread(target=serve, daemon=True).start()
        port = listener.getsockname()[1]
        done = run(dlock, pg_url(port, extra="?sslmode=disable"), "--unless-frozen", "all", "-O", "connect-timeout=1s", "-w", "12s")
        listener.shutdown(socket.SHUT_RDWR)
    assert done.status == 69, done
    logins = sum(said[4:8] == b"\0\3\0\0" for said in heard)
    assert 1 <= heard.count(b"srvr\r\n") <= 3 < logins, heard


def test_a_redis_is_no_postgresql(dlock, pg_server, redis_server):
    """Alone; as the first of two hosts it is passed over."""
    assert_refused(run(dlock, pg_url(redis_server.port), "-w", "inf", timeout=20), 76, str(redis_server.port), "Redis answers there")
    url = f"postgresql://{USER}@127.0.0.1:{redis_server.port},127.0.0.1:{pg_server.port}/{DB}"
    assert run(dlock, url, key="passed", timeout=20).status == 0


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


@pytest.mark.parametrize("limit", ["-v 12000", "-n 7", "-n 8"])
def test_a_machine_that_cannot_load_the_library(dlock, pg_server, limit):
    """For want of memory or descriptors: to install it again would not help.

    Of nine, libpq's thread and the socket for inner runs want the last one at the same time; a run can do without the latter.
    """
    limited = ["sh", "-c", f'ulimit {limit}; exec "$0" "$@"', DLOCK, "run", "-u", pg_server.url, "-k", dlock.own_key, "--", "true"]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (71, "", 1)
    assert "installed" not in done.stderr and ("memory" in done.stderr or "open files" in done.stderr or "map" in done.stderr)


def test_the_library_is_not_linked():
    linked = subprocess.run(["ldd", DLOCK], capture_output=True, text=True, check=True).stdout
    assert "libc.so" in linked and "libpq" not in linked


def test_the_library_is_loaded_by_this_backend_alone(dlock, tmp_path, pg_server):
    shim = compile_shim(tmp_path, "loads", """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        #include <stdlib.h>
        void *dlopen(const char *name, int flags)
        {
            FILE *told = fopen(getenv("LOADED"), "a");
            if (told && name) fprintf(told, "%s\\n", name);
            if (told) fclose(told);
            return ((void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen"))(name, flags);
        }""")
    told = tmp_path / "loaded"
    for url, loaded in ((f"file://{tmp_path}", False), (pg_server.url, True)):
        told.touch()
        assert dlock.run("run", "-u", url, "-k", dlock.own_key, "--", "true", env={"LD_PRELOAD": shim, "LOADED": str(told)}).status == 0
        assert ("libpq" in told.read_text()) == loaded


# ---- at the start: a server that refuses ----


@pytest.fixture(scope="module")
def guarded(authority):
    """A server that wants a password of `guarded`, lets in everybody else but `banned`; with TLS or without."""
    server = PgServer(hba=["host all guarded 127.0.0.1/32 scram-sha-256", "host all banned 127.0.0.1/32 reject"],
                      max_connections=12)
    server.ask("CREATE ROLE guarded LOGIN PASSWORD 'right-one'")
    server.ask("CREATE ROLE banned LOGIN")
    psql(server, "".join(pathlib.Path(ROOT, "backends/pg", file).read_text(encoding="utf-8")
                         for file in ("schema.sql", "schema_calls.sql")))
    server.ask("GRANT USAGE ON SCHEMA dlock TO PUBLIC")
    made = authority.sign("server")
    for path, name in ((made.cert, "server.crt"), (made.key, "server.key")):
        shutil.copy(path, f"{server.data}/{name}")
        os.chmod(f"{server.data}/{name}", 0o600)
        if account():
            shutil.chown(f"{server.data}/{name}", account()["user"], account()["group"])
    server.ask("ALTER SYSTEM SET ssl = on")
    server.ask("SELECT pg_reload_conf()")
    wait_for(lambda: server.value("SHOW ssl") == "on", what="TLS")
    yield server
    server.stop()


@pytest.fixture(params=["disable", "require"])
def tls(request, dlock):
    """What a server says is the same in the clear and within TLS."""
    dlock.env["PGSSLMODE"] = request.param


def url_with(server, credentials):
    return f"postgresql://{credentials}@127.0.0.1:{server.port}/{DB}"


def test_password(dlock, guarded, tmp_path):
    assert run(dlock, url_with(guarded, "guarded:right-one")).status == 0
    assert run(dlock, url_with(guarded, "guarded"), env={"PGPASSWORD": "right-one"}).status == 0
    passfile = tmp_path / "pgpass"
    passfile.write_text("*:*:*:guarded:right-one\n")
    passfile.chmod(0o600)
    assert run(dlock, url_with(guarded, "guarded"), env={"PGPASSFILE": str(passfile)}).status == 0


def test_a_hold_leaves_the_directory_that_its_files_were_named_from(dlock, guarded, authority, tmp_path):
    """It connects again with the same service, password and certificate."""
    (tmp_path / "services").write_text(f"[locks]\nhost=127.0.0.1\nport={guarded.port}\nuser=guarded\ndbname={DB}\npassfile=pgpass\n")
    (tmp_path / "pgpass").write_text("*:*:*:guarded:right-one\n")
    (tmp_path / "pgpass").chmod(0o600)
    shutil.copy(authority.cert, tmp_path / "ca")

    def sessions(end=False):
        what = "pg_terminate_backend(pid)" if end else "pid"
        return [n for n, in guarded.ask(f"SELECT {what} FROM pg_stat_activity WHERE usename = 'guarded'")]

    a_hold_leaves_its_directory(dlock, tmp_path, ["-u", "postgresql:///?service=locks&sslmode=verify-ca"],
                                {"PGSERVICEFILE": "services", "PGSSLROOTCERT": "ca"}, sessions,
                                lambda: guarded.value("SELECT max(ends) FROM dlock.claims"))


def test_a_password_of_a_file_is_not_shown_in_what_others_have_said(dlock, guarded, tmp_path):
    passfile = tmp_path / "pgpass"
    passfile.write_text("*:*:*:guarded:right-one\n")
    passfile.chmod(0o600)
    assert_password_is_not_shown(dlock, url_with(guarded, "guarded"), "right-one", env={"PGPASSFILE": str(passfile)})


def test_wrong_password(dlock, guarded, tls):
    done = run(dlock, url_with(guarded, "guarded:wrong-one"), "-v")
    assert done.status == 77 and "password" in done.stderr and "wrong-one" not in done.stderr


@pytest.mark.parametrize("credentials, word", [("guarded", "password"), ("banned", "banned"), ("nobody", "nobody")])
def test_who_is_not_let_in(dlock, guarded, tls, credentials, word):
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


def test_too_many_connections_is_not_busy(dlock, guarded, tls):
    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    wait_for(lambda: guarded.value(others) == 0, what="the end of those that were there before")
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
    holder = dlock.hold(At(url), dlock.own_key)
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
