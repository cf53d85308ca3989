# Goal of this file: Apache Curator as a service uses it, the Java library itself (Curator.java), on the
# lock that a test has chosen; and dlock beside it.

import os
import subprocess
import threading

from once import made_once
from support import PATIENCE, ROOT

JARS = ["curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute", "guava", "slf4j-api",
        "slf4j-nop"]
# Without the files of its counters: where it finds that of another with its pid, it says so on stdout.
SMALL = ["-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"]


def compile_java(name, jars):
    """The class path of these jars of Debian's and of servers/NAME.java, which is compiled once in a run of the tests."""
    path = ":".join(f"/usr/share/java/{jar}.jar" for jar in jars)
    source = os.path.join(ROOT, "tests", "servers", f"{name}.java")
    return path + ":" + made_once(name, lambda directory: subprocess.run(
        ["javac", "-J-XX:TieredStopAtLevel=1", "-cp", path, "-d", directory, source], check=True))


class Curator:
    """A Java process with Curator in it; see Curator.java for what it understands."""

    def __init__(self, classpath, port):
        self.process = subprocess.Popen(["java", *SMALL, "-cp", classpath, "Curator", f"127.0.0.1:{port}"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        """Sends a command whose answer may take a while."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self):
        late = threading.Timer(3 * PATIENCE, self.process.kill)
        late.start()
        line = self.process.stdout.readline().rstrip("\n")
        late.cancel()
        assert line and not line.startswith("error"), f"Curator answered {line!r}"
        return line.split(" ")

    def do(self, *words):
        self.ask(*words)
        return self.answer()

    def close(self):
        self.process.kill()
        self.process.communicate()


def children(kazoo, path):
    return kazoo.get_children(path) if kazoo.exists(path) else []


def hold(dlock, words, *command):
    return dlock.start("run", *words, "--", *(command or dlock.UNTIL_EOF), stdin=subprocess.PIPE)
