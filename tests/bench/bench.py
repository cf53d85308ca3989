"""Goal of this benchmark: show what dlock costs, beside what it competes with.

Start-up, hand-off, idle waiters and memory, each against the reference measured
in the same interleaved run: machines are noisy, ratios of medians are not.
The reference is flock(1); for the start-up with ZooKeeper, PostgreSQL, memcached, etcd, MariaDB and TLS a
probe (zk.c, pg.c, memcached.c, etcd.c, mysql.c, tls.c) that does the least that any program must do with
the same library or server.
Everything is private (temporary directory, free loopback ports) and gone at the
end.  A target that is missed is marked, not fatal; what cannot run is.

    make bench                 all of it, below three minutes
    tests/bench/bench.py --quick     a smoke run
    tests/bench/bench.py startup     one part: startup counts handoff forms idle memory
    tests/bench/bench.py counts --keep    writes counts.txt, by which later ones are judged
"""

import argparse
import contextlib
import ctypes
import os
import pathlib
import platform
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import psutil
import redis

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "servers"))

from certificates import Authority
from etcd import Client as EtcdClient
from memcached import Memcached, compile_clock
from mysql_server import DB as MYSQL_DB, USER as MYSQL_USER, MysqlServer as MysqlBase, program as mariadbd
from pg import PgServer as PgBase, bindir
from redis_forms import RedisCluster, RedisSentinels

HERE = pathlib.Path(__file__).resolve().parent
DLOCK = os.path.abspath(os.environ.get("DLOCK", HERE.parent.parent / "build" / "dlock"))
PATIENCE = 60  # seconds for anything that is only waited for
MIB = 1 << 20
KCMP, KCMP_VM = {"x86_64": 312, "aarch64": 272}.get(platform.machine(), -1), 1
COUNTS = HERE / "counts.txt"
WORTH_NAMING = 0.03  # of a count

# What the commands run under: a plain PATH, and no settings of the user's but silence.
ENVIRON = {k: v for k, v in os.environ.items() if not k.startswith(("DLOCK_", "ETCDCTL_", "PG"))}
ENVIRON["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRON.update(DLOCK_QUIET="1", ETCDCTL_API="3")

SIZES = {  # name: (full, quick)
    "rounds": (1000, 12),  # of start-up
    "waiters": (200, 20),  # on one key, for the hand-off
    "passes": (3, 1),  # of the hand-off
    "idlers": (60, 12),  # waiters that are watched
    "releases": (20, 4),  # while they are watched
    "seconds": (15, 2),  # of idleness
}


class Impossible(Exception):
    """The benchmark cannot be carried out."""


# ---- processes and servers ----


class Stage:
    """A temporary directory, and every process started there."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="dlock-bench-"))
        self.spawner = str(self.dir / "bench_spawn")
        self.started, self.servers = [], []
        self.names = 0

    def close(self):
        for p in self.started:
            if p.poll() is None:
                p.terminate()
        for p in self.started:
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        for server in self.servers:
            server.stop()
        while self.dir.exists():  # somebody's last words may come late
            shutil.rmtree(self.dir, ignore_errors=True)

    def fresh(self, name):
        self.names += 1
        return f"{name}{self.names}"

    def start(self, argv, stdout=subprocess.DEVNULL, stderr=None):
        p = subprocess.Popen([str(a) for a in argv], cwd=self.dir, env=ENVIRON, text=True,
                             stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        self.started.append(p)
        return p

    def serve(self, argv):
        with open(self.dir / "servers.log", "ab") as log:
            return self.start(argv, log, log)

    def compile(self):
        argv = [os.environ.get("CC", "cc"), "-O2", "-o", self.spawner, str(HERE / "spawn.c")]
        # Static where possible: the stamped command's own start is part of every hand-off.
        if subprocess.run(argv + ["-static"], stderr=subprocess.DEVNULL).returncode != 0:
            subprocess.run(argv, check=True)

    def compile_probe(self, name, *flags):
        """The bare use of a library that dlock is measured against, linked with the first flags that do; its path."""
        path = self.dir / f"probe-{name}"  # servers have directories here under their own names
        argv = [os.environ.get("CC", "cc"), "-O2", "-o", path, HERE / f"{name}.c"]
        if all(subprocess.run(argv + f, stderr=subprocess.DEVNULL).returncode != 0 for f in flags):
            raise Impossible(f"{name}.c cannot be compiled")
        return path

    def stamp(self, log, ms, gate=None):
        return [self.spawner, "stamp", log, str(ms)] + ([gate] if gate else [])


def until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise Impossible(f"waited {PATIENCE} s in vain for {what}")
        time.sleep(0.02)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(call):
    try:
        call()
        return True
    except (redis.RedisError, OSError, ValueError):
        return False


class RedisServer:
    def __init__(self, stage):
        self.port, self.tls_port, path = free_port(), free_port(), stage.dir / f"redis{len(stage.started)}.sock"
        self.ca = Authority(pathlib.Path(tempfile.mkdtemp(dir=stage.dir)))  # each server's own
        own = self.ca.sign("server")
        stage.serve(["redis-server", "--bind", "127.0.0.1", "--port", self.port, "--unixsocket", path, "--save", "",
                     "--dir", stage.dir, "--tls-port", self.tls_port, "--tls-cert-file", own.cert, "--tls-key-file", own.key,
                     "--tls-ca-cert-file", self.ca.cert, "--tls-auth-clients", "no"])
        self.tls = f"rediss://127.0.0.1:{self.tls_port}"
        self.tcp, self.unix = f"redis://127.0.0.1:{self.port}", f"redis+unix://{path}"
        self.client = redis.Redis(port=self.port)
        until(lambda: answers(self.client.ping), "redis-server")

    def reset(self):
        self.client.config_resetstat()

    def counts(self):
        """Since reset(): requests of others, scripts, calls to waiters."""
        reads = self.client.info("stats")["total_reads_processed"] - 1  # this very INFO
        calls = {k[len("cmdstat_"):]: v["calls"] for k, v in self.client.info("commandstats").items()}
        scripts = sum(calls.get(name, 0) for name in ("eval", "evalsha", "fcall"))
        return reads, scripts, calls.get("publish", 0) + calls.get("spublish", 0)


class ZkServer:
    """One server, with its data in the temporary directory; empty containers stay."""

    JAR = "/usr/share/java/zookeeper.jar"

    def __init__(self, stage):
        self.port, config = free_port(), stage.dir / "zoo.cfg"
        config.write_text(f"dataDir={stage.dir / 'zk'}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
                          "maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr,mntr\n")
        stage.serve(["java", "-Xmx256m", "-XX:+UseSerialGC", "-Dznode.container.checkIntervalMs=3600000", "-cp", self.JAR,
                     "org.apache.zookeeper.server.quorum.QuorumPeerMain", config])
        self.hosts = f"127.0.0.1:{self.port}"
        self.url = f"zk://{self.hosts}"
        until(lambda: answers(lambda: self.four("srvr").index("Mode")), "ZooKeeper")

    def four(self, word):
        with socket.create_connection(("127.0.0.1", self.port), 10) as s:
            s.sendall(word.encode())
            return b"".join(iter(lambda: s.recv(65536), b"")).decode()

    def metrics(self):
        lines = [line.split("\t") for line in self.four("mntr").splitlines()]
        return {line[0].removeprefix("zk_"): line[1] for line in lines if len(line) == 2}

    def _now(self):
        """Requests; watches that fired at waiters: whoever deletes its node also watches that, for itself."""
        found = self.metrics()
        fired = {w: int(found[f"sum_node_{w}_watch_count"]) for w in ("created", "deleted", "changed", "children")}
        return int(found["packets_received"]), sum(fired.values()) - int(found["cnt_node_deleted_watch_count"])

    def reset(self):
        self.zero = self._now()

    def counts(self):
        """Since reset(): requests of others, no scripts, calls to waiters."""
        packets, fired = self._now()
        return packets - self.zero[0] - 1, None, fired - self.zero[1]  # less this very question


class EtcdServer:
    """As it comes out of the package: every write waits for the disk."""

    def __init__(self, stage):
        self.port, other = free_port(), free_port()
        client, peer = (f"http://127.0.0.1:{port}" for port in (self.port, other))
        self.url = client.replace("http", "etcd")
        stage.serve(["etcd", "--data-dir", stage.dir / "etcd", "--listen-client-urls", client, "--log-level", "error",
                     "--advertise-client-urls", client, "--listen-peer-urls", peer,
                     "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"])
        self.ctl = ["etcdctl", "--endpoints", client]
        until(lambda: subprocess.run(self.ctl + ["endpoint", "health"], env=ENVIRON,
                                     capture_output=True).returncode == 0, "etcd")

    def count(self, prefix):
        return EtcdClient(self.port).count(prefix)

    def reset(self):
        self.zero = EtcdClient(self.port).revision()

    def counts(self):
        """Since reset(): changes; no scripts, no calls."""
        return EtcdClient(self.port).revision() - self.zero, None, None


class PgServer(PgBase):
    """As it comes out of the package: every commit waits for the disk."""

    def __init__(self, stage):
        super().__init__(safe=True, where=tempfile.gettempdir(), max_connections=400)
        stage.servers.append(self)
        self.client = self.connect()
        self.ask("CREATE TABLE probe (key text PRIMARY KEY, owner text)")
        self.ask("GRANT ALL ON probe TO PUBLIC")

    def number(self, sql, *arguments):
        with self.client.cursor() as cursor:
            cursor.execute(sql, arguments)
            return cursor.fetchone()[0]

    def transactions(self):
        return self.number("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'app'")

    def reset(self):
        self.zero = self.transactions()

    def counts(self):
        """Since reset(): transactions of others, no scripts, no calls: waiters wake each other."""
        return self.transactions() - self.zero - 1, None, None  # less this very question


class MemcachedServer(Memcached):
    """One that seems to have been running for long."""

    def __init__(self, stage):
        super().__init__(compile_clock(stage.dir))
        stage.servers.append(self)
        self.known = self.connections()

    def connections(self):
        with self.client() as c:
            return int(c.stats()["curr_connections"])

    def commands(self):
        with self.client() as c:
            found = c.stats()
        return sum(int(found[name]) for name in ("cmd_get", "cmd_set", "delete_hits", "delete_misses"))

    def reset(self):
        self.zero = self.commands()

    def counts(self):
        """Since reset(): commands of others, no scripts, no calls: waiters ask now and then."""
        return self.commands() - self.zero, None, None


class MysqlServer(MysqlBase):
    """As it comes out of the package: every commit waits for the disk."""

    def __init__(self, stage):
        super().__init__(safe=True, where=tempfile.gettempdir())
        stage.servers.append(self)
        # whoever has rights on more than one database pays for a look at who has rights on it
        self.ask(f"REVOKE ALL ON `db%`.* FROM {MYSQL_USER}@'%'")
        self.client = self.connect(db=MYSQL_DB)
        self.ask("CREATE TABLE probe (k varchar(64) PRIMARY KEY, owner text)", db=MYSQL_DB)

    def number(self, sql, *arguments):
        with self.client.cursor() as cursor:
            cursor.execute(sql, arguments)
            return int(cursor.fetchone()[-1])

    def queries(self):
        return self.number("SHOW GLOBAL STATUS LIKE 'Questions'")

    def reset(self):
        self.zero = self.queries()

    def counts(self):
        """Since reset(): questions of others, no scripts, no calls: waiters wake each other."""
        return self.queries() - self.zero - 1, None, None  # less this very question


# ---- the contenders: how each takes a lock, and how one sees its queue ----


class Flock:
    name = "flock"
    server = handoff = private = requests = None  # no targets: the reference

    def __init__(self, stage):
        self.stage = stage

    def file(self, key):
        return self.stage.dir / key

    def argv(self, key, command):
        return ["flock", self.file(key)] + command

    def queued(self, key):
        """Blocked requests on the lock file in /proc/locks."""
        try:
            inode = f":{os.stat(self.file(key)).st_ino} "
        except FileNotFoundError:
            return 0
        lines = pathlib.Path("/proc/locks").read_text().splitlines()
        return sum("->" in line and inode in line for line in lines)


class DlockFile(Flock):
    name = "dlock, file"
    handoff, private = 1.5, 3  # at most: times flock's, MiB

    def file(self, key):
        return self.stage.dir / f"{key}.lock"

    def argv(self, key, command):
        return [DLOCK, "run", "-b", "file", "-u", f"file://{self.stage.dir}", "-k", key, "--"] + command


class DlockServer:
    requests = 0.334  # at most, of an idle waiter, a second
    start = 1.3       # at most: times the probe's start-up

    def __init__(self, server, name, url):
        self.server, self.name, self.url = server, name, url

    def argv(self, key, command):
        return [DLOCK, "run", "-u", self.url, "-k", key, "--"] + command


def waiting(client):
    """How many are in the queues of all keys.  (Channels tell no more: a holder listens, too.)"""
    return sum(client.zcard(queue) for queue in client.scan_iter("dlock:*:q"))


class DlockRedis(DlockServer):
    handoff, private = 1.5, 3

    def queued(self, key):
        return waiting(self.server.client)


class DlockTls(DlockRedis):
    """P-256, and a CA of our own; the probe's time and that of a run without TLS add up."""

    handoff, private, start = None, None, 1.5

    def argv(self, key, command):
        return [DLOCK, "run", "-u", self.url, "-O", f"cacert={self.server.ca.cert}", "-k", key, "--"] + command

    def probe(self, stage):
        return [stage.compile_probe("tls", ["-lssl", "-lcrypto"]), self.server.tls_port, self.server.ca.cert]


class DlockRedlock(DlockRedis):
    """Three masters, of which one is the server of the others."""

    def __init__(self, servers, name):
        super().__init__(servers[0], name, "redlock://" + ",".join(s.tcp.split("//")[1] for s in servers))
        self.forms = 1.6


    def queued(self, key):
        """Each has a connection; two are the holder's and ours."""
        return self.server.client.info("clients")["connected_clients"] - 2


class DlockSentinel(DlockRedis):
    """Three sentinels; the reference is a plain run at the same master."""

    forms = 1.4  # at most: times plain Redis

    def __init__(self, forms):
        master = forms.servers[0]
        super().__init__(None, "sentinels", forms.url)
        self.client, self.plain = master.client(), DlockRedis(None, "plain redis", master.url)
        self.plain.client = self.client
        self.plain.queued = self.queued

    def queued(self, key):
        return waiting(self.client)


class DlockCluster(DlockRedis):
    """Three nodes; the URL begins with the one that has the keys, or not."""

    TAG = "{bench}"

    def __init__(self, forms, first, name, most):
        self.owner = forms.owner("bench")
        others = [n for n in forms.nodes if n is not self.owner]
        super().__init__(None, name, forms.url_of(*([self.owner, *others] if first else [*others, self.owner])))
        self.forms, self.client = most, self.owner.client()

    def argv(self, key, command):
        return super().argv(self.TAG + key, command)

    def queued(self, key):
        return waiting(self.client)


class DlockZk(DlockServer):
    handoff, private = None, 4

    def probe(self, stage):
        """With the library linked as dlock does it: from an archive, where there is one."""
        subprocess.run(self.argv("probe", ["true"]), env=ENVIRON, check=True)  # makes the container
        path = stage.compile_probe("zk", ["-l:libzookeeper_mt.a", "-lpthread", "-lm"], ["-lzookeeper_mt", "-lpthread"])
        return [path, self.server.hosts, "/probe"]

    def queued(self, key):
        """Holder and waiters have a node each, and no other lock is in use meanwhile."""
        return int(self.server.metrics()["ephemerals_count"]) - 1


class DlockZkLayout(DlockZk):
    """As other clients have their nodes; keys are a layout's own."""

    def __init__(self, server, layout):
        super().__init__(server, f"dlock, zk, {layout}", server.url)
        self.layout = layout

    def argv(self, key, command):
        return [DLOCK, "run", "-u", self.url, "-O", f"layout={self.layout}", "-k", f"{self.layout}-{key}", "--"] + command

    def queued(self, key):
        """Where there is no queue: all who are connected, without the one who holds it and the one who asks."""
        if self.layout != "plain":
            return super().queued(key)
        return int(self.server.metrics()["num_alive_connections"]) - 2


class DlockPg(DlockServer):
    handoff, private, requests = None, 3, None

    def probe(self, stage):
        return [stage.compile_probe("pg", ["-I/usr/include/postgresql", "-lpq"]), self.url, "start"]

    def queued(self, key):
        """Waiters have a row each; 0 before the first lock has made the table."""
        if not self.server.number("SELECT count(to_regclass('dlock.claims'))"):
            return 0
        return self.server.number("SELECT count(*) FROM dlock.claims WHERE key = %s AND slot IS NULL", key)


class DlockMemcached(DlockServer):
    """The probe is one process beside the command, and dlock two: the ratio is that of redis to flock."""

    handoff, private, requests, start = None, 3, None, 1.5

    def probe(self, stage):
        return [stage.compile_probe("memcached", []), self.server.port, "start", "true"]

    def queued(self, key):
        """Holder and waiters have a connection each, and nobody else."""
        return self.server.connections() - self.server.known - 1


class DlockEtcd(DlockServer):
    handoff, private, requests, start = None, 3, None, 1.2

    def probe(self, stage):
        return [stage.compile_probe("etcd", []), self.server.port, "c3RhcnQx", "true"]

    def queued(self, key):
        """Holder and waiters have a key each."""
        return self.server.count(f"dlock/q/{key}/") - 1


class Etcdctl:
    """etcdctl lock, beside it."""

    name, handoff = "etcdctl lock", None

    def __init__(self, server):
        self.server = server

    def argv(self, key, command):
        return [*self.server.ctl, "lock", key, "--", *command]

    def queued(self, key):
        return self.server.count(f"{key}/") - 1


class DlockMysql(DlockServer):
    handoff, private, requests = None, 3, None

    def probe(self, stage):
        return [stage.compile_probe("mysql", ["-I/usr/include/mariadb", "-ldl"]), self.server.port, "start"]

    def queued(self, key):
        """Waiters have a row each; 0 before the first lock has made the table."""
        if not self.server.number("SELECT count(*) FROM information_schema.tables WHERE table_name = 'dlock_waiters'"):
            return 0
        return self.server.number("SELECT count(*) FROM dlock_waiters WHERE k = %s", key)


class Bench:
    def __init__(self, stage, sizes):
        self.stage, self.sizes = stage, sizes
        self.flock, self.file = Flock(stage), DlockFile(stage)
        self.redis, self.redlock, self.forms, self.tls, self.zk, self.layouts, self.pg, self.memcached, self.etcd, self.mysql = ([] for _ in range(10))
        if self.can("redis", shutil.which("redis-server"), "redis-server"):
            server = RedisServer(stage)
            self.redis = [DlockRedis(server, "dlock, redis", server.tcp),
                          DlockRedis(server, "dlock, redis+unix", server.unix)]
            self.tls = [DlockTls(server, "dlock, rediss", server.tls)]
            self.redlock = [DlockRedlock([RedisServer(stage) for _ in range(3)], "dlock, redlock of 3 masters")]
            sentinels, cluster = RedisSentinels(replicas=0), RedisCluster(replicas=0)
            stage.servers += [sentinels, cluster]
            self.sentinel = DlockSentinel(sentinels)
            self.forms = [self.sentinel, DlockCluster(cluster, True, "cluster, the key's node first", 1.1),
                          DlockCluster(cluster, False, "cluster, another node first", None), *self.redlock]
        if self.can("zk", shutil.which("java") and os.path.exists(ZkServer.JAR), "zookeeper"):
            server = ZkServer(stage)
            self.zk = [DlockZk(server, "dlock, zk", server.url)]
            self.layouts = [DlockZkLayout(server, layout) for layout in ("kazoo", "menagerie", "rw-seq", "plain")]
        if self.can("pg", os.path.exists(f"{bindir()}/postgres"), "postgresql"):
            server = PgServer(stage)
            self.pg = [DlockPg(server, "dlock, pg", server.url), DlockPg(server, "dlock, pg, unix socket", server.unix_url)]

        if self.can("memcached", shutil.which("memcached"), "memcached"):
            server = MemcachedServer(stage)
            self.memcached = [DlockMemcached(server, "dlock, memcached", server.url)]
        self.etcdctl = []
        if self.can("etcd", shutil.which("etcd") and shutil.which("etcdctl"), "etcd-server and etcd-client"):
            server = EtcdServer(stage)
            self.etcd, self.etcdctl = [DlockEtcd(server, "dlock, etcd", server.url)], [Etcdctl(server)]
        if self.can("mysql", os.path.exists(mariadbd()), "mariadb-server"):
            server = MysqlServer(stage)
            self.mysql = [DlockMysql(server, "dlock, mysql", server.url)]

    @staticmethod
    def can(backend, there, package):
        if backend in built_in() and there:
            return True
        say(f"{backend} is not measured: it needs {package}, and dlock built with it")
        return False

    @property
    def contenders(self):
        """One for each kind of place, the reference first."""
        return [self.flock, self.file] + self.redis[:1] + self.zk + self.pg[:1] + self.memcached + self.etcd + self.mysql


def built_in():
    try:
        told = subprocess.run([DLOCK, "version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as why:
        raise Impossible(f"{why} (make builds it)") from None
    return [line.split()[0] for line in told.splitlines()[1:] if "not compiled in" not in line]


# ---- how it is told ----


def say(text=""):
    print(text, flush=True)


def heading(title, *columns):
    say(("\n" if title else "") + f"{title:36}" + "".join(f"{c:>11}" for c in columns))


def judged(value, target):
    if target is None:
        return ""
    return f"{'<= %g' % target:>11}" + ("" if value <= target else "  MISSED")


def row(name, *cells):
    say(f"  {name:34}" + "".join(f"{c:>11}" for c in cells[:-1]) + cells[-1])


# ---- the four parts ----


def startup(b):
    """Whole processes, from posix_spawn to wait, around `true`."""
    rows = [("true", 1, ["true"], None), ("flock FILE true", 1, b.flock.argv("start", ["true"]), None),
            (b.file.name, 1, b.file.argv("start", ["true"]), 1.3)]
    rows += [(c.name, 1, c.argv("start", ["true"]), 1.5) for c in b.redis]
    rows += [(c.name, 20, c.argv("start", ["true"]), None) for c in b.etcdctl]
    tables = [("start-up of a whole run of `true`", "x flock", 1, rows)]
    for c in b.tls + b.zk + b.pg + b.memcached + b.etcd + b.mysql:
        tables.append((f"the same with {c.name.removeprefix('dlock, ')}", "x probe", 0, [
            ("the least that must be done", 4, c.probe(b.stage), None),
            *((d.name, 4, d.argv("start", ["true"]), d.start) for d in [c, *(b.layouts if c in b.zk else [])])]))
    figures = time_runs(b, [one for *_, rows in tables for one in rows])
    for title, unit, reference, rows in tables:
        found, figures = figures[:len(rows)], figures[len(rows):]
        startup_table(title, unit, found[reference][0], zip(rows, found))


def time_runs(b, rows):
    """(median, p95, runs) of each, one after the other, again and again."""
    words = [b.stage.spawner, "time", b.sizes["rounds"]]
    for _, every, argv, _ in rows:
        words += [":", every] + argv
    p = b.stage.start(words, stdout=subprocess.PIPE)
    told = p.communicate()[0].split("\n")
    if p.returncode != 0:
        raise Impossible("a command of the start-up table failed")
    return [[int(n) for n in line.split()] for line in told if line]


def startup_table(title, unit, reference, table):
    heading(title, "median", "p95", "runs", unit, "target")
    for (name, _, _, target), (median, p95, runs) in table:
        row(name, f"{median / 1e6:.2f} ms", f"{p95 / 1e6:.2f} ms", runs, f"{median / reference:.2f}",
            judged(median / reference, target))


def count_instructions(b, argv):
    """Of dlock's processes and the command; as valgrind executes them, since not every machine counts its own."""
    if not shutil.which("valgrind"):
        return None
    out = pathlib.Path(tempfile.mkdtemp(dir=b.stage.dir))
    apart = b.stage.compile_probe("apart", ["-shared", "-fPIC"])
    words = ["env", f"LD_PRELOAD={apart}", "valgrind", "-q", "--tool=callgrind", "--trace-children=yes", f"--callgrind-out-file={out}/%p", *argv]
    if b.stage.start(words, stderr=subprocess.DEVNULL).wait() != 0:
        raise Impossible(f"{argv[0]} fails under valgrind")
    lines = [line for path in out.iterdir() for line in path.read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("totals:"))


def count_calls(b, argv):
    """System calls of all processes."""
    if not shutil.which("strace"):
        return None
    out = b.stage.dir / "calls"
    if b.stage.start(["strace", "-f", "-c", "-U", "name,calls", "-o", out, *argv]).wait() != 0:
        raise Impossible(f"{argv[0]} fails under strace")
    return int(out.read_text().split()[-1])


def count_faults(b, argv):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt
    b.stage.start(argv).wait()
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt - before


def count_requests(b, contender, argv, runs=20):
    """Of a run; a server may be late in counting."""
    server = contender.server or Nothing
    time.sleep(1)
    server.reset()
    for _ in range(runs):
        if b.stage.start(argv).wait() != 0:
            raise Impossible(f"{contender.name} fails")
    time.sleep(1)
    counted = server.counts()[0]
    return counted and round(counted / runs)


def read_counts():
    lines = COUNTS.read_text().splitlines() if COUNTS.exists() else []
    return {name.strip(): [None if n == "-" else int(n) for n in rest.split()]
            for name, rest in (line.rsplit(":", 1) for line in lines if not line.startswith("#"))}


def counts(b):
    """What one run of `true` takes that is the same each time: a change of 3 % is named, and a request more."""
    kept, found = read_counts(), {}
    heading("counts of a run of `true`", "instr.", "faults", "syscalls", "requests", "since kept")
    for c in [b.flock, b.file, *b.redis, *b.zk, *b.pg[:1], *b.memcached, *b.etcd, *b.mysql]:
        argv = [str(a) for a in c.argv("counts", ["true"])]
        b.stage.start(argv).wait()  # what is made at the first use is there
        least = [[f(b, argv) for _ in range(n)] for f, n in ((count_instructions, 2), (count_faults, 5), (count_calls, 3))]
        least.append([count_requests(b, c, argv)])
        found[c.name] = [None if None in seen else min(seen) for seen in least]
        row(c.name, *("-" if n is None else n for n in found[c.name]), "  " + changes(kept.get(c.name), found[c.name]))
    if b.keep:
        lines = [f"{name}: {' '.join('-' if n is None else str(n) for n in row)}" for name, row in found.items()]
        COUNTS.write_text("# instructions, page faults, system calls, requests of a run of `true` (bench.py counts --keep)\n"
                          + "\n".join(lines) + "\n")


def changes(before, now):
    """How much each count has grown (or fallen) by, where that is worth naming."""
    told = []
    for name, old, new in zip(("instr.", "faults", "syscalls", "requests"), before or [], now):
        if old and new and abs(new - old) > WORTH_NAMING * old:
            told.append(f"{name} {100 * (new - old) / old:+.1f} %" + (" MORE" if new > old else ""))
    return ", ".join(told)


def finish(contender, fleet):
    until(lambda: all(p.poll() is not None for p in fleet), f"the end of all ({contender.name})")
    for p in fleet:
        if p.returncode != 0:
            raise Impossible(f"{contender.name}: one ended with {p.returncode}")


def one_queue(b, contender, waiters):
    """All queue behind one holder, then run one after the other; returns the gaps between them."""
    key = b.stage.fresh("queue")
    log, gate = b.stage.dir / f"{key}.log", b.stage.dir / f"{key}.gate"
    first = b.stage.start(contender.argv(key, b.stage.stamp(log, 0, gate)))
    until(log.exists, "the first holder")
    rest = [b.stage.start(contender.argv(key, b.stage.stamp(log, 2))) for _ in range(waiters)]
    until(lambda: contender.queued(key) == waiters, f"{waiters} waiters ({contender.name})")
    gate.touch()
    finish(contender, [first] + rest)
    runs = list(struct.iter_unpack("=qq", log.read_bytes()))
    if len(runs) != waiters + 1:
        raise Impossible(f"{contender.name}: {len(runs)} of {waiters + 1} commands ran")
    gaps = [after[0] - before[1] for before, after in zip(runs, runs[1:])]
    if min(gaps) < 0:
        raise Impossible(f"{contender.name}: two commands ran at once")
    return gaps


def handoff(b):
    """From the end of one command to the start of the next, all others already waiting."""
    contenders = [b.flock, b.file] + b.redis + b.tls + b.zk + b.layouts + b.pg + b.memcached + b.etcd + b.etcdctl + b.mysql
    gaps = {c.name: [] for c in contenders}
    for c in b.zk * 2:  # else who comes first has a server whose Java is not compiled yet
        one_queue(b, c, b.sizes["waiters"])
    for i in range(b.sizes["passes"]):
        for c in contenders[i % len(contenders):] + contenders[:i % len(contenders)]:
            gaps[c.name] += one_queue(b, c, b.sizes["waiters"])
    reference = statistics.median(gaps["flock"])
    heading(f"hand-off among {b.sizes['waiters']} waiters", "median", "p95", "count", "x flock", "target")
    for c in contenders:
        g = gaps[c.name]
        median = statistics.median(g)
        row(c.name, f"{median / 1e6:.2f} ms", f"{sorted(g)[len(g) * 95 // 100] / 1e6:.2f} ms", len(g),
            f"{median / reference:.2f}", judged(median / reference, c.handoff))


def forms(b):
    """The forms of Redis, against one server that is asked plainly."""
    if not b.forms:
        return
    subprocess.run(b.redlock[0].argv("start", ["true"]), env=ENVIRON, check=True)  # waits until new masters' votes count
    every = [b.sentinel.plain, *b.forms]
    rows = [(c.name, 1, c.argv("start", ["true"]), getattr(c, "forms", None)) for c in every]
    found = time_runs(b, rows)
    startup_table("start-up with each form of Redis", "x plain", found[0][0], zip(rows, found))
    gaps, waiters = {c.name: [] for c in every}, b.sizes["waiters"] // 4
    for i in range(2 * b.sizes["passes"]):
        for c in every[i % len(every):] + every[:i % len(every)]:
            gaps[c.name] += one_queue(b, c, waiters)
    reference = statistics.median(gaps[every[0].name])
    heading(f"hand-off among {waiters} waiters", "median", "p95", "count", "x plain", "target")
    for c in every:
        g = sorted(gaps[c.name])
        median = statistics.median(g)
        row(c.name, f"{median / 1e6:.2f} ms", f"{g[len(g) * 95 // 100] / 1e6:.2f} ms", len(g), f"{median / reference:.2f}",
            judged(median / reference, getattr(c, "forms", None)))


def family(pid):
    """A process and its descendants."""
    try:
        p = psutil.Process(pid)
        return [p.pid] + [c.pid for c in p.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def switches(pids):
    """How often these processes, with all their threads, have slept and been woken."""
    count = 0
    for pid in pids:
        for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
            with contextlib.suppress(OSError):
                text = status.read_text()
                count += int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0])
    return count


class Nothing:
    """The server of those who have none."""

    @staticmethod
    def reset():
        pass

    @staticmethod
    def counts():
        return None, None, None


def watch(b, contender):
    """One row: waiters idle for a while; then some releases, and how many of the others notice."""
    idlers, releases, seconds = (b.sizes[n] for n in ("idlers", "releases", "seconds"))
    key = b.stage.fresh("idle")
    log, soon, never = (b.stage.dir / f"{key}.{end}" for end in ("log", "soon", "never"))
    fleet = [b.stage.start(contender.argv(key, b.stage.stamp(log, 0, soon)))]
    until(log.exists, "the first holder")
    # Those that will be served, the next holder, and those whom none of this concerns.
    last = b.stage.stamp(log, 0, never)
    for count, command in ((releases, b.stage.stamp(log, 0)), (1, last), (idlers, last)):
        fleet += [b.stage.start(contender.argv(key, command)) for _ in range(count)]
        until(lambda: contender.queued(key) == len(fleet) - 1, f"{len(fleet) - 1} waiters ({contender.name})")
    bystanders = [pid for p in fleet[-idlers:] for pid in family(p.pid)]
    time.sleep(1)  # the last ones settle

    server, before = contender.server or Nothing, switches(bystanders)
    server.reset()
    time.sleep(seconds)
    idle, woken = server.counts(), (switches(bystanders) - before) / idlers / seconds

    before = switches(bystanders)
    server.reset()
    soon.touch()
    until(lambda: all(p.poll() is not None for p in fleet[:1 + releases]), "the releases")
    noticed = (switches(bystanders) - before) / (1 + releases)
    calls = server.counts()[2]
    never.touch()
    finish(contender, fleet)

    requests, scripts = (None if n is None else n / len(fleet) / seconds for n in idle[:2])
    cells = ["-" if n is None else f"{n:.3f}" for n in (requests, scripts, woken)]
    cells += ["-" if calls is None else f"{calls / (1 + releases):.2f}", f"{noticed:.2f}"]
    row(contender.name, *cells, judged(requests, contender.requests))


def idle(b):
    """What waiters cost while nothing happens, and how many a release wakes."""
    heading(f"{b.sizes['idlers']} waiters, {b.sizes['seconds']} s idle", "requests", "scripts", "wake-ups", "calls",
            "bystanders", "target")
    heading("", "a second", "a second", "a second", "a release", "a release", "requests")
    for c in b.contenders:
        watch(b, c)


def once_each(pids):
    """Without those that share the memory of one before them: a stub has its keeper's (kcmp(2))."""
    found = []
    for pid in pids:
        if not any(ctypes.CDLL(None).syscall(KCMP, pid, other, KCMP_VM, 0, 0) == 0 for other in found):
            found.append(pid)
    return found


def pages(pids, *names):
    """The sum of these lines of smaps_rollup."""
    total = 0
    for pid in once_each(pids):
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.split(":")[0] in names:
                total += int(line.split()[1]) * 1024
    return total


def is_command(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text() == "bench_spawn\n"


def memory(b):
    """All processes of one dlock; the command itself is not counted."""
    if os.geteuid() != 0:
        say("\nmemory is not measured: dlock's processes cannot be read but by root")
        return
    heading("memory of all processes of a", "holder", "waiter", "waiter", "target")
    heading("", "private", "private", "anon. PSS", "private")
    for c in b.contenders:
        key = b.stage.fresh("memory")
        log, gate = b.stage.dir / f"{key}.log", b.stage.dir / f"{key}.gate"
        holder = b.stage.start(c.argv(key, b.stage.stamp(log, 0, gate)))
        until(log.exists, "the holder")
        waiter = b.stage.start(c.argv(key, b.stage.stamp(log, 0)))
        until(lambda: c.queued(key) == 1, "the waiter")
        time.sleep(0.3)  # whatever it still does before it sleeps
        holds = [pid for pid in family(holder.pid) if not is_command(pid)]
        waits = family(waiter.pid)
        private = [pages(pids, "Private_Clean", "Private_Dirty") / MIB for pids in (holds, waits)]
        anonymous = pages(waits, "Pss_Anon") / MIB
        gate.touch()
        finish(c, [holder, waiter])
        row(c.name, *(f"{m:.2f} MiB" for m in private + [anonymous]),
            judged(max(private), c.private))


PARTS = {f.__name__: f for f in (startup, counts, handoff, forms, idle, memory)}


def options():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0].split(": ", 1)[1],
                                epilog="Each size may also come from the environment: BENCH_ROUNDS=5000.")
    p.add_argument("parts", nargs="*", metavar="PART", help=f"{' '.join(PARTS)} (default: all)")
    p.add_argument("--keep", action="store_true", help="counts: later ones are judged by these")
    p.add_argument("--quick", action="store_true", help="a smoke run: small sizes")
    for name, (full, quick) in SIZES.items():
        p.add_argument(f"--{name}", type=int, metavar="N", help=f"default {full}, quick {quick}")
    o = p.parse_args()
    for name in o.parts:
        if name not in PARTS:
            p.error(f"there is no part '{name}'")
    o.sizes = {n: getattr(o, n) or int(os.environ.get(f"BENCH_{n.upper()}", 0)) or SIZES[n][o.quick] for n in SIZES}
    return o


def main():
    o = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    stage = Stage()
    try:
        stage.compile()
        b = Bench(stage, o.sizes)
        b.keep = o.keep
        say(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}: other work here tells, in hand-offs most")
        for name, part in PARTS.items():
            if not o.parts or name in o.parts:
                part(b)
    except Impossible as why:
        sys.exit(f"bench: {why}")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        for sig in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sig, signal.SIG_IGN)  # the cleaning is not to be interrupted
        stage.close()


if __name__ == "__main__":
    main()
