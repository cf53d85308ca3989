# Goal of these tests: several keys are one lock: all of them or none, whoever
# else takes some of them in whatever order, and whoever dies when.

import json
import os
import signal
import subprocess

import pytest

from support import BRIEFLY, DLOCK, FilePlace, RedisPlace, descendants_of, is_alive, place_id, places, told_at_the_end, wait_for, where

LEASE = ("-t", "6s")

QUICK = [p for p in places() if p in (FilePlace, RedisPlace)]  # where a hundred rounds take seconds


@pytest.fixture(params=QUICK, ids=place_id)
def quick(request):
    return request.param(request)


@pytest.fixture
def redis(request, redis_server):
    return RedisPlace(request)


def keys(place, names):
    """Words for these keys, one letter each."""
    return [word for name in names for word in ("-k", place.key(name))]


def start(dlock, place, names, *options, command=("cat",), **arguments):
    arguments.setdefault("stdin", subprocess.PIPE)
    return dlock.start("run", *place.words, *keys(place, names), *options, "--", *command, **arguments)


def is_free(dlock, place, name):
    return dlock.run("run", *place.words, *keys(place, name), "-n", "--", "true").status == 0


def free(dlock, place, names):
    return "".join(name for name in names if is_free(dlock, place, name))


# ---- what is asked for, and what the command is told ----


def test_the_command_is_told_every_token(dlock, place):
    names = ["z", 'quo"te', "back\\slash", "\u00fcml\u00e4ut", "a b", "k" * 400]
    words = [word for name in names for word in ("-k", place.key(name))]
    done = dlock.run("run", *place.words, *words, "--", "env", "-0", env={"DLOCK_TOKENS": "of an outer one"})
    assert (done.status, done.stderr) == (0, "")
    env = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    tokens = json.loads(env["DLOCK_TOKENS"])
    assert list(tokens) == [place.key(name) for name in names]  # as named
    assert all(isinstance(token, int) and token > 0 for token in tokens.values())
    assert env["DLOCK_KEY"] == place.key("z")
    assert int(env["DLOCK_TOKEN"]) == tokens[place.key("z")]
    again = dlock.run("run", *place.words, *reversed_pairs(words), "--", "printenv", "DLOCK_TOKENS")
    later = json.loads(again.stdout)
    assert all(later[key] > tokens[key] for key in tokens)


def reversed_pairs(words):
    return [word for i in range(len(words) - 2, -1, -2) for word in words[i:i + 2]]


def test_sixteen_of_the_longest_keys(dlock, quick):
    names = [chr(ord("a") + i) + '"' * (511 - len(quick.key(""))) for i in range(16)]
    words = [word for name in names for word in ("-k", quick.key(name))]
    started = dlock.start("run", *quick.words, *words, "--", "printenv", "DLOCK_TOKENS")
    done = started.wait()
    assert (done.status, done.stderr) == (0, "")
    assert list(json.loads(done.stdout)) == [quick.key(name) for name in names]
    assert started.event("acquired")["key"] == quick.key(names[0])  # and `keys` does not fit into a line


def test_with_one_key_there_are_no_tokens(dlock, quick):
    done = dlock.run("run", *quick.words, *keys(quick, "a"), "--", "env", env={"DLOCK_TOKENS": "of an outer one"})
    assert done.status == 0 and "DLOCK_TOKEN=" in done.stdout and "DLOCK_TOKENS" not in done.stdout


def test_events_name_all_keys(dlock, quick):
    started = start(dlock, quick, "ba").held()
    assert started.finish().status == 0
    assert [e["keys"] for e in started.events()] == [[quick.key("b"), quick.key("a")]] * len(started.events())
    single = start(dlock, quick, "a").held()
    single.finish()
    assert not any("keys" in e for e in single.events())


@pytest.mark.parametrize("names, words", [
    ("aba", ["'a'", "twice"]), ("abcdefghijklmnopq", ["'q'", "up to 16 keys"]),
])
def test_wrong_keys_are_one_line(dlock, tmp_path, names, words):
    done = dlock.run("run", "-u", f"file://{tmp_path}", *[w for n in names for w in ("-k", n)], "--", "echo", "ran")
    assert (done.status, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    assert all(word in done.stderr for word in ("--key", *words))


@pytest.mark.parametrize("words", [
    pytest.param(["-u", "zk://127.0.0.1:1", "-O", "path=/a"], marks=pytest.mark.zk),
    pytest.param(["-u", "postgresql://127.0.0.1:1/", "-O", "mode=advisory", "-O", "key=7"], marks=pytest.mark.pg),
], ids=["zk", "pg"])
def test_a_setting_that_names_the_lock_goes_with_one_key(dlock, words):
    done = dlock.run("run", *words, "-n", "-k", "a", "-k", "b", "--", "echo", "ran")
    assert (done.status, done.stdout, done.stderr.count("\n")) == (64, "", 1), done
    assert "several keys" in done.stderr


def test_no_descriptor_reaches_the_command(dlock, quick):
    done = start(dlock, quick, "abc", command=("ls", "/proc/self/fd"), events=False).wait()
    assert done.stdout.split() == ["0", "1", "2", "3"]  # the last one is that of ls


def test_who_need_not_wait_is_not_told_of_waiting(dlock, place):
    started = start(dlock, place, "ba").held()
    assert started.finish().status == 0
    assert started.events("waiting") == []


# ---- all or none ----

# Seconds: dlock waits for the answer of a server only so long, and ends.  Much less than the lease.
GIVEN_BACK = 10


def test_while_all_are_held_none_is_to_be_had(dlock, place):
    held = start(dlock, place, "cab").held()
    assert free(dlock, place, "abcd") == "d"
    assert held.finish().status == 0
    wait_for(lambda: free(dlock, place, "abc") == "abc", GIVEN_BACK, "the keys")


def test_one_that_is_busy_is_named_and_nothing_is_taken(dlock, place):
    holder = start(dlock, place, "b", "--who", "alice@ci").held()
    for how in (("-n",), ("-w", BRIEFLY)):
        done = start(dlock, place, "cba", *how, command=("echo", "ran")).wait()
        assert (done.status, done.stdout, done.stderr.count("\n")) == (75, "", 1), done
        assert done.stderr.startswith(f"dlock: {place.key('b')} (") and "alice@ci" in done.stderr
        wait_for(lambda: free(dlock, place, "abc") == "ac", GIVEN_BACK, "the keys that were taken")
    assert holder.finish().status == 0
    assert is_free(dlock, place, "b")


def test_a_command_that_cannot_run_leaves_all_free(dlock, quick, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/nonexistent/interpreter\n")
    script.chmod(0o755)
    assert start(dlock, quick, "ab", command=(script,)).wait().status == 127
    assert free(dlock, quick, "ab") == "ab"


def test_interrupted_while_waiting_leaves_all_free(dlock, place):
    holder = start(dlock, place, "b").held()
    waiting = start(dlock, place, "ba").queued()
    assert not is_free(dlock, place, "a")
    waiting.signal(signal.SIGTERM)
    assert waiting.wait().status == -signal.SIGTERM
    wait_for(lambda: is_free(dlock, place, "a"), GIVEN_BACK, "the key that was taken")
    assert holder.finish().status == 0
    assert is_free(dlock, place, "b")


# ---- order: nobody deadlocks, nobody starves ----

# Fails if another is inside with one of the same keys: the shell itself then finds its file there.
ALONE = 'set -C; for f; do true >"$f" || exit 99; done; rm "$@"'


def loop(dlock, place, names, rounds, inside):
    """Takes these keys so many times, or until the file `inside`/over is there."""
    run = [DLOCK, "run", *place.words, *keys(place, names), "--", "sh", "-c", ALONE, "sh",
           *[os.path.join(inside, name) for name in names]]
    script = f'i=0; while [ $i -lt {rounds} ] && ! [ -e "{inside}/over" ]; do "$@" || exit; echo >>"{inside}/turns"; i=$((i+1)); done'
    return subprocess.Popen(["sh", "-c", script, "sh", *run], env=dlock.env)


def ends(inside, loops):
    """How they end.  However slow they are: while one of them takes its turn within less than a lease, nobody is in anybody's way."""
    turns = inside / "turns"
    turns.touch()
    try:
        while any(each.poll() is None for each in loops):
            taken = turns.stat().st_size
            wait_for(lambda taken=taken: turns.stat().st_size > taken or all(each.poll() is not None for each in loops), 20, "a turn")
        return [each.returncode for each in loops]
    finally:
        for each in loops:
            for pid in descendants_of(each.pid):
                if each.poll() is None:
                    os.kill(pid, signal.SIGKILL)
            each.kill()


def test_opposite_orders_never_deadlock(dlock, quick, tmp_path):
    assert ends(tmp_path, [loop(dlock, quick, "ab", 100, tmp_path), loop(dlock, quick, "ba", 100, tmp_path)]) == [0, 0]


def test_five_philosophers_eat(dlock, quick, tmp_path):
    assert ends(tmp_path, [loop(dlock, quick, ("ab", "bc", "cd", "de", "ea")[i], 20, tmp_path) for i in range(5)]) == [0] * 5


def test_a_stream_of_single_keys_starves_nobody(dlock, quick, tmp_path):
    stream = [loop(dlock, quick, name, 10 ** 9, tmp_path) for name in "abcabc"]
    try:
        for _ in range(3):
            assert start(dlock, quick, "cba", command=("true",)).wait().status == 0
    finally:
        (tmp_path / "over").touch()
    assert ends(tmp_path, stream) == [0] * 6


@where(lambda place: place.fair)
def test_a_waiter_keeps_its_place_in_every_queue(dlock, place):
    holder = start(dlock, place, "b").held()
    first = start(dlock, place, "ab").queued()
    second = start(dlock, place, "b").queued()
    third = start(dlock, place, "a").queued()
    assert holder.finish().status == 0
    assert first.held().finish().status == 0
    assert second.held().finish().status == 0
    assert third.held().finish().status == 0


# ---- what is held while the next one is waited for ----


def test_what_is_held_while_waiting_outlives_its_lease(dlock, quick):
    """b is held by somebody for longer than the lease that our a has."""
    holder = start(dlock, quick, "b").held()
    waiting = start(dlock, quick, "ab", *LEASE, "-v").queued()
    wait_for(lambda: waiting.stderr().count(f"renew {quick.key('a')}: ok") >= 4, what="a lease and more")
    assert not is_free(dlock, quick, "a")
    holder.finish()
    assert waiting.held().finish().status == 0
    assert waiting.stderr().count(f"acquire {quick.key('a')}: ok") == 1


def take_away(place, name):
    """As an administrator would who knows no better."""
    with place.server.client() as c:
        found = [k for k in c.scan_iter("*") if f"{name}}}:h" in k and place.prefix[:-1] in k]
        assert len(found) == 1, found
        c.delete(*found)


@pytest.mark.redis
def test_one_that_is_lost_while_waiting_is_asked_for_again(dlock, redis):
    holder = start(dlock, redis, "b").held()
    waiting = start(dlock, redis, "ab", *LEASE, "-v").queued()
    thief = start(dlock, redis, "a").queued(1)  # in front of the one that will ask again
    take_away(redis, "a")
    thief.held()
    wait_for(lambda: "asking again" in waiting.stderr(), what="the loss")
    assert holder.finish().status == 0
    behind = start(dlock, redis, "b").held()  # for who waits for a does not have b
    assert behind.finish().status == 0
    assert not waiting.running
    assert thief.finish().status == 0
    assert waiting.held().finish().status == 0
    assert free(dlock, redis, "ab") == "ab"


def test_many_keys_survive_the_restart_of_their_server(dlock, request, own_durable):
    restart = own_durable.crashable(request)
    names = "abcdefgh"
    held = start(dlock, own_durable, names, "-t", max("12s", own_durable.crash_ttl, key=lambda t: int(t[:-1])), "-v").held()
    renewed = [f"renew {own_durable.key(name)}: ok" for name in names]
    restart()
    before = held.stderr()
    wait_for(lambda: all(held.stderr().count(line) > before.count(line) for line in renewed), what="renewals")
    done = held.finish()
    assert done.status == 0, done


# ---- loss ----


@pytest.mark.redis
@pytest.mark.parametrize("name", "abc")
def test_losing_one_is_losing_the_lock(dlock, redis, name):
    held = start(dlock, redis, "bca", "-t", "6s").held()
    command = held.command
    take_away(redis, name)
    done = held.wait()
    assert (done.status, told_at_the_end(done.stderr).count("\n")) == (79, 1)
    assert f"({redis.key(name)}: " in done.stderr
    assert not is_alive(command)
    assert free(dlock, redis, "abc") == "abc"  # the others do not wait for the end of their lease


def test_one_that_was_taken_away_is_found_at_release(dlock, redis):
    held = start(dlock, redis, "ab", "-t", "1h").held()
    take_away(redis, "b")
    done = held.finish()
    assert (done.status, told_at_the_end(done.stderr).count("\n")) == (79, 1)
    assert f"({redis.key('b')}: " in done.stderr
    assert is_free(dlock, redis, "a")


def test_a_job_counts_though_a_key_is_lost_when_the_status_has_been_told(dlock, redis):
    """With --min-hold: dlock has ended with 0, and says so to whoever asks for this ID again."""
    job = ("-w", "30s", "--once", "2026-11-22")
    done = start(dlock, redis, "ab", *LEASE, "--min-hold", "1h", *job, command=("echo", "ran")).wait()
    assert (done.status, done.stdout) == (0, "ran\n")
    take_away(redis, "b")
    again = start(dlock, redis, "ab", *job, command=("echo", "ran")).wait()
    assert (again.status, again.stdout) == (0, ""), again


def test_a_file_that_is_replaced_is_a_loss(dlock, request):
    place = FilePlace(request)
    held = start(dlock, place, "ab", *LEASE).held()
    for f in place.directory.iterdir():
        if f.name.startswith("b"):
            f.unlink()
    done = held.wait()
    assert done.status == 79 and "(b: " in done.stderr
    assert is_free(dlock, place, "a")


# ---- death at any stage ----


@pytest.mark.parametrize("whom", ["front", "keeper", "both"])
def test_who_is_killed_leaves_nothing_behind(dlock, place, whom):
    """While it waits for the first key, for the second, and while it has both."""
    stages = {"first": "a", "second": "b", "both": ""}
    holders = {stage: start(dlock, place, [f"{stage}-{name}" for name in names]).held()
               for stage, names in stages.items() if names}
    killed = {stage: start(dlock, place, [f"{stage}-b", f"{stage}-a"], *LEASE) for stage in stages}
    for stage, names in stages.items():
        _ = killed[stage].queued() if names else killed[stage].held()
    assert not is_free(dlock, place, ["second-a"])
    for started in killed.values():
        keeper = started.keeper
        if whom == "both":
            started.destroy()
        else:
            os.kill(keeper if whom == "keeper" else started.pid, signal.SIGKILL)
            started.wait()
            wait_for(lambda keeper=keeper: not is_alive(keeper), what="the end of the keeper")
    for holder in holders.values():
        assert holder.finish().status == 0
    for stage in stages:
        for name in "ab":
            wait_for(lambda name=f"{stage}-{name}": is_free(dlock, place, [name]), what=f"{stage}-{name} to be free")


def test_every_file_is_locked_until_the_tree_is_gone(dlock, request, tmp_path):
    """The keeper is killed while the front, which has copies of what locks them, sleeps."""
    place = FilePlace(request)
    pid = tmp_path / "pid"
    held = start(dlock, place, "cab", command=("sh", "-c", f"setsid sleep 1000 & echo $! >{pid}; wait")).held()
    daemon = int(wait_for(lambda: pid.exists() and pid.read_text().strip()))
    keeper = held.keeper
    held.signal(signal.SIGSTOP)
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not is_alive(keeper) and not is_alive(held.command), what="the end of the keeper")
    assert is_alive(daemon)
    assert free(dlock, place, "abc") == ""
    held.signal(signal.SIGCONT)
    assert held.wait().status == 79
    assert not is_alive(daemon)
    assert free(dlock, place, "abc") == "abc"


# ---- nested ----


def test_several_that_include_a_held_one_are_refused(dlock, quick):
    inner = [DLOCK, "run", *quick.words, *keys(quick, "ab"), "--", "echo", "ran"]
    done = dlock.run("run", *quick.words, *keys(quick, "a"), "--", *inner)
    assert (done.status, done.stdout) == (76, "") and quick.key("a") in done.stderr
    assert free(dlock, quick, "ab") == "ab"


def test_others_than_the_held_one_are_taken(dlock, quick):
    inner = [DLOCK, "run", *quick.words, *keys(quick, "bc"), "--", "sh", "-c", "echo $DLOCK_TOKENS"]
    done = dlock.run("run", *quick.words, *keys(quick, "a"), "--", *inner)
    assert done.status == 0 and list(json.loads(done.stdout)) == [quick.key("b"), quick.key("c")]
