# Goal of this file: what tests of PostgreSQL and of MariaDB share.

import json
import os
import re
import signal
import subprocess

from support import DLOCK, ROOT, boottime, cwd_of, run, spent, wait_for


class Database:
    """One of a server's databases; `url_of` makes the URL of a port."""

    def __init__(self, server, name, url_of):
        self.server, self.name, self.port = server, name, server.port
        self.url_of, self.url = url_of, url_of(server.port, db=name)

    def through(self, proxy):
        """The same through a proxy."""
        return self.url_of(proxy.port, db=self.name)

    def ask(self, sql, *arguments, **options):
        return self.server.ask(sql, *arguments, db=self.name, **options)

    def value(self, sql, *arguments, **options):
        return self.server.value(sql, *arguments, db=self.name, **options)

    def sessions(self):
        return self.server.sessions(self.name)

    def terminate(self):
        return self.server.terminate(self.name)


# ---- dlock on them ----


def token_of(dlock, url, mode):
    done = run(dlock, url, command=("printenv", "DLOCK_TOKEN"), mode=mode)
    assert done.status == 0, done
    return int(done.stdout)


def wait_for_renewals(holder, count=1):
    """Waits until as many more renewals have succeeded as dlock -v tells of."""
    def told():
        return holder.stderr().count("renew: ok")

    before = told()
    wait_for(lambda: told() >= before + count, what="a renewal")
    assert holder.poll() is None


def a_hold_leaves_its_directory(dlock, directory, words, env, sessions, ends):
    """And connects again, though all that its library reads is named from there.  `ends` asks for the end of the lease."""
    held = dlock.run("hold", *words, "-k", "job", "--for", "60", "-t", "6s", cwd=directory, env=env)
    assert held.status == 0, held
    assert str(directory) not in [cwd_of(pid) for pid in os.listdir("/proc") if pid.isdigit()]
    old, end = sessions(), ends()
    assert old and sessions(end=True)
    wait_for(lambda: set(sessions()) - set(old) and ends() > end, what="a renewal by another connection")
    done = dlock.run("release", held.stdout.strip())
    assert done.status == 0, done


def a_wait_takes_less(seconds, dlock, at, status, wait):
    """One of three, that is: a machine that is busy makes a wait longer."""
    for _ in range(3):
        began = boottime()
        waiter = dlock.contend(at, "job", "-w", wait, command=("true",))
        done = waiter.wait()
        if not waiter.events("waiting"):
            continue
        assert done.status == status, done
        if spent(began) < seconds:
            return True
    return False


def a_wait_is_stretched_less(seconds, dlock, at, status, server):
    """By a server that stops while one waits.  Where most of a wait is over by then, that says nothing, and a longer one is tried."""
    for wait in (1, 2, 4, 8, 16):
        began = boottime()
        waiter = dlock.contend(at, "job", "-w", f"{wait}s", command=("true",))
        wait_for(lambda: waiter.events("waiting") or waiter.poll() is not None, what="its place in the queue")
        if not waiter.events("waiting"):
            continue
        server.pause()
        in_time = boottime() - began < wait * 0.7
        done = waiter.wait()
        took = spent(began)
        server.resume()
        if in_time:
            assert done.status == status, done
            if took < wait + seconds:
                return True
    return False


def hostile_runs_are_listed(dlock, at):
    """Beside a good run of "job" and a hostile one of a clock far ahead, 1200 of "many" are listed."""
    done = dlock.run("ls", "--jobs", "-J", *at.words)
    assert (done.status, done.stderr) == (0, "") and "\x1b" not in done.stdout, done
    objects = [json.loads(line) for line in done.stdout.splitlines()]
    found = {(o["key"], o["id"]): o for o in objects}
    assert len(found) == len(objects) == 3 + 1200
    assert found["job", None]["last"]["status"] == 255 and found["job", None]["last_success"]["id"] == "first"
    assert ("job", "first") in found and ("many", "id7") in found
    assert "\x1b" not in dlock.run("ls", "--jobs", *at.words).stdout
    assert dlock.run("forget", "-y", *at.words, "many").status == 0 and dlock.run("forget", "-y", *at.words, "many").status == 1
    assert dlock.run("ls", "--jobs", "-n", *at.words).stdout.count("\n") == 2


# ---- what the manuals say ----


def blocks_of(page):
    """What a manual has to be typed or pasted, block by block."""
    with open(os.path.join(ROOT, "man", page), encoding="utf-8") as f:
        return [block.replace("\\e\n", "\\\n") for block in re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed", f.read(), re.M | re.S)]


def block_of(page, marker):
    found, = [block for block in blocks_of(page) if marker in block]
    return found


def paste(block, directory, **variables):
    """Into a shell of an administrator's, who has dlock."""
    (directory / "dlock").unlink(missing_ok=True)
    (directory / "dlock").symlink_to(DLOCK)
    env = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}", "HOME": str(directory), **variables}
    done = subprocess.run(["sh", "-ec", block], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done


# Each subcommand: what is there, the words, and its status for who may.
RUN = {"run": ("", "run -n -k KEY true", 0), "run -s": ("", "run -ns -k KEY true", 0),
       "run --no-retry": ("", "run -n -k KEY --once id --no-retry true", 0), "run --remember": ("", "run -n -k KEY --remember true", 0)}
LOOK = {"status": ("", "status KEY", 1), "ls": ("", "ls", 0), "wait": ("", "wait -n -k KEY", 0)}
JOBS = {"ls --jobs": ("done", "ls --jobs", 0), "asker": ("asked", "status -J KEY", 0), "shown": ("shown", "status -J KEY", 1)}  # of mode=lease
STEER = {"freeze": ("", "freeze -k KEY", 0), "thaw": ("frozen", "thaw -y -k KEY", 0),
         "break": ("held", "break -y -w 0 -k KEY", 75), "break --force": ("held", "break -y --force -k KEY", 0)}
FORGET = {"forget": ("done", "forget -y KEY", 0)}  # of mode=lease
SCENES = {**RUN, **LOOK, **STEER, **JOBS, **FORGET}
_keys = iter(range(1 << 30))


def may(dlock, scene, own, at):
    """May `at` do this, at a key of which `own` has made what it is?"""
    there, words, status = SCENES[scene]
    key = f"key{next(_keys)}"
    if there in ("held", "asked"):
        holder = dlock.hold(own, key)
        if there == "asked":
            holder.signal(signal.SIGSTOP, "keeper")  # it would give it up
            assert dlock.run("break", "-y", "-w", "0", "--who", "carol", *own.words, "-k", key).status == 75
    elif there == "frozen":
        assert dlock.run("freeze", *own.words, "-k", key).status == 0
    elif there == "done":
        assert dlock.run("run", *own.words, "-k", key, "--once", "id", "--", "true", events=False).status == 0
    elif there == "shown":
        assert dlock.run("run", *own.words, "-k", key, "--remember", "--", "true", events=False).status == 0
    subcommand, *words = words.replace("KEY", key).split()
    done = dlock.run(subcommand, *at.words, *words)
    assert done.status in (status, 77), done
    if there == "asked":
        holder.signal(signal.SIGCONT, "keeper")
        return done.status == status and json.loads(done.stdout)["holders"][0]["revoked_by"] == "carol"
    if there == "shown":
        return done.status == status and json.loads(done.stdout)["last"] is not None
    if scene == "run --remember":
        return done.status == 0 and json.loads(dlock.run("status", "-J", *own.words, "-k", key).stdout)["last"] is not None
    return done.status == status


def what_may(dlock, own, at):
    return {scene for scene in SCENES if may(dlock, scene, own, at)}


def waits_and_renews(dlock, own, at):
    """One who may run waits in the queue, and its lease is renewed."""
    holder = dlock.hold(own, "queue")
    waiter = dlock.contend(at, "queue", "-t", "3s", "-v").queued(1)
    assert holder.finish().status == 0
    wait_for_renewals(waiter.held())
    return waiter.finish().status == 0
