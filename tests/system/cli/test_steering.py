# Goal of these tests: break, freeze and thaw say what they do, ask before they do it,
# and mean what they have shown.  A fake backend answers; promises/test_looks.py has the real ones.

import json
import signal
import time

import pytest

import support
from support import DLOCK_TEST, PATIENCE, Late, wait_for

pexpect = Late("pexpect")

NOW = 1_764_000_000_000_000  # microseconds since the epoch
SECOND = 1_000_000
ALICE = r'{"pid":4711,"who":"alice","host":"ci-3","command":"deploy.sh","why":"release 4.2"}'
FREEZER = r'{"who":"bob@laptop","why":"weekend"}'


@pytest.fixture(scope="module", autouse=True)
def with_the_fake():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support, "DLOCK", DLOCK_TEST)
        yield


def holder(token=7, record=ALICE, key="deploy", left=21, **more):
    facts = {"key": key, "token": token, "since": NOW - 133 * SECOND, "until": NOW + left * SECOND, "now": NOW,
             "record": record, **more}
    return "\t".join(["holder", *(f"{name}={value}" for name, value in facts.items())]) + "\n"


def frozen(key="deploy"):
    return f"freeze\tkey={key}\tsince={NOW - 3600 * SECOND}\tnow={NOW}\trecord={FREEZER}\n"


class Shown:
    """A fake server that shows locks and remembers what is asked of it."""

    def __init__(self, dlock, directory):
        self.dlock, self.look, self.log = dlock, directory / "look", directory / "log"

    def show(self, *lines):
        replaced = self.look.with_suffix(".new")
        replaced.write_text("".join(lines))
        replaced.rename(self.look)

    def words(self, cmd, *words, script=None):
        scripted = ["-O", f"script={script}"] if script else []
        return [cmd, "-b", "fake", "-O", f"look={self.look}", "-O", f"log={self.log}", *scripted, *words]

    def run(self, cmd, *words, **options):
        return self.dlock.run(*self.words(cmd, *words, **options))

    def start(self, cmd, *words, **options):
        return self.dlock.start(*self.words(cmd, *words, **options))

    def calls(self):
        """What was asked for, but for looks."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.rsplit(" ", 1)[0] for line in lines if not line.startswith(("each", "open", "close"))]

    def terminal(self, cmd, *words, **options):
        return pexpect.spawn(DLOCK_TEST, self.words(cmd, *words, **options), env=self.dlock.env, encoding="utf-8",
                             timeout=PATIENCE, dimensions=(24, 200))


@pytest.fixture
def shown(dlock, tmp_path):
    return Shown(dlock, tmp_path)


def end_of(terminal):
    terminal.expect(pexpect.EOF)
    terminal.close()
    return terminal.exitstatus, terminal.before


# ---- break ----


def test_break_waits_until_the_holder_has_given_up(shown):
    shown.show(holder())
    started = shown.start("break", "-y", "--why", "hotfix", "deploy")
    wait_for(lambda: shown.calls())
    wait_for(lambda: "waiting for alice" in started.stderr())
    assert "its lease ends in 21s" in started.stderr() and started.poll() is None
    shown.show(holder(token=8))  # the next one: not meant
    done = started.wait()
    assert (done.status, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-1].endswith("has given the lock up")
    assert len(shown.calls()) == 1 and "hotfix" in shown.calls()[0] and "deploy,7," in shown.calls()[0]


def test_a_holder_that_was_silent_until_its_lease_ended_has_given_up_nothing(shown):
    """Its machine may stand still, and the command go on when it wakes up: somebody has to see."""
    shown.show(holder(left=0, record=ALICE.replace("{", '{"ttl":30000,')))
    started = shown.start("break", "-y", "deploy")
    wait_for(lambda: "not renewed for 30s" in started.stderr())
    shown.show()
    done = started.wait()
    assert done.status == 0 and "given the lock up" not in done.stderr
    assert 'alice (pid 4711 on ci-3, running deploy.sh) "release 4.2" has not answered, and its lease has ended' in done.stderr


def test_a_holder_that_has_ended_meanwhile_is_gone(shown):
    shown.show(holder())
    started = shown.start("break", "-y", "deploy", script="revoke=lost")
    wait_for(lambda: shown.calls())
    shown.show()
    done = started.wait()
    assert done.status == 0 and "ended by itself" in done.stderr


def test_break_with_a_token_means_that_grant(shown):
    shown.show(holder(token=8))
    done = shown.run("break", "--token", "7", "deploy")
    assert done.status == 75 and "token 8" in done.stderr and shown.calls() == []


def test_of_several_the_one_with_the_token_is_named(shown):
    shown.show(holder(), holder(8, ALICE.replace("alice", "carol"), left=9))
    done = shown.run("break", "--force", "--token", "8", "deploy")
    assert done.status == 0 and len(shown.calls()) == 1 and "deploy,8,-,force" in shown.calls()[0]
    assert "taken away from carol" in done.stderr and "for 9s" in done.stderr and "alice" not in done.stderr


def test_all_holders_are_meant(shown):
    shown.show(holder(token=7, lock=2), holder(token=8, lock=2))
    started = shown.start("break", "-y", "deploy")
    wait_for(lambda: len(shown.calls()) == 2)
    shown.show(holder(token=8, lock=2))
    assert started.poll() is None
    shown.show(holder(token=9, lock=2))
    assert started.wait().status == 0


@pytest.mark.parametrize("lines, status, says", [
    ([], 1, "held by nobody"),
    ([frozen()], 1, "thaw"),
    (["unknown\tkey=deploy\twhat=a list\n"], 76, "a list"),
    (["unknown\tkey=deploy\twhat=a\\x1B[2J\\xE2\\x80\\xAE\n"], 76, r"a\x1B[2J\u202E"),
    ([holder(key="other")], 1, "held by nobody"),
])
def test_nothing_to_break(shown, lines, status, says):
    shown.show(*lines)
    done = shown.run("break", "-y", "deploy")
    assert (done.status, done.stdout) == (status, "") and says in done.stderr and shown.calls() == []


@pytest.mark.parametrize("more, says", [
    ({}, " is held by alice (pid 4711 on ci-3, running deploy.sh) \"release 4.2\" for 2m13s, token 7, not by token 3;"),
    ({"lock": 2}, " is held by 2 readers, first alice ("), ({"lock": 3, "limit": 2}, ": both slots are taken, first alice ("),
])
def test_another_token_than_the_holders_is_refused(shown, more, says):
    shown.show(*(holder(token=7 + n, **more) for n in range(2 if more else 1)))
    done = shown.run("break", "-y", "--token", "3", "deploy")
    assert done.status == 75 and f"dlock: deploy{says}" in done.stderr and done.stderr.endswith("; nothing was broken\n"), done
    assert shown.calls() == []


@pytest.mark.parametrize("words, says", [
    (["deploy"], "-y"), (["-y"], "no key"), (["-y", "a", "b"], "one key"), (["-y", "deploy", "-t", "5s"], "-t"),
    (["--token", "0", "deploy"], "token"), (["--token", "x", "deploy"], "token"), (["-y", "deploy", "-n"], "-n"),
])
def test_usage(shown, words, says):
    shown.show(holder())
    done = shown.run("break", *words)
    assert done.status == 64 and says in done.stderr and shown.calls() == []
    assert len(done.stderr.splitlines()) == 1


def test_a_backend_that_cannot_is_not_asked(shown):
    """The message names the other way, where there is one."""
    shown.show(holder())
    for words, script, other in ((), "not=revoke", "; with --force, "), (("--force",), "not=force", "; without --force, "), \
                                ((), "not=revoke,not=force", None):
        done = shown.run("break", "-y", *words, "deploy", script=script)
        assert done.status == 78 and (other or "up (dlock-backends(7)") in done.stderr, done
    assert shown.calls() == []


def test_break_waits_at_most_so_long(shown):
    shown.show(holder())
    done = shown.run("break", "-y", "-w", "1s", "deploy")
    assert done.status == 75 and len(shown.calls()) == 1
    assert done.stderr.endswith("deploy: its holder has been asked, but has not given it up yet\n")


def test_silence_is_no_end_of_the_holder(shown):
    """Who waits for its end goes on when the server does not answer for a while."""
    shown.show(holder())
    started = shown.start("break", "-y", "deploy")
    wait_for(lambda: "waiting for alice" in started.stderr())
    shown.show("again fake is away\n")
    wait_for(lambda: "asking again" in started.stderr() or started.poll() is not None)
    assert started.poll() is None and "given the lock up" not in started.stderr()
    shown.show()
    done = started.wait()
    assert done.status == 0 and done.stderr.splitlines()[-1].endswith("has given the lock up")


def test_force_takes_it_at_once_and_says_what_may_still_run(shown):
    shown.show(holder())
    done = shown.run("break", "-y", "--force", "deploy")
    assert done.status == 0 and "may still run for 21s" in done.stderr
    assert "force" in shown.calls()[0]


def test_who_does_not_do_as_asked_is_told_of(shown):
    shown.show(holder(left=-4))
    started = shown.start("break", "-y", "deploy")
    wait_for(lambda: "--force" in started.stderr())
    started.signal(signal.SIGINT)
    assert started.wait().status == -signal.SIGINT


def test_quiet(shown):
    shown.show(holder())
    started = shown.start("break", "-q", "-y", "deploy")
    wait_for(lambda: shown.calls())
    shown.show()
    done = started.wait()
    assert (done.status, done.stderr) == (0, "")


def test_a_renewal_is_told_in_place_of_the_end(shown):
    shown.show(holder(record='{"who":"alice","pid":4711,"host":"ci-3","ttl":30000}'))
    terminal = shown.terminal("break", "deploy")
    terminal.expect_exact("deploy is held by alice (pid 4711 on ci-3) for 2m13s, token 7; renewed 9s ago")
    terminal.sendline("y")
    terminal.expect_exact("waiting for alice (pid 4711 on ci-3) to give deploy up; renewed 9s ago")
    shown.show()
    assert end_of(terminal)[0] == 0


@pytest.mark.parametrize("answer, status", [("n", 1), ("", 1), ("yess", 1), ("y", 0), ("YES", 0)])
def test_a_terminal_asks_first(shown, answer, status):
    shown.show(holder())
    terminal = shown.terminal("break", "deploy")
    terminal.expect_exact("deploy is held by alice (pid 4711 on ci-3, running deploy.sh) \"release 4.2\" for 2m13s, token 7;"
                          " its lease ends in 21s")
    terminal.expect_exact("[y/N] ")
    assert shown.calls() == []
    terminal.sendline(answer)
    if status == 0:
        wait_for(lambda: shown.calls())
        shown.show()
    assert end_of(terminal)[0] == status
    assert len(shown.calls()) == 1 - status


def test_force_asks_in_other_words(shown):
    shown.show(holder())
    terminal = shown.terminal("break", "--force", "deploy")
    terminal.expect_exact("may still run?")
    terminal.sendeof()
    assert end_of(terminal)[0] == 1 and shown.calls() == []


def test_what_a_holder_wrote_does_no_harm_in_a_question(shown):
    shown.show(holder(record=r'{"who":"\\u001b]0;x\\u0007\\u202eevil","why":"\\u009b2J"}'))
    terminal = shown.terminal("break", "deploy")
    terminal.expect_exact("[y/N] ")
    assert "\x1b" not in terminal.before and "\u202e" not in terminal.before and "\x9b" not in terminal.before
    terminal.sendline("n")
    assert end_of(terminal)[0] == 1


# ---- freeze and thaw ----


def test_freeze_says_who_holds_it_still(shown):
    shown.show(holder())
    done = shown.run("freeze", "--why", "weekend", "deploy", "other")
    assert (done.status, done.stdout) == (0, "")
    assert "deploy is frozen until dlock thaw; it is still held by alice" in done.stderr
    assert "other is frozen until dlock thaw\n" in done.stderr
    assert [call.split()[0] for call in shown.calls()] == ["freeze", "freeze"] and "weekend" in shown.calls()[0]
    shown.show(*(holder(token=7 + n, lock=3, limit=4) for n in range(4)))
    assert "deploy is frozen until dlock thaw: all 4 slots are still taken, first alice" in shown.run("freeze", "deploy").stderr
    shown.show(frozen()[:-1] + f"\tuntil={NOW + 3600 * SECOND}\n")  # as the server says, once it is
    assert "deploy is frozen for 1h00m, until 2025-11-24 " in shown.run("freeze", "--for", "1h", "deploy").stderr
    shown.show()
    assert shown.run("freeze", "deploy").stderr == "dlock: deploy is frozen until dlock thaw\n"


@pytest.mark.parametrize("until, says", [("", "until dlock thaw"), (f"\tuntil={NOW + 3600 * SECOND}", "until 2025-11-24 17:00:00 UTC")])
def test_whose_freeze_is_replaced_is_told(shown, dlock, until, says):
    dlock.env["TZ"] = "UTC"
    shown.show(holder(), frozen()[:-1] + until + "\n")
    done = shown.run("freeze", "--for", "60h", "deploy")
    told, = done.stderr.splitlines()
    assert done.status == 0
    assert told.startswith(f'dlock: deploy is frozen for 2d12h, {says}; this replaces the freeze by bob@laptop "weekend", {says}; it is still held by alice')
    assert shown.run("freeze", "-q", "deploy").stderr == ""


def test_what_cannot_be_seen_can_be_frozen(shown):
    shown.show("denied NOPERM\n")
    done = shown.run("freeze", "deploy")
    assert (done.status, done.stderr) == (0, "dlock: deploy is frozen until dlock thaw\n")


@pytest.mark.parametrize("cmd, words, status", [
    ("freeze", [], 64), ("freeze", ["-y", "k"], 64), ("freeze", ["--for", "0", "k"], 64), ("freeze", ["--for", "soon", "k"], 64),
    ("freeze", ["a", "a"], 64), ("thaw", ["k"], 64), ("thaw", ["-y"], 64), ("thaw", ["-y", "k"], 1),
])
def test_freeze_and_thaw_refuse(shown, cmd, words, status):
    shown.show()
    done = shown.run(cmd, *words)
    assert done.status == status and len(done.stderr.splitlines()) == 1 and shown.calls() == []


@pytest.mark.parametrize("word", ["deploy/*", "deploy/?", "deploy/[ab]"])
def test_freeze_and_thaw_have_no_patterns(shown, word):
    """What looks like many keys is not frozen as one of that name, unless that is said."""
    for cmd in ("freeze", "thaw"):
        done = shown.run(cmd, *(["-y"] if cmd == "thaw" else []), word)
        assert done.status == 64 and "no patterns" in done.stderr and shown.calls() == [], done
    assert shown.run("freeze", "-k", word).status == 0
    assert len(shown.calls()) == 1 and word in shown.calls()[0]


def test_a_foreign_holder_is_not_said_to_be_stopped(shown):
    """It does not know that it has lost the lock, and its lease stops nothing."""
    shown.show(holder(foreign="a Redisson client", record=""))
    done = shown.run("break", "--force", "-y", "deploy")
    assert done.status == 0 and "a program other than dlock" in done.stderr and "may still run for" not in done.stderr
    terminal = shown.terminal("break", "--force", "deploy")
    terminal.expect_exact("though the program that has it goes on? [y/N] ")
    terminal.sendline("n")
    assert end_of(terminal)[0] == 1


def test_a_no_is_in_the_help(dlock):
    for cmd in ("break", "thaw"):
        assert "or you said no" in dlock.run("help", cmd).stdout


def test_the_least_length_of_a_freeze_is_told_as_it_is(shown):
    assert "from 1ms to 365d is allowed" in shown.run("freeze", "--for", "0", "k").stderr
    shown.show(frozen("k"))
    assert shown.run("freeze", "--for", "1ms", "k").status == 0


@pytest.mark.parametrize("quiet", [(), ("-q",), ("-J",)], ids=["", "q", "J"])
def test_a_freeze_that_is_over_when_it_is_confirmed_is_no_success(shown, quiet):
    """Its end has come, whatever the clock; where nothing can be seen, what the server has said counts."""
    shown.show(holder())
    done = shown.run("freeze", *quiet, "--for", "1h", "deploy")
    assert done.status == 69 and done.stderr == ("dlock: deploy is not frozen any more: before that was confirmed its end had come, "
                                                 "or somebody has thawed it\n"), done
    shown.show("denied NOPERM\n")
    assert shown.run("freeze", "--for", "1h", "deploy").status == 0


def test_thaw(shown):
    shown.show(frozen())
    assert shown.run("thaw", "-y", "deploy").status == 0
    assert shown.run("thaw", "-y", "deploy", script="thaw=lost").status == 1
    assert shown.run("thaw", "-y", "deploy", script="thaw=denied").status == 77


def test_what_cannot_be_seen_is_not_said_to_be_thawed(shown):
    """A frozen lock may stand there that this user may not read."""
    shown.show("unknown\tkey=deploy\twhat=a\\x1B[2Jb\n")
    done = shown.run("thaw", "-y", "deploy")
    assert done.status == 76 and r"a\x1B[2Jb" in done.stderr and shown.calls() == []


@pytest.mark.parametrize("answer, status", [("n", 1), ("y", 0)])
def test_thaw_asks_on_a_terminal(shown, answer, status):
    shown.show(frozen())
    terminal = shown.terminal("thaw", "deploy")
    terminal.expect_exact('deploy is frozen by bob@laptop "weekend" for 1h00m, until dlock thaw')
    terminal.expect_exact("[y/N] ")
    assert shown.calls() == []
    terminal.sendline(answer)
    assert end_of(terminal)[0] == status and len(shown.calls()) == 1 - status


def test_only_the_freeze_that_was_shown_is_thawed(shown):
    shown.show(frozen())
    terminal = shown.terminal("thaw", "deploy")
    terminal.expect_exact("[y/N] ")
    shown.show(frozen().replace(f"since={NOW - 3600 * SECOND}", f"since={NOW - SECOND}"))
    terminal.sendline("y")
    status, text = end_of(terminal)[:2]
    assert status == 1 and shown.calls() == [], text


# ---- what the other side says of it ----


def test_a_server_that_does_not_answer(shown):
    shown.show("again fake is away\n")
    done = shown.run("break", "-y", "deploy")
    assert done.status == 69 and "cannot break deploy: fake is away" in done.stderr


def test_help(dlock):
    for cmd in ("break", "freeze", "thaw"):
        assert dlock.run("help", cmd).stdout == dlock.run(cmd, "--help").stdout != ""


# ---- -J, --until ----


def objects(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_tells_what_it_did_as_an_object(shown):
    """One a key, also of one that could not be steered; what people are told goes to stderr."""
    shown.show(holder(), frozen("other")[:-1] + f"\tuntil={NOW + 3600 * SECOND}\tnow={NOW}\n")
    done = shown.run("break", "-J", "--token", "8", "deploy")
    told, = objects(done)
    assert (done.status, told["action"], told["result"], told["status"]) == (75, "break", "busy", 75)
    assert told["key"] == "deploy" and told["holders"][0]["who"] == "alice" and told["time"] and "nothing was broken" in done.stderr
    done = shown.run("freeze", "-J", "deploy", "other")
    assert done.status == 0 and "is frozen" in done.stderr
    first, second = objects(done)
    assert (first["action"], first["result"], first["key"]) == ("freeze", "done", "deploy")
    assert second["frozen"]["until"] == "2025-11-24T17:00:00.000Z" and second["frozen"]["why"] == "weekend"
    done = shown.run("thaw", "-Jyq", "deploy", "other")
    assert done.status == 1 and [(o["result"], o["status"]) for o in objects(done)] == [("nothing", 1), ("done", 0)]
    done = shown.run("break", "-Jy", "free")
    assert done.status == 1 and [o["result"] for o in objects(done)] == ["nothing"]
    done = shown.run("break", "-y", "deploy", "-J", script="not=revoke")
    told, = objects(done)
    assert done.status == 78 and (told["result"], told["status"]) == ("failed", 78) and "state" not in told


def test_a_lock_that_is_asked_back_says_by_whom(shown):
    shown.show(holder(revoked=1, asker=FREEZER))
    assert 'asked to give it back by bob@laptop "weekend"' in shown.run("status", "deploy").stdout
    one, = objects(shown.run("status", "-J", "deploy"))
    assert one["holders"][0]["revoked"] and one["holders"][0]["revoked_by"] == "bob@laptop" and one["holders"][0]["revoked_why"] == "weekend"
    shown.show(holder(revoked=1, asker=r"\x1b[2J{"), holder(revoked=1, key="x"))
    assert "asked to give it back\n" in shown.run("status", "deploy").stdout


def test_freeze_until_a_time(shown):
    """The server gets a length; what has passed, or is no time, is refused before anything is done."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 7200))
    shown.show(frozen())
    assert shown.run("freeze", "--until", at, "deploy").status == 0
    local = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + 7260))
    assert shown.run("freeze", "--until", local, "deploy").status == 0
    lengths = [int(call.split(",")[1]) for call in shown.calls() if call.startswith("freeze")]
    assert all(7080 <= n / 1e9 <= 7260 for n in lengths) and len(lengths) == 2, shown.calls()
    for words, said in ((("--until", "2001-01-01T00:00:00Z"), "has passed"), (("--until", "tomorrow"), "2026-11-24T18:00:00Z"),
                        (("--until", "2999-01-01 00:00"), "365d"), (("--until", at, "--for", "1h"), "contradict")):
        done = shown.run("freeze", *words, "deploy")
        assert done.status == 64 and said in done.stderr, done
    assert len([call for call in shown.calls() if call.startswith("freeze")]) == 2
