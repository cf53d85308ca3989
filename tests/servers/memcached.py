# Goal of this file: memcached servers of our own, and a lock's place on them.

import contextlib
import itertools
import json
import mmap
import os
import pwd
import re
import socket
import struct
import tempfile
import time
from urllib.parse import quote, unquote

from hostile import Hostile
from redlock import AHEAD
from support import PATIENCE, RemotePlace, Server, compile_shim, wait_for

# How long a server thinks that it has been running: dlock takes no lock on one that has just been started.
CLOCK = AHEAD + r"""
    int clock_gettime(clockid_t id, struct timespec *t)
    {
        static int (*real)(clockid_t, struct timespec *);
        int result;

        if (!real)
            real = dlsym(RTLD_NEXT, "clock_gettime");
        result = real(id, t);
        if (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE)
            t->tv_sec += ahead();
        return result;
    }

    time_t time(time_t *t) /* so early that it is the right time when it has grown old */
    {
        struct timespec now;

        clock_gettime(CLOCK_REALTIME, &now);
        now.tv_sec += ahead() - atol(getenv("CLOCK_AGE"));
        if (t)
            *t = now.tv_sec;
        return now.tv_sec;
    }
"""


def compile_clock(directory):
    return compile_shim(directory, "monotonic", CLOCK)


class Client:
    """A client as others write them: a socket, and commands with or without a value."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def ask(self, line, value=None):
        """The first line of the answer."""
        data = line.encode() + b"\r\n"
        if value is not None:
            data += value + b"\r\n"
        self.socket.sendall(data)
        return self.file.readline().rstrip(b"\r\n").decode(errors="surrogateescape")

    def add(self, name, value=b"other", seconds=60):
        return self.ask(f"add {name} 0 {seconds} {len(value)}", value) == "STORED"

    def set(self, name, value, seconds=0):
        assert self.ask(f"set {name} 0 {seconds} {len(value)}", value) == "STORED"

    def delete(self, name):
        return self.ask(f"delete {name}") == "DELETED"

    def get(self, name):
        """Its value; None: it is not there."""
        head = self.ask(f"mg {name} v u").split()
        if head[0] == "EN":
            return None
        value = self.file.read(int(head[1]) + 2)
        return value[:-2]

    def ttl(self, name):
        return int(re.search(r"t(-?\d+)", self.ask(f"mg {name} t")).group(1))

    def stats(self, *of):
        found, line = {}, self.ask(" ".join(["stats", *of]))
        while line != "END":
            _, name, value = line.split(" ", 2)
            found[name] = value
            line = self.file.readline().decode().rstrip()
        return found

    def items(self):
        """What there is: name -> (when it ends, its CAS)."""
        found, line = {}, self.ask("lru_crawler metadump hash")
        while line.startswith("BUSY"):  # it crawls by itself now and then
            time.sleep(0.01)
            line = self.ask("lru_crawler metadump hash")
        while line.startswith("key="):
            words = dict(word.split("=", 1) for word in line.split())
            found[unquote(words["key"])] = words["exp"], words["cas"]
            line = self.file.readline().decode().rstrip()
        assert line == "END", line
        return found

    def names(self):
        return sorted(self.items())


class Memcached(Server):
    """A memcached of our own on a loopback port, that has been running for `age` seconds as far as it knows."""

    kind = "memcached"

    def __init__(self, clock, *options, age=4000000, password=None):
        super().__init__(tempfile.mkdtemp(prefix="dlock-memcached-"))
        os.chmod(self.directory, 0o755)
        self.clock, self.options, self.age = clock, options, age
        self.login, self._lives = None, itertools.count()
        if password:
            self.login = os.path.join(self.directory, "login")
            with open(self.login, "w", encoding="utf-8") as f:
                f.write(f"bob:{password}\n")
        self._path = os.path.join(self.directory, "clock")
        with open(self._path, "wb+") as f:
            f.write(bytes(4096))
            f.flush()
            self._page = mmap.mmap(f.fileno(), 4096)
        self.settle()

    @property
    def url(self):
        return f"memcached://127.0.0.1:{self.port}"

    def client(self):
        return Client(self.port)

    def step(self, seconds):
        """Its clock goes on by so much."""
        before, = struct.unpack("d", self._page[:8])
        self._page[:8] = struct.pack("d", before + seconds)

    def start(self, wait=True, age=None):
        words = ["memcached", "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-t", "2", *self.options]
        if self.login:
            words += ["-Y", self.login]
        if os.geteuid() == 0:
            words += ["-u", "nobody" if "nobody" in (u.pw_name for u in pwd.getpwall()) else "daemon"]
        age = self.age if age is None else age
        # each life has begun after the one before, as it would have
        began = age - 10 * next(self._lives) if age else 0
        self._page[:8] = struct.pack("d", 0)
        self.launch(words, wait, env={**os.environ, "LD_PRELOAD": self.clock, "CLOCK_FILE": self._path, "CLOCK_AGE": str(began)})
        self.grow_old(age)

    def grow_old(self, age):
        if not age:
            return
        self.step(age)
        if not self.login:
            wait_for(lambda: self.uptime() >= age, what="its clock")

    def uptime(self):
        with self.client() as c:
            return int(c.stats()["uptime"])

    def answers(self):
        self.must_live()
        with contextlib.suppress(OSError):
            with self.client() as c:
                return c.ask("version") != ""
        return False

    def writes(self):
        """Grows with each operation of a lock."""
        with self.client() as c:
            return int(c.stats()["cmd_meta"])

    def stop(self):
        super().stop()
        self._page.close()


def name_of(key):
    """Of the item of that lock, as dlock calls it, if it is not too long."""
    return "dlock:" + quote(key, safe="/!$&'()*+,:;=?@[]<>\\^`{|}~\"-._" + "".join(c for c in key if ord(c) > 127))


class MemcachedPlace(RemotePlace):
    """Locks on the session's server; keys are kept apart by a prefix."""

    name = "memcached"
    fair = counted = durable = False

    def __init__(self, request):
        self.server = request.getfixturevalue("memcached_server")
        self.prefix = f"t{next(self._numbers)}:"

    def url_at(self, port, host="127.0.0.1"):
        return f"memcached://{host}:{port}"

    def stored(self):
        with self.server.client() as c:
            return b"".join(n.encode() + (c.get(n) or b"") for n in c.names())

    def take_away(self, keys, key):
        with self.server.client() as c:
            assert c.delete(name_of(key))

    def crashable(self, request):
        """Moves to a server of the test's own, whose crashes lose all that it kept."""
        self.server = request.getfixturevalue("make_memcached")()
        return None


class Pretender(Hostile):
    """Speaks as a memcached that never keeps anything, but `answers` {command: bytes, or a function of its words}.

    An answer None is silence from then on, (bytes,) the last one of the connection, b"" an end of it; a generator's
    may be without an end.
    """

    STATS = (("version", "1.6.18"), ("uptime", "100000"), ("time", "1800000000"), ("evictions", "0"), ("cmd_flush", "0"))

    def __init__(self, answers=None, greeting=b""):
        super().__init__(greeting=greeting)
        self.answers = {"stats": self.stats(), "mg": b"EN\r\n", "ms": b"HD c1\r\n", "md": b"HD\r\n", "mn": b"MN\r\n", **(answers or {})}
        self.url = f"memcached://127.0.0.1:{self.port}"
        self.connections = self.sent = 0

    @classmethod
    def stats(cls, **instead):
        lines = {**dict(cls.STATS), **{k: str(v) for k, v in instead.items()}}
        return "".join(f"STAT {k} {v}\r\n" for k, v in lines.items()).encode() + b"END\r\n"

    @classmethod
    def running(cls):
        """An answer to stats whose clock goes."""
        began = time.monotonic()

        def stats(_):
            s = int(time.monotonic() - began)
            return cls.stats(uptime=100000 + s, time=1800000000 + s)

        return stats

    def _talk(self, client):
        self.connections += 1
        with contextlib.suppress(OSError, ValueError), client, client.makefile("rb") as lines:
            client.sendall(self.greeting)
            while line := lines.readline():
                words = line.decode(errors="replace").split() or [""]
                value = lines.read(int(words[2]) + 2)[:-2] if words[0] == "ms" else None
                self.asked.append((words, value))
                answer = self.answers.get(words[0], b"ERROR\r\n")
                answer = answer(words) if callable(answer) else answer
                if answer == b"" or isinstance(answer, tuple):
                    client.sendall(answer[0] if answer else b"")
                    return
                if answer is None:
                    client.recv(1 << 20)
                    time.sleep(PATIENCE)
                    return
                for part in [answer] if isinstance(answer, bytes) else answer:
                    client.sendall(part)
                    self.sent += len(part)

    def commands(self):
        return [words[0] for words, _ in self.asked]


# ---- dlock on them ----

LEASE = ("-t", "3s")  # the least there is


def run(dlock, url, *words, command=("true",)):
    return dlock.run("run", "-u", url, "-k", "job", *words, "--", *command)


def status(dlock, url, *words):
    return json.loads(dlock.run("status", "-J", "-u", url, "-k", "job", *words).stdout)
