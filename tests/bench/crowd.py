"""Goal of this benchmark: show how dlock's costs grow with the number of waiters on one key.

For each backend and each number N of waiters, with a server of its own:
  queued    seconds from the start of the first of N waiters until all stand in the queue
  idle      CPU of the server and of all clients while nothing happens (% of one core), bytes a second
            between them, private memory of a waiter (its own; what the server has more for it)
  hand-off  from one command's end to the next one's start; CPU of clients (the command's included) and server for one
  restart   the server is killed, the holder's command ends, the server comes back: seconds from its first answer
            until the next command runs, and until all others are queued again; connections tried a second while away
"x flock" compares with flock(1) and as many waiters, measured just before and after.

Each step is given up after the time that is printed for its N, and the row says so.  As root, all of it runs in a
network namespace of its own, so that nobody else's traffic is counted; else bytes and attempts are the whole machine's.

    make bench crowd                            all backends: N = 10 200 1000 5000 (pg, mysql: 10 200 500 800; mysql-row, mysql-named: 10 200)
    make bench crowd N="200 500" BACKEND=pg     these
"""

import argparse
import ctypes
import fcntl
import os
import pathlib
import resource
import signal
import socket
import statistics
import struct
import sys
import tempfile
import time

import bench
from bench import DlockFile, Flock, Impossible, Stage, say
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "servers"))

from etcd import Etcd
from memcached import Memcached, compile_clock
from mysql_server import DB, MysqlServer
from pg import PgServer
from support import RedisServer, adopt_orphans, descendants_of, kill, name_of
from zk import ZkServer

CROWDS = {"file": [10, 200, 1000, 5000], "redis": [10, 200, 1000, 5000], "zk": [10, 200, 1000, 5000],
          "pg": [10, 200, 500, 800], "memcached": [10, 200, 1000], "etcd": [10, 200, 1000],
          "mysql": [10, 200, 500, 800],
          "mysql-row": [10, 200], "mysql-named": [10, 200]}
AWAY, LEASE = 5, 40  # seconds without a server, and of the longest lease
CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 1
HZ = os.sysconf("SC_CLK_TCK")


def bound(n):
    """Seconds after which a step with n waiters is given up."""
    return 30 + n // 20


class GaveUp(Exception):
    """A step took longer than its bound, or a run failed."""


# ---- this machine ----


def own_network():
    """A loopback of our own, and true; without the right to it, false."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        return False
    with socket.socket() as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
    return True


def loopback_bytes():
    line, = (li for li in pathlib.Path("/proc/net/dev").read_text().splitlines() if li.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


def connections_tried():
    names, values = (li.split()[1:] for li in pathlib.Path("/proc/net/snmp").read_text().splitlines()
                     if li.startswith("Tcp:"))
    return int(values[names.index("ActiveOpens")])


def family(pid):
    return [pid, *descendants_of(pid)]


def consumed(pids):
    """CPU seconds of living processes with all their threads."""
    total = 0
    for pid in pids:
        for stat in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                total += int(stat.read_text().split()[0])
            except (OSError, IndexError):
                pass  # it has just ended
    return total / 1e9


def consumed_by_dead(pid):
    """CPU seconds of children that a process has waited for."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[13]) + int(fields[14])) / HZ
    except OSError:
        return 0


def memory(pids, *names):
    """Bytes in these lines of smaps_rollup, of processes that we may read."""
    total = 0
    for pid in bench.once_each(pids):
        try:
            lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(li.split()[1]) * 1024 for li in lines if li.split(":")[0] in names)
    return total


# ---- contenders: each with a server of its own, for one N ----


class WithServer:
    """A dlock whose server can be killed and brought back."""

    def argv(self, key, command):
        return [bench.DLOCK, "run", "-u", self.server.url, "-k", key, "--"] + command


class Redis(WithServer):
    name = "redis"

    def __init__(self, n):
        self.server = RedisServer("--appendonly", "yes", "--maxclients", str(3 * n + 100), "--tcp-backlog", "4096")

    def queued(self, _):
        with self.server.client() as c:
            return sum(c.zcard(queue) for queue in c.scan_iter("dlock:*:q"))

    def attached(self, _):
        """Waiters listen, each on a channel of its own; so does a holder, in time."""
        with self.server.client() as c:
            return len(c.pubsub_channels())


class Zk(WithServer):
    name = "zk"

    def __init__(self, n):
        java = ("-Xmx1g", "-Dznode.container.checkIntervalMs=3600000", "-Dzookeeper.nio.maxClientCnxns=0")
        self.server = ZkServer(java, tickTime=2000, minSessionTimeout=4000, maxSessionTimeout=40000)

    def queued(self, _):
        """Holder and waiters have a node each, and no other lock is in use."""
        return int(self.server.metrics()["ephemerals_count"]) - 1

    def attached(self, _):
        """All who are connected, without the one who runs the command."""
        return int(self.server.metrics()["num_alive_connections"]) - 1


class Pg(WithServer):
    name = "pg"

    def __init__(self, n):
        self.server = PgServer(safe=True, where=tempfile.gettempdir(), max_connections=n + 60)

    def queued(self, key):
        """Waiters have a row each, whatever the version of the schema."""
        for table, waits in (("waiters", "true"), ("claims", "slot IS NULL")):
            if self.server.value(f"SELECT count(to_regclass('dlock.{table}'))"):
                return self.server.value(f"SELECT count(*) FROM dlock.{table} WHERE key = %s AND {waits}", key)
        return 0

    def attached(self, _):
        """Those who sleep in the server."""
        return self.server.value("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
                                 " AND wait_event_type = 'Lock'")


class MemcachedCrowd(WithServer):
    name = "memcached"

    def __init__(self, stage, n):
        self.server = Memcached(compile_clock(stage.dir), "-c", str(2 * n + 100))
        self.known = self.connections()

    def connections(self):
        with self.server.client() as c:
            return int(c.stats()["curr_connections"])

    def queued(self, _):
        """Holder and waiters have a connection each, and nobody else."""
        return self.connections() - self.known - 1

    attached = queued


class EtcdCrowd(WithServer):
    name = "etcd"

    def __init__(self):
        self.server = Etcd()

    def queued(self, key):
        """Holder and waiters have a key each."""
        return self.server.client().count(f"dlock/q/{key}/") - 1

    def attached(self, key):
        return self.queued(key) + 1


class Mysql(WithServer):
    name = "mysql"

    def __init__(self, n):
        self.server = MysqlServer(safe=True, where=tempfile.gettempdir(), max_connections=n + 60)

    def queued(self, key):
        """Waiters have a row each."""
        return self.server.value("SELECT count(*) FROM dlock_waiters WHERE k = %s", key, db=DB)

    def attached(self, _):
        """All who are connected."""
        return len(self.server.sessions())


class BoundMysql(Mysql):
    """Its locks end with their session."""

    def __init__(self, n, mode):
        super().__init__(n)
        self.mode = mode

    def argv(self, key, command):
        return [bench.DLOCK, "run", "-u", self.server.url, "-O", f"mode={self.mode}", "-k", key, "--"] + command

    def queued(self, key):
        """Holder and waiters have a session each."""
        return self.attached(key) - 1


def contender(stage, backend, n):
    kinds = {"flock": lambda: Flock(stage), "file": lambda: DlockFile(stage), "redis": lambda: Redis(n),
             "zk": lambda: Zk(n), "pg": lambda: Pg(n), "memcached": lambda: MemcachedCrowd(stage, n), "etcd": EtcdCrowd, "mysql": lambda: Mysql(n),
             "mysql-row": lambda: BoundMysql(n, "row"), "mysql-named": lambda: BoundMysql(n, "named")}
    return kinds[backend]()


# ---- one crowd ----


class Crowd:
    """A holder and n waiters; the figures that are found are its members."""

    def __init__(self, stage, who, n):
        self.stage, self.who, self.n = stage, who, n
        self.key = stage.fresh("crowd")
        self.errors = open(stage.dir / f"{self.key}.err", "ab")
        self.fleet = []
        self.figures = {}

    @property
    def server(self):
        return getattr(self.who, "server", None)

    def server_pids(self):
        return family(self.server.process.pid) if self.server else []

    def server_cpu(self):
        return consumed(self.server_pids()) + consumed_by_dead(self.server.process.pid) if self.server else 0

    def client_pids(self):
        mine = {p.pid for p in self.fleet}
        servers = set(self.server_pids())
        return [p for p in descendants_of(os.getpid()) if p in mine or p not in servers]

    def start(self, command):
        p = self.stage.start(self.who.argv(self.key, command), stderr=self.errors)
        self.fleet.append(p)

    def path(self, name):
        return self.stage.dir / f"{self.key}.{name}"

    def within(self, reached, goal, what, more=0):
        """Seconds until reached() is at least goal; `more` seconds than usual are granted for that."""
        limit = bound(self.n) + more
        began, end = time.monotonic(), time.monotonic() + limit
        while True:
            found = answer(reached)
            took = time.monotonic() - began
            if found is not None and found >= goal:
                return took
            if time.monotonic() > end:
                raise GaveUp(f"{what}: {found} of {goal} in {limit} s{self.failures()}")
            time.sleep(min(0.25, max(0.005, took / 50)))

    def failures(self):
        statuses = [p.returncode for p in self.fleet if p.poll() not in (None, 0)]
        return f"; {len(statuses)} ended with {sorted(set(statuses))}" if statuses else ""

    def gather(self, command, gate):
        """The holder, then all others; figure `queued`."""
        memory_before = memory(self.server_pids(), "Pss")
        self.start(self.stage.stamp(self.path("first"), 0, gate))
        self.within(lambda: self.path("first").exists(), 1, "the first holder")
        began = time.monotonic()
        for _ in range(self.n):
            self.start(command)
        self.within(lambda: self.who.queued(self.key), self.n, "queued")
        self.figures["queued"] = time.monotonic() - began
        self.figures["server_memory"] = (memory(self.server_pids(), "Pss") - memory_before) / self.n

    def rest(self, seconds):
        """Nothing happens: figures of idleness and of memory."""
        time.sleep(2)  # the last ones settle
        servers = self.server_cpu()
        clients = [pid for pid in self.client_pids() if name_of(pid) != "bench_spawn"]  # the holder's looks at its gate
        before, traffic, began = consumed(clients), loopback_bytes(), time.monotonic()
        time.sleep(seconds)
        traffic, took = loopback_bytes() - traffic, time.monotonic() - began
        self.figures["idle_server"] = (self.server_cpu() - servers) / took
        self.figures["idle_clients"] = (consumed(clients) - before) / took
        self.figures["traffic"] = traffic / took if self.server else 0
        some = [p for p in self.fleet[1:6] if p.poll() is None]
        private = sum(memory(family(p.pid), "Private_Clean", "Private_Dirty") for p in some)
        self.figures["client_memory"] = private / max(1, len(some))

    def drain(self, gate, log):
        """All run, one after the other: figures of the hand-off."""
        reaped, alive, servers = children_cpu(), consumed(self.client_pids()), self.server_cpu()
        gate.touch()
        self.within(lambda: log.stat().st_size // 16 if log.exists() else 0, self.n, "commands run")
        self.within(lambda: sum(p.poll() is not None for p in self.fleet), len(self.fleet), "ended")
        reap_orphans(self.fleet)
        self.figures["cpu_server"] = (self.server_cpu() - servers) / self.n
        self.figures["cpu_client"] = (children_cpu() - reaped - alive) / self.n
        if self.failures():
            raise GaveUp("the hand-off" + self.failures())
        runs = [*struct.iter_unpack("=qq", self.path("first").read_bytes()), *struct.iter_unpack("=qq", log.read_bytes())]
        gaps = [after[0] - before[1] for before, after in zip(runs, runs[1:])]
        if min(gaps) < 0:
            raise Impossible(f"{self.who.name}: two commands ran at once")
        self.figures["gaps"] = gaps

    def crash(self, gate, log):
        """The server dies, the holder ends, the server returns: figures of the restart."""
        self.server.kill()
        before, began = connections_tried(), time.monotonic()
        time.sleep(0.5)
        gate.touch()
        time.sleep(AWAY - 0.5)
        self.figures["attempts"] = (connections_tried() - before) / (time.monotonic() - began)
        self.server.start()
        returned = time.monotonic()
        self.within(log.exists, 1, "the next command after the restart", LEASE)
        self.figures["next"] = time.monotonic() - returned
        self.within(lambda: self.who.attached(self.key), self.n - 1, "queued after the restart", LEASE)
        self.figures["all"] = time.monotonic() - returned

    def close(self):
        for pid in self.client_pids():
            kill(pid, signal.SIGSTOP)  # nobody reacts to the end of another
        for pid in self.client_pids():
            kill(pid)
        for p in self.fleet:
            p.wait()
        while self.client_pids():
            time.sleep(0.02)
        reap_orphans(self.fleet)
        self.stage.started = [p for p in self.stage.started if p not in set(self.fleet)]
        self.errors.close()
        if self.server:
            self.server.stop()


def answer(question):
    """What is asked may be unable to answer just now: None."""
    try:
        return question()
    except Exception:  # whatever a client library raises for a server that is away or busy
        return None


def children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def reap_orphans(fleet):
    """Keepers that outlived their front have become our children: wait for those that have ended."""
    known = {p.pid for p in fleet}
    for task in pathlib.Path("/proc/self/task").iterdir():
        for pid in map(int, (task / "children").read_text().split()):
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            if state == "Z" and pid not in known:
                os.waitpid(pid, 0)


def handoff(stage, backend, n, seconds):
    """The crowd's figures; those that were not found are missing, and `gave_up` says why."""
    crowd = Crowd(stage, contender(stage, backend, n), n)
    try:
        gate, log = crowd.path("gate"), crowd.path("log")
        crowd.gather(stage.stamp(log, 2), gate)
        if backend != "flock":
            crowd.rest(seconds)
        crowd.drain(gate, log)
    except GaveUp as why:
        crowd.figures["gave_up"] = str(why)
    finally:
        crowd.close()
    return crowd.figures


def restart(stage, backend, n):
    crowd = Crowd(stage, contender(stage, backend, n), n)
    try:
        gate, never, log = (crowd.path(name) for name in ("gate", "never", "log"))
        crowd.gather(stage.stamp(log, 0, never), gate)
        time.sleep(2)
        crowd.crash(gate, log)
    except GaveUp as why:
        crowd.figures["gave_up"] = str(why)
    finally:
        crowd.close()
    return {name: crowd.figures[name] for name in ("next", "all", "attempts", "gave_up") if name in crowd.figures}


# ---- how it is told ----

COLUMNS = [  # width, two lines of heading, figure, how it is written
    (9, "queued", "s", "queued", "{:.2f}"), (8, "", "x flock", "x_queued", "{:.1f}"),
    (9, "idle CPU", "server", "idle_server", "{:.2%}"), (9, "", "clients", "idle_clients", "{:.2%}"),
    (9, "idle", "kB/s", "traffic", "{:.1f}"),
    (9, "KiB a", "client", "client_memory", "{:.0f}"), (9, "waiter", "server", "server_memory", "{:.0f}"),
    (9, "hand-off", "ms", "median", "{:.2f}"), (9, "p99", "ms", "p99", "{:.2f}"), (8, "", "x flock", "x_median", "{:.2f}"),
    (8, "", "x p99", "x_p99", "{:.2f}"),
    (9, "CPU ms a", "client", "cpu_client", "{:.2f}"), (9, "hand-off", "server", "cpu_server", "{:.2f}"),
    (9, "restart", "next s", "next", "{:.2f}"), (8, "", "all s", "all", "{:.2f}"), (9, "tries", "a second", "attempts", "{:.0f}")]
SCALE = {"traffic": 1e-3, "client_memory": 1 / 1024, "server_memory": 1 / 1024, "cpu_client": 1e3, "cpu_server": 1e3}


def headings():
    for i in (1, 2):
        say(f"{'':5} {'':11}" + "".join(f"{c[i]:>{c[0]}}" for c in COLUMNS))


def row(n, name, figures):
    cells = []
    for width, _, _, figure, how in COLUMNS:
        value = figures.get(figure)
        cells.append(f"{'-' if value is None else how.format(value * SCALE.get(figure, 1)):>{width}}")
    say(f"{n:5} {name:11}" + "".join(cells))
    for why in figures.get("gave_up", []):
        say(f"{'':17} gave up: {why}")


def judged(figures, reference):
    """Adds medians, and ratios to flock's figures."""
    if "gaps" in figures:
        gaps = sorted(figures["gaps"])
        figures["median"], figures["p99"] = statistics.median(gaps) / 1e6, gaps[len(gaps) * 99 // 100] / 1e6
    for name in ("queued", "median", "p99"):
        if reference.get(name) and name in figures:
            figures[f"x_{name}"] = figures[name] / reference[name]
    return figures


def merged(two):
    """Flock's figures of before and after."""
    result = {"gaps": [g for figures in two for g in figures.get("gaps", [])]}
    for name in ("queued", "cpu_client"):
        found = [figures[name] for figures in two if name in figures]
        if found:
            result[name] = statistics.mean(found)
    if not result["gaps"]:
        del result["gaps"]
    return result


def measure(stage, o, n, backends):
    flock, found = [handoff(stage, "flock", n, 0)], {}
    for backend in backends:
        found[backend] = handoff(stage, backend, n, o.seconds)
        again = restart(stage, backend, n) if o.restart and backend != "file" else {}
        found[backend]["gave_up"] = [f["gave_up"] for f in (found[backend], again) if "gave_up" in f]
        found[backend].update({name: value for name, value in again.items() if name != "gave_up"})
    flock.append(handoff(stage, "flock", n, 0))
    reference = judged(merged(flock), {})
    row(n, "flock", reference)
    for backend in backends:
        row(n, backend, judged(found[backend], reference))


def room_for(n):
    """Are so many processes possible?  A waiting zk has five threads in three processes."""
    highest = int(pathlib.Path("/proc/sys/kernel/pid_max").read_text())
    most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    there = int(pathlib.Path("/proc/loadavg").read_text().split()[3].split("/")[1])
    return there + 5 * n < min(highest, most if most > 0 else highest)


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--backends", nargs="+", metavar="NAME", choices=list(CROWDS), help="default: all that are built in")
    p.add_argument("--waiters", nargs="+", type=int, metavar="N")
    p.add_argument("--seconds", type=int, default=20, help="of idleness (default 20)")
    p.add_argument("--no-restart", dest="restart", action="store_false", help="leave the server alone")
    return p.parse_args()


def main():
    o = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    adopt_orphans()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    stage = Stage()
    try:
        stage.compile()
        private = own_network()
        there = [b for b in o.backends or CROWDS if b.split("-")[0] in bench.built_in()]
        say(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}: other work here tells.  "
            + ("" if private else "Not root: bytes and attempts are the whole machine's."))
        headings()
        for n in sorted(set(o.waiters or [n for b in there for n in CROWDS[b]])):
            if not room_for(n):
                say(f"{n:5} is not measured: this machine has no room for so many processes (ulimit -u, pid_max)")
                continue
            say(f"{n:5} (each step is given up after {bound(n)} s)")
            measure(stage, o, n, [b for b in there if o.waiters or n in CROWDS[b]])
    except Impossible as why:
        sys.exit(f"bench: {why}")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        for sig in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sig, signal.SIG_IGN)
        stage.close()


if __name__ == "__main__":
    main()
