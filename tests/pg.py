# Goal of this file: PostgreSQL servers of the tests' own, a standby, a pooler, and
# the places where locks are kept on them.

import atexit
import contextlib
import functools
import glob
import os
import pathlib
import pwd
import shutil
import signal
import struct
import subprocess
import tempfile

import psycopg2
import pytest

from proxy import UP, Proxy
from support import children_of, free_port, is_alive, kill, servers, wait_for

USER, DB = "app", "app"  # an ordinary role, which owns its database

# Tests need no data after a crash of the machine; those that crash a server say safe=True.
SETTINGS = {"max_connections": 300, "shared_buffers": "16MB", "max_wal_senders": 4, "log_min_messages": "warning",
            "log_line_prefix": "%m [%p] ", "listen_addresses": "127.0.0.1", "dynamic_shared_memory_type": "mmap"}
UNSAFE = {"fsync": "off", "full_page_writes": "off"}


def pg_url(port, user=USER, db=DB, extra=""):
    """The same address whether a server, a pooler or a proxy listens there."""
    return f"postgresql://{user}@127.0.0.1:{port}/{db}{extra}"


def bindir():
    """Where initdb and postgres are: Debian has them in no one's PATH."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda d: int(d.split("/")[4]))
    return found[-1] if found else os.path.dirname(shutil.which("postgres"))


@functools.cache
def account():
    """PostgreSQL refuses to run as root: whom it may run as, for Popen."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise AssertionError("no user whom postgres could run as")


@functools.cache
def roomy():
    """Memory, if there is enough: a database is hundreds of small files, slow to make on many a disk."""
    with contextlib.suppress(OSError):
        memory = os.statvfs("/dev/shm")
        if memory.f_bavail * memory.f_frsize > 2 << 30 and os.access("/dev/shm", os.W_OK):
            return "/dev/shm"
    return "/tmp"


def make_directory(prefix, where=None):
    """A short path (a unix socket must fit), owned by whoever runs the server."""
    directory = tempfile.mkdtemp(prefix=prefix, dir=where or roomy())
    if account():
        os.chown(directory, account()["user"], account()["group"])
    return directory


def tool(name, *words, **options):
    """Runs one of PostgreSQL's programs to its end; its output is for the reader of a failure."""
    done = subprocess.run([f"{bindir()}/{name}", *words], capture_output=True, text=True, check=False, cwd="/tmp",
                          **account(), **options)
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


@functools.cache
def template():
    """A data directory that was never started; copies of it are fresh servers."""
    directory = make_directory("dlock-pg-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    data = f"{directory}/data"
    tool("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "--no-locale", "-E", "UTF8", "--wal-segsize=1")
    tool("postgres", "--single", "-F", "-D", data, "postgres",
         input=f"CREATE ROLE {USER} LOGIN;\nCREATE DATABASE {DB} OWNER {USER};\n")
    return data


class PgServer:
    """A server with a fresh copy of the template, on a loopback port and a unix socket.

    Settings are given as arguments; safe=True: a crash of it loses nothing; hba: lines before pg_hba.conf's own;
    env: variables for it; where: in this directory, a disk's if that matters.
    """

    name = DB  # of the database in which most is done
    _databases = 0

    def __init__(self, safe=False, data=None, hba=(), env=None, where=None, **settings):
        self.env = env or {}
        self.directory = make_directory("dlock-pg-", where)
        self.data = f"{self.directory}/data"
        if data is None:
            subprocess.run(["cp", "-a", template(), self.data], check=True)
        else:
            os.rename(data, self.data)
        self.settings = {**SETTINGS, **({} if safe else UNSAFE), **settings}
        self.process = None
        if hba:
            path = pathlib.Path(self.data, "pg_hba.conf")
            path.write_text("\n".join([*hba, path.read_text()]))
        for _ in range(5):  # somebody else may take a free port before we do
            self.port = free_port()
            with contextlib.suppress(AssertionError):
                self.start()
                return
        raise AssertionError(f"postgres does not start: {self.log()}")

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

    def ask(self, sql, *arguments, **options):
        """The rows of one statement, as a superuser."""
        with contextlib.closing(self.connect(**options)) as c, c.cursor() as cursor:
            cursor.execute(sql, arguments or None)
            return cursor.fetchall() if cursor.description else []

    def value(self, sql, *arguments, **options):
        return self.ask(sql, *arguments, **options)[0][0]

    def log(self):
        with open(f"{self.directory}/log", encoding="utf-8", errors="replace") as f:
            return f.read()

    def database(self, name=None):
        """A new database of USER's, where a test is alone."""
        PgServer._databases += 1
        name = name or f"db{PgServer._databases}"
        self.ask(f'CREATE DATABASE "{name}" OWNER {USER}', db="postgres")
        return Database(self, name)

    # ---- who is connected ----

    def sessions(self, db=DB):
        """Process ids of the sessions in a database, the oldest first."""
        return [pid for pid, in self.ask("SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type ="
                                         " 'client backend' AND pid <> pg_backend_pid() ORDER BY backend_start", db)]

    def terminate(self, db=DB):
        """Ends them; returns how many there were."""
        return self.value("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
                          " AND backend_type = 'client backend' AND pid <> pg_backend_pid()", db)

    # ---- its life ----

    def start(self, wait=True):
        words = [f"{bindir()}/postgres", "-D", self.data, "-p", str(self.port), "-k", self.directory]
        for name, value in self.settings.items():
            words += ["-c", f"{name}={value}"]
        with open(f"{self.directory}/log", "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/tmp",
                                            env={**os.environ, **self.env}, **account())
        servers.add(self.process.pid)
        if wait:
            wait_for(self.answers, what="postgres")

    def answers(self):
        if self.process.poll() is not None:
            servers.discard(self.process.pid)
            raise AssertionError(f"postgres ended: {self.log()}")
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

    def crash(self):
        """What `pg_ctl stop -m immediate` does: no checkpoint, no farewell; recovery comes at the next start."""
        self.signal(signal.SIGQUIT)

    def restart(self):
        """pg_ctl restart -m immediate"""
        self.crash()
        self.start()

    def pause(self):
        """It takes connections, for the kernel does that, but never answers."""
        for pid in (self.process.pid, *children_of(self.process.pid)):
            kill(pid, signal.SIGSTOP)

    def resume(self):
        for pid in (*children_of(self.process.pid), self.process.pid):
            kill(pid, signal.SIGCONT)

    def stop(self):
        """Ends it for good."""
        if self.process and self.process.poll() is None:
            self.resume()
            self.signal(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

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


class Database:
    """One of a server's databases."""

    def __init__(self, server, name):
        self.server, self.name, self.port = server, name, server.port
        self.url = pg_url(server.port, db=name)

    def connect(self, user="postgres", **options):
        return self.server.connect(user, self.name, **options)

    def ask(self, sql, *arguments, **options):
        return self.server.ask(sql, *arguments, db=self.name, **options)

    def value(self, sql, *arguments, **options):
        return self.server.value(sql, *arguments, db=self.name, **options)

    def sessions(self):
        return self.server.sessions(self.name)

    def terminate(self):
        return self.server.terminate(self.name)

    def drop(self):
        self.server.ask(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)', db="postgres")


class PgBouncer:
    """A pooler in front of a server."""

    def __init__(self, server, mode="transaction", **settings):
        self.server, self.port = server, free_port()
        self.directory = make_directory("dlock-pool-")
        lines = {"listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": self.directory,
                 "auth_type": "trust", "auth_file": f"{self.directory}/users", "pool_mode": mode,
                 "max_client_conn": 300, "default_pool_size": 10, "server_login_retry": 1, "logfile": f"{self.directory}/log",
                 "admin_users": "postgres", **settings}
        ini = "".join(f"{name} = {value}\n" for name, value in lines.items())
        pathlib.Path(self.directory, "users").write_text(f'"{USER}" ""\n"postgres" ""\n')
        pathlib.Path(self.directory, "ini").write_text(f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n{ini}")
        self.start()

    def start(self):
        words = [shutil.which("pgbouncer") or "/usr/sbin/pgbouncer", "-q", f"{self.directory}/ini"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, cwd="/tmp", **account())
        servers.add(self.process.pid)
        wait_for(self.answers, what="pgbouncer")

    @property
    def url(self):
        return pg_url(self.port)

    def answers(self):
        assert self.process.poll() is None, f"pgbouncer ended: {pathlib.Path(self.directory, 'log').read_text()}"
        with contextlib.suppress(psycopg2.OperationalError):
            psycopg2.connect(self.url).close()
            return True
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()
        servers.discard(self.process.pid)

    def restart(self):
        self.kill()
        self.start()

    def stop(self):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


# ---- a server that says something else ----


class Tamper(Proxy):
    """A proxy that changes what the server says: `change(kind, body)` gives the messages to send instead of one.

    kind is the message's letter (bytes), body what follows its length; a message in the result is (kind, body).
    Nothing is changed before the first ReadyForQuery, unless early=True.
    """

    def __init__(self, port, change, early=False):
        super().__init__(port)
        self.change, self.early = change, early
        self.parsers = {}

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
            out += b"".join(message(*m) for m in messages)
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


class PgPlace:
    """Locks in a table, the default; keys are kept apart by a prefix."""

    name, id = "pg", "pg-lease"
    lease_ends = True  # a dead holder's lock ends with its lease
    fair = whole_record = True
    settings = ()      # -O of its mode
    _tests = 0

    def __init__(self, request):
        self.server = request.getfixturevalue("pg_server")
        PgPlace._tests += 1
        self.prefix = f"t{PgPlace._tests}:"
        self.url = self.reach(request)

    def reach(self, request):
        return self.server.url

    @property
    def words(self):
        return ["-u", self.url, *(word for s in self.settings for word in ("-O", s))]

    def key(self, name="job"):
        return self.prefix + name

    def stored(self):
        """All that anybody could read there."""
        tables = self.server.ask("SELECT schemaname, relname FROM pg_stat_user_tables")
        rows = [self.server.ask(f'SELECT t::text FROM "{schema}"."{name}" t') for schema, name in tables]
        rows.append(self.server.ask("SELECT pg_stat_activity::text FROM pg_stat_activity WHERE pid <> pg_backend_pid()"))
        return str(rows).replace('\\"', '"').replace('""', '"').encode()

    def crashable(self, request):
        self.server = request.getfixturevalue("make_pg")(safe=True)
        self.url = self.reach(request)
        return self.server.restart


class PooledPgPlace(PgPlace):
    """The same, with a pooler in between that gives each transaction another connection."""

    id = "pg-pooled"

    def reach(self, request):
        return request.getfixturevalue("make_pooler")(self.server).url


class AdvisoryPgPlace(PgPlace):
    """Locks of the session, which other programs may take too."""

    id = "pg-advisory"
    fair = False          # they wait in pieces, after each of which they are last
    whole_record = False  # the name of a session has room for little
    settings = ("mode=advisory",)


class RowPgPlace(PgPlace):
    """A row, locked in an open transaction."""

    id = "pg-row"
    fair = whole_record = False
    settings = ("mode=row",)


PG_PLACES = [PgPlace, PooledPgPlace, AdvisoryPgPlace, RowPgPlace]


# ---- fixtures, which conftest.py takes from here ----


@pytest.fixture(scope="session")
def pg_server():
    """One server for all tests that do it no harm."""
    server = PgServer()
    yield server
    server.stop()


@pytest.fixture
def make_db(pg_server, nothing_is_left):
    """Makes databases on the shared server."""
    made = []

    def make(*arguments):
        made.append(pg_server.database(*arguments))
        return made[-1]

    yield make
    for database in made:
        database.drop()


@pytest.fixture
def db(make_db):
    """A database that the test may break."""
    return make_db()


@pytest.fixture
def make_pooler(nothing_is_left):
    """Starts poolers in front of a server."""
    made = []

    def make(*arguments, **options):
        made.append(PgBouncer(*arguments, **options))
        return made[-1]

    yield make
    for pooler in made:
        pooler.stop()


@pytest.fixture
def make_pg(nothing_is_left):
    """Starts servers of the test's own, with any settings."""
    made = []

    def make(**settings):
        made.append(PgServer(**settings))
        return made[-1]

    yield make
    for server in made:
        server.stop()


@pytest.fixture
def own_pg(make_pg):
    """A server that the test may break."""
    return make_pg()


@pytest.fixture
def make_tamper():
    """Proxies that change what a server says."""
    made = []

    def make(*arguments, **options):
        made.append(Tamper(*arguments, **options))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()
