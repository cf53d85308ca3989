# Goal of this file: etcd servers and clusters of our own, a client of their JSON gateway, and a lock's place on them.

import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from urllib.parse import quote

import pytest

from support import RemotePlace, Server, free_port, wait_for


def b64(text):
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def unb64(text):
    return base64.b64decode(text or "").decode(errors="surrogateescape")


def encoded(key):
    """As dlock writes a key into a name."""
    return {".": "%2E", "..": "%2E%2E"}.get(key) or quote(key, safe="-_.~:@=")


def end_of(prefix):
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def hold(dlock, url, *options, key="job"):
    return dlock.start("run", "-u", url, "-k", key, *options, "--", "cat", stdin=subprocess.PIPE).held()


def listens(port):
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    return False


class Client:
    """A client as others write them, by the gateway."""

    def __init__(self, port, login=None, context=None):
        self.port, self.token, self.context = port, None, context
        if login:
            self.token = self.ask("auth/authenticate", {"name": login[0], "password": login[1]})["token"]

    def ask(self, path, body, timeout=10):
        make = http.client.HTTPSConnection if self.context else http.client.HTTPConnection
        connection = make("127.0.0.1", self.port, timeout=timeout, **({"context": self.context} if self.context else {}))
        try:
            connection.request("POST", f"/v3/{path}", json.dumps(body), {"Authorization": self.token} if self.token else {})
            answer = connection.getresponse()
            found = json.loads(answer.read().split(b"\n")[0] or b"{}")
        finally:
            connection.close()
        if answer.status != 200:
            raise OSError(f"{path}: {found}")
        return found

    def range(self, prefix, **more):
        found = self.ask("kv/range", {"key": b64(prefix), "range_end": b64(end_of(prefix)), **more}).get("kvs", [])
        return [{"key": unb64(kv["key"]), "value": unb64(kv.get("value")), "lease": int(kv.get("lease", 0)),
                 "create": int(kv["create_revision"]), "mod": int(kv["mod_revision"])} for kv in found]

    def count(self, prefix):
        return int(self.ask("kv/range", {"key": b64(prefix), "range_end": b64(end_of(prefix)), "count_only": True}).get("count", 0))

    def names(self, prefix="dlock/"):
        return [kv["key"] for kv in self.range(prefix)]

    def queue(self, key="job", root="dlock"):
        """Who stands there, in order."""
        return sorted(self.range(f"{root}/q/{encoded(key)}/"), key=lambda kv: kv["create"])

    def put(self, key, value="", lease=0):
        return self.ask("kv/put", {"key": b64(key), "value": b64(value), "lease": lease})

    def delete(self, key):
        return int(self.ask("kv/deleterange", {"key": b64(key)}).get("deleted", 0))

    def grant(self, ttl):
        return int(self.ask("lease/grant", {"TTL": ttl})["ID"])

    def revoke(self, lease):
        self.ask("lease/revoke", {"ID": lease})

    def leases(self):
        return [int(one["ID"]) for one in self.ask("lease/leases", {}).get("leases", [])]

    def revision(self):
        return int(self.ask("kv/range", {"key": b64("x")})["header"]["revision"])

    def status(self):
        return self.ask("maintenance/status", {})


class Etcd(Server):
    """An etcd of our own on a loopback port; with `members` {name: peer port} one of a cluster."""

    kind = "etcd"

    def __init__(self, *options, members=None, name="default", certificate=None, authority=None, mine=None, syncs=False):
        super().__init__(tempfile.mkdtemp(prefix="dlock-etcd-"))
        self.options, self.name, self.peer, self.syncs = options, name, None, syncs
        self.members, self.certificate, self.authority, self.mine = members, certificate, authority, mine
        self.scheme = "https" if certificate else "http"
        self.settle()

    @property
    def url(self):
        return f"etcd{'s' if self.certificate else ''}://127.0.0.1:{self.port}"

    @property
    def endpoint(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def client(self, login=None):
        return Client(self.port, login, self._context())

    def start(self, wait=True):
        self.peer = self.peer or (self.members or {}).get(self.name) or free_port()
        members = self.members or {self.name: self.peer}
        cluster = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in members.items())
        words = ["etcd", "--name", self.name, "--data-dir", os.path.join(self.directory, "data"),
                 "--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint,
                 "--listen-peer-urls", f"http://127.0.0.1:{self.peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{self.peer}",
                 "--initial-cluster", cluster, "--logger", "zap", "--log-level", "warn", *self.options]
        if not self.syncs and "unsafe-no-fsync" in self.help():
            words += ["--unsafe-no-fsync"]
        if not self.members:
            words += ["--heartbeat-interval", "50", "--election-timeout", "500"]
        if self.certificate:
            words += ["--cert-file", self.certificate.cert, "--key-file", self.certificate.key]
        self.launch(words, wait and not self.members)

    _help = None

    @classmethod
    def help(cls):
        if cls._help is None:
            done = subprocess.run(["etcd", "--help"], capture_output=True, text=True, check=False)
            cls._help = done.stdout + done.stderr
        return cls._help

    def answers(self):
        self.must_live()
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            return "version" in Client(self.port, context=self._context()).ask("maintenance/status", {}, timeout=1)
        return False

    def _context(self):
        if not self.certificate:
            return None
        context = ssl.create_default_context(cafile=self.authority.cert)
        if self.mine:
            context.load_cert_chain(self.mine.cert, self.mine.key)
        return context

    def writes(self):
        """Grows with each operation of a lock: its requests, as etcd counts them."""
        return int(self.metric("grpc_server_started_total", "LeaseKeepAlive"))

    def metric(self, name, label=""):
        """The sum of all that etcd counts under this name, or of those with this text among their labels."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(rf"{name}[{{ ]", line) and label in line)

    @contextlib.contextmanager
    def stalled_disk(self, seconds=300):
        """Each sync of its disk takes so much longer; all else of it goes on.  The test is skipped where strace cannot do it."""
        told = os.path.join(self.directory, "strace")
        what = ["-e", "trace=fsync,fdatasync", "-e", f"inject=fsync,fdatasync:delay_enter={seconds * 1000000}"]
        try:
            with open(told, "wb") as file:
                strace = subprocess.Popen(["strace", "-f", "-o", f"{told}.calls", *what, "-p", str(self.process.pid)],
                                          stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        except FileNotFoundError:
            pytest.skip("strace is not installed")
        try:
            wait_for(lambda: b" attached" in pathlib.Path(told).read_bytes() or strace.poll() is not None, what="strace")
            if strace.poll() is not None:
                pytest.skip(f"strace cannot delay the syncs of etcd: {pathlib.Path(told).read_text(encoding='utf-8').strip()}")
            yield
        finally:
            strace.terminate()  # it lets go of etcd
            strace.wait()

    def etcdctl(self, *words, **options):
        """Starts an etcdctl."""
        env = {**os.environ, "ETCDCTL_API": "3"}
        more = ["--cacert", self.authority.cert] if self.certificate else []
        return subprocess.Popen(["etcdctl", "--endpoints", self.endpoint, *more, *words], env=env, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def ctl(self, *words):
        """Runs one; its output."""
        process = self.etcdctl(*words)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 0, (words, err)
        return out


class Ensemble:
    """Three members."""

    def __init__(self, *options, n=3, **more):
        ports = {f"m{i}": free_port() for i in range(n)}
        self.members = [Etcd("--heartbeat-interval", "100", "--election-timeout", "1000", "--initial-cluster-state", "new", *options,
                             members=ports, name=name, **more) for name in ports]
        for member in self.members:
            wait_for(member.answers, what="etcd")
        self.leader()

    @property
    def url(self):
        return self.url_of(self.members)

    @staticmethod
    def url_of(members):
        return "etcd://" + ",".join(f"127.0.0.1:{m.port}" for m in members)

    def client(self):
        for member in self.members:
            if member.process.poll() is None:
                return member.client()
        raise AssertionError("no member lives")

    def leader(self, members=None):
        """The member that leads, once all that live agree, or all of these."""
        def agreed():
            found = {}
            for member in members or self.members:
                if member.process.poll() is None:
                    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                        status = member.client().ask("maintenance/status", {}, timeout=1)
                        found[member] = status.get("leader"), status["header"]["member_id"]
            leaders = {leader for leader, _ in found.values()}
            mine = [m for m, (leader, own) in found.items() if leader == own]
            return mine[0] if len(leaders) == 1 and len(mine) == 1 else None

        return wait_for(agreed, what="a leader")

    def stop(self):
        for member in self.members:
            member.stop()


class EtcdPlace(RemotePlace):
    """Locks on the session's server; keys are kept apart by a prefix."""

    name = "etcd"
    hears = True
    crash_ttl = "4s"

    def __init__(self, request):
        self.server = request.getfixturevalue("etcd_server")
        self.prefix = f"t{next(self._numbers)}:"

    def url_at(self, port, host="127.0.0.1"):
        return f"etcd://{host}:{port}"

    def stored(self):
        return b"".join((kv["key"] + kv["value"]).encode(errors="surrogateescape") for kv in self.server.client().range("dlock/"))

    def take_away(self, keys, key):
        c = self.server.client()
        assert c.delete(c.queue(key)[0]["key"]) == 1

    def date_ahead(self, key, seconds):
        c = self.server.client()
        for kv in c.range("dlock/j/"):
            mark, _, _, *rest = kv["value"].split(" ")
            if kv["key"].endswith(("/good", "/last")) and f"/{self.prefix}" in kv["key"]:
                c.put(kv["key"], " ".join([mark, *[str(int((time.time() + seconds) * 1e6))] * 2, *rest]))

    def is_done_of_old(self, key, once):
        return any(kv["key"].endswith((f"/{key}/good", f"/{key}/id/{once}")) for kv in self.server.client().range("dlock/j/"))

    def crashable(self, request):
        self.server = request.getfixturevalue("make_etcd")()
        return self.server.restart


class Meddler:
    """Stands in front of a server, and changes answers.

    `edit` is asked with the path, the request and the answer (a dict; of a watch each line), and gives the answer to
    pass on: a dict, or None for silence; or (bytes,), which is the last that is sent; (bytes, None): and then silence.
    What `instead` gives for a path is answered in the server's place, as an error.
    """

    def __init__(self, port, edit=lambda path, asked, answer: answer, instead=lambda path: None):
        self.target, self.edit, self.instead, self.over, self.asked = port, edit, instead, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"etcd://127.0.0.1:{self.port}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection):
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException), connection, connection.makefile("rb") as lines:
            while not self.over:
                first = lines.readline().split()
                if not first:
                    return
                headers = http.client.parse_headers(lines)
                body = lines.read(int(headers["Content-Length"]))
                path = first[1].decode().removeprefix("/v3/")
                asked = json.loads(body.split(b"\n")[0])
                self.asked.append((path, asked))
                if not self._answer(connection, path, asked, body, headers):
                    return

    def _answer(self, connection, path, asked, body, headers):
        if error := self.instead(path):
            return self._pass(connection, self.reply(error, 400))
        server = http.client.HTTPConnection("127.0.0.1", self.target, timeout=60)
        passed = {"Authorization": headers["Authorization"]} if headers["Authorization"] else {}
        server.request("POST", f"/v3/{path}", body, passed)
        found = server.getresponse()
        if path == "watch":
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while line := found.readline():
                if not self._pass(connection, self.edit(path, asked, json.loads(line)), True):
                    return False
            return False
        answer = json.loads(found.read().split(b"\n")[0])
        status, date = found.status, found.headers["Date"]
        edited = self.edit(path, asked, answer)
        server.close()
        if isinstance(edited, dict):
            edited = self.reply(edited, 200 if status == 200 and "error" not in edited else 400, date)
        return self._pass(connection, edited)

    @staticmethod
    def reply(answer, status=200, date=None):
        body = json.dumps(answer).encode()
        more = f"Date: {date}\r\n" if date else ""
        return f"HTTP/1.1 {status} X\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def _pass(self, connection, edited, chunked=False):
        if isinstance(edited, tuple):
            connection.sendall(edited[0])
            if len(edited) == 1:
                return False
            edited = edited[1]
        if edited is None:
            while not self.over:
                time.sleep(0.1)
            return False
        if isinstance(edited, dict) and chunked:
            line = json.dumps(edited).encode() + b"\n"
            edited = f"{len(line):x}\r\n".encode() + line + b"\r\n"
        connection.sendall(edited)
        return True

    def close(self):
        self.over = True
        self.listener.close()
