# Goal of this file: Redis as it is run by more than one server: sentinels with a master
# and its replicas, and a cluster; and what may happen to them.

import contextlib
import os
import tempfile
import time
from urllib.parse import quote

with contextlib.suppress(ImportError):  # without it no test is run that needs it
    import redis

from support import Place, RedisServer, Server, date_run, free_port, has_done, wait_for

HOST = "127.0.0.1"


class Sentinel(Server):
    """One sentinel at this address, which looks after `name` at a host's port."""

    kind = "redis-sentinel"

    def __init__(self, name, port, quorum, down_after, *lines, host=HOST, address=HOST):
        super().__init__(tempfile.mkdtemp(prefix="dlock-sentinel-"))
        self.address = address
        self.lines = [f"sentinel monitor {name} {host} {port} {quorum}", f"sentinel down-after-milliseconds {name} {down_after}",
                      f"sentinel failover-timeout {name} 3000", *lines]
        self.settle()

    def start(self, wait=True):
        config = os.path.join(self.directory, "conf")
        if not os.path.exists(config):  # it writes what it has learnt into it
            with open(config, "w", encoding="utf-8") as f:
                f.write("\n".join([f"port {self.port}", f"bind {self.address}", f"dir {self.directory}", *self.lines, ""]))
        self.launch(["redis-server", config, "--sentinel"], wait)

    def client(self, **options):
        return redis.Redis(host=HOST, port=self.port, decode_responses=True, **options)

    def answers(self):
        self.must_live()
        try:
            with self.client(socket_timeout=1) as c:
                return c.ping()
        except (redis.exceptions.AuthenticationError, redis.exceptions.ResponseError):
            return True
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
            return False


class RedisSentinels:
    """A master with replicas, and sentinels that look after it."""

    name = "mymaster"

    def __init__(self, n=3, replicas=1, down_after=1000, options=(), sentinel_lines=(), password=None):
        self.password = password  # of the sentinels
        self.servers = [RedisServer("--repl-ping-replica-period", "1", *options) for _ in range(1 + replicas)]
        master = self.servers[0]
        for replica in self.servers[1:]:
            with replica.client() as c:
                c.replicaof(HOST, master.port)
        self.sentinels = []
        wait_for(lambda: self.replicated(master, replicas), what="the replicas")
        quorum = n // 2 + 1
        self.sentinels = [Sentinel(self.name, master.port, quorum, down_after, *sentinel_lines) for _ in range(n)]
        wait_for(lambda: all(self.knows(s, n - 1, replicas) for s in self.sentinels), what="sentinels that know each other")

    @property
    def url(self):
        return f"redis+sentinel://{','.join(f'{HOST}:{s.port}' for s in self.sentinels)}/{self.name}"

    @staticmethod
    def replicated(server, replicas):
        with server.client() as c:
            info = c.info("replication")
        return sum(info.get(f"slave{i}", {}).get("state") == "online" for i in range(replicas)) == replicas

    def knows(self, sentinel, others, replicas):
        with sentinel.client(password=self.password) as c:
            state = c.sentinel_master(self.name)
        return int(state["num-other-sentinels"]) == others and int(state["num-slaves"]) == replicas

    def named(self):
        """The ports that living sentinels name."""
        ports = set()
        for s in self.sentinels:
            with contextlib.suppress(redis.exceptions.ConnectionError, redis.exceptions.TimeoutError), s.client(socket_timeout=1, password=self.password) as c:
                ports.add(int(c.sentinel_get_master_addr_by_name(self.name)[1]))
        return ports

    def at(self, port):
        return next(s for s in self.servers if s.port == port)

    @property
    def master(self):
        """All sentinels agree which it is."""
        return self.at(wait_for(lambda: (ports := self.named()) and len(ports) == 1 and ports.pop(), what="an agreement"))

    def fail_over(self):
        """A planned one; returns when all name the new master and it takes writes."""
        old = self.master.port

        def asked():
            for s in self.sentinels:
                with contextlib.suppress(redis.exceptions.ResponseError), s.client() as c:
                    c.execute_command("SENTINEL", "FAILOVER", self.name)
                    return True
            return False

        wait_for(asked, what="a sentinel that begins")
        self.await_other(old)

    def await_other(self, old):
        wait_for(lambda: len(ports := self.named()) == 1 and ports != {old} and self.writable(*ports), what="another master")

    def writable(self, port):
        with contextlib.suppress(redis.exceptions.RedisError), self.at(port).client() as c:
            return c.role()[0] == "master"
        return False

    def cut_off(self, replica):
        """Nothing more reaches it until it is resumed, not even its socket's buffer."""
        replica.pause()
        with self.master.client() as c:
            c.execute_command("CLIENT KILL", "TYPE", "replica")

    def kill_master(self):
        """Returns it, at once."""
        master = self.master
        master.kill()
        return master

    def stop(self):
        for s in self.sentinels + self.servers:
            if s.process and s.process.poll() is None:
                s.resume()
            s.stop()


class ClusterNode(RedisServer):
    """Its bus is on another port than 10000 above, which may be one that clients are given."""

    def start(self, wait=True):
        if not hasattr(self, "bus"):
            self.bus = free_port()
        base = self.options
        self.options = (*base, "--cluster-enabled", "yes", "--cluster-port", str(self.bus), "--cluster-config-file", "nodes.conf")
        super().start(wait)
        self.options = base

    def ask(self, *words, **options):
        with self.client(socket_timeout=5, **options) as c:
            return c.execute_command(f"CLUSTER {words[0]}", *words[1:])

    @property
    def id(self):
        return self.ask("MYID")


def await_replicas(client, n=1, key="mark"):
    """Until so many have all that there is: WAIT counts what its own connection has written, and nothing else."""
    wait_for(lambda: client.pipeline(transaction=False).set(key, 1).wait(n, 200).execute()[1] >= n, what="the replicas")
    client.delete(key)


class RedisCluster:
    """Masters, and replicas of each."""

    def __init__(self, masters=3, replicas=1, node_timeout=1500, options=()):
        self.nodes = [ClusterNode("--cluster-node-timeout", str(node_timeout), *options) for _ in range(masters * (1 + replicas))]
        self.masters = self.nodes[:masters]
        share = 16384 // masters
        for i, node in enumerate(self.nodes):
            node.ask("SET-CONFIG-EPOCH", str(i + 1))
            if node is not self.nodes[0]:
                node.ask("MEET", HOST, str(self.nodes[0].port), str(self.nodes[0].bus))
        for i, node in enumerate(self.masters):
            last = 16383 if i == masters - 1 else (i + 1) * share - 1
            node.ask("ADDSLOTSRANGE", str(i * share), str(last))
        wait_for(lambda: all(len(self.known(n)) == len(self.nodes) for n in self.nodes), what="nodes that know each other")
        for i, node in enumerate(self.nodes[masters:]):
            wait_for(lambda n=node, m=self.masters[i % masters]: self.replicate(n, m), what="a replica")
        wait_for(lambda: all(self.is_good(n, replicas) for n in self.nodes), what="a good cluster")

    @staticmethod
    def known(node):
        return node.ask("NODES")

    @staticmethod
    def replicate(node, master):
        with contextlib.suppress(redis.exceptions.ResponseError):
            return node.ask("REPLICATE", master.id)
        return False

    def is_good(self, node, replicas):
        with node.client() as c:
            if c.role()[0] == "slave" and c.role()[3] != "connected":
                return False
        state = node.ask("INFO")
        masters = [n for n in self.known(node).values() if "master" in n["flags"] and n["slots"]]
        return state["cluster_state"] == "ok" and len(masters) == len(self.masters) and \
            sum("slave" in n["flags"] for n in self.known(node).values()) == replicas * len(self.masters)

    @property
    def url(self):
        return "redis+cluster://" + ",".join(f"{HOST}:{n.port}" for n in self.nodes)

    def url_of(self, *nodes):
        return "redis+cluster://" + ",".join(f"{HOST}:{n.port}" for n in nodes)

    def slot(self, key):
        """Of a lock."""
        return self.living()[0].ask("KEYSLOT", f"dlock:{{{key}}}:h")

    def living(self):
        return [n for n in self.nodes if n.process.poll() is None]

    def owner(self, key):
        """The node that serves this lock, as most see it."""
        slot = self.slot(key)

        def found():
            for first, last, (_, port, *_rest), *_replicas in self.slots():
                if first <= slot <= last:
                    return next(n for n in self.nodes if n.port == port)
            return None

        return wait_for(found, what="an owner")

    def slots(self):
        with self.living()[0].client() as c:
            c.response_callbacks.clear()
            return c.execute_command("CLUSTER SLOTS")

    def replica_of(self, node):
        me = node.id
        return next(n for n in self.living() if n is not node and n.ask("NODES")[f"{HOST}:{n.port}"]["master_id"] == me)

    def fail_over(self, key):
        """A planned one of the node that has this lock.  Nodes that have not voted for it within 5 s give it up."""
        old, given_up = self.owner(key), 0

        def is_over():
            nonlocal given_up
            if self.owner(key) is not old:
                return True
            if time.monotonic() > given_up:
                self.replica_of(old).ask("FAILOVER")
                given_up = time.monotonic() + 6
            return False

        wait_for(is_over, what="another owner")

    def begin_move(self, key, to):
        source, slot = self.owner(key), self.slot(key)
        to.ask("SETSLOT", slot, "IMPORTING", source.id)
        source.ask("SETSLOT", slot, "MIGRATING", to.id)

    def move_keys(self, key, to, most=1000):
        """What there is of this slot so far."""
        source, slot = self.owner(key), self.slot(key)
        names = source.ask("GETKEYSINSLOT", slot, most)
        if names:
            with source.client() as c:
                c.execute_command("MIGRATE", HOST, to.port, "", 0, 5000, "KEYS", *names)
        return names

    def end_move(self, key, to):
        source, slot = self.owner(key), self.slot(key)
        for node in (to, source, *(m for m in self.masters if m not in (to, source))):
            node.ask("SETSLOT", slot, "NODE", to.id)
        wait_for(lambda: self.owner(key) is to, what="the new owner")

    def stop(self):
        for n in self.nodes:
            if n.process and n.process.poll() is None:
                n.resume()
            n.stop()


class SentinelPlace(Place):
    """Locks on a master that sentinels look after: the suites' place."""

    name = "redis"
    id = "redis-sentinel"
    hears = True

    def __init__(self, request):
        self.forms = request.getfixturevalue("redis_sentinels")
        self.server = self.forms.servers[0]
        self.prefix = f"t{next(self._numbers)}:"

    @property
    def url(self):
        return self.forms.url

    def stored(self):
        with redis.Redis(port=self.forms.master.port) as c:
            return b"".join(k + (c.dump(k) or b"") for k in c.scan_iter("*"))

    def take_away(self, keys, key):
        with self.forms.master.client() as c:
            assert c.delete(f"dlock:{{{quote(key, safe=':')}}}:h") == 1

    def date_ahead(self, key, seconds):
        with self.forms.master.client() as c:
            date_run(c, f"dlock:{{{quote(key, safe=':')}}}:r", seconds)

    def is_done_of_old(self, key, once):
        with self.forms.master.client() as c:
            return has_done(c, f"dlock:{{{quote(key, safe=':')}}}:r", once)


class ClusterPlace(Place):
    """Locks in a cluster."""

    name = "redis"
    id = "redis-cluster"
    hears = True

    def __init__(self, request):
        self.forms = request.getfixturevalue("redis_cluster")
        self.server = self.forms.nodes[0]
        # one slot, so that several keys can be held together
        self.prefix = f"{{t{next(self._numbers)}}}"

    @property
    def url(self):
        return self.forms.url

    def stored(self):
        found = b""
        for node in self.forms.nodes:
            with redis.Redis(port=node.port) as c:
                if c.role()[0] == b"master":
                    found += b"".join(k + (c.dump(k) or b"") for k in c.scan_iter("*"))
        return found

    def take_away(self, keys, key):
        tag, name = self.prefix.strip("{}"), quote(key, safe=":")
        for node in self.forms.nodes:
            with node.client() as c:
                if c.role()[0] == "master" and c.keys(f"dlock:{{{tag}}}:{name}:h"):
                    assert c.delete(f"dlock:{{{tag}}}:{name}:h") == 1
                    return
        raise AssertionError(key)

    def date_ahead(self, key, seconds):
        tag, name = self.prefix.strip("{}"), quote(key, safe=":")
        for node in self.forms.nodes:
            with node.client() as c:
                if c.role()[0] == "master" and c.keys(f"dlock:{{{tag}}}:{name}:r"):
                    date_run(c, f"dlock:{{{tag}}}:{name}:r", seconds)

    def is_done_of_old(self, key, once):
        tag, last = self.prefix.strip("{}"), quote(key, safe=":")
        for node in self.forms.nodes:
            with node.client() as c:
                if c.role()[0] == "master" and c.keys(f"dlock:{{{tag}}}:{last}:r"):
                    return has_done(c, f"dlock:{{{tag}}}:{last}:r", once)
        return False


REDIS_PLACES = [SentinelPlace, ClusterPlace]
