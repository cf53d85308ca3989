# Goal of these tests: whatever other programs have put into a ZooKeeper, and whatever a server
# says, a look at the locks there tells all the others, claims nothing that is not so, and ends well.

import json
import struct

import pytest
from kazoo.security import make_acl, make_digest_acl

from admin import DENIED, admin, each, kinds
from quotes import assert_kept, escaped
from support import At, size
from zk import GET_DATA, LISTS, ZkHostile, buffer, reply, stat, to_all

ROOT_ALONE = [make_digest_acl("root", "x", all=True)]
LIST_ONLY = [*ROOT_ALONE, make_acl("world", "anyone", read=True)]
UUID = "00000000-0000-4000-8000-000000000000"
HEX = "0123456789abcdef0123456789abcdef"
FREEZE = "-freeze-0123456789abcdef-inf-__WRIT__-0000000001"


@pytest.fixture
def client(at):
    with at.server.client() as c:
        c.add_auth("digest", "root:x")
        c.ensure_path(at.root)
        yield c


# ---- what may not be read ----

PARTS = {
    "leases": ("curator", {"": LIST_ONLY, "/leases": ROOT_ALONE}),
    "locks": ("curator", {"": LIST_ONLY, "/locks": ROOT_ALONE}),
    "freeze": ("curator", {"": LIST_ONLY, f"/{FREEZE}": ROOT_ALONE}),
}


@pytest.mark.parametrize("part", PARTS)
def test_part_that_may_not_be_read_does_not_hide_other_locks(dlock, at, client, part):
    """Who asks for that very lock hears that it may not be read; for all others it is one line."""
    layout, made = PARTS[part]
    place = At(at.url)
    place.words += ["-O", f"layout={layout}"]
    for tail, acl in made.items():
        client.create(f"{at.root}/a{tail}", b"", acl=acl)
    dlock.hold(place, "b")
    assert admin(place, "each", "a")[0] == DENIED
    a, b = each(place)
    assert (a["key"], a["kind"]) == ("a", "unknown") and "may not be read" in a["what"]
    assert (b["key"], b["kind"]) == ("b", "holder")


def test_holder_that_may_not_be_read(at, client):
    client.create(f"{at.root}/a", acl=LIST_ONLY)
    for _ in range(2):
        client.create(f"{at.root}/a/_c_{UUID}-lock-", b"secret", acl=ROOT_ALONE, sequence=True, ephemeral=True)
    for entries in (each(at), each(at, "a")):
        assert kinds(entries) == ["holder", "waiter"] and "secret" not in str(entries)


# ---- what others have written ----

NO_RUNS = [b"", b"null", b"[]", b"{}", b'{"status":"failed"}', b'{"status":null}', b'{"status":-1}', b'{"status":256}', b'{"status":0.5}',
           b'{"status":0,"status":0}', b'{"status":0' + b" " * 5000 + b"}"]


@pytest.mark.parametrize("data", NO_RUNS, ids=range(len(NO_RUNS)))
def test_what_is_no_run_is_not_told_as_one(at, client, data):
    client.create(f"{at.root}/dlock-jobs/job/last", data, makepath=True)
    assert each(at, "job") == []


LOGIN, SECRET = "alice:correct-horse%battery", "correct-horse%battery"
TEXTS = {"whole": LOGIN, "inside": f"AUTH {SECRET}!", "cut": SECRET[:12]}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_password_in_what_others_write_is_not_told(dlock, at, client, text):
    """In a node of another client's; in the ID of a run; in the record of a freeze, also as \\uXXXX."""
    place = At(at.url.replace("zk://", f"zk://{LOGIN.replace('%', '%25')}@"))
    who = {"who": text}
    client.create(f"{at.root}/job/_c_{UUID}-lock-", text.encode(), makepath=True, sequence=True, ephemeral=True)
    client.create(f"{at.root}/dlock-jobs/job/last", json.dumps({"status": 0, "id": text, "record": who}).encode(), makepath=True)
    client.create(f"{at.root}/job/{FREEZE}", f'{{"who":{escaped(text)}}}'.encode())
    told = dlock.run("status", "-J", "-k", "job", *place.words)
    view = json.loads(told.stdout)
    assert len(view["holders"]) == 1 and view["frozen"] and view["last"], view
    assert_kept(told.stdout, told.stderr, str(view))


def test_long_names(at, client):
    """They are none of a lock's, and what stands behind them is told."""
    names = ["a" * 3000, "b" * 255 + "-lock-0000000001", f"_c_{UUID}-lock-" + "x" * 8000, "\u202e" * 900]
    for name in names:
        client.create(f"{at.root}/job/{name}", b"1", makepath=True)
    client.create(f"{at.root}/job/_c_{UUID}-lock-", b"", sequence=True, ephemeral=True)
    for entries in (each(at), each(at, "job")):
        assert sorted(set(kinds(entries)) - {"waiting"}) in (["unknown"], ["unknown", "waiter"])
        unknown, = (e for e in entries if e["kind"] == "unknown")
        assert "4 nodes" in unknown["what"] and len(unknown["what"]) < 300


def test_thousands_of_others_nodes(at, client):
    """A directory of another program's, beside a lock, in little time and with no node read twice."""
    n = size(5000, 50000)
    client.create(f"{at.root}/brokers", makepath=True)
    made = [client.create_async(f"{at.root}/brokers/topic{i}", b"x") for i in range(n)]
    [m.get() for m in made]
    client.create(f"{at.root}/job/_c_{UUID}-lock-", b"", makepath=True, sequence=True, ephemeral=True)
    first, second = each(at)
    assert (first["key"], first["kind"]) == ("brokers", "unknown") and f"{n} nodes" in first["what"]
    assert (second["key"], second["kind"]) == ("job", "holder")


# ---- what vanishes ----


def test_nodes_that_vanish_between_list_and_read(at, client, tapped):
    """They are not told, and what is behind them is; with all of it gone, nothing is."""
    place, _, tap = tapped
    nodes = [client.create(f"{at.root}/{key}/_c_{UUID}-lock-", b"", makepath=True, sequence=True, ephemeral=True)
             for key in ("a", "a", "b", "c")]
    tap.on((GET_DATA,), lambda _: [client.delete(node) for node in nodes[:3]] and None)
    entries = each(place)
    assert tap.has_acted and [e["kind"] for e in entries if e["key"] == "c"] == ["holder"]
    tap.on(LISTS, lambda path: path == at.root and False or client.delete(at.root, recursive=True) and None)
    assert each(place) == [] and tap.has_acted


# ---- what no ZooKeeper says ----


def listing(*names, count=None):
    return lambda xid, _: reply(xid, 0, struct.pack(">i", len(names) if count is None else count), *(buffer(n) for n in names), stat())


NAMES = {
    "fewer-than-said": listing(b"a", b"b", count=1000), "none-of-them": listing(count=3), "far-fewer": listing(b"a", count=1 << 20),
    "empty": listing(b""), "control": listing(b"a\x01b-lock-0000000001"), "slash": listing(b"a/b"), "dots": listing(b".."),
}


@pytest.mark.parametrize("names", NAMES)
def test_names_that_no_server_has(make_hostile, names):
    """One clear sentence, of the server, and not by a signal."""
    at = At(make_hostile(program=ZkHostile, answers=to_all(LISTS, NAMES[names])).url)
    for words in (("each",), ("each", "job")):
        rc, why, entries = admin(at, *words)
        # what is no whole list never reaches the library: the connection counts as broken
        expected = "no answer" if names in ("fewer-than-said", "none-of-them", "far-fewer") else "protocol"
        assert (rc, entries) == (expected, []) and "127.0.0.1" in why
