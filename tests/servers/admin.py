# Goal of this file: dlock-admin, by which tests call a backend's admin_ops one by one.

import json
import re
import subprocess

from support import ADMIN

BOB = json.dumps({"who": "bob@office", "why": "it hangs"})
NUMBERS = {"lock", "limit", "token", "slot", "position", "count", "since", "until", "now", "revoked", "status", "pid"}
OK, LOST, DENIED, CONFIG = "ok", "not ours", "denied", "unsafe configuration"


def entry_of(line):
    kind, *members = line.split("\t")
    entry = {"kind": kind, **dict(m.split("=", 1) for m in members)}
    return {k: int(v) if k in NUMBERS else v for k, v in entry.items()}


def backend_of(at):
    """Its name, from the URL."""
    return {"postgresql": "pg"}.get(at.words[1].split(":")[0], at.words[1].split(":")[0])


def admin(at, *words):
    """(what it ended with, why, entries)"""
    done = subprocess.run([ADMIN, backend_of(at), *at.words[1:], *map(str, words)], capture_output=True, text=True, timeout=60,
                          check=False)
    *lines, last = done.stdout.splitlines()
    found = re.fullmatch(rf"rc ({OK}|{LOST}|{DENIED}|{CONFIG}|no answer|protocol) (.*)", last)
    assert found, (done.returncode, done.stdout[-500:], done.stderr)
    return found[1], found[2], [entry_of(line) for line in lines]


def each(at, *words):
    rc, why, entries = admin(at, "each", *words)
    assert rc == OK, why
    return entries


def kinds(entries):
    return [e["kind"] for e in entries]


def does(at, *words):
    """What a call ended with."""
    return admin(at, *words)[0]


def revoke(at, target, *force, key="job", record=BOB):
    return does(at, "revoke", key, target["token"], target.get("owner", "-"), record, *force)
