# Goal of this file: private ZooKeeper servers, alone and three together, with
# all that tests do to them; a reader of the protocol; a server that misbehaves.

import collections
import contextlib
import json
import os
import re
import shutil
import socket
import struct
import tempfile
import threading
import time

with contextlib.suppress(ImportError):  # without it no test is run that needs it
    from kazoo.client import KazooClient
    from kazoo.exceptions import NoNodeError

from hostile import RESET, SILENCE
from once import made_once
from proxy import BOTH, DOWN, UP, Proxy, close_with_reset
from support import At, RemotePlace, Server, free_port, wait_for

# The jar's manifest names all others.
CLASSES = ":".join(f"/usr/share/java/{jar}.jar" for jar in ("zookeeper", "slf4j-simple"))
# Most live for seconds: little is compiled.  Tests kill servers, never the machine: nothing waits for a disk.
# A lock's directory that is empty stays, unless a test has it removed: with it goes the note of who has forced the lock.
JAVA = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=5", "-Xshare:auto",
        "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dzookeeper.admin.enableServer=false",
        "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.forceSync=no", "-Dznode.container.checkIntervalMs=3600000")
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
SETTINGS = {"tickTime": 200, "minSessionTimeout": 400, "maxSessionTimeout": 3600000, "initLimit": 10, "syncLimit": 50,
            "maxClientCnxns": 0, "4lw.commands.whitelist": "*"}


def read_classes():
    """The words for a virtual machine that finds ZooKeeper's classes as another one has left them: that is half of a start."""
    def make(directory):
        server = ZkServer(java=("-XX:+IgnoreUnrecognizedVMOptions", f"-XX:ArchiveClassesAtExit={directory}/classes"), first=True)
        with server.client() as client:
            client.create("/job")
        server.metrics()
        server.process.terminate()
        server.process.wait()
        server.stop()

    archive = os.path.join(made_once("zookeeper", make), "classes")
    return [f"-XX:SharedArchiveFile={archive}"] if os.path.exists(archive) else []  # Java 11 has none


class ZkServer(Server):
    """A ZooKeeper server of our own on a loopback port; `settings` are lines of its zoo.cfg.

    `java` are words for the virtual machine, `member` is its number in an ensemble.
    """

    kind = "ZooKeeper"
    classes = CLASSES

    def __init__(self, java=(), member=None, port=None, start=True, wait=True, first=False, **settings):
        super().__init__(tempfile.mkdtemp(prefix="dlock-zk-"))
        self.java, self.member, self.port = [*([] if first else read_classes()), *java], member, port
        self.settings = {**SETTINGS, **settings, "dataDir": os.path.join(self.directory, "data")}
        os.mkdir(self.settings["dataDir"])
        if start:
            self.settle(port, wait=wait)

    @property
    def url(self):
        return f"zk://127.0.0.1:{self.port}"

    def start(self, wait=True):
        config = os.path.join(self.directory, "zoo.cfg")
        with open(config, "w", encoding="ascii") as f:
            for name, value in {**self.config(), **self.settings}.items():
                print(f"{name}={value}", file=f)
        if self.member:
            with open(os.path.join(self.settings["dataDir"], "myid"), "w", encoding="ascii") as f:
                print(self.member, file=f)
        self.launch([*JAVA, *self.java, "-cp", self.classes, MAIN, config], wait, cwd=self.directory)

    def config(self):
        """Lines of its zoo.cfg that say where it listens."""
        return {"clientPort": self.port, "clientPortAddress": "127.0.0.1"}

    # ---- what it says ----

    def connect(self, timeout=5):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def four(self, word, timeout=5):
        """The answer to a four-letter word."""
        with self.connect(timeout) as s:
            s.sendall(word.encode())
            return b"".join(iter(lambda: s.recv(65536), b"")).decode()

    def answers(self):
        """Does it serve clients?"""
        return self.mode() is not None

    def mode(self):
        """standalone, leader, follower, read-only; None while it is none of them."""
        self.must_live()
        lines = (self.try_four("srvr") or "").splitlines()
        return next((line.split()[1] for line in lines if line.startswith("Mode: ")), None)

    def try_four(self, word):
        try:
            return self.four(word, 0.5)  # one that is just starting may never answer
        except OSError:
            return None

    def metrics(self):
        """mntr's numbers, without the prefix zk_."""
        pairs = (line.split("\t") for line in self.four("mntr").splitlines() if "\t" in line)
        return {name.removeprefix("zk_"): value for name, value in pairs}

    def writes(self):
        """Grows with each write, also with one that comes of a session's begin or end."""
        return int(next(line.split()[1] for line in self.four("srvr").splitlines() if line.startswith("Zxid")), 16)

    def sessions(self):
        """The ids of all living sessions.

        Two looks, since a session that is heard just now moves from one time of expiry to the
        next, and the server may then print neither.
        """
        return self._dumped() | self._dumped()

    def connected(self):
        """The ids of the sessions that have a connection."""
        return set(re.findall("sid=(0x[0-9a-f]+)", self.four("cons")))

    def _dumped(self):
        lines = self.four("dump").splitlines()
        found = set()
        for line in lines[lines.index(next(li for li in lines if li.startswith("Session"))) + 1:]:
            if line.startswith("ephemeral"):
                break
            found |= {int(word, 16) for word in line.split() if word.startswith("0x")}
        return found

    @contextlib.contextmanager
    def client(self, **options):
        """A kazoo client, for the length of a with."""
        client = KazooClient(hosts=f"127.0.0.1:{self.port}", timeout=10, **options)
        client.start(20)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    # ---- what is done to it ----

    def forget(self):
        """Loses all its data (while it is dead)."""
        shutil.rmtree(self.settings["dataDir"])
        os.mkdir(self.settings["dataDir"])

    def end_session(self, session, password):
        """Closes a session in its owner's name, who at the same time tries to get it back."""
        def ended():
            if session in self.sessions():
                with contextlib.suppress(OSError), Talk(self.port, session, password) as talk:
                    talk.ask(CLOSE)
                    talk.read_all()
            return session not in self.sessions()

        wait_for(ended, what="the end of a session")


class ZkEnsemble:
    """Three servers.  Followers reach their leader through proxies, so that each can be cut off."""

    server = ZkServer

    def __init__(self, java=(), **settings):
        for tries in (3, 2, 1):
            self.make(java, settings)
            try:
                return self.start()
            except AssertionError as e:  # somebody else may have been given a port of ours before we had taken it
                self.stop()
                if tries == 1 or "Address already in use" not in str(e):
                    raise

    def make(self, java, settings):
        self.servers, self.links = [], {}
        numbers = (1, 2, 3)
        ports = iter(free_ports(9))
        client, quorum, election = ({i: next(ports) for i in numbers} for _ in range(3))
        for i in numbers:
            for j in numbers:
                if i != j:
                    self.links[i, j] = Proxy(quorum[j], patience=1)  # else an election goes in circles
                    self.links[i, j].tap = Gag()
            peers = {f"server.{j}": f"127.0.0.1:{quorum[j] if i == j else self.links[i, j].port}:{election[j]}"
                     for j in numbers}
            self.servers.append(self.server(java=java, member=i, port=client[i], start=False, **peers, **settings))

    @property
    def url(self):
        return "zk://" + ",".join(f"127.0.0.1:{s.port}" for s in self.servers)

    def start(self):
        for server in self.servers:
            server.start(wait=False)
        for server in self.servers:
            wait_for(server.answers, what="the ensemble")

    def is_alive(self, server):
        return server.process and server.process.poll() is None

    @property
    def leader(self):
        def found():
            return [s for s in self.servers if self.is_alive(s) and s.mode() == "leader"]

        return wait_for(found, what="a leader")[0]

    @property
    def followers(self):
        leader = self.leader
        return [s for s in self.servers if s is not leader]

    def cut(self, follower):
        """Nothing goes between this follower and whoever leads, though both believe that they are connected."""
        for (i, _), link in self.links.items():
            if i == follower.member:
                link.hold(*BOTH)

    def gag(self, follower):
        """Whoever leads is not told any more who lives at this follower; its clients' writes still pass."""
        for (i, _), link in self.links.items():
            if i == follower.member:
                link.tap.on = True

    def heal(self):
        for link in self.links.values():
            link.heal()
            link.tap.on = False

    def stop(self):
        for server in self.servers:
            server.stop()
        for link in self.links.values():
            link.close()


class Gag:
    """Between a follower and its leader: while it is on, the follower's answers to pings are lost.

    They tell which sessions it has heard of (Learner.ping).  In a network, that is as if the
    leader's pings were late.
    """

    PING = 5  # Leader.PING

    def __init__(self):
        self.on, self._packets = False, {}

    def __call__(self, link, direction, data):
        if direction == DOWN:
            return data
        packets = self._packets.setdefault(link, Packets()).feed(data)
        return b"".join(packet for kind, packet in packets if not (self.on and kind == self.PING))


class Packets:
    """Takes whole packets (QuorumPacket) off the stream to a leader, with their kinds."""

    def __init__(self):
        self.buffer = b""

    def feed(self, data):
        self.buffer += data
        while (end := self._end()) is not None:
            packet, self.buffer = self.buffer[:end], self.buffer[end:]
            yield struct.unpack_from(">i", packet)[0], packet

    def _end(self):
        """Where the first packet ends: kind, zxid, data, and a list of pairs of strings.  None: it is not all here."""
        try:
            end = self._after_buffer(12)
            pairs, = struct.unpack_from(">i", self.buffer, end)
            end += 4
            for _ in range(2 * max(0, pairs)):
                end = self._after_buffer(end)
        except struct.error:
            return None
        return end if end <= len(self.buffer) else None

    def _after_buffer(self, offset):
        length, = struct.unpack_from(">i", self.buffer, offset)
        return offset + 4 + max(0, length)


def free_ports(n):
    ports = set()
    while len(ports) < n:
        ports.add(free_port())
    return sorted(ports)


# ---- the place ----


class ZkPlace(RemotePlace):
    """Locks on the session's ZooKeeper, below a root for each test."""

    name = "zk"
    hears = True
    crash_ttl = "18s"  # a holder counts on half of it, and bears the restart of a virtual machine

    proxy = None

    def __init__(self, request, server="zk_server"):
        self.request = request
        self.server = request.getfixturevalue(server)
        self.root = f"/t{next(self._numbers)}"

    def url_at(self, port, host="127.0.0.1"):
        return f"zk://{host}:{port}{self.root}"

    def stored(self):
        def below(client, path):
            yield path.encode() + client.get(path)[0]
            for child in client.get_children(path):
                yield from below(client, f"{path}/{child}")

        with self.server.client() as c:
            return b"".join(below(c, self.root))

    def take_away(self, keys, key):
        with self.server.client() as c:
            for node in c.get_children(f"{self.root}/{key}"):
                c.delete(f"{self.root}/{key}/{node}", recursive=True)

    def is_done_of_old(self, key, once):
        with self.server.client() as c:
            jobs = f"{self.root}/dlock-jobs/{key}"
            eras = [name for name in c.get_children(jobs) if name.isdigit()] if c.exists(jobs) else []
            good = c.exists(f"{jobs}/good") and c.get(f"{jobs}/good")[0]
            return good not in (None, b"", b"{}") or any(c.exists(f"{jobs}/{era}/{once}") for era in eras)

    def date_ahead(self, key, seconds):
        """The server alone dates what is written, so a proxy before it changes that."""
        def below(client, path):
            yield path
            for child in client.get_children(path):
                yield from below(client, f"{path}/{child}")

        dates = {}
        with self.server.client() as c:
            for path in below(c, self.root):
                if "/dlock-jobs/" in path and path.endswith(("/good", "/last")):
                    run = json.loads(c.get(path)[0])
                    run["began"] = int((time.time() + seconds) * 1000)
                    written = c.set(path, json.dumps(run).encode()).mtime
                    dates[struct.pack(">q", written)] = struct.pack(">q", written + seconds * 1000)

        def date(_connection, direction, data):
            for real, dated in dates.items():
                data = data.replace(real, dated) if direction == DOWN else data
            return data

        self.proxy = self.request.getfixturevalue("make_proxy")(self.server.port)
        self.proxy.tap = date

    @property
    def url(self):
        return self.url_at(self.proxy.port if self.proxy else self.server.port)

    def crashable(self, request):
        self.server = request.getfixturevalue("own_zk")  # writes are on its disk before they are answered
        return self.server.restart


def own(server, root=""):
    """A server of the test's own, as a place."""
    result = At(server.url + root)
    result.server, result.url, result.job = server, result.words[1], root + "/job"
    return result


def hear(heard):
    """A command that lives until the end of its stdin and notes a TERM."""
    return ("sh", "-c", "trap 'echo TERM >>\"$0\"' TERM; cat", heard)


NODE = re.compile(r"_c_([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-lock-(\d{10})")


def nodes(client, path):
    try:
        return sorted(client.get_children(path), key=lambda name: name.rsplit("lock-", 1)[-1])
    except NoNodeError:
        return []


# ---- the protocol ----

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_CHILDREN = 1, 2, 3, 4, 5, 8
SYNC, PING, GET_CHILDREN2, CHECK, MULTI, CREATE2 = 9, 11, 12, 13, 14, 15
CREATE_CONTAINER, CLOSE, AUTH, SET_WATCHES = 19, -11, 100, 101
LISTS = (GET_CHILDREN, GET_CHILDREN2)
MAKES = (CREATE, CREATE2)
NOTIFICATION, NODE_DELETED, NODE_CHANGED = -1, 2, 3  # the xid of an event; kinds of events
NO_NODE, NODE_EXISTS, EXPIRED = -101, -110, -112


def buffer(data):
    return struct.pack(">i", len(data)) + data


def frame(*parts):
    return buffer(b"".join(parts))


def welcome(timeout, session=0x1234, password=b"p" * 16, read_only=False):
    """A server's answer to a connection."""
    return frame(struct.pack(">iiq", 0, timeout, session), buffer(password), struct.pack(">?", read_only))


def stat(czxid=7, session=0x1234, version=0, length=0, children=0):
    return struct.pack(">qqqqiiiqiiq", czxid, czxid, 0, 0, version, 0, 0, session, length, children, czxid)


def reply(xid, error=0, *parts):
    return frame(struct.pack(">iqi", xid, 9, error), *parts)


def text_at(data, offset):
    """The string that begins there."""
    length, = struct.unpack_from(">i", data, offset)
    return data[offset + 4:offset + 4 + max(0, length)].decode(errors="backslashreplace")


class Frames:
    """Takes whole frames off a stream."""

    def __init__(self):
        self.buffer = bytearray()

    def feed(self, data):
        self.buffer += data
        while len(self.buffer) >= 4:
            end = 4 + struct.unpack_from(">i", self.buffer)[0]
            if len(self.buffer) < end:
                return
            result = bytes(self.buffer[4:end])
            del self.buffer[:end]
            yield result


class Talk:
    """A client that speaks the bare protocol, in any session."""

    def __init__(self, port, session=0, password=bytes(16), timeout=10000):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.sendall(frame(struct.pack(">iqiq", 0, 0, timeout, session), buffer(password), b"\0"))

    def ask(self, operation, *parts):
        self.socket.sendall(frame(struct.pack(">ii", 1, operation), *parts))

    def read_all(self):
        """Up to the end of the connection."""
        return b"".join(iter(lambda: self.socket.recv(65536), b""))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


class Tap:
    """Reads along what passes a proxy.

    sessions     (id, password) that the server gave
    ended        (path of a node that has ended, the node that who is told so created)
    changed      path of a node whose data have changed, which somebody is told
    asked        how many requests there were, by operation
    lose(...)    so many answers to such requests are lost, and their connections with them
    on(...)      before the next such request passes, a function is called with its path;
                 if it gives False, the next request too
    """

    def __init__(self, proxy):
        self.sessions, self.ended, self.changed, self.asked = [], [], [], collections.Counter()
        self._state, self._lose, self._act = {}, ((), 0), ((), None)
        proxy.tap = self

    def lose(self, operations, n):
        self._lose = operations, n

    @property
    def has_lost(self):
        return self._lose[1] == 0

    def on(self, operations, action):
        self._act = operations, action

    @property
    def has_acted(self):
        return self._act[1] is None

    def __call__(self, link, direction, data):
        state = self._state.setdefault(link, _Conversation())
        for message in state.frames[direction].feed(data):
            if direction == UP:
                self._up(state, message)
            else:
                self._down(state, message)
        return data

    def _up(self, state, message):
        if not state.greeted:
            state.greeted = True
            return
        xid, operation = struct.unpack_from(">ii", message)
        self.asked[operation] += 1
        if operation == PING:
            return
        state.asked[xid] = operation
        operations, action = self._act
        if action and operation in operations:
            self._act = (), None
            if action(text_at(message, 8) if operation != CLOSE else None) is False:
                self._act = operations, action

    def _down(self, state, message):
        if not state.welcomed:
            state.welcomed = True
            session, = struct.unpack_from(">q", message, 8)
            if session:  # 0: an answer to dlock's question whether this is a ZooKeeper at all
                self.sessions.append((session, message[20:36]))
            return
        xid, _, error = struct.unpack_from(">iqi", message)
        if xid == NOTIFICATION:
            kind, = struct.unpack_from(">i", message, 16)
            if kind == NODE_DELETED:
                self.ended.append((text_at(message, 24), state.node))
            if kind == NODE_CHANGED:
                self.changed.append(text_at(message, 24))
            return
        operation = state.asked.pop(xid, None)
        operations, n = self._lose
        if n and operation in operations:
            self._lose = operations, n - 1
            raise ConnectionResetError
        if operation in (CREATE, CREATE2) and error == 0 and "-lock-" in text_at(message, 16):
            state.node = text_at(message, 16)


class _Conversation:
    def __init__(self):
        self.frames = {UP: Frames(), DOWN: Frames()}
        self.greeted = self.welcomed = False
        self.asked = {}
        self.node = None


class Moments(Tap):
    """A tap that passes each request by itself.

    at("asks", operation, action)    before the next such request passes, and when all that was asked
                                     before it has been answered, the action is called
    at("heard", operation, action)   the same before the answer to the next such request passes
    """

    def __init__(self, proxy):
        super().__init__(proxy)
        self._moment = (None, None, None)

    def at(self, moment, operation, action):
        self._moment = moment, operation, action

    def _reach(self, moment, operation):
        wanted, at, action = self._moment
        if (moment, operation) == (wanted, at):
            self._moment = (None, None, None)
            return action
        return None

    def __call__(self, link, direction, data):
        sink = link.server if direction == UP else link.client
        state = self._state.setdefault(link, _Conversation())
        for message in state.frames[direction].feed(data):
            operation = self._operation(state, direction, message)
            action = operation and self._reach("asks" if direction == UP else "heard", operation)
            if action:
                self._settle(state, direction)
                action()
            (self._up if direction == UP else self._down)(state, message)
            sink.sendall(buffer(message))
        return b""

    @staticmethod
    def _operation(state, direction, message):
        """What is asked or answered; None at the beginning, and of what a server says by itself."""
        if not (state.greeted if direction == UP else state.welcomed):
            return None
        xid, operation = struct.unpack_from(">ii", message)
        return operation if direction == UP else state.asked.get(xid)

    @staticmethod
    def _settle(state, direction):
        if direction == UP:
            wait_for(lambda: not state.asked, what="answers to what was asked before")


def to_all(operations, answer):
    """For a ZkHostile."""
    return {operation: answer for operation in operations}


class ZkHostile:
    """A server that grants everything, except where told otherwise.

    `welcome` is its answer to a connection; `answers` maps operations to bytes, SILENCE, RESET, or a function
    of (xid, request) that gives those; with `reset_after` bytes sent, the connection is reset.
    """

    def __init__(self, first=None, answers=None, greeting=b"", reset_after=None):
        self.first = welcome(30000) if first is None else first
        self.answers = {**self._good(), **(answers or {})}
        self.greeting, self.reset_after = greeting, reset_after
        self.node, self.asked = b"", []
        self.version = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"zk://127.0.0.1:{self.port}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _good(self):
        return {
            CREATE: self.make, CREATE2: self.make, CREATE_CONTAINER: self.make,
            GET_CHILDREN: lambda xid, _: reply(xid, 0, self.listed()),
            GET_CHILDREN2: lambda xid, _: reply(xid, 0, self.listed(), stat()),
            GET_DATA: lambda xid, _: reply(xid, 0, buffer(b"{}"), stat(version=self.version, length=2)),
            EXISTS: lambda xid, _: reply(xid, 0, stat(version=self.version)),
            SET_DATA: self.set,
            DELETE: lambda xid, _: reply(xid),
            CLOSE: lambda xid, _: reply(xid),
            PING: lambda xid, _: reply(-2),
            AUTH: lambda xid, _: reply(-4),
            SYNC: lambda xid, request: reply(xid, 0, buffer(text_at(request, 8).encode())),
        }

    @property
    def name(self):
        return self.node.rsplit(b"/", 1)[-1]

    def listed(self):
        """The names of all nodes: of the one, if it has been made."""
        return struct.pack(">i", 1) + buffer(self.name) if self.name else struct.pack(">i", 0)

    def created(self, request):
        """The name of the node that a request asks for."""
        path = text_at(request, 8).encode()
        return path + b"0000000000" if path.endswith(b"-") else path

    def make(self, xid, request):
        path = self.created(request)
        if b"-lock-" in path:
            self.node = path
        operation, = struct.unpack_from(">i", request, 4)
        return reply(xid, 0, buffer(path), b"" if operation == CREATE else stat())

    def set(self, xid, _):
        self.version += 1
        return reply(xid, 0, stat(version=self.version))

    def count(self, operation):
        return self.asked.count(operation)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client):
        frames, greeted, left = Frames(), False, [self.reset_after]
        with contextlib.suppress(OSError), client:
            self._send(client, self.greeting, left)
            while data := client.recv(65536):
                for request in frames.feed(data):
                    answer = self._answer(request) if greeted else self.first
                    greeted = True
                    if answer is RESET:
                        close_with_reset(client)
                        return
                    if answer is not SILENCE:
                        self._send(client, answer, left)

    def _send(self, client, data, left):
        if left[0] is None:
            client.sendall(data)
            return
        client.sendall(data[:left[0]])
        left[0] -= len(data)
        if left[0] <= 0:
            close_with_reset(client)
            raise ConnectionResetError

    def _answer(self, request):
        xid, operation = struct.unpack_from(">ii", request)
        if operation != PING:
            self.asked.append(operation)
        answer = self.answers.get(operation, self.answers.get("*", SILENCE))
        return answer(xid, request) if callable(answer) else answer
