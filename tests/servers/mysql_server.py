# Goal of this file: MariaDB servers of the tests' own, the places where locks are
# kept on them, and what tests of MySQL and MariaDB alone do with dlock.

import contextlib
import functools
import glob
import os
import re
import shutil
import subprocess
import time

with contextlib.suppress(ImportError):  # without it no test is run that needs it
    import pymysql

import databases
from pg import account, make_directory, run_as
from proxy import DOWN, Proxy
from support import OF_SESSIONS, RemotePlace, Server, at_end

USER, DB = "app", "app"  # an ordinary user, who may do all in this database and in those that tests make
SCRIPTS = "/usr/share/m*/m*_"  # MariaDB 11 calls mariadb what was called mysql

# Small and quick to make: a system tablespace that is not grown ahead, no files for undo.
LAYOUT = {"innodb-log-file-size": "4M", "innodb-data-file-path": "ibdata1:4M:autoextend", "innodb-autoextend-increment": 1,
          "innodb-undo-tablespaces": 0, "innodb-buffer-pool-size": "16M"}
# A crash of the server alone loses nothing that it has acknowledged; safe=True: nor does one of the machine.
UNSAFE = {"innodb-flush-log-at-trx-commit": 2}
SETTINGS = {"bind-address": "127.0.0.1", "max-connections": 400, "skip-name-resolve": "1", "performance-schema": "0",
            "innodb-temp-data-file-path": "ibtmp1:1M:autoextend", "log-warnings": 1}


def mysql_url(port, user=USER, db=DB, extra="", host="127.0.0.1"):
    """The same address whether a server or a proxy listens there."""
    return f"mysql://{user}@{host}:{port}/{db}{extra}"


def owner():
    """mariadbd refuses to run as root."""
    return account("mysql", "nobody")


def program():
    return shutil.which("mariadbd") or "/usr/sbin/mariadbd"


def words_of(settings):
    return [f"--{name}={value}" for name, value in settings.items()]


@functools.cache
def template():
    """A data directory with users and a database; copies of it are fresh servers."""
    directory = make_directory("dlock-mysql-", owner=owner())
    at_end(directory)
    sql = ["CREATE DATABASE IF NOT EXISTS mysql;", "USE mysql;", "SET @auth_root_socket=NULL;", "SET @skip_auth_anonymous=1;"]
    for name in ("system_tables", "performance_tables", "system_tables_data"):
        with open(glob.glob(f"{SCRIPTS}{name}.sql")[0], encoding="utf-8") as f:
            sql.append(f.read())
    sql += ["FLUSH PRIVILEGES;", f"CREATE USER {USER}@'%';", f"CREATE DATABASE {DB};", f"GRANT ALL ON `{DB}`.* TO {USER}@'%';",
            f"GRANT ALL ON `db%`.* TO {USER}@'%';"]
    data = f"{directory}/data"
    os.mkdir(data, 0o700)
    if owner():
        os.chown(data, owner()["user"], owner()["group"])
    done = subprocess.run(run_as(owner(), program(), "--no-defaults", f"--datadir={data}", f"--tmpdir={directory}", "--bootstrap",
                           "--silent-startup", *words_of(LAYOUT), *words_of(UNSAFE)),
                          input="\n".join(sql) + "\n", capture_output=True, text=True, check=False, cwd="/tmp")
    assert done.returncode == 0, f"mariadbd --bootstrap: {done.stdout}{done.stderr}"
    return data


class MysqlServer(Server):
    """A server with a fresh copy of the template, on a loopback port and a unix socket.

    Settings are given as arguments (innodb_lock_wait_timeout=1); safe=True: a crash of the machine loses nothing;
    where: in this directory, a disk's if that matters; env: variables for it.
    """

    kind = "MariaDB"
    name = DB  # of the database in which most is done
    more_words = ()
    _databases = 0

    def __init__(self, safe=False, where=None, env=None, **settings):
        super().__init__(make_directory("dlock-mysql-", where, owner()))
        self.env = env or {}
        self.data, self.socket = f"{self.directory}/data", f"{self.directory}/s"
        subprocess.run(["cp", "-a", template(), self.data], check=True)
        # A directory of its own for temporary tables: whoever starts deletes all that it finds there, also those
        # of another server that runs, which then crashes.
        self.settings = {**LAYOUT, **({} if safe else UNSAFE), **SETTINGS, "tmpdir": str(self.directory),
                         **{name.replace("_", "-"): value for name, value in settings.items()}}
        self.settle()

    # ---- its addresses ----

    @property
    def url(self):
        return mysql_url(self.port)

    @property
    def unix_url(self):
        return f"mysql://{USER}@localhost/{DB}?socket={self.socket}"

    # ---- what it is asked ----

    def connect(self, user="root", db=None, password="", **options):
        """A connection on which every statement is a transaction."""
        return pymysql.connect(**{"host": "127.0.0.1", "port": self.port, "user": user, "database": db, "password": password,
                                  "autocommit": True, "connect_timeout": 20, **options})

    def ask(self, sql, *arguments, **options):
        """The rows of one statement, as an administrator."""
        with contextlib.closing(self.connect(**options)) as c, c.cursor() as cursor:
            cursor.execute(sql, arguments or None)
            return list(cursor.fetchall())

    def value(self, sql, *arguments, **options):
        return self.ask(sql, *arguments, **options)[0][0]

    def status(self, *names):
        """The sum of some of its counters."""
        wanted = ", ".join(f"'{name}'" for name in names)
        return sum(int(value) for _, value in self.ask(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({wanted})"))

    def writes(self):
        """Grows with each statement that writes."""
        return self.status("Com_insert", "Com_update", "Com_delete")

    def database(self, name=None):
        """A new database, where a test is alone."""
        MysqlServer._databases += 1
        name = name or f"db{MysqlServer._databases}"
        self.ask(f"CREATE DATABASE `{name}`")
        return Database(self, name)

    def tables(self):
        """(database, table) of all that are not the server's own."""
        return self.ask("SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND"
                        " table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')")

    # ---- who is connected ----

    def sessions(self, db=DB):
        """Numbers of the connections in a database, the oldest first."""
        return [n for n, in self.ask("SELECT id FROM information_schema.processlist WHERE db = %s AND id <> CONNECTION_ID()"
                                     " ORDER BY id", db)]

    def kill_session(self, number):
        self.ask(f"KILL {number:d}")

    def terminate(self, db=DB):
        """Ends them; returns how many there were."""
        found = self.sessions(db)
        for number in found:
            with contextlib.suppress(pymysql.err.OperationalError):  # it has gone by itself
                self.kill_session(number)
        return len(found)

    def asleep(self):
        """How many wait in GET_LOCK."""
        return self.value("SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'")

    # ---- its life ----

    def start(self, wait=True):
        words = [program(), "--no-defaults", f"--datadir={self.data}", f"--port={self.port}", f"--socket={self.socket}",
                 f"--pid-file={self.directory}/pid", *words_of(self.settings), *self.more_words]
        self.launch(run_as(owner(), *words), wait, cwd="/tmp", env={**os.environ, **self.env})

    def answers(self):
        """Not somebody else, who has taken the port before it."""
        self.must_live()
        with contextlib.suppress(pymysql.err.OperationalError):
            return self.value("SELECT @@socket") == self.socket
        return False


class Database(databases.Database):
    """One of a server's databases."""

    def __init__(self, server, name):
        super().__init__(server, name, mysql_url)

    def connect(self, **options):
        return self.server.connect(db=self.name, **options)

    def drop(self):
        self.terminate()
        self.server.ask(f"DROP DATABASE IF EXISTS `{self.name}`")


# ---- a server that says something else ----


class MysqlTamper(Proxy):
    """A proxy that changes what the server says: `change(number, body)` gives the bodies to send instead of one packet.

    number is the packet's place in its exchange.  Nothing is changed before `ready` packets have come down.
    """

    def __init__(self, port, change, ready=2):
        super().__init__(port)
        self.change, self.ready, self.parsers = change, ready, {}
        self.tap = self.rewrite

    def rewrite(self, link, direction, data):
        """Takes whole packets off what has come, and gives what is to be sent for them."""
        if direction != DOWN:
            return data
        state = self.parsers.setdefault(link, {"rest": b"", "seen": 0})
        state["rest"] += data
        out = b""
        while len(state["rest"]) >= 4:
            size = int.from_bytes(state["rest"][:3], "little") + 4
            if len(state["rest"]) < size:
                break
            number, body, state["rest"] = state["rest"][3], state["rest"][4:size], state["rest"][size:]
            bodies = self.change(number, body) if state["seen"] >= self.ready else [body]
            turn = b"".join(packet(number + i, b) for i, b in enumerate(bodies[:256]))  # numbers come again then,
            out += turn * -(-len(bodies) // 256)  # and what has so many packets is one of them again and again
            state["seen"] += 1
        return out


def on_galera(number, body):
    """The last but two of the facts that are read at the start: wsrep_on; behind it what is unfit, and the database."""
    facts = re.fullmatch(rb"(.*\x010.*\x01)0(\x010(.)(\w+))", body, re.S)
    return [facts[1] + b"1" + facts[2] if facts and facts[3] == bytes([len(facts[4])]) else body]


class AsMysql(MysqlTamper):
    """The server as MySQL, whose GET_LOCK knows whole seconds: others are rounded.  `asked`: for how many ms, each time."""

    TIME = re.compile(rb"(\d+) / 1000")

    def __init__(self, port):
        super().__init__(port, None, ready=1 << 30)
        self.asked = []

    def rewrite(self, link, direction, data):
        if direction == DOWN:
            return data.replace(b"-MariaDB", b"-ofmysql")
        return self.TIME.sub(self.in_seconds, data.replace(b", max_execution_time = 0", b" " * 24))

    def in_seconds(self, asked):
        self.asked.append(int(asked[1]))
        return (b"%d" % ((self.asked[-1] + 500) // 1000)).ljust(len(asked[0]))


def packet(number, body):
    return len(body).to_bytes(3, "little") + bytes([number & 255]) + body


def error(code, text, sqlstate="HY000"):
    """The body of an ERR packet."""
    return b"\xff" + code.to_bytes(2, "little") + b"#" + sqlstate.encode() + text.encode()


# ---- the places ----


class MysqlPlace(RemotePlace):
    """Locks in a table, the default; keys are kept apart by a prefix."""

    name, id = "mysql", "mysql-lease"
    crash_ttl = "9s"  # who waits bears the recovery of a loaded server

    def __init__(self, request):
        self.server = request.getfixturevalue("mysql_server")
        self.prefix = f"t{next(self._numbers)}:"

    def url_at(self, port, host="127.0.0.1"):
        return mysql_url(port, db=self.server.name, host=host)

    def stored(self):
        rows = [self.server.ask(f"SELECT * FROM `{schema}`.`{name}`") for schema, name in self.server.tables()]
        rows.append(self.server.ask("SELECT * FROM information_schema.processlist WHERE id <> CONNECTION_ID()"))
        return str(rows).encode()

    def take_away(self, keys, key):
        assert self.server.ask("DELETE FROM dlock_holds WHERE k = %s RETURNING 1", key, db=DB)

    def date_ahead(self, key, seconds):
        at = int((time.time() + seconds) * 1e6)
        self.server.ask("UPDATE dlock_runs SET began = %s, ended = %s WHERE k = %s AND status = 0 ORDER BY ended DESC LIMIT 1", at, at, key, db=DB)

    def is_done_of_old(self, key, once):
        return self.server.ask("SELECT COUNT(*) FROM dlock_runs WHERE k = %s AND status = 0", key, db=DB)[0][0] > 0

    def crashable(self, request):
        self.server = request.getfixturevalue("make_mysql")(safe=True)
        return self.server.restart


class BoundMysqlPlace(MysqlPlace):
    """Locks that end with their session."""

    fair = whole_record = False
    ordinarily = OF_SESSIONS

    def take_away(self, keys, key):
        sessions = self.server.sessions()[-len(keys):]  # they were begun in the order of their keys
        self.server.kill_session(sessions[sorted(keys).index(key)])


class RowMysqlPlace(BoundMysqlPlace):
    """A row, locked in an open transaction."""

    id, settings = "mysql-row", ("mode=row",)


class NamedMysqlPlace(BoundMysqlPlace):
    """A name of the server's, which other programs may take too."""

    id, settings = "mysql-named", ("mode=named", "derive=dlock")


MYSQL_PLACES = [MysqlPlace, RowMysqlPlace, NamedMysqlPlace]
MODES = ["lease", "row", "named"]
