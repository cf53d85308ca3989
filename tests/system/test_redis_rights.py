# Goal of these tests: with the rules that dlock-backends(7) has for who locks and who looks,
# each subcommand does what it is for; who lacks one is told which.

import pytest

from support import At

LOCKS = ("~dlock:* &dlock:* +eval +evalsha +select +subscribe +publish +time +hget +hset +hdel +hexists +ping +zadd +zrem "
         "+zrange +zrangebyscore +zrevrange +zscore +zcard +zrank +pexpireat").split()
LOOKS = ("%R~dlock:* +eval_ro +evalsha_ro +select +time +type +scan +zscan +hget +zrange +zrangebyscore +zscore +zcard "
         "+zcount +zrank").split()
RUN = ("run", "-n", "-k", "job", "--", "true")
LOOK = [("status", "-k", "job"), ("ls",), ("wait", "-w", "1s", "-k", "job")]
STEER = [("freeze", "-k", "job"), ("thaw", "-y", "-k", "job"), ("break", "-y", "-k", "job")]


@pytest.fixture
def at(make_redis):
    """Makes a place for a user with these rules."""
    server = make_redis()

    def make(*rules):
        with server.client() as c:
            c.execute_command("ACL", "SETUSER", "some", "reset", "on", ">any", *rules)
        return At(f"redis://some:any@127.0.0.1:{server.port}")

    return make


def do(dlock, place, words):
    return dlock.run(words[0], *place.words, *words[1:])


def test_who_locks(dlock, at):
    assert do(dlock, at(*LOCKS), RUN).status == 0


def test_who_looks(dlock, at):
    place = at(*LOOKS)
    assert [do(dlock, place, words).status for words in LOOK] == [1, 0, 0]


def test_who_steers(dlock, at):
    """Frozen, thawed, and nothing to break."""
    place = at(*LOCKS, *LOOKS)
    assert [do(dlock, place, words).status for words in STEER] == [0, 0, 1]


@pytest.mark.parametrize("words", [*LOOK, *STEER[1:]], ids=lambda w: w[0])
def test_who_may_not_look_is_told_so(dlock, at, words):
    done = do(dlock, at(*LOCKS), words)
    assert done.status == 77 and "+evalsha_ro" in done.stderr and "+@all" not in done.stderr, done


@pytest.mark.parametrize("words", [RUN, STEER[0]], ids=lambda w: w[0])
def test_who_may_not_lock_is_told_so(dlock, at, words):
    done = do(dlock, at(*LOOKS), words)
    assert done.status == 77 and "&dlock:*" in done.stderr, done


@pytest.mark.parametrize("right", ["eval", "evalsha", "time", "hget", "hset", "zadd", "zscore"])
def test_each_right_to_lock_is_needed(dlock, at, right):
    done = do(dlock, at(*LOCKS, f"-{right}"), RUN)
    assert done.status == 77 and "&dlock:*" in done.stderr, done
