# Goal of this file: PostgreSQL servers of the tests' own, a standby, a pooler, the
# places where locks are kept on them, and what tests of PostgreSQL alone do with dlock.

import contextlib
import functools
import glob
import os
import pathlib
import pwd
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile

with contextlib.suppress(ImportError):  # without it no test is run that needs it
    import psycopg2

import databases
from proxy import TARGETS, UP, Proxy
from support import OF_SESSIONS, ROOT, RemotePlace, Server, at_end, children_of, is_alive, kill, servers, wait_for

USER, DB = "app", "app"  # an ordinary role, which owns its database
TESTS = "tests"  # what kept connections call themselves

# Tests need no data after a crash of the machine; those that crash a server say safe=True.
SETTINGS = {"max_connections": 300, "shared_buffers": "16MB", "max_wal_senders": 4, "log_min_messages": "warning",
            "log_line_prefix": "%m [%p] ", "listen_addresses": "127.0.0.1", "dynamic_shared_memory_type": "mmap"}
# The advisory locks of a database, for other tests' sessions may end late; to be selected from.
ADVISORY = ("(SELECT l.* FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE datname = current_database() AND locktype = 'advisory') ours")
# Has the waiter c no session, and so no wake-up lock?
AWAY = """NOT EXISTS (SELECT FROM pg_locks l WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND mode = 'ExclusiveLock' AND (classid::bigint << 32) | objid::bigint = dlock.wake_lock(c.owner))"""
UNSAFE = {"fsync": "off", "full_page_writes": "off"}


def pg_url(port, user=USER, db=DB, extra="", host="127.0.0.1"):
    """The same address whether a server, a pooler or a proxy listens there."""
    return f"postgresql://{user}@{host}:{port}/{db}{extra}"


def bindir():
    """Where initdb and postgres are: Debian has them in no one's PATH."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda d: int(d.split("/")[4]))
    return found[-1] if found else os.path.dirname(shutil.which("postgres"))


@functools.cache
def account(*names):
    """A server may refuse to run as root: whom it may run as (the first of these that there is), for Popen."""
    if os.geteuid() != 0:
        return {}
    for name in names or ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise AssertionError("no user whom a server could run as")


def run_as(owner, *words):
    """The words that run a program as this account(): Popen(user=...) would copy all of a process of tests first."""
    return [*(["setpriv", f"--reuid={owner['user']}", f"--regid={owner['group']}", "--clear-groups"] if owner else []), *words]


@functools.cache
def roomy():
    """Memory, if there is enough: a database is hundreds of small files, slow to make on many a disk."""
    with contextlib.suppress(OSError):
        memory = os.statvfs("/dev/shm")
        if memory.f_bavail * memory.f_frsize > 2 << 30 and os.access("/dev/shm", os.W_OK):
            return "/dev/shm"
    return "/tmp"


def make_directory(prefix, where=None, owner=None):
    """A short path (a unix socket must fit), owned by whoever runs the server."""
    directory = tempfile.mkdtemp(prefix=prefix, dir=where or roomy())
    owner = account() if owner is None else owner
    if owner:
        os.chown(directory, owner["user"], owner["group"])
    return directory


def tool(name, *words, **options):
    """Runs one of PostgreSQL's programs to its end; its output is for the reader of a failure."""
    done = subprocess.run(run_as(account(), f"{bindir()}/{name}", *words), capture_output=True, text=True, check=False, cwd="/tmp",
                          **options)
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


@functools.cache
def copying():
    """How a database is made with the least work."""
    version = re.search(r"/(\d+)/bin$", bindir())
    return "STRATEGY FILE_COPY" if version and int(version[1]) >= 15 else ""


def rows_of(connection, sql, arguments=()):
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments or None)
        return cursor.fetchall() if cursor.description else []


@functools.cache
def template():
    """A data directory that was never started; copies of it are fresh servers."""
    directory = make_directory("dlock-pg-")
    at_end(directory)
    data = f"{directory}/data"
    tool("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--no-locale", "-E", "UTF8", "--wal-segsize=1")
    tool("postgres", "--single", "-F", "-D", data, "postgres",
         input=f"CREATE ROLE {USER} LOGIN;\nCREATE DATABASE {DB} OWNER {USER};\n")
    return data


class PgServer(Server):
    """A server with a fresh copy of the template, on a loopback port and a unix socket.

    Settings are given as arguments; safe=True: a crash of it loses nothing; hba: lines before pg_hba.conf's own;
    env: variables for it; where: in this directory, a disk's if that matters.
    """

    kind = "postgres"
    name = DB  # of the database in which most is done
    _databases = 0

    def __init__(self, safe=False, data=None, hba=(), env=None, where=None, **settings):
        super().__init__(make_directory("dlock-pg-", where))
        self.env, self.kept = env or {}, None
        self.data = f"{self.directory}/data"
        if data is None:
            subprocess.run(["cp", "-a", template(), self.data], check=True)
        else:
            os.rename(data, self.data)
        self.settings = {**SETTINGS, **({} if safe else UNSAFE), **settings}
        if hba:
            path = pathlib.Path(self.data, "pg_hba.conf")
            path.write_text("\n".join([*hba, path.read_text()]))
        self.settle()

    # ---- its addresses ----

    @property
    def url(self):
        return pg_url(self.port)

    @property
    def unix_url(self):
        return f"postgresql:///{DB}?host={self.directory}&port={self.port}&user={USER}"

    # ---- what it is asked ----

    def connect(self, user="postgres", db=DB, **options):
        """A connection on which every statement is a transaction."""
        c = psycopg2.connect(host="127.0.0.1", port=self.port, user=user, dbname=db, **options)
        c.autocommit = True
        return c

    def ask(self, sql, *arguments, db=DB, **options):
        """The rows of one statement, as a superuser."""
        if sql.startswith("ALTER "):  # it may change what a new session is
            self.forget()
        if self.kept is None or options:
            with contextlib.closing(self.connect(db=db, **options)) as c:
                return rows_of(c, sql, arguments)
        c = self.kept_one(db) or self.connect(db=db, application_name=TESTS)
        try:
            rows = rows_of(c, sql, arguments)
            rows_of(c, "DISCARD ALL")
        except BaseException:
            c.close()
            raise
        self.kept.setdefault(db, []).append(c)
        return rows

    def keep(self):
        """From now on it is asked through connections that are kept: to connect costs five times as much as a question."""
        self.kept = {}

    def kept_one(self, db):
        """A connection that nobody uses now and the server has not ended; None: there is none."""
        with contextlib.suppress(LookupError):
            while True:
                c = self.kept[db].pop()
                end = select.poll()
                end.register(c, select.POLLIN)
                if not end.poll(0):
                    return c
                c.close()

    def forget(self, *dbs):
        """Ends those to these databases, or all."""
        for db in dbs or [*(self.kept or ())]:
            for c in (self.kept or {}).pop(db, []):
                c.close()

    def value(self, sql, *arguments, **options):
        return self.ask(sql, *arguments, **options)[0][0]

    def writes(self):
        """Grows with each transaction that writes."""
        return self.value("SELECT txid_snapshot_xmax(txid_current_snapshot())")

    def database(self, name=None):
        """A new database of USER's, where a test is alone."""
        PgServer._databases += 1
        name = name or f"db{PgServer._databases}"
        self.ask(f'CREATE DATABASE "{name}" OWNER {USER} {copying()}', db="postgres")
        return Database(self, name)

    # ---- who is connected ----

    def sessions(self, db=DB):
        """Process ids of the sessions in a database, the oldest first."""
        return [pid for pid, in self.ask("SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
                                         " AND pid <> pg_backend_pid() AND application_name <> %s ORDER BY backend_start", db, TESTS)]

    def terminate(self, db=DB):
        """Ends them; returns how many there were."""
        return self.value("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
                          " AND backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name <> %s", db, TESTS)

    def asleep(self):
        """How many wait for an advisory lock."""
        return self.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory'")

    def lacking(self):
        """How many wait whom others cannot see to be there, since their sessions lack the locks that show it."""
        if self.value("SELECT to_regclass('dlock.claims') IS NULL"):
            return 0
        return self.value(f"SELECT count(*) FROM dlock.claims c WHERE slot IS NULL AND direct AND {AWAY}")

    # ---- its life ----

    def start(self, wait=True):
        words = [f"{bindir()}/postgres", "-D", self.data, "-p", str(self.port), "-k", self.directory]
        for name, value in self.settings.items():
            words += ["-c", f"{name}={value}"]
        self.launch(run_as(account(), *words), wait, cwd="/tmp", env={**os.environ, **self.env})

    def answers(self):
        self.must_live()
        with contextlib.suppress(psycopg2.OperationalError):
            return self.ask("SELECT 1", db="postgres") == [(1,)]
        return False

    def signal(self, sig):
        """To the postmaster, and the end of all of it."""
        below = children_of(self.process.pid)
        self.process.send_signal(sig)
        self.process.wait()
        wait_for(lambda: not any(map(is_alive, below)), what="the end of the backends")
        servers.discard(self.process.pid)

    def kill(self):
        """What `pg_ctl stop -m immediate` does: no checkpoint, no farewell; recovery comes at the next start."""
        self.signal(signal.SIGQUIT)

    def pause(self):
        for pid in (self.process.pid, *children_of(self.process.pid)):
            kill(pid, signal.SIGSTOP)

    def resume(self):
        for pid in (*children_of(self.process.pid), self.process.pid):
            kill(pid, signal.SIGCONT)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.resume()
        super().stop()

    # ---- a second one that follows it ----

    def standby(self, synchronous=True):
        """A hot standby of this server; every commit here then waits for it."""
        directory = make_directory("dlock-pg-")
        copy = f"{directory}/data"
        tool("pg_basebackup", "-D", copy, "-R", "-X", "stream", "-c", "fast", "-N",
             "-d", f"host=127.0.0.1 port={self.port} user=postgres application_name=standby")
        result = PgServer(data=copy, **{k: v for k, v in self.settings.items() if k not in SETTINGS})
        os.rmdir(directory)
        if synchronous:
            self.ask("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            self.ask("SELECT pg_reload_conf()")
            wait_for(lambda: self.ask("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"),
                     what="a synchronous standby")
        return result

    def promote(self):
        assert self.value("SELECT pg_promote()")


class Database(databases.Database):
    """One of a server's databases."""

    def __init__(self, server, name):
        super().__init__(server, name, pg_url)

    def connect(self, user="postgres", **options):
        return self.server.connect(user, self.name, **options)

    def drop(self):
        self.server.forget(self.name)
        self.server.ask(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)', db="postgres")


class PgBouncer(Server):
    """A pooler in front of a server."""

    kind = "pgbouncer"

    def __init__(self, server, mode="transaction", db="*", **settings):
        super().__init__(make_directory("dlock-pool-"))
        self.server = server
        self.settings = {"listen_addr": "127.0.0.1", "unix_socket_dir": self.directory, "auth_type": "trust",
                         "auth_file": f"{self.directory}/users", "pool_mode": mode, "max_client_conn": 300,
                         "default_pool_size": 10, "server_login_retry": 1, "admin_users": "postgres", **settings}
        self.databases = f"{db} = host=127.0.0.1 port={server.port}"
        pathlib.Path(self.directory, "users").write_text(f'"{USER}" ""\n"postgres" ""\n')
        self.settle()

    @property
    def url(self):
        return pg_url(self.port)

    def start(self):
        lines = "".join(f"{name} = {value}\n" for name, value in {**self.settings, "listen_port": self.port}.items())
        ini = pathlib.Path(self.directory, "ini")
        ini.write_text(f"[databases]\n{self.databases}\n[pgbouncer]\n{lines}")
        self.launch(run_as(account(), shutil.which("pgbouncer") or "/usr/sbin/pgbouncer", ini), cwd="/tmp")

    def answers(self):
        self.must_live()
        with contextlib.suppress(psycopg2.OperationalError):
            psycopg2.connect(self.url).close()
            TARGETS[self.port] = self.server.port
            return True
        return False

    def stop(self):
        TARGETS.pop(self.port, None)
        super().stop()


# ---- a server that says something else ----


class Tamper(Proxy):
    """A proxy that changes what the server says: `change(kind, body)` gives the messages to send instead of one.

    kind is the message's letter (bytes), body what follows its length; a message in the result is (kind, body), or bytes as they are sent.
    Nothing is changed before the first ReadyForQuery, unless early=True.
    """

    def __init__(self, port, change, early=False):
        super().__init__(port)
        self.change, self.early = change, early
        self.parsers = {}
        self.tap = self.rewrite

    def url(self, db=DB):
        return pg_url(self.port, db=db, extra="?sslmode=disable&gssencmode=disable")  # replies to these are no messages

    def rewrite(self, link, direction, data):
        """Takes whole messages off what has come, and gives what is to be sent for them."""
        if direction == UP:
            return data
        state = self.parsers.setdefault(link, {"rest": b"", "ready": self.early})
        state["rest"] += data
        out = b""
        while len(state["rest"]) >= 5:
            size = struct.unpack(">I", state["rest"][1:5])[0] + 1
            if len(state["rest"]) < size:
                break
            kind, body, state["rest"] = state["rest"][:1], state["rest"][5:size], state["rest"][size:]
            messages = self.change(kind, body) if state["ready"] else [(kind, body)]
            out += b"".join(m if isinstance(m, bytes) else message(*m) for m in messages)
            state["ready"] = state["ready"] or kind == b"Z"
        return out


def message(kind, body):
    return kind + struct.pack(">I", len(body) + 4) + body


def error(sqlstate, text, severity="ERROR"):
    """An ErrorResponse; with severity NOTICE, of a NoticeResponse, the body."""
    fields = (("S", severity), ("V", severity), ("C", sqlstate), ("M", text))
    return b"".join(k.encode() + v.encode() + b"\0" for k, v in fields) + b"\0"


def columns(body):
    """The values of a DataRow."""
    count, at, found = struct.unpack(">H", body[:2])[0], 2, []
    for _ in range(count):
        size = struct.unpack(">i", body[at:at + 4])[0]
        found.append(None if size < 0 else body[at + 4:at + 4 + size])
        at += 4 + max(size, 0)
    return found


def data_row(values):
    body = struct.pack(">H", len(values))
    for v in values:
        body += struct.pack(">i", -1) if v is None else struct.pack(">i", len(v)) + v
    return body


# ---- the places ----


class PgPlace(RemotePlace):
    """Locks in a table, the default; keys are kept apart by a prefix."""

    name, id = "pg", "pg-lease"
    crash_ttl = "9s"  # who waits bears the recovery of a loaded server

    def __init__(self, request):
        self.server = request.getfixturevalue("pg_server")
        self.prefix = f"t{next(self._numbers)}:"

    def url_at(self, port, host="127.0.0.1"):
        return pg_url(port, host=host)

    def stored(self):
        tables = self.server.ask("SELECT schemaname, relname FROM pg_stat_user_tables")
        rows = [self.server.ask(f'SELECT t::text FROM "{schema}"."{name}" t') for schema, name in tables]
        rows.append(self.server.ask("SELECT pg_stat_activity::text FROM pg_stat_activity WHERE pid <> pg_backend_pid()"))
        return str(rows).replace('\\"', '"').replace('""', '"').encode()

    def take_away(self, keys, key):
        assert self.server.ask("DELETE FROM dlock.claims WHERE key = %s RETURNING 1", key)

    def date_ahead(self, key, seconds):
        self.server.ask("UPDATE dlock.runs SET began = now() + %s * interval '1s', ended = now() + %s * interval '1s'"
                        " WHERE key = %s AND ended = (SELECT max(ended) FROM dlock.runs r WHERE r.key = %s AND r.status = 0)", seconds, seconds, key, key)

    def is_done_of_old(self, key, once):
        """What its question is answered."""
        asked = "SELECT done_by FROM dlock.enter(%s, %s, '{}', 1000, 0, 'exclusive', 0, %s, 3600000, 0, false)"
        by = self.server.ask(asked, key, "a" * 32, once)[0][0]
        self.server.ask("SELECT dlock.release(%s, %s, NULL, NULL, false)", key, "a" * 32)
        return by is not None

    def crashable(self, request):
        self.server = request.getfixturevalue("make_pg")(safe=True)
        return self.server.restart


class PooledPgPlace(PgPlace):
    """The same, with a pooler in between that gives each transaction another connection."""

    id = "pg-pooled"
    ordinarily = OF_SESSIONS | {"test_waiters_are_served_in_order", "test_mixed", "test_limit_in_torment", "test_polite_breaks_at_any_moment",
                                "test_of_two_grants_that_exclude_each_other_the_later_has_the_greater_token", "test_keys_are_no_sql",
                                "test_a_freeze_holds_who_waits_already", "test_the_end_counts_and_not_its_number", "test_all_jobs_are_listed",
                                "test_of_twenty_at_once_the_last_one_runs", "test_a_dead_waiter_is_none"}

    def __init__(self, request):
        super().__init__(request)
        self.pooler = request.getfixturevalue("make_pooler")(self.server)

    @property
    def url(self):
        return self.pooler.url

    def crashable(self, request):
        crash = super().crashable(request)
        self.pooler = request.getfixturevalue("make_pooler")(self.server)
        return crash


class BoundPgPlace(PgPlace):
    """Locks that end with their session."""

    ordinarily = OF_SESSIONS | {"test_of_two_grants_that_exclude_each_other_the_later_has_the_greater_token", "test_keys_are_no_sql",
                                "test_stopped_command_is_gone_before_the_next_one_starts", "test_a_dead_waiter_is_none",
                                "test_a_server_that_hangs_does_not_stretch_a_wait", "test_restart_costs_the_command",
                                "test_terminated_session_ends_the_command_at_once", "test_waiter_survives_a_partition",
                                "test_where_nothing_can_be_frozen_it_is_refused", "test_without_a_queue_the_newest_is_not_known",
                                "test_who_cannot_remember_says_so", "test_where_no_run_can_be_remembered_a_file_says_it_in_vain"}

    def take_away(self, keys, key):
        sessions = self.server.sessions()[-len(keys):]  # they were begun in the order of their keys
        assert self.server.value("SELECT pg_terminate_backend(%s)", sessions[sorted(keys).index(key)])


class AdvisoryPgPlace(BoundPgPlace):
    """Locks of the session, which other programs may take too."""

    id = "pg-advisory"
    fair = False          # they wait in pieces, after each of which they are last
    whole_record = False  # the name of a session has room for little
    settings = ("mode=advisory", "derive=dlock")


class RowPgPlace(BoundPgPlace):
    """A row, locked in an open transaction."""

    id = "pg-row"
    fair = whole_record = False
    settings = ("mode=row",)


PG_PLACES = [PgPlace, PooledPgPlace, AdvisoryPgPlace, RowPgPlace]


MODES = ["lease", "advisory", "row"]


def psql(database, sql, user="postgres"):
    tool("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", pg_url(database.port, user, database.name), input=sql)


# ---- schemas ----


def schema_sql(dlock):
    done = dlock.run("help", "pg-schema")
    assert (done.status, done.stderr) == (0, "")
    return done.stdout


# The real text of version 5, whose functions have other names and arguments, and of those functions that versions 8 and 9 had otherwise.
VERSION_5 = pathlib.Path(ROOT, "tests/system/pg/schema_5.sql").read_text(encoding="utf-8")
VERSION_8 = pathlib.Path(ROOT, "tests/system/pg/schema_8.sql").read_text(encoding="utf-8")
VERSION_9 = pathlib.Path(ROOT, "tests/system/pg/schema_9.sql").read_text(encoding="utf-8")
