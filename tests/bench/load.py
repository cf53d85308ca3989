"""Goal of this benchmark: count what holders and waiters are to a server.  Other work on the machine changes none of it.

For each backend, with a server of its own and the default lease of 30s: 20 holders of a key each, then one holder of another
key with 1, 10 and 100 waiters, who stay.  Of one holder and of one waiter:
  connections   by the server's own count, or by the kernel's
  requests      a minute, by the server's own counters, while nothing happens for --seconds: commands of redis that
                clients sent, packets of ZooKeeper, transactions of PostgreSQL, Questions of MariaDB, reads and writes of
                memcached, calls of etcd.  What the one holder asks is subtracted from what holder and waiters ask.
  memory        private, of all its processes but the command; what the server has more for it (PSS)

    make bench load                          all backends, one after the other; 40 minutes, in which next to nothing happens
    make bench load N="1 10" BACKEND=redis   these
"""

import argparse
import signal
import sys
import time

import bench
from bench import DlockFile, Impossible, Stage, say
from crowd import EtcdCrowd, MemcachedCrowd, Mysql, Pg, Redis, Zk, family, memory
from mysql_server import DB, MysqlServer
from pg import PgServer
from support import adopt_orphans, name_of

HOLDERS, WAITERS = 20, [1, 10, 100]
AT_ONCE = 10  # so many start together: nobody is to lose patience with a machine that is busy
FEW = 20  # the server's memory for fewer says nothing
SETTLED = 12  # seconds: more than the first third of a lease

# What a client of Redis sends by itself; what its scripts call is counted there, too.
SENT = ("eval", "evalsha", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "ping", "hello", "auth", "select", "role", "wait")


class LoadRedis(Redis):
    def connections(self):
        with self.server.client() as c:
            return c.info("clients")["connected_clients"] - 1

    def requests(self):
        with self.server.client() as c:
            return sum(stats["calls"] for name, stats in c.info("commandstats").items()
                       if name.removeprefix("cmdstat_").split("|")[0] in SENT)


class LoadZk(Zk):
    def connections(self):
        return len(self.server.connected())

    def requests(self):
        return int(self.server.metrics()["packets_received"])


class LoadPg(Pg):
    def __init__(self, n):
        self.server = PgServer(max_connections=n + 60, autovacuum="off")

    def connections(self):
        return len(self.server.sessions())

    def requests(self):
        """Of the database of the locks; it is asked for in another one."""
        return self.server.value("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'app'", db="postgres")


class LoadMysql(Mysql):
    def __init__(self, n):
        self.server = MysqlServer(max_connections=n + 60)

    def connections(self):
        return len(self.server.sessions(DB))

    def requests(self):
        return self.server.status("Questions")


class LoadMemcached(MemcachedCrowd):
    """What a holder asks of the server's age with each renewal is counted nowhere."""

    def requests(self):
        with self.server.client() as c:
            stats = c.stats()
        return sum(int(stats[name]) for name in ("cmd_get", "cmd_set", "cmd_touch"))


class LoadEtcd(EtcdCrowd):
    def connections(self):
        """That its port has, by the kernel: one of them is that of its own gateway."""
        port = f"{self.server.port:04X}"
        with open("/proc/net/tcp", encoding="ascii") as f:
            rows = [line.split() for line in f][1:]
        return sum(r[1].endswith(f":{port}") and r[3] == "01" for r in rows)

    def requests(self):
        return int(self.server.metric("grpc_server_started_total"))


class LoadFile(DlockFile):
    server = None

    def connections(self):
        return 0

    requests = connections


def subject(stage, backend, n):
    return {"file": lambda: LoadFile(stage), "redis": lambda: LoadRedis(n), "zk": lambda: LoadZk(n), "pg": lambda: LoadPg(n),
            "mysql": lambda: LoadMysql(n), "memcached": lambda: LoadMemcached(stage, n), "etcd": LoadEtcd}[backend]()


BACKENDS = ["file", "redis", "zk", "etcd", "pg", "mysql", "memcached"]


class Load:
    """One server and whoever is there."""

    def __init__(self, stage, backend, o):
        self.stage, self.o, self.name = stage, o, backend
        self.who = subject(stage, backend, HOLDERS + max(o.waiters))
        self.looking = self.looks_cost()

    def looks_cost(self):
        """What it costs to ask for the number of requests."""
        first = self.who.requests()
        return self.who.requests() - first

    def server_memory(self):
        if not self.who.server:
            return 0
        return memory(family(self.who.server.process.pid), "Pss")

    def held(self, key):
        """Starts a holder; the process, when its command runs."""
        log = self.stage.dir / f"{key}.held"
        p = self.stage.start(self.who.argv(key, ["sh", "-c", f"echo >'{log}'; exec sleep 3600"]))
        return p, log

    def come(self, start, number, there):
        """Starts so many, some at a time; `there` says how many have come."""
        came = []
        while len(came) < number:
            came += [start() for _ in range(min(AT_ONCE, number - len(came)))]
            bench.until(lambda: there(came), f"{len(came)} on {self.name}")
        return came

    def requests_a_minute(self):
        before, began = self.who.requests(), time.monotonic()
        time.sleep(self.o.seconds)
        asked, took = self.who.requests() - before - self.looking, time.monotonic() - began
        return asked * 60 / took

    def of_clients(self, processes):
        some = processes[:5]
        pids = [[pid for pid in family(p.pid) if name_of(pid) != "sleep"] for p in some]
        return sum(memory(one, "Private_Clean", "Private_Dirty") for one in pids) / len(some)

    def report(self, what, n, connections, requests, server, processes):
        server = f"{server / n / 1024:.0f}" if n >= FEW else "-"
        say(f"{self.name:10}{what:>12}{connections / n:>13.2f}{requests / n:>13.1f}{self.of_clients(processes) / 1024:>12.0f}"
            f"{server:>12}")

    def holders(self):
        """Each of a key of its own; they end afterwards, but for one that came before them."""
        bench.until(self.held("warm")[1].exists, "the first holder")  # makes the schema, and stays
        time.sleep(SETTLED)
        before, connected = self.server_memory(), self.who.connections()
        came = self.come(lambda: self.held(self.stage.fresh("own")), HOLDERS, lambda all_: all(log.exists() for _, log in all_))
        time.sleep(SETTLED)
        server, connections = self.server_memory() - before, self.who.connections() - connected
        requests = self.requests_a_minute() * HOLDERS / (HOLDERS + 1)
        processes = [p for p, _ in came]
        self.report(f"{HOLDERS} holders", HOLDERS, connections, requests, server, processes)
        self.one = requests / HOLDERS
        return processes

    def waiters(self):
        """Of one, with more and more of them; what the two holders ask is subtracted."""
        bench.until(self.held("queue")[1].exists, "the holder")
        time.sleep(SETTLED)
        before, connected = self.server_memory(), self.who.connections()
        time.sleep(1)  # memcached may still count the connection that has just asked
        waiting, base = [], self.queued()
        for n in self.o.waiters:
            waiting += self.come(lambda: self.stage.start(self.who.argv("queue", ["true"])), n - len(waiting),
                                 lambda came, there=len(waiting): self.queued() - base >= there + len(came))
            time.sleep(SETTLED)
            server, connections = self.server_memory() - before, self.who.connections() - connected
            requests = self.requests_a_minute() - 2 * self.one
            self.report(f"{n} waiters", n, connections, requests, server, waiting)

    def queued(self):
        return self.who.queued("queue")

    def run(self):
        end(self.holders())
        self.waiters()


def end(processes):
    for p in processes:
        p.terminate()
    for p in processes:
        p.wait()


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--backends", nargs="+", metavar="NAME", choices=BACKENDS, default=BACKENDS, help="default: all that are built in")
    p.add_argument("--waiters", nargs="+", type=int, metavar="N", default=WAITERS)
    p.add_argument("--seconds", type=int, default=60, help="for which requests are counted (default 60)")
    return p.parse_args()


def main():
    o = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    adopt_orphans()
    stage = Stage()
    try:
        say(f"{'':10}{'':12}{'connections':>13}{'requests':>13}{'KiB of':>12}{'KiB of':>12}\n"
            f"{'':10}{'':12}{'':>13}{'a minute':>13}{'its own':>12}{'the server':>12}")
        for backend in [b for b in o.backends if b in bench.built_in()]:
            load = Load(stage, backend, o)
            try:
                load.run()
            finally:
                end(stage.started)
                stage.started = []
                if load.who.server:
                    load.who.server.stop()
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
