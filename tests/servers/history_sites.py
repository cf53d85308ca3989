# Goal of this file: the places of histories, each with servers of its own, and what is done to these.  A fault never
# makes a server forget what it has acknowledged, unless the manual says that dlock bears that there.

import itertools
import time

import pytest

from etcd import EtcdPlace
from galera import Galera, lacks_galera
from memcached import MemcachedPlace
from mysql_server import MysqlPlace
from pg import PgPlace, PooledPgPlace
from proxy import BOTH, DOWN, UP
from redlock import DURABLE, RedlockPlace
from support import FULL, FilePlace, RedisPlace, wait_for
from zk import ZkPlace


def through(proxy):
    """What the way to a server does."""
    def swallow(dice, *directions):
        """What is sent is lost, and the connections with it, since no stream has holes."""
        proxy.drop(*directions)
        time.sleep(dice.uniform(0.2, 1.5))
        proxy.reset()
        proxy.heal()
        proxy.reset()  # also those that have come between the two, and lost what they sent

    def hold(dice, *directions):
        proxy.hold(*directions)
        time.sleep(dice.uniform(0.1, 1.5))
        proxy.heal()

    def strand(dice):
        """The connections that there are hang, and are cut later; new ones pass."""
        proxy.strand()
        time.sleep(dice.uniform(0.3, 3))
        proxy.reset()
        proxy.heal()

    def refuse(dice):
        proxy.refuse()
        proxy.reset()
        time.sleep(dice.uniform(0.05, 1))
        proxy.accept()

    def cut(dice):
        proxy.cut(dice.choice(BOTH), dice.randrange(2000), once=True)
        time.sleep(0.3)
        proxy.heal()

    def slow(dice):
        proxy.delay = dice.uniform(0.01, 0.2)
        time.sleep(dice.uniform(0.3, 1.5))
        proxy.heal()

    return [("connections are reset", lambda dice: proxy.reset()), ("nothing reaches the server", lambda dice: swallow(dice, UP)),
            ("answers are lost", lambda dice: swallow(dice, DOWN)), ("all is late", lambda dice: hold(dice, *BOTH)),
            ("answers are late", lambda dice: hold(dice, DOWN)), ("connections hang", strand), ("the port is closed", refuse),
            ("one connection is cut", cut), ("the way is slow", slow)]


def to_server(server, restart):
    """What happens to one server."""
    def pause(dice):
        server.pause()
        time.sleep(dice.uniform(0.1, 2))
        server.resume()

    found = [("the server stands still", pause)]
    if restart:
        found.append(("the server crashes", lambda dice: restart()))
    return found


def to_members(members, leader=lambda: None, restart=True):
    """One of several at a time: what is left is a quorum."""
    def pause(dice, server=None):
        server = server or dice.choice(members())
        server.pause()
        time.sleep(dice.uniform(0.2, 3))
        server.resume()

    def crash(dice, server=None):
        server = server or dice.choice(members())
        server.kill()
        time.sleep(dice.uniform(0, 1))
        server.start(wait=False)
        wait_for(server.answers, what=server.kind)

    def of_leader(do):
        return lambda dice: do(dice, leader() or dice.choice(members()))

    found = [("a member stands still", pause), ("the leader stands still", of_leader(pause))]
    return found + [("a member crashes", crash), ("the leader crashes", of_leader(crash))] * restart


class Site:
    """Of one place: `words` lead there, `faults` are (name, function of a dice).

    is_exact    there is one server, `at.server`, and a lease ends there as soon as its time is over
    has_none    what a server says itself, and dlock repeats, while it has no leader, or no quorum.  The others may leave one out
                some time after it was heard again, and on a busy machine without a fault
    patient     a server has so long for its first answer: longer than any fault lasts, or a busy machine takes
    """

    id, faults, is_exact, has_none = "nowhere", (), False, ()
    ttls = ("3s", "3s", "6s")
    patient = ("-O", "connect-timeout=20s")

    @property
    def all_words(self):
        return [*self.words, *self.patient]

    def key(self, name):
        return f"h-{name}"


class ProxiedSite(Site):
    """One server, behind a proxy."""

    place = None

    def __init__(self, request):
        self.at = self.place(request)
        restart = self.at.crashable(request)
        proxy = request.getfixturevalue("make_proxy")(self.at.server.port)
        self.words = ["-u", self.at.url_at(proxy.port)]
        self.faults = through(proxy) + to_server(self.at.server, restart)


class FileSite(Site):
    id = name = "file"
    patient = ()

    def __init__(self, request):
        self.words = FilePlace(request).words


class RedisSite(ProxiedSite):
    id = name = "redis"
    is_exact = True
    place = RedisPlace


class SentinelSite(Site):
    """Grants count when the replica has them: then a failover loses none."""

    name, id = "redis", "redis-sentinel"
    ttls = ("9s", "9s", "15s")

    def __init__(self, request):
        self.forms = request.getfixturevalue("make_forms")(options=DURABLE)
        self.words = ["-u", self.forms.url, "-O", "wait-replicas=1"]
        self.faults = [("a failover", lambda dice: self.fail_over()), ("the master crashes", self.crash),
                       *to_server(self.forms.sentinels[0], None)]

    def fail_over(self):
        self.forms.fail_over()
        wait_for(lambda: self.forms.replicated(self.forms.master, 1), what="the replica")

    def crash(self, dice):
        """It comes back as a replica: sentinels have another master by then."""
        old = self.forms.kill_master()
        self.forms.await_other(old.port)
        time.sleep(dice.uniform(0, 0.5))
        old.start()
        wait_for(lambda: self.forms.replicated(self.forms.master, 1), what="the replica")


class ClusterSite(Site):
    """Planned failovers lose nothing, and there are no others: not because a node had no processor for a second or two."""

    name, id = "redis", "redis-cluster"
    ttls = ("6s", "6s", "9s")

    def __init__(self, request):
        from redis_forms import RedisCluster  # pylint: disable=import-outside-toplevel
        self.forms = request.getfixturevalue("make_forms")(program=RedisCluster, options=(*DURABLE, "--cluster-replica-no-failover", "yes"))
        self.words = ["-u", self.forms.url]
        self.faults = [("a failover", lambda dice: self.fail_over()), ("the node stands still", self.pause)]

    def key(self, name):
        return f"{{h}}{name}"

    def fail_over(self):
        self.forms.fail_over("h")
        wait_for(lambda: all(self.forms.is_good(n, 1) for n in self.forms.nodes), what="a good cluster")

    def pause(self, dice):
        """Shorter than its timeout: no other node takes over."""
        node = self.forms.owner("h")
        node.pause()
        time.sleep(dice.uniform(0.1, 0.7))
        node.resume()


class RedlockSite(Site):
    """Three masters, of whom one at a time is away, behind a proxy, or restarted."""

    name, id = "redis", "redlock"

    def __init__(self, request):
        self.at = RedlockPlace(request)
        self.at.crashable(request)
        proxy = request.getfixturevalue("make_proxy")(self.at.server.port)
        self.words = ["-u", self.at.url_at(proxy.port)]
        self.faults = through(proxy) + to_members(lambda: self.at.masters.all)


class ZkSite(ProxiedSite):
    id = name = "zk"
    place = ZkPlace
    ttls = ("6s", "6s", "12s")


class ZkEnsembleSite(Site):
    name, id = "zk", "zk-3"
    ttls = ("12s", "12s", "18s")  # a holder counts on half of it, and three servers of Java are slow where much else runs

    def __init__(self, request):
        self.forms = request.getfixturevalue("ensemble")
        self.words = ["-u", self.forms.url + "/h"]
        self.faults = [*to_members(lambda: self.forms.servers, lambda: self.forms.leader), ("a follower is cut off", self.cut)]

    def cut(self, dice):
        self.forms.cut(dice.choice(self.forms.followers))
        time.sleep(dice.uniform(0.5, 4))
        self.forms.heal()


class EtcdSite(ProxiedSite):
    id = name = "etcd"
    place = EtcdPlace
    ttls = ("4s", "4s", "8s")


class EtcdEnsembleSite(Site):
    name, id, has_none = "etcd", "etcd-3", ("'etcdserver: no leader'",)
    ttls = ("6s", "6s", "9s")

    def __init__(self, request):
        self.forms = request.getfixturevalue("make_ensemble")()
        self.words = ["-u", self.forms.url]
        found = to_members(lambda: self.forms.members, lambda: self.forms.leader())
        self.faults = [(name, self.mended(do)) for name, do in found]

    def mended(self, do):
        """Until all members have one leader again, any of them may answer that it has none (69)."""
        def fault(dice):
            do(dice)
            self.forms.leader()
        return fault


class PgSite(ProxiedSite):
    id = name = "pg"
    is_exact = True
    place = PgPlace


class PooledPgSite(Site):
    name, id = "pg", "pg-pooled"

    def __init__(self, request):
        self.at = PooledPgPlace(request)
        restart = self.at.crashable(request)
        self.words = self.at.words
        self.faults = [*to_server(self.at.server, restart), ("the pooler is started again", lambda dice: self.at.pooler.restart())]


class MysqlSite(ProxiedSite):
    id = name = "mysql"
    is_exact = True
    place = MysqlPlace


class GaleraSite(Site):
    """Half of the runs use one member, half the other.  One that comes back after a crash takes all data from the other,
    which writes nothing meanwhile: some seconds."""

    name, id, has_none = "mysql", "galera", ("WSREP has not yet prepared node", "Not connected to Primary Component")
    ttls = ("9s", "9s", "15s")

    def __init__(self, request):
        if lacks_galera():
            pytest.skip(f"{lacks_galera()} is not installed")
        self.at = Galera()
        request.addfinalizer(self.at.stop)
        self.turns = itertools.cycle(self.at.nodes)
        nodes, others = to_members(lambda: self.at.nodes), to_members(lambda: [self.at.arbitrator])
        self.faults = [(name, self.mended(do)) for name, do in [nodes[0], nodes[0], others[0]] + [nodes[2]] * FULL]

    def mended(self, do):
        """Who was silent for too long is not over it before it has joined the others again."""
        def fault(dice):
            do(dice)
            wait_for(lambda: all(node.sees_all() for node in self.at.nodes), what="a cluster that is whole")
        return fault

    @property
    def words(self):
        return ["-u", next(self.turns).url]


class MemcachedSite(ProxiedSite):
    """It forgets all when it crashes: that is not done to it."""

    id = name = "memcached"
    place = MemcachedPlace


SITES = [FileSite, RedisSite, SentinelSite, ClusterSite, RedlockSite, ZkSite, ZkEnsembleSite, EtcdSite, EtcdEnsembleSite, PgSite, PooledPgSite,
         MysqlSite, GaleraSite, MemcachedSite]
