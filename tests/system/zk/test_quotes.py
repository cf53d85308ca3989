# Goal of these tests: what others write into a lock's directory cannot make dlock
# show the password that it was given, and means nothing that only a dlock says.

import json

import pytest

from quotes import ECHOES, IN_URL, SECRET, assert_kept, escaped
from support import At, run, wait_for
from zk import nodes


def events_of(started):
    return [str(value) for event in started.events() for value in event.values()]


def named(at):
    return At(at.url.replace("zk://", f"zk://alice:{IN_URL}@")).words


in_json = pytest.mark.parametrize("who", [json.dumps(text) for text in ECHOES.values()] + [escaped(SECRET), json.dumps(SECRET)],
                                  ids=[*ECHOES, "escaped", "json"])


@in_json
def test_password_in_a_holders_record_is_not_shown(dlock, at, who):
    with at.server.client() as c:
        c.ensure_path(at.job)
        c.create(f"{at.job}/!-lock-0000000000", f'{{"who":{who},"why":{who},"host":"h","pid":1}}'.encode())
        busy = dlock.run("run", *named(at), "-k", "job", "-n", "-v", "-O", "acl=open", "--", "true")
        assert busy.status == 75 and "on h" in busy.stderr
        waiter = dlock.start("run", *named(at), "-k", "job", "-v", "-O", "acl=open", "--", "true")
        waiter.event("waiting", timeout=60)
        c.delete(f"{at.job}/!-lock-0000000000")
        done = waiter.wait()
        assert done.status == 0
        assert_kept(busy.stderr, done.stderr, *events_of(waiter))


@pytest.mark.parametrize("data", ECHOES.values(), ids=ECHOES)
def test_password_in_what_is_no_record_is_not_shown(dlock, at, data):
    with at.server.client() as c:
        c.ensure_path(at.job)
        c.create(f"{at.job}/!-lock-0000000000", data.encode())
        waiter = dlock.start("run", *named(at), "-k", "job", "-v", "-O", "acl=open", "--", "true")
        waiter.event("waiting", timeout=60)
        c.delete(f"{at.job}/!-lock-0000000000")
        done = waiter.wait()
        assert done.status == 0
        assert_kept(done.stderr, *events_of(waiter))


@in_json
def test_password_in_who_asks_for_the_lock_is_not_shown(dlock, at, who):
    holder = dlock.start("run", *named(at), "-k", "job", "-v", "-O", "acl=open", "--", "sleep", "1000").held()
    with at.server.client() as c:
        own = f"{at.job}/{nodes(c, at.job)[0]}"
        c.set(own, json.dumps({**json.loads(c.get(own)[0]), "revoke": f'{{"who":"bob","why":{who}}}'}).encode())
        done = holder.wait()
        assert done.status == 79 and "bob" in done.stderr
        assert_kept(done.stderr, *events_of(holder))


@in_json
def test_password_in_who_has_taken_the_lock_is_not_shown(dlock, at, who):
    holder = dlock.start("run", *named(at), "-k", "job", "-v", "-O", "acl=open", "--", "sleep", "1000").held()
    # from then on it hears of the end at once, and asks whose it is; before, it has 0.1 s for that, which a busy server may need
    wait_for(lambda: "renew: ok" in holder.stderr(), what="the first renewal")
    with at.server.client() as c:
        own = f"{at.job}/{nodes(c, at.job)[0]}"
        c.set(at.job, json.dumps({"forced": c.exists(own).czxid, "by": f'{{"who":"bob","why":{who}}}'}).encode())
        c.delete(own)
        done = holder.wait()
        assert done.status == 79 and "broken by bob" in done.stderr, done
        assert_kept(done.stderr, *events_of(holder))


@in_json
def test_password_in_who_asks_is_not_told_of_a_holder(dlock, at, who):
    holder = dlock.hold(at, "job")
    with at.server.client() as c:
        own = f"{at.job}/{nodes(c, at.job)[0]}"
        c.set(own, json.dumps({**json.loads(c.get(own)[0]), "revoke": f'{{"who":"bob","why":{who}}}'}).encode())
        for words in ((), ("-J",)):
            told = dlock.run("status", *named(at), "-k", "job", *words)
            assert_kept(told.stdout, told.stderr)
    assert holder.wait().status == 79


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_password_in_a_nodes_name_is_not_shown(dlock, at, echo):
    with at.server.client() as c:
        c.ensure_path(at.job)
        for name in (f"{echo}__lock__1", f"{'x' * 70}{echo}__lock__1"):  # the second is cut in the middle
            c.create(f"{at.job}/{name}")
            done = dlock.run("run", *named(at), "-k", "job", "-v", "-O", "acl=open", "--", "true")
            assert done.status == 76 and "another kind" in done.stderr
            assert_kept(done.stderr)
            c.delete(f"{at.job}/{name}")


# ---- what only a dlock says of itself ----


def test_waiter_says_so_in_its_record(dlock, at):
    """Those behind it know by that that its turn is not yet taken, and, later, that it had to wait."""
    holder = dlock.hold(at, "job")
    waiter = dlock.contend(at, "job", "--who", "bob").queued(1)
    with at.server.client() as c:
        def records():
            return [json.loads(c.get(f"{at.job}/{name}")[0]) for name in nodes(c, at.job)]

        wait_for(lambda: records()[1].get("dlock") == "waiting", what="the waiter's word")
        assert "dlock" not in records()[0] and records()[1]["who"] == "bob"
        assert holder.finish().status == 0
        waiter.held()
        wait_for(lambda: records()[0].get("dlock") == "waited", what="the holder's word")
        assert waiter.finish().status == 0


@pytest.mark.parametrize("data", [
    b"", b"dlock", b'"waiting"', b'["dlock","waiting"]', b'{"dlock":true}', b'{"dlock":"Waiting"}', b'{"dlock":{"waiting":1}}',
    b'{"who":"x","dlock":"waiting"', b'{"dlock":"waiting"}}', b'{"dlock":"waiting","dlock":"waiting"}',
    b'{"dlock":"waiting"}\0', b'{"dlock":"waited"}', b"{" * 3000,
], ids=range(13))
def test_no_node_is_deleted_for_what_no_waiter_writes(dlock, at, data):
    with at.server.client() as c:
        c.ensure_path(at.job)
        c.create(f"{at.job}/_c_22222222-2222-2222-2222-222222222222-lock-", data, ephemeral=True, sequence=True)
        assert run(dlock, at.url, "-w", "5s").status == 75
        assert c.get(f"{at.job}/{nodes(c, at.job)[0]}")[0] == data  # nor changed
