# Goal of these tests: dlock doctor says of a server that is well that it is, on every backend and mode, and of one that is away
# what a run would say; nothing of what it tries stays.  What it says of bad servers is in cli/test_doctor.py.

import json
import random
import secrets
import signal
import subprocess
import time

import pytest

from support import DLOCK, PATIENCE, kill, place_id, places, wait_for

RIGHTS = {"right-run", "right-look", "right-break", "right-freeze"}


@pytest.fixture(params=places(every=True), ids=place_id)
def place(request):
    return request.param(request)


def examine(dlock, place, *words):
    """(how it ended, {check: [finding, ...]})"""
    done = dlock.run("doctor", "-J", *place.words, *words)
    found = {}
    for line in done.stdout.splitlines():
        finding = json.loads(line)
        assert set(finding) == {"v", "check", "level", "fact", "advice"} and finding["v"] == 1, finding
        assert finding["level"] in ("ok", "warn", "fail") and finding["fact"], finding
        assert finding["level"] == "ok" or finding["advice"], finding
        found.setdefault(finding["check"], []).append(finding)
    return done, found


def levels(found, check):
    return {f["level"] for f in found[check]}


@pytest.fixture
def used(dlock, place):
    """A run has made there what the first one makes."""
    assert dlock.run("run", *place.words, "-w", "90s", "-k", place.key("first"), "--", "true").status == 0
    return place


@pytest.fixture
def key(used):
    """One that no other test names, which ends as its probe's begins."""
    return used.key("q" + secrets.token_hex(6))


def is_stored(place, key):
    return key.rpartition(":")[2].rpartition("}")[2].encode() in place.stored()


def test_a_good_server_is_fit(dlock, used, key):
    done, found = examine(dlock, used, "-k", key)
    assert done.status == 0 and done.stderr == "", done
    assert not any("fail" in levels(found, check) for check in found), found
    assert RIGHTS <= set(found) and "round-trip" in found and "server" in found, found
    assert not is_stored(used, key)


def test_the_words_for_people_are_the_same_findings(dlock, used):
    done = dlock.run("doctor", *used.words, "-k", used.key())
    assert done.status == 0, done
    lines = [line.split(None, 2) for line in done.stdout.splitlines() if not line.startswith(" ")]
    _, found = examine(dlock, used, "-k", used.key())
    assert [words[0] for words in lines if words[0] not in ("OK", "WARN")] == []
    assert {words[1] for words in lines} == set(found)


def interrupt(dlock, place, key, sig):
    """At any moment."""
    doctor = subprocess.Popen([DLOCK, "doctor", *place.words, "-k", key, "-t", "9s"], env=dlock.env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
    time.sleep(random.uniform(0, 0.2))
    kill(doctor.pid, sig)
    said = doctor.communicate(timeout=PATIENCE)[0]
    return doctor.returncode, said


def test_who_is_interrupted_leaves_nothing(dlock, used, key):
    for _ in range(3):
        status, said = interrupt(dlock, used, key, signal.SIGTERM)
        assert status in (0, -signal.SIGTERM) and not is_stored(used, key), said


def test_who_is_killed_leaves_what_ends(dlock, used, key):
    """What is left of the probe holds nothing for long, and the next one finds nothing amiss."""
    interrupt(dlock, used, key, signal.SIGKILL)

    def nothing_is_held():
        done = dlock.run("ls", "-J", *used.words)
        assert done.status == 0, done
        return not any(json.loads(line)["key"].startswith(key) for line in done.stdout.splitlines())
    wait_for(nothing_is_held, what="the end of what the probe held")
    assert examine(dlock, used, "-k", key)[0].status == 0
