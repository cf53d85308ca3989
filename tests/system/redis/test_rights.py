# Goal of these tests: with the rules that dlock-redis(7) has for who locks and who looks,
# each subcommand does what it is for; who lacks one is told which.

import re
import subprocess

import pytest

from manual import block
from support import ROOT, At, rules_of, told_at_the_end, wait_for

LOCKS, LOOKS, STEERS = rules_of("dlock"), rules_of("watcher"), rules_of("oncall")
RUN = ("run", "-n", "-k", "job", "--", "true")
LOOK = [("status", "-k", "job"), ("ls",), ("wait", "-w", "1s", "-k", "job")]
JOBS = ("ls", "--jobs")
FORGET = ("forget", "-y", "job")
STEER = [("freeze", "-k", "job"), ("thaw", "-y", "-k", "job"), ("break", "-y", "-k", "job")]


@pytest.fixture
def at(make_redis):
    """Makes a place for a user with these rules."""
    server = make_redis()

    def make(*rules):
        with server.client() as c:
            c.script_flush()  # so that an answer does not depend on what was asked before
            c.execute_command("ACL", "SETUSER", "some", "reset", "on", ">any", *rules)
        place = At(f"redis://some:any@127.0.0.1:{server.port}")
        place.server = server
        return place

    return make


def do(dlock, place, words):
    return dlock.run(words[0], *place.words, *words[1:])


def test_who_locks(dlock, at):
    """And freezes, for that needs no look."""
    place = at(*LOCKS)
    assert [do(dlock, place, words).status for words in (RUN, STEER[0])] == [0, 0]


def test_who_looks(dlock, at):
    place = at(*LOOKS)
    assert [do(dlock, place, words).status for words in (*LOOK, JOBS)] == [1, 0, 0, 0]


@pytest.mark.parametrize("less", ["+subscribe", "&dlock:*"])
def test_who_may_not_listen_hears_of_a_break_by_a_renewal(dlock, at, less):
    """And is not told of it, nor tries again with each."""
    place = at(*(r for r in LOCKS if r != less))
    steerer = At(place.words[-1].replace("some:any@", ""))
    holder = dlock.hold(place, "job", "-t", "6s")
    with place.server.client() as c:
        wait_for(lambda: c.info("commandstats")["cmdstat_evalsha"]["calls"] >= 5, what="renewals")
        assert c.info("commandstats").get("cmdstat_subscribe", {}).get("rejected_calls", 0) <= 1
        assert [log["count"] for log in c.acl_log() if log["object"] == "subscribe" or log["reason"] == "channel"] == [1]
    assert told_at_the_end(holder.stderr()) == ""
    assert dlock.run("break", "-y", *steerer.words, "-k", "job").status == 0
    assert holder.wait().status == 79


@pytest.mark.parametrize("less", ["+publish", "&dlock:*"])
def test_who_may_not_publish_breaks_all_the_same(dlock, at, less):
    holder = dlock.hold(At(at("~*", "&*", "+@all").words[-1].replace("some:any@", "")), "job", "-t", "3s")
    assert do(dlock, at(*(r for r in STEERS if r != less)), STEER[2]).status == 0
    assert holder.wait().status == 79


def test_who_steers(dlock, at):
    """Frozen, thawed, and nothing to break."""
    place = at(*STEERS)
    assert {*STEERS, "%R~dlock:*"} == {*LOCKS, *LOOKS}
    assert [do(dlock, place, words).status for words in (*STEER, RUN, *LOOK, JOBS, FORGET)] == [0, 0, 1, 0, 1, 0, 0, 0, 1]
    assert do(dlock, place, ("run", "--once", "a", *RUN[1:])).status == 0 and do(dlock, place, FORGET).status == 0


@pytest.mark.parametrize("words", [*LOOK, *STEER[1:], JOBS, FORGET], ids=lambda w: w[0])
def test_who_may_not_look_is_told_so(dlock, at, words):
    done = do(dlock, at(*LOCKS), words)
    assert done.status == 77 and "+evalsha_ro" in done.stderr and "+@all" not in done.stderr, done


@pytest.mark.parametrize("words", [RUN, STEER[0], (*FORGET, "a")], ids=lambda w: w[0])
def test_who_may_not_lock_is_told_so(dlock, at, words):
    done = do(dlock, at(*LOOKS), words)
    assert done.status == 77 and "~dlock:{job}:* &dlock:{job}:* " in done.stderr, done


GRANT = "~ evalsha time hget hset zadd zrange zrangebyscore zrevrange zscore zcard pexpireat".split()
READ = "evalsha_ro time type hget zrange zcard".split()
LOCKING, LOOKING = "&dlock:{job}:*", "%R~dlock:"
# What is there, the words, the role that the hint names, and the rights that cannot be missing.
SCENES = {
    "run": ("", RUN, LOCKING, ["eval", *GRANT]),
    "run that waits": ("held", ("run", "-w", "100ms", *RUN[2:]), LOCKING, [*GRANT, "subscribe", "&", "zrank"]),
    "freeze": ("", STEER[0], LOCKING, ["evalsha", "hdel", "hget", "hset", "time", "zcard", "~"]),
    "thaw, its look": ("frozen", STEER[1], LOOKING, READ),
    "thaw": ("frozen", STEER[1], LOCKING, ["evalsha", "hdel", "~"]),
    "break, its look": ("held", STEER[2], LOOKING, [*READ, "eval_ro", "zscore"]),
    "break": ("held", STEER[2], LOCKING, ["evalsha", "hset", "zrem", "~"]),
    "status": ("held", LOOK[0], LOOKING, [*READ, "eval_ro", "zscore"]),
    "ls": ("held", LOOK[1], LOOKING, [*READ, "eval_ro", "zscore", "scan"]),
    "ls --jobs": ("done", JOBS, LOOKING, ["evalsha_ro", "eval_ro", "time", "type", "hget", "scan"]),
    "forget, its look": ("done", FORGET, LOOKING, ["evalsha_ro", "eval_ro", "time", "type", "hget", "scan"]),
    "forget": ("done", (*FORGET, "a"), LOCKING, ["evalsha", "hdel", "hget", "zrem", "time", "~"]),
    "wait": ("held", LOOK[2], LOOKING, [*READ, "eval_ro", "zscore"]),
}


@pytest.mark.parametrize("scene", SCENES)
def test_each_right_that_cannot_be_missing(dlock, at, scene):
    there, words, role, rights = SCENES[scene]
    everything = at("~dlock:*", "&dlock:*", "+@all")
    if there == "held":
        dlock.hold(everything, "job")
    elif there == "frozen":
        dlock.run("freeze", *everything.words, "-k", "job")
    elif there == "done":
        dlock.run("run", *everything.words, "-k", "job", "--once", "a", "--", "true")
    told = {}
    for right in rights:
        place = at(*(r for r in {*LOCKS, *LOOKS} if r not in (f"+{right}", f"{right}dlock:*")))
        done = do(dlock, place, words)
        told[right] = (done.status, role in done.stderr)
    assert told == dict.fromkeys(rights, (77, True))


def test_no_right_of_the_manual_is_too_much():
    """Each is one that some scene cannot do without; for the others it is said here why they are there."""
    needed = {right if right in "~&" else f"+{right}" for _, _, _, rights in SCENES.values() for right in rights}
    needed |= {"~dlock:*", "&dlock:*", "%R~dlock:*"}
    of_long_queues = {"+zscan", "+zcount"}  # a look that comes in pages
    assert {*LOCKS} - needed == {
        "+select",  # another database, see below
        "+publish",  # who waits is called, or asks
        "+ping",  # before a release
    }, {*LOCKS} - needed
    assert {*LOOKS} - needed - of_long_queues - {*LOCKS} == set()


MORE = [word for word in block("dlock-redis.7", "SETUSER dlock +eval_ro").split() if word.startswith("+")]


@pytest.mark.parametrize("option", [("--unless-frozen", "all"), ("--newest",)], ids=lambda o: o[0])
def test_a_run_that_looks_needs_more(dlock, at, option):
    """As the manual says; each of the rights cannot be missing, but for those of long queues."""
    words = ("run", *option, *RUN[1:])
    for rules, status in ((LOCKS, 77), (STEERS, 0), ([*LOCKS, *MORE], 0)):
        done = do(dlock, at(*rules), words)
        assert done.status == status and (status == 0 or f"which {option[0]} needs" in done.stderr), done
    for right in {*MORE} - {"+zscan", "+zcount"}:
        assert do(dlock, at(*LOCKS, *(r for r in MORE if r != right)), words).status == 77, right
    if option[0] == "--unless-frozen":
        place = at(*LOCKS, *MORE)
        assert [do(dlock, place, w).status for w in (("freeze", "all"), words)] == [0, 75]


def test_another_database_needs_a_right(dlock, at):
    place = at(*(r for r in LOCKS if r != "+select"))
    url = place.words[place.words.index("-u") + 1]
    done = dlock.run("run", "-n", "-u", f"{url}/1", "-k", "job", "--", "true")
    assert done.status == 77 and "select" in done.stderr.lower(), done
    assert do(dlock, place, RUN).status == 0


@pytest.mark.parametrize("right", ["hdel", "zrem"])
def test_who_may_lock_but_not_release_is_told_so(dlock, at, right):
    done = do(dlock, at(*LOCKS, f"-{right}"), RUN)
    assert done.status == 0 and "the release was not confirmed" in done.stderr, done


def test_who_may_not_read_a_key_is_told_so(dlock, at):
    """The server checks the keys before it runs a script, in words of its own."""
    dlock.run("freeze", *at("~dlock:*", "&dlock:*", "+@all").words, "-k", "job")
    done = do(dlock, at(*(r for r in LOOKS if "~" not in r)), LOOK[1])
    assert done.status == 77 and "%R~dlock:*" in done.stderr, done


# ---- the rights of special cases ----


def team(rules):
    """Those of a user who has keys that begin with billing/."""
    return [rule.replace("dlock:*", "dlock:{billing%2F*") for rule in rules]


def test_a_team_has_its_own_keys_and_no_others(dlock, at):
    everything = at("~*", "&*", "+@all")
    dlock.hold(everything, "shipping/x")
    dlock.hold(everything, "billing/x")
    place = at(*team(STEERS))
    assert do(dlock, place, ("run", "-n", "-k", "billing/y", "--", "true")).status == 0
    for key, looks, steers in (("billing/x", 0, 0), ("shipping/x", 77, 77)):
        run = do(dlock, place, ("run", "-n", "-k", key, "--", "true"))
        assert run.status == {0: 75}.get(looks, 77)
        assert not looks or ("~dlock:{shipping%2Fx}:* " in run.stderr and "dlock:* " not in run.stderr), run  # not all teams' keys
        assert do(dlock, place, ("status", key)).status == looks
        assert do(dlock, place, ("break", "-y", "--force", key)).status == steers
        assert do(dlock, place, ("freeze", key)).status == steers
    listed = do(dlock, place, ("ls",))
    assert listed.status == 77 and "shipping" not in listed.stdout
    assert do(dlock, at(*team(STEERS), "%R~dlock:*"), ("ls",)).status == 0
    assert do(dlock, at(*team(STEERS), "%R~dlock:*"), ("break", "-y", "--force", "shipping/x")).status == 77


def test_a_switch_for_all_teams_needs_a_pattern(dlock, at):
    with open(f"{ROOT}/man/dlock-redis.7", encoding="utf-8") as page:
        pattern, = re.findall(r"^\.Li (%R~dlock:\{\S+) \.$", page.read(), re.M)
    words = ("run", "-n", "--unless-frozen", "all-deploys", "-k", "billing/x", "--", "true")
    assert [do(dlock, at(*team(STEERS), *more), words).status for more in ((), (pattern,))] == [77, 0]
    assert do(dlock, at(*STEERS), ("freeze", "all-deploys")).status == 0
    place = at(*team(STEERS), pattern)
    assert [do(dlock, place, w).status for w in (words, ("thaw", "-y", "all-deploys"))] == [75, 77]


def test_three_teams_share_a_server_as_the_manual_types_it(dlock, make_redis):
    server = make_redis()
    typed = block("dlock-redis.7", "for team in").replace("redis-cli", f"redis-cli -p {server.port}")
    assert subprocess.run(["bash", "-c", typed], stdout=subprocess.PIPE, text=True, check=True).stdout == "OK\n" * 3
    for team_ in ("shop", "billing", "search"):
        url = server.url.replace("redis://", f"redis://{team_}:password-of-{team_}@")
        for other in ("shop", "billing", "search"):
            status = 0 if team_ == other else 77
            assert dlock.run("run", "-n", "-u", url, "-k", f"{other}/deploy", "--", "true").status == status
            assert dlock.run("freeze", "-u", url, f"{other}/deploy").status == status
            assert dlock.run("status", "-u", url, f"{other}/deploy").status == status
            assert dlock.run("thaw", "-y", "-u", url, f"{other}/deploy").status == status


@pytest.mark.parametrize("more, status", [([], 69), (["+wait"], 0)], ids=str)
def test_who_waits_for_replicas_needs_a_right(dlock, make_redis, more, status):
    server = make_redis()
    replica = make_redis("--replicaof", f"127.0.0.1 {server.port}")
    with server.client() as c, replica.client() as r:
        c.execute_command("ACL", "SETUSER", "some", "on", ">any", *LOCKS, *more)
        wait_for(lambda: r.info("replication")["master_link_status"] == "up", what="the replica")
        wait_for(lambda: c.info("replication").get("slave0", {}).get("state") == "online", what="the master to know of it")
    words = ["-u", f"redis://some:any@127.0.0.1:{server.port}", "-O", "wait-replicas=1"]
    done = dlock.run("run", "-n", *words, "-k", "job", "--", "true")
    assert done.status == status and (status == 0 or "NOPERM" in done.stderr), done


@pytest.fixture
def user_of_the_cluster(redis_cluster):
    """Makes one on each node."""

    def make(*rules):
        for node in redis_cluster.nodes:
            with node.client() as c:
                c.script_flush()
                c.execute_command("ACL", "SETUSER", "some", "reset", "on", ">any", *rules)
        return At(redis_cluster.url.replace("//", "//some:any@"))

    yield make
    for node in redis_cluster.nodes:
        with node.client() as c:
            c.acl_deluser("some")


def test_who_lists_a_cluster_needs_a_right(dlock, user_of_the_cluster):
    place = user_of_the_cluster(*LOOKS)
    assert [do(dlock, place, words).status for words in LOOK] == [1, 77, 0]
    assert [do(dlock, user_of_the_cluster(*LOOKS, "+cluster|slots"), words).status for words in LOOK] == [1, 0, 0]


def test_who_waits_for_a_slot_that_moves_needs_a_right(dlock, redis_cluster, user_of_the_cluster):
    key = "asked"
    source = redis_cluster.owner(key)
    to = next(m for m in redis_cluster.masters if m is not source)
    redis_cluster.begin_move(key, to)  # what is not here is there
    try:
        run = ("run", "-n", "-k", key, "--", "true")
        assert do(dlock, user_of_the_cluster(*LOCKS), run).status == 77
        done = do(dlock, user_of_the_cluster(*LOCKS, "+asking"), run)
        assert done.status == 69 and "TRYAGAIN" in done.stderr, done
    finally:
        for node in (source, to):
            node.ask("SETSLOT", redis_cluster.slot(key), "STABLE")


@pytest.mark.parametrize("more, tells", [("", False), (" +sentinel|master", True)], ids=["least", "told"])
def test_the_rights_of_a_sentinels_user(dlock, make_forms, more, tells):
    rules = f"reset on nopass -@all +sentinel|get-master-addr-by-name{more}"
    forms = make_forms(n=1, down_after=30000)
    with forms.sentinels[0].client() as c:
        c.execute_command("ACL", "SETUSER", "default", *rules.split())
    done = dlock.run("run", "-n", "-v", "-u", forms.url, "-k", "job", "--", "true")
    assert (done.status, "a fail-over takes at least" in done.stderr) == (0, tells), done
