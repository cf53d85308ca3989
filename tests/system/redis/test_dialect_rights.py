# Goal of these tests: with the rules that dlock-redis-dialects(7) has for each role, each
# subcommand does what it is for, in each dialect; and none of these rules is too much.

import pytest

from redis_dialects import A, D, DIALECTS, Redisson
from support import At, rules_of, wait_for

KEY = "app:nightly"
KINDS = {"symfony": ("-s",), "redisson-rw": ("-s",), "redisson-semaphore": ("--limit", "1")}
QUEUE = f"redisson_lock_queue:{{{KEY}}}"


def rules(group, user):
    return rules_of(user, "dlock-redis-dialects.7", below={"string": "With string", "symfony": "With Symfony", "redisson": "With Redisson"}[group])


def place_of(server, dialect, *granted):
    if granted:
        with server.client() as c:
            c.execute_command("ACL", "SETUSER", "some", "reset", "on", ">any", *granted)
    place = At(f"redis://some:any@127.0.0.1:{server.port}" if granted else server.url)
    place.words += ["-O", f"dialect={dialect}"]
    place.counted = dialect == "redisson-fair"
    return place


def denied(client):
    """What the server refused, but for questions about its settings, which nobody needs."""
    return {entry["object"] for entry in client.acl_log()} - {"info", "config|get"}


@pytest.mark.parametrize("key", [KEY, "app:{a}b"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_rights_of_each_role_suffice(dlock, own_redis, dialect, key):
    group, kind = dialect.partition("-")[0], KINDS.get(dialect, ())
    more = ["~redisson_*", "&redisson_*"] if "{" in key and group == "redisson" else []
    with own_redis.client() as client:
        patterns = [rule for rule in rules(group, "oncall") if rule[0] in "~&"]
        for granted in ([*patterns, "+@all", "-@dangerous"], rules(group, "dlock"), rules(group, "oncall")):
            place = place_of(own_redis, dialect, *granted, *more)
            hold = dlock.hold(place, key, *kind, "-t", "9s")
            other = kind if kind != ("-s",) else ()
            quitter = dlock.run("run", *place.words, "-k", key, *other, "-w", "300ms", "--", "true")
            waiter = dlock.contend(place, key, *other).queued(1)
            assert quitter.status == 75 and hold.finish().status == 0 and waiter.held().finish().status == 0
        hold = dlock.hold(place, key, *kind)
        for user in ("watcher", "oncall"):
            place = place_of(own_redis, dialect, *rules(group, user), *more)
            done = [dlock.run(*words) for words in (("status", *place.words, key), ("ls", *place.words),
                                                    ("wait", *place.words, "-w", "100ms", key))]
            assert [d.status for d in done] == [0, 0, 75] and key in done[1].stdout, done
        assert denied(client) == set()
        hold.destroy()


def test_what_redissons_dialects_need_in_a_cluster(dlock, redis_cluster):
    """A waiter listens, and a release tells, also where the slot is."""
    owner = redis_cluster.owner(KEY)
    for more, missing in (([], {"ssubscribe", "spublish"}), (["+ssubscribe", "+spublish"], set())):
        for node in redis_cluster.nodes:
            with node.client() as c:
                c.script_flush()
                c.acl_log_reset()
                c.execute_command("ACL", "SETUSER", "some", "reset", "on", ">any", *rules("redisson", "dlock"), *more)
        place = At(redis_cluster.url.replace("//", "//some:any@"))
        place.words += ["-O", "dialect=redisson"]
        hold = dlock.hold(place, KEY)
        waiter = dlock.contend(place, KEY).queued()
        assert hold.finish().status == 0 and waiter.held().finish().status == 0
        refused = set()
        for node in redis_cluster.nodes:
            with node.client() as c:
                refused |= denied(c)
        assert refused == missing, owner
    for node in redis_cluster.nodes:
        with node.client() as c:
            c.acl_deluser("some")


class Scenes:
    """All that this user might do, beside others who may do everything."""

    def __init__(self, dlock, server, dialect, place, client):
        self.dlock, self.place, self.client, self.name = dlock, place, client, dialect
        self.everything, self.kind, self.redisson = place_of(server, dialect), KINDS.get(dialect, ()), Redisson(client, KEY)
        self.writes = () if dialect in ("redisson-rw", "symfony") else self.kind

    def do(self, subcommand, *words):
        self.client.script_flush()  # so that an answer does not depend on what was asked before
        return self.dlock.run(subcommand, *self.place.words, *words)

    def lock(self, *words, command="true"):
        return self.do("run", "-k", KEY, *words, "--", *command.split())

    def renewed(self):
        self.lock(*self.kind, "-t", "3s", command="sleep 1.5")

    def behind_a_dead_one(self):
        if self.name == "redisson-semaphore":
            self.redisson.set_permits(1)
            self.redisson.take_permit("a" * 16, 1, 1)
            self.lock(*self.kind)

    def behind_an_older_one(self):
        if self.name == "symfony":
            self.client.set(KEY, "a" * 32, px=60000)
            self.lock("-n")

    def before_another(self):
        """It gives up, and who stands behind it comes earlier by that."""
        if self.name == "redisson-fair":
            self.redisson.fair(A)
            waiter = self.dlock.start("run", *self.place.words, "-w", "1s", "-k", KEY, "--", "true")
            wait_for(lambda: self.client.llen(QUEUE) == 1 or waiter.poll() is not None)
            self.redisson.fair(D)
            self.do("status", KEY)
            waiter.wait()

    def in_turn(self):
        """Free, held, looked at, taken away."""
        for kind in {self.kind, self.writes}:
            self.lock(*kind)
            self.client.flushall()  # for a user without a right to release it
        hold = self.dlock.hold(self.everything, KEY, *self.kind)
        self.lock(*self.kind, "-n")
        self.lock(*self.writes, "-w", "300ms")
        for words in (("status", KEY), ("ls",), ("wait", "-w", "100ms", KEY), ("break", "--force", "-y", KEY)):
            self.do(*words)
        hold.destroy()

    def by_token(self):
        hold = self.dlock.hold(self.everything, KEY, *self.kind)
        self.do("break", "--force", "--token", str(hold.token), KEY)
        hold.destroy()

    ALL = (in_turn, by_token, renewed, behind_a_dead_one, behind_an_older_one, before_another)


@pytest.mark.parametrize("group, user", [(g, u) for g in ("string", "symfony", "redisson") for u in ("dlock", "watcher", "oncall")])
def test_no_right_of_the_manual_is_too_much(dlock, own_redis, group, user):
    """Who has none of these commands is granted those that the server refuses, one by one: in the end they are all."""
    granted = rules(group, user)
    keys, given = [r for r in granted if r[0] != "+"], {"+select"}  # for another database, see test_rights.py
    with own_redis.client() as client:
        for dialect in (d for d in DIALECTS if d.startswith(group)):
            for scene in Scenes.ALL:
                quiet = 0
                while quiet < 2:  # a round of a machine that is late may end before all was asked
                    client.flushall()
                    client.acl_log_reset()
                    scene(Scenes(dlock, own_redis, dialect, place_of(own_redis, dialect, *keys, *given), client))
                    more = ({f"+{refused}" for refused in denied(client)} & {*granted}) - given
                    given |= more
                    quiet = 0 if more else quiet + 1
    assert given == {*granted} - {*keys}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_pattern_of_the_manual_is_too_much(dlock, own_redis, dialect):
    """Those of Redisson's dialects are there for all five."""
    granted, told = rules(dialect.partition("-")[0], "oncall"), set()
    with own_redis.client() as client:
        for pattern in (r for r in granted if r[0] in "~&"):
            client.flushall()
            client.acl_log_reset()
            Scenes(dlock, own_redis, dialect, place_of(own_redis, dialect, *(r for r in granted if r != pattern)), client).in_turn()
            told |= {pattern} if denied(client) else set()
    patterns = {r for r in granted if r[0] in "~&"}
    never = {"string": set(), "symfony": set(), "redisson-rw": set(), "redisson-semaphore": set()}.get(dialect, {"~{app:*}:*"})
    assert patterns - told == never
