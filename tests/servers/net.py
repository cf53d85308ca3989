# Goal of this file: a network of our own that can be split: machines in namespaces on one
# bridge, and Redis with its sentinels on them.

import contextlib
import os
import subprocess

with contextlib.suppress(ImportError):  # without it no test is run that needs it
    import redis

from redis_forms import RedisSentinels, Sentinel
from support import DLOCK, RedisServer, wait_for


def _ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, stdin=subprocess.DEVNULL)


class Machine:
    """A network namespace with one address."""

    def __init__(self, net, name, number):
        self.name, self.address, self.hub, self.port = f"{net.name}{name}", f"10.213.0.{number}", net.hub, f"p{number}"
        _ip("netns", "add", self.name)
        _ip("-n", self.hub, "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("-n", self.hub, "link", "set", self.port, "master", "br0", "up")
        _ip("-n", self.name, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _ip("-n", self.name, "link", "set", "eth0", "up")
        _ip("-n", self.name, "link", "set", "lo", "up")

    @property
    def prefix(self):
        """What a command begins with that is to run here."""
        return ["ip", "netns", "exec", self.name]


class Net:
    """Machines that reach each other, until split(): then those that are named reach only the others."""

    _count = 0

    def __init__(self, *names):
        Net._count += 1
        self.name = f"dlock{os.getpid()}.{Net._count}"
        self.hub = f"{self.name}hub"
        self.machines = []
        _ip("netns", "add", self.hub)
        try:
            _ip("-n", self.hub, "link", "add", "br0", "type", "bridge")
            _ip("-n", self.hub, "link", "set", "br0", "up")
            for number, name in enumerate(names, 1):
                self.machines.append(Machine(self, name, number))
        except BaseException:
            self.stop()
            raise

    def _isolate(self, machines, how):
        for m in machines:
            subprocess.run(["bridge", "-n", self.hub, "link", "set", "dev", m.port, "isolated", how], check=True)

    def split(self, *machines):
        """Nothing passes between these two or more any more, without a word; the others go on with all."""
        self._isolate(machines, "on")

    def heal(self):
        self._isolate(self.machines, "off")

    def stop(self):
        for name in [*(m.name for m in self.machines), self.hub]:
            subprocess.run(["ip", "netns", "del", name], check=False)


class _On:
    """A server on a machine; our own clients use its unix socket."""

    def launch(self, words, wait=True, **options):
        super().launch([*self.machine.prefix, *words], wait, **options)

    def client(self, **options):
        return redis.Redis(unix_socket_path=self.socket, **{"decode_responses": True, **options})

    @property
    def host(self):
        return f"{self.machine.address}:{self.port}"


class RedisOn(_On, RedisServer):
    def __init__(self, machine, *options):
        self.machine = machine
        super().__init__("--bind", machine.address, "--protected-mode", "no", *options)


class SentinelOn(_On, Sentinel):
    def __init__(self, machine, name, master, quorum, down_after):
        self.machine = machine
        self.socket = master.socket + "." + machine.name
        super().__init__(name, master.port, quorum, down_after, f"unixsocket {self.socket}", "protected-mode no",
                         host=master.machine.address, address=machine.address)


class SentinelsOn(RedisSentinels):
    """A master on one machine, two replicas on another; three sentinels, one of them with the master."""

    def __init__(self, master, replica, down_after=1000):
        self.password = None
        options = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--repl-timeout", "3")
        self.servers = [RedisOn(m, *options) for m in (master, replica, replica)]
        self.sentinels = []
        for server in self.servers[1:]:
            with server.client() as c:
                c.replicaof(master.address, self.servers[0].port)
        wait_for(lambda: self.replicated(self.servers[0], 2), what="the replicas")
        self.sentinels = [SentinelOn(m, self.name, self.servers[0], 2, down_after) for m in (master, replica, replica)]
        wait_for(lambda: all(self.knows(s, 2, 2) for s in self.sentinels), what="sentinels that know each other")

    @property
    def url(self):
        return f"redis+sentinel://{','.join(s.host for s in self.sentinels)}/{self.name}"


def dlock_on(machine, directory):
    """A program that is dlock there."""
    path = os.path.join(str(directory), f"dlock-on-{machine.name}")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f'#!/bin/sh\nexec {" ".join(machine.prefix)} {DLOCK} "$@"\n')
    os.chmod(path, 0o755)
    return path
