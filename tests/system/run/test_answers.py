# Goal of these tests: whatever a server answers, and whenever, dlock does what
# it promises.  The server is the script of tests/servers/fake.c, in a dlock of its own
# (DLOCK_TEST, default build/dlock-test).

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

import support
from support import DLOCK_TEST, boottime, compile_shim, compiled, is_alive, spent, told_at_the_end, wait_for

LEASE = 3.0  # the least ttl
# After the last good request, where the command has time to hear of TERM: KILL comes 5.44 s after it.
LONGER = ("-t", "6s", "--grace", "2s")
TERM_AFTER, ENDS_AFTER = 3.44, 5.94

# Notes that it lives, and each TERM, which it does not obey.
HEART = """
import os, signal, sys, time
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def note(word): os.write(log, b"%s %d\\n" % (word.encode(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
signal.signal(signal.SIGTERM, lambda *_: note("TERM"))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
while True:
    note("beat")
    time.sleep(0.03)
"""


# The same, for where many begin at once, and one has two seconds: there a Python may not have begun in time.
SMALL_HEART = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static int heard;
static void note(const char *word) {
    struct timespec t;
    char line[64];
    clock_gettime(CLOCK_BOOTTIME, &t);
    (void)!write(heard, line, snprintf(line, sizeof line, "%s %lld\\n", word, t.tv_sec * 1000000000LL + t.tv_nsec));
}
static void on_term(int sig) { (void)sig; note("TERM"); }
int main(int n, char **words) {
    sigset_t term;
    (void)n;
    heard = open(words[1], O_WRONLY | O_APPEND | O_CREAT, 0600);
    signal(SIGTERM, on_term);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_UNBLOCK, &term, NULL);
    for (;;) { note("beat"); usleep(30000); }
}
"""


class Scripted:
    """dlock runs on a script, and what became of them."""

    def __init__(self, dlock, directory):
        self.dlock, self.directory, self.runs = dlock, directory, 0

    def start(self, script, *words, **options):
        self.runs += 1
        log = self.directory / f"calls{self.runs}"
        started = self.dlock.start("run", "-b", "fake", "-k", "job", "-O", f"script={script}", "-O", f"log={log}",
                                   *words, **options)
        started.log = log
        return started

    def run(self, script, *words, **options):
        started = self.start(script, *words, **options)
        done = started.wait()
        done.calls = lambda: calls(started)
        return done

    def heart(self, script, *words, **options):
        """Runs a command that beats until it is killed; a TERM that comes before it listens is not lost."""
        options.setdefault("preexec_fn", lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]))
        beats = self.directory / f"beats{self.runs}"
        heart = self.directory / "heart"
        if not heart.exists():
            compiled(heart, SMALL_HEART, "-O1")
        started = self.start(script, *words, "--", heart, beats, **options)
        started.beats = beats
        return started


def notes(path):
    """(word, seconds) of each line so far."""
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [(words[0], int(words[-1]) / 1e9) for words in lines]


def calls(started):
    return [name for name, _ in notes(started.log)]


def last(started, call):
    return [at for name, at in notes(started.log) if name == call][-1]


def one_line(done):
    """The one line that goes with a verdict."""
    lines = told_at_the_end(done.stderr).splitlines()
    assert len(lines) == 1 and lines[0].startswith("dlock: "), lines
    return lines[0]


@pytest.fixture(scope="module", autouse=True)
def with_the_fake():
    assert os.access(DLOCK_TEST, os.X_OK), f"{DLOCK_TEST} is missing: make build/dlock-test"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(support, "DLOCK", DLOCK_TEST)
        yield


@pytest.fixture
def fake(dlock, tmp_path):
    return Scripted(dlock, tmp_path)


# What takes seconds because a lease must end runs all at once; the tests below
# look at it when it is over.
SILENCES = ["again", "hang", "denied", "usage", "config", "protocol", "system", "busy", "late@2s", "late@1h"]
LONG = {
    "blips": lambda fake: fake.start("renew=again,renew=hang,renew=ok,renew=system,renew=ok", "-t", "6s",
                                     "-c", "sleep 6.5; exit 7"),
    "endless": lambda fake: fake.start("lease=inf,renew=hang", "-t", "3s", "-c", "sleep 3.5; exit 7"),
    "not ours": lambda fake: fake.heart("renew=ok,renew=lost", "-t", "6s"),
    "slow answer": lambda fake: fake.heart("acquire=ok,renew=ok@250ms,renew=hang", *LONGER),
    "slow grant": lambda fake: fake.heart("acquire=late@3s,renew=hang", "-t", "6s"),
    "too slow grant": lambda fake: fake.start("acquire=late@2s", "-t", "3s", "--", "echo", "runs"),
    "obedient": lambda fake: fake.start("renew=hang", *LONGER, "-c",
                                        'trap "echo obeys; exit 0" TERM; while :; do sleep 0.05; done'),
    "short lease": lambda fake: fake.heart("lease=4s,renew=hang", "-t", "30s"),
    "trouble": lambda fake: fake.start("renew=again,renew=ok", "-t", "6s", "-v", "-c", "sleep 3"),
    "min-hold": lambda fake: fake.start("", "-t", "6s", "--min-hold", "3s", "-c", "exit 3"),
    "min-hold after max-run": lambda fake: fake.start("", "-t", "6s", "--min-hold", "3s", "--max-run", "300ms",
                                                      "-c", "sleep 1000"),
    "max-run": lambda fake: fake.heart("", "-t", "30s", "--max-run", "4s", "--grace", "2s"),
    "release unanswered": lambda fake: fake.start("release=hang", "-c", "exit 9"),
    **{f"renew={answer}": lambda fake, answer=answer: fake.heart(f"renew={answer}", *LONGER)
       for answer in SILENCES},
}


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    directory = tmp_path_factory.mktemp("long")
    dlock = support.Dlock(directory)
    fake = Scripted(dlock, directory)
    started = {name: start(fake) for name, start in LONG.items()}
    for one in started.values():
        one.done = one.wait()
    yield started
    dlock.close()


# ---- nothing was run ----


@pytest.mark.parametrize("script, words, status", [
    ("acquire=busy", ["-n"], 75),
    ("acquire=busy", ["-w", "0"], 75),
    ("acquire=busy", ["-w", "100ms"], 75),
    ("acquire=busy@50ms", ["-w", "1s"], 75),
    ("acquire=busy", ["-n", "-E", "3"], 3),
    ("acquire=busy", ["-n", "-E", "0"], 0),
    ("acquire=again", [], 69),
    ("acquire=lost", [], 69),
    ("acquire=denied", [], 77),
    ("acquire=config", [], 78),
    ("acquire=protocol", [], 76),
    ("acquire=system", [], 71),
    ("acquire=usage", [], 64),
    ("open=usage", [], 64),
    ("open=config", [], 78),
    ("open=system", [], 71),
    ("acquire=denied@200ms,release=again", [], 77),
    ("lease=1s", [], 78),                      # no room for two renewals
    ("lease=5s", ["--grace", "4s"], 78),
    ("lease=1s", ["--grace", "0"], 78),
])
def test_refusal_has_its_status_and_one_line(fake, tmp_path, script, words, status):
    done = fake.run(script, *words, "--", "touch", tmp_path / "ran")
    assert done.status == status
    assert "nothing was run" in one_line(done) and "job" in done.stderr
    assert not (tmp_path / "ran").exists()
    assert done.calls() == ([] if "open" in script else ["acquire", "release"])  # withdrawn, whatever was answered


def test_busy_is_silent_with_q(fake):
    done = fake.run("acquire=busy", "-n", "-q", "--", "true")
    assert (done.status, done.stderr) == (75, "")


def test_other_refusals_are_not_silent_with_q(fake):
    assert "nothing was run" in one_line(fake.run("acquire=again", "-q", "--", "true"))


def test_busy_line_names_the_holder(fake):
    assert "another@fake (pid 7, running true)" in one_line(fake.run("acquire=busy", "-n", "--", "true"))


@pytest.mark.parametrize("script, sig", [
    ("acquire=busy", signal.SIGINT), ("acquire=busy", signal.SIGTERM), ("acquire=busy", signal.SIGHUP),
    ("acquire=hang", signal.SIGINT), ("acquire=busy,release=hang", signal.SIGINT),
])
def test_interrupted_waiter_withdraws_and_dies_of_the_signal(fake, tmp_path, script, sig):
    started = fake.start(script, "--", "touch", tmp_path / "ran")
    wait_for(lambda: calls(started), what="the request")
    started.signal(sig)
    assert started.wait().status == -sig
    assert calls(started) == ["acquire", "release"]
    assert not (tmp_path / "ran").exists()


def test_front_killed_while_waiting_withdraws(fake, tmp_path):
    started = fake.start("acquire=busy", "--", "touch", tmp_path / "ran")
    wait_for(lambda: calls(started), what="the request")
    keeper = started.keeper
    started.signal(signal.SIGKILL)
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert calls(started) == ["acquire", "release"]
    assert not (tmp_path / "ran").exists()


def test_keeper_killed_while_waiting_is_a_system_error(fake, tmp_path):
    started = fake.start("acquire=busy", "--", "touch", tmp_path / "ran")
    wait_for(lambda: calls(started), what="the request")
    started.signal(signal.SIGKILL, "keeper")
    done = started.wait()
    assert done.status == 71
    assert "nothing was run" in one_line(done)
    assert not (tmp_path / "ran").exists()


def test_stub_killed_while_waiting_is_a_system_error(fake, tmp_path):
    started = fake.start("acquire=busy,release=lost", "--", "touch", tmp_path / "ran")
    wait_for(lambda: calls(started), what="the request")
    stub = support.children_of(started.keeper)[0]
    support.kill(stub)
    done = started.wait()
    assert done.status == 71
    assert "nothing was run" in one_line(done)


# ---- the command's own end ----


@pytest.mark.parametrize("script", ["", "acquire=ok@100ms", "token=42", "lease=10s", "lease=inf"])
@pytest.mark.parametrize("command, status", [("exit 0", 0), ("exit 9", 9), ("kill -9 $$", -9)])
def test_status_is_the_commands_own(fake, script, command, status):
    done = fake.run(script, "-c", command)
    assert (done.status, done.stderr, done.calls()) == (status, "", ["acquire", "release"])


def test_token_reaches_the_command(fake):
    assert fake.run("token=18446744073709551615", "-c", "echo $DLOCK_TOKEN").stdout == "18446744073709551615\n"


@pytest.mark.parametrize("script", ["release=again", "release=system", "release=denied"])
def test_unconfirmed_release_is_said_and_changes_no_status(fake, script):
    done = fake.run(script, "-c", "exit 9")
    assert done.status == 9
    assert "not confirmed" in one_line(done)


RELEASES = "release=again,release=system,release=hang,release=again,release=ok"


def test_unanswered_release_is_asked_for_again_in_the_background(fake):
    """The caller gets its prompt back, and the next holder the lock as soon as the server is there again."""
    started = fake.start(RELEASES, "-c", "read x; exit 9", stdin=subprocess.PIPE)
    keeper = started.held().keeper
    done = started.finish()
    assert done.status == 9
    assert "in the background" in one_line(done)
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert calls(started) == ["acquire"] + ["release"] * 5
    asked = [at for name, at in notes(started.log) if name == "release"]
    pauses = [later - earlier for earlier, later in zip(asked, asked[1:])]
    assert all(pause >= 0.5 for pause in pauses)  # no hammering
    assert len({round(pause, 2) for pause in pauses}) > 1  # nor in step with others


def test_release_is_asked_for_until_the_lease_has_ended(fake):
    started = fake.start("release=again", "-t", "9s", "-c", "read x; exit 9", stdin=subprocess.PIPE)
    keeper = started.held().keeper
    assert started.finish().status == 9
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert calls(started) == ["acquire"] + ["release"] * calls(started).count("release")  # nothing was renewed meanwhile
    assert last(started, "acquire") + 7 < last(started, "release") < last(started, "acquire") + 9.2


def test_release_in_the_background_keeps_nothing_of_the_callers(fake, tmp_path):
    """What reads the output of dlock sees its end at once; the directory can go; TERM ends it."""
    words = [DLOCK_TEST, "run", "-b", "fake", "-k", "job", "-O", "script=release=again", "-t", "1h", "-c", "read x"]
    before = boottime()
    reader, writer = os.pipe()
    front = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=writer, stderr=writer, cwd=tmp_path, env=fake.dlock.env)
    os.close(writer)
    keeper = wait_for(lambda: support.children_of(front.pid), what="a keeper")[0]
    front.stdin.close()
    text = b""
    while (more := os.read(reader, 4096)):
        text += more
    os.close(reader)
    assert front.wait() == 1 and b"in the background" in text
    assert spent(before) < 60
    assert is_alive(keeper)
    assert support.cwd_of(keeper) in ("/", None)
    support.kill(keeper, signal.SIGTERM)
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")


def test_lost_lock_is_given_back_in_the_background(fake):
    started = fake.start("alert=1s,renew=revoked,release=again,release=ok", "--", "sleep", "1000")
    keeper = started.keeper
    done = started.wait()
    assert done.status == 79 and one_line(done)
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert calls(started)[-2:] == ["release", "release"]


def test_waiter_whose_withdrawal_is_not_answered_is_gone(fake):
    started = fake.start("acquire=busy,release=again", "-w", "1s", "--", "true")
    keeper = started.keeper
    assert started.wait().status == 75
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert calls(started) == ["acquire", "release"]


def test_release_that_nobody_answers_is_not_awaited_for_ever(long):
    done = long["release unanswered"].done
    assert done.status == 9
    assert "not confirmed" in one_line(done)


def test_unconfirmed_release_is_silent_with_q(fake):
    done = fake.run("release=again", "-q", "-c", "exit 9")
    assert (done.status, done.stderr) == (9, "")


@pytest.mark.parametrize("command", ["exit 0", "exit 9", "kill -9 $$"])
def test_release_that_finds_the_lock_gone_is_a_loss(fake, command):
    done = fake.run("release=lost", "-c", command)
    assert done.status == 79
    assert "another may have run beside it" in one_line(done)


def test_command_that_cannot_be_executed_gives_the_lock_back(fake, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/nonexistent/interpreter\n")
    script.chmod(0o755)
    done = fake.run("", "--min-hold", "1h", "--", script)
    assert done.status == 127
    assert "released" in one_line(done)
    assert done.calls() == ["acquire", "release"]


# dlock whose keeper cannot say "go", its only writev, as it should; what the stub itself does: tests/unit/stub.c.
WRITEV = "ssize_t writev(int fd, const struct iovec *all, int n)"
STUB = 'int pid = 0; FILE *f = fopen("/proc/thread-self/children", "r"); if (f && fscanf(f, "%d", &pid) == 1)'
BROKEN_STUBS = {
    "go cannot be sent": WRITEV + "{ errno = ENOMEM; return -1; }",
    "half of go is sent": WRITEV + "{ return syscall(SYS_write, fd, all->iov_base, 4); }",
    "killed after go": WRITEV + "{ " + STUB + " kill(pid, SIGSTOP);"
                       " long sent = syscall(SYS_writev, fd, all, n); if (pid) kill(pid, SIGKILL); return sent; }",
    "killed before go": WRITEV + "{ " + STUB + " kill(pid, SIGKILL); return syscall(SYS_writev, fd, all, n); }",
}


@pytest.mark.parametrize("source", BROKEN_STUBS.values(), ids=BROKEN_STUBS)
def test_stub_that_cannot_become_the_command_is_a_system_error(fake, tmp_path, source):
    headers = "#define _GNU_SOURCE\n" + "".join(f"#include <{h}>\n" for h in ("errno.h", "signal.h", "stdio.h", "sys/socket.h", "sys/syscall.h", "sys/types.h", "sys/uio.h", "unistd.h"))
    shim = compile_shim(tmp_path, "broken", headers + source)
    done = fake.run("", "--", "touch", tmp_path / "ran", env={"LD_PRELOAD": shim})
    assert done.status == 71
    assert "nothing was run" in one_line(done) and "the process for the command" in one_line(done)
    assert not (tmp_path / "ran").exists()
    assert done.calls() == ["acquire", "release"]


def test_command_that_cannot_be_found_asks_for_no_lock(fake):
    done = fake.run("", "--", "/nonexistent/command")
    assert done.status == 127 and one_line(done)
    assert done.calls() == []


# ---- while it runs ----


def test_blips_kill_nothing(long):
    done, made = long["blips"].done, calls(long["blips"])
    assert (done.status, told_at_the_end(done.stderr)) == (7, "")
    assert made[0] == "acquire" and made[-1] == "release"
    assert made.count("renew") == len(made) - 2 >= 4


def test_lease_without_end_outlives_silence(long):
    done = long["endless"].done
    assert (done.status, done.stderr) == (7, "")


def test_not_ours_kills_at_once(long):
    started = long["not ours"]
    assert started.done.status == 79
    assert "taken away while the command ran" in one_line(started.done)
    assert calls(started) == ["acquire", "renew", "renew"]  # there is nothing to release
    assert "TERM" not in [word for word, _ in notes(started.beats)]
    assert notes(started.beats)[-1][1] < last(started, "renew") + 2  # long before the lease would have ended


@pytest.mark.parametrize("answer", SILENCES)  # some come at last, when it is too late
def test_command_is_stopped_in_time_however_the_server_fails(long, answer):
    started = long[f"renew={answer}"]
    asked, beats = last(started, "acquire"), notes(started.beats)
    terms = [at for word, at in beats if word == "TERM"]
    assert started.done.status == 79
    assert "could not be renewed in time" in one_line(started.done)
    assert terms and terms[0] >= asked + TERM_AFTER - 0.05
    assert terms[0] < beats[-1][1] < asked + ENDS_AFTER
    assert last(started, "renew") < asked + ENDS_AFTER


def test_deadlines_count_from_the_request_not_from_the_answer(long):
    """The last good answer came 250 ms after its request."""
    started = long["slow answer"]
    assert started.done.status == 79
    good = [at for name, at in notes(started.log) if name == "renew"][0]
    assert good + TERM_AFTER - 0.05 < notes(started.beats)[-1][1] < good + ENDS_AFTER


def test_grant_that_was_long_on_its_way_counts_from_its_request(long):
    started = long["slow grant"]
    assert started.done.status == 79
    assert all(at < last(started, "acquire") + 6 * 0.99 for _, at in notes(started.beats))


def test_grant_that_was_too_long_on_its_way_runs_nothing(long):
    started = long["too slow grant"]
    assert (started.done.status, started.done.stdout) == (69, "")
    assert "nothing was run" in one_line(started.done)
    assert calls(started) == ["acquire", "release"]


def test_command_that_obeys_is_not_killed(long):
    started = long["obedient"]
    assert (started.done.status, started.done.stdout) == (79, "obeys\n")
    assert calls(started)[-1] == "release"


def test_shorter_lease_of_the_server_counts(long):
    started = long["short lease"]
    assert started.done.status == 79
    assert notes(started.beats)[-1][1] < last(started, "acquire") + 4 * 0.99


def test_alert_brings_the_renewal_forward(fake):
    """The next renewal by itself would be 200 s away."""
    started = fake.heart("alert=100ms,renew=lost", "-t", "10m")
    assert started.wait().status == 79
    assert calls(started) == ["acquire", "renew"]


def test_alert_that_nothing_lies_behind_changes_nothing(fake):
    done = fake.run("alert=50ms,renew=ok", "-c", "sleep 2; exit 4")
    assert (done.status, done.calls()) == (4, ["acquire", "renew", "release"])


def test_alert_is_no_reason_to_hammer_a_silent_server(fake):
    done = fake.run("alert=50ms,renew=again", "-t", "9s", "-c", "sleep 1; exit 4")
    assert done.status == 4
    assert 2 <= done.calls().count("renew") <= 20  # 150 ms apart, and jittered


def test_lock_that_is_wanted_back_is_given_up_politely(fake):
    """TERM, and what obeys is not killed; the lock is released at its end."""
    # a TERM that comes before it listens is not lost
    obey = "import signal, time; signal.sigwait([signal.SIGTERM]); time.sleep(0.3); print('obeys')"
    started = fake.start("alert=100ms,renew=revoked,renew=ok", "--", sys.executable, "-c", obey,
                         preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]))
    done = started.wait()
    assert (done.status, done.stdout) == (79, "obeys\n")
    assert "asked to give it up (the script says wanted back)" in done.stderr
    assert calls(started)[-1] == "release"


def test_lock_that_is_wanted_back_stays_ours_until_the_command_is_gone(fake):
    started = fake.heart("alert=100ms,renew=revoked,renew=ok", "-t", "10s", "--grace", "3700ms")
    assert started.wait().status == 79
    words = [word for word, _ in notes(started.beats)]
    assert words.count("TERM") == 1
    term = [at for word, at in notes(started.beats) if word == "TERM"][0]
    assert notes(started.beats)[-1][1] > term + 3  # it had its grace, and was killed then
    assert calls(started).count("renew") == 2 and calls(started)[-1] == "release"


def test_lock_that_is_wanted_back_ends_min_hold(fake):
    started = fake.start("renew=ok,renew=revoked", "-t", "9s", "--min-hold", "1h", "--", "true")
    assert started.wait().status == 0
    wait_for(lambda: calls(started) == ["acquire", "renew", "renew", "release"], what="the release")


def test_connection_that_is_the_lock_is_watched_by_the_front_too(fake):
    """The keeper would kill the command when it ends, but is frozen; 10 minutes of lease are left."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        started = fake.heart(f"anchor={server.getsockname()[1]}", "-t", "10m")
        connection, _ = server.accept()
        command = started.command
        started.signal(signal.SIGSTOP, "keeper")
        connection.close()
        assert started.wait().status == 79
        assert not is_alive(command)


def test_the_front_names_the_key_whose_connection_has_ended(fake):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        started = fake.heart(f"anchor={server.getsockname()[1]}", "-k", "also", "-k", "last", "-t", "10m")
        connections = [server.accept()[0] for _ in range(3)]
        assert started.command
        started.signal(signal.SIGSTOP, "keeper")
        connections[1].close()  # they are locked in the order of their names: also, job, last
        done = started.wait()
        assert done.status == 79
        assert "(job: the lock's connection has ended, and dlock's keeper process was stopped)" in done.stderr, done


def test_connection_that_ends_with_the_command_is_no_loss(fake):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        started = fake.start(f"anchor={server.getsockname()[1]},release=ok@600ms", "-c", "exit 3")
        connection, _ = server.accept()
        wait_for(lambda: "release" in calls(started), what="the release")
        connection.close()
        assert started.wait().status == 3


def test_library_that_will_not_close_is_cut_short(fake):
    """Within a second for the caller; the keeper itself is looked for by every test's end."""
    assert fake.run("close=hang", "-c", "exit 3").status == 3


# ---- stopping and releasing ----

# Its descendants have left its session, its group and it itself.
DAEMON = 'setsid "$@" </dev/null >/dev/null 2>&1 & '


def test_release_comes_after_the_tree_is_gone(fake, tmp_path):
    beats = tmp_path / "daemon"
    started = fake.start("", "-t", "9s", "--grace", "2s", "--max-run", "2s", "--", "sh", "-c", DAEMON + "sleep 1000", "sh",
                         sys.executable, "-c", HEART, beats)
    done = started.wait()
    assert done.status == 124
    assert "--max-run" in one_line(done)
    assert notes(beats)[-1][1] < last(started, "release")
    assert "TERM" in [word for word, _ in notes(beats)]


def test_wait_tree_releases_after_the_last_descendant(fake, tmp_path):
    started = fake.start("", "--wait-tree", "--", "sh", "-c", DAEMON, "sh", "sh", "-c", f"sleep 0.5; date >{tmp_path}/end")
    assert started.wait().status == 0
    assert (tmp_path / "end").exists()
    assert last(started, "release") >= last(started, "acquire") + 0.5


def test_front_killed_stops_the_tree_then_releases(fake):
    started = fake.heart("", "-t", "9s", "--grace", "2s")
    wait_for(lambda: notes(started.beats), what="a beat")
    keeper = started.keeper
    started.signal(signal.SIGKILL)
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert [word for word, _ in notes(started.beats) if word != "beat"] == ["TERM"]
    assert notes(started.beats)[-1][1] < last(started, "release")


def test_front_killed_after_the_command_stops_what_is_waited_for(fake, tmp_path):
    beats = tmp_path / "daemon"
    started = fake.start("", "-t", "3s", "--grace", "300ms", "--wait-tree", "--", "sh", "-c", DAEMON, "sh",
                         sys.executable, "-c", HEART, beats)
    wait_for(lambda: notes(beats), what="a beat")
    keeper, command = started.keeper, started.command
    wait_for(lambda: not is_alive(command), what="the end of the command")
    started.signal(signal.SIGKILL)
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert notes(beats)[-1][1] < last(started, "release")


# How a command answers the front's TERM: $1 is a heart that does not.
ANSWERS_TO_TERM = {
    "ends with 0": "trap 'exit 0' TERM; ",
    "dies of it": "",
}


@pytest.mark.parametrize("options", [[], ["--wait-tree"]], ids=["", "wait-tree"])
@pytest.mark.parametrize("answer", ANSWERS_TO_TERM.values(), ids=ANSWERS_TO_TERM)
def test_an_end_that_the_front_has_caused_is_a_loss(fake, tmp_path, answer, options):
    """The keeper is frozen at term_at, the front asks the command to stop in its place, the keeper wakes and reaps."""
    beats = tmp_path / "daemon"
    started = fake.start("renew=hang", "-t", "9s", "--grace", "3s", *options, "--", "sh", "-c",
                         f'{answer}{DAEMON} while :; do sleep 0.05; done', "sh", sys.executable, "-c", HEART, beats)
    command, keeper = started.command, started.keeper
    started.event("suspect")
    support.kill(keeper, signal.SIGSTOP)
    wait_for(lambda: "TERM" in [word for word, _ in notes(beats)], what="TERM from the front")
    wait_for(lambda: not is_alive(command), what="the end of the command")
    support.kill(keeper, signal.SIGCONT)
    done = started.wait()
    assert done.status == 79
    assert "could not be renewed in time" in done.stderr.splitlines()[-1]  # before it the shell may speak
    assert started.events("stopping")
    assert [word for word, _ in notes(beats) if word != "beat"] == ["TERM"]  # asked once, killed then
    if "release" in calls(started):  # else the front was first: the keeper woke only after kill_at
        assert notes(beats)[-1][1] < last(started, "release")


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGSTOP])
def test_keeper_that_is_gone_or_frozen_is_a_loss(fake, sig):
    started = fake.heart("", "-t", "3s")
    wait_for(lambda: notes(started.beats), what="a beat")
    started.signal(sig, "keeper")
    done = started.wait()
    assert done.status == 79
    assert one_line(done)
    assert notes(started.beats)[-1][1] < last(started, "acquire") + 1 + LEASE  # one renewal may have been made
    assert "release" not in calls(started)


# A process with this number lives until it is killed: 5 if it was, 3 if somebody else has the number.  The kernel's count of
# numbers stays as it is: another test on this machine may watch one that is free.
WITH_NUMBER = """
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int n, char **words)
{
    pid_t wanted = atoi(words[n - 1]);
    struct clone_args a = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1};
    long pid = syscall(SYS_clone3, &a, sizeof a);
    while (pid == 0)
        pause();
    if (pid < 0)
        return errno == EEXIST ? 3 : 4;
    printf("it lives\\n");
    fflush(stdout);
    getchar();
    if (kill(pid, 0) == 0 && waitpid(pid, NULL, WNOHANG) == 0) {
        kill(pid, SIGKILL);
        return 0;
    }
    return 5;
}
"""


def test_front_kills_no_stranger_who_has_the_number_of_the_command(fake, tmp_path):
    """A keeper that freezes just when it has reaped the command, and a pid that is given out again."""
    if os.geteuid() != 0:
        pytest.skip("only root can choose a pid")
    shim = compile_shim(tmp_path, "frozen", """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <signal.h>
        #include <sys/wait.h>
        pid_t waitpid(pid_t pid, int *status, int flags)
        {
            pid_t got = ((pid_t (*)(pid_t, int *, int))dlsym(RTLD_NEXT, "waitpid"))(pid, status, flags);
            if (got > 0 && WIFEXITED(*status) && WEXITSTATUS(*status) == 42)
                raise(SIGSTOP);
            return got;
        }""")
    tool = support.compiled(tmp_path / "with-number", WITH_NUMBER)
    for _ in range(5):  # the number may be taken by somebody else meanwhile, for as long as he likes
        status = give_number_of_the_command(fake, shim, tool)
        if status != 3:
            break
    if status == 4:
        pytest.skip("the kernel lets nobody choose a pid")
    assert status == 0, status


def give_number_of_the_command(fake, shim, tool):
    """What the tool says of a process that has got it."""
    started = fake.start("", "-t", "3s", "-c", "read x; exit 42", stdin=subprocess.PIPE, env={"LD_PRELOAD": shim})
    keeper, command = started.keeper, started.command
    started.popen.stdin.close()
    wait_for(lambda: support.stat_of(keeper)[1] == "T", what="a frozen keeper")
    with subprocess.Popen([tool, str(command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        if other.stdout.readline():
            assert started.wait().status == 79
        other.stdin.close()
    support.kill(keeper, signal.SIGCONT)
    started.wait()
    return other.returncode


def test_command_that_ends_while_all_of_dlock_sleeps_past_the_lease_is_a_loss(fake, tmp_path):
    """The machine slept, or both processes were stopped: who knows whom the lock belonged to."""
    started = fake.start("release=again", "-t", "3s", "-c", f"while [ ! -e {tmp_path}/end ]; do sleep 0.05; done")
    started.held()
    keeper = started.keeper
    support.kill(started.front, signal.SIGSTOP)
    support.kill(keeper, signal.SIGSTOP)
    asked = last(started, "acquire")
    wait_for(lambda: boottime() > asked + 1.2 + LEASE, what="the end of the lease")
    (tmp_path / "end").touch()
    wait_for(lambda: not is_alive(started.events("started")[0]["pid"]), what="the end of the command")
    support.kill(keeper, signal.SIGCONT)
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    support.kill(started.front, signal.SIGCONT)
    done = started.wait()
    assert done.status == 79
    assert one_line(done)


# ---- time asked for ----


def test_max_run_asks_then_kills(long):
    started = long["max-run"]
    assert started.done.status == 124
    assert "released" in one_line(started.done)
    assert [word for word, _ in notes(started.beats) if word != "beat"] == ["TERM"]
    assert calls(started) == ["acquire", "release"]


def test_lost_lock_outdoes_max_run(fake):
    assert fake.run("release=lost", "--max-run", "200ms", "-c", "sleep 1000").status == 79


@pytest.mark.parametrize("name, status", [("min-hold", 3), ("min-hold after max-run", 124)])
def test_min_hold_keeps_the_lock_and_not_the_caller(long, name, status):
    started = long[name]
    assert started.done.status == status
    wait_for(lambda: "release" in calls(started), what="the release")
    assert last(started, "release") >= last(started, "acquire") + 3
    assert calls(started).count("renew") >= 1  # it was a lease all the while


def test_min_hold_does_not_keep_the_caller(fake):
    started = fake.start("renew=ok,renew=lost", "-t", "3s", "--min-hold", "1h", "-c", "read x; exit 3",
                         stdin=subprocess.PIPE)
    keeper = started.held().keeper
    assert started.finish().status == 3
    assert calls(started) in (["acquire"], ["acquire", "renew"])
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper, which has lost the lock")


def test_min_hold_does_not_keep_the_caller_who_is_told_something(fake, tmp_path):
    """The command has ended while the front was saying a line; only the end of a lease would wake it then."""
    shim = compile_shim(tmp_path, "slow", """
        #include <string.h>
        #include <sys/syscall.h>
        #include <time.h>
        #include <unistd.h>
        ssize_t write(int fd, const void *text, size_t n)
        {
            struct timespec left = {.tv_sec = 1};
            if (fd == 2 && memmem(text, n, "acquire", 7))
                while (nanosleep(&left, &left) != 0);
            return syscall(SYS_write, fd, text, n);
        }""")
    started = boottime()
    done = fake.run("", "-v", "-t", "1h", "--min-hold", "1h", "-c", "exit 3", env={"LD_PRELOAD": shim})
    assert done.status == 3 and "acquire" in done.stderr and boottime() - started < 30


@pytest.mark.parametrize("words", [[], ["--max-run", "1s"]], ids=["", "max-run"])
def test_min_hold_ends_with_term_and_gives_the_lock_back(fake, tmp_path, words):
    started = fake.start("", "--min-hold", "1h", *words, "-c", "read x", cwd=tmp_path, stdin=subprocess.PIPE)
    keeper = started.held().keeper
    done = started.wait() if words else started.finish()
    if words:
        assert done.status == 124 and "kept in the background until --min-hold is over" in one_line(done)
    else:
        assert (done.status, done.stderr) == (1, "")
    assert is_alive(keeper) and "release" not in calls(started)
    assert support.cwd_of(keeper) in ("/", None)
    support.kill(keeper, signal.SIGTERM)
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert calls(started)[-1] == "release"


def test_front_that_slept_through_everything_learns_the_ending(fake):
    """It may have been stopped until the link is full, so that the last message is dropped."""
    started = fake.start("", "--min-hold", "1h", "-c", "read x; exit 3", stdin=subprocess.PIPE)
    keeper, command = started.keeper, started.command
    started.signal(signal.SIGSTOP)
    for sig, state in [(signal.SIGSTOP, "T"), (signal.SIGCONT, "S")] * 300:
        support.kill(command, sig)
        wait_for(lambda state=state: support.stat_of(command)[1] == state, what=state)
    started.popen.stdin.close()
    wait_for(lambda: support.cwd_of(keeper) in ("/", None) and not support.stat_of(command), what="the report")
    started.signal(signal.SIGCONT)
    assert started.wait().status == 3
    assert is_alive(keeper)


def test_term_to_the_keeper_stops_the_command_and_ends_min_hold(fake):
    """Others are shown this process: what is sent to it reaches the command, as if sent to dlock."""
    started = fake.start("", "--min-hold", "1h", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    keeper = started.held().keeper
    wait_for(started.stdout, what="a command that has set its trap")
    support.kill(keeper, signal.SIGTERM)
    assert started.wait().status == 3
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert calls(started) == ["acquire", "release"]


def test_term_to_the_keeper_ends_the_waiting(fake):
    started = fake.start("acquire=busy", "--min-hold", "1h", "--", "true")
    wait_for(lambda: calls(started), what="the request")
    support.kill(started.keeper, signal.SIGTERM)
    assert started.wait().status == -signal.SIGTERM
    assert calls(started) == ["acquire", "release"]


@pytest.mark.parametrize("options", [[], ["--min-hold", "1h"]], ids=["", "min-hold"])
def test_others_are_shown_who_can_be_told_to_end(fake, tmp_path, options):
    """The front; with --min-hold the keeper, which outlives it."""
    started = fake.start("", "-O", f"record={tmp_path}/record", *options, "--", "cat", stdin=subprocess.PIPE)
    keeper = started.held().keeper
    assert json.loads((tmp_path / "record").read_text())["pid"] == (keeper if options else started.front)
    started.finish()
    support.kill(keeper, signal.SIGTERM)


# ---- nested ----


def nested(*options, command="true"):
    return f"'{DLOCK_TEST}' run -b fake -k job {' '.join(options)} -- {command}"


@pytest.mark.parametrize("levels", [1, 2])
def test_min_hold_of_a_nested_dlock_keeps_the_outer_lock_and_no_caller(fake, levels):
    inner = nested("--min-hold", "1h")
    if levels == 2:
        inner = nested(command=f'sh -c "{inner}" </dev/null')
    started = fake.start("", "-c", f"{inner}; read x; exit 4", stdin=subprocess.PIPE)
    keeper = started.held().keeper
    done = started.finish()
    assert (done.status, done.stderr) == (4, "")
    assert is_alive(keeper) and "release" not in calls(started)
    wait_for(lambda: support.children_of(keeper) == [], what="the end of the inner ones")
    support.kill(keeper, signal.SIGTERM)
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert calls(started)[-1] == "release"


def test_min_hold_of_a_nested_dlock_ends_in_time(fake):
    started = fake.start("", "-c", nested("--min-hold", "2s") + "; read x", stdin=subprocess.PIPE)
    keeper = started.held().keeper
    assert started.finish().status == 1
    wait_for(lambda: not is_alive(keeper), what="the end of the keeper")
    assert last(started, "release") > last(started, "acquire") + 2


def test_nested_dlock_says_who_holds_the_lock(fake):
    done = fake.run("", "-c", nested("--max-run", "100ms", command="sleep 1000"))
    assert done.status == 124
    assert "the outer run still holds the lock" in one_line(done)


def test_nested_dlock_joins_without_asking_the_server(fake):
    started = fake.start("", "-c", f"'{DLOCK_TEST}' run -b fake -k job -n -- sh -c 'echo $DLOCK_TOKEN; exit 5'")
    done = started.wait()
    assert (done.status, done.stdout, done.stderr) == (5, "1\n", "")
    assert calls(started) == ["acquire", "release"]


def test_outer_lock_outlives_what_a_killed_inner_keeper_leaves(fake, tmp_path):
    """The front of the inner one is to end it; the outer one waits, however long that takes."""
    beats = tmp_path / "beats"
    heart = f"sh -c '{sys.executable} -c \"$HEART\" {beats} & wait'"
    started = fake.start("", "-c", nested(command=heart) + f" & while [ ! -s {beats} ]; do sleep 0.01; done", env={"HEART": HEART})
    outer = started.held().keeper
    wait_for(lambda: notes(beats), what="the inner command")
    wait_for(lambda: not is_alive(started.command), what="the end of the outer command")
    inner = wait_for(lambda: [p for p in support.children_of(outer) if support.children_of(p)], what="the inner front")[0]
    keeper = support.children_of(inner)[0]
    support.kill(inner, signal.SIGSTOP)
    support.kill(keeper)
    wait_for(lambda: not is_alive(keeper), what="the end of the inner keeper")
    seen = len(notes(beats))
    wait_for(lambda: len(notes(beats)) > seen + 10, what="what it has left behind")
    assert "release" not in calls(started)
    support.kill(inner, signal.SIGCONT)
    assert started.wait().status == 0
    assert last(started, "release") > notes(beats)[-1][1]


def test_nested_dlock_that_has_found_the_lock_keeps_it(fake, tmp_path):
    """Also when the outer command ends before the inner one has done more than find it."""
    shim = compile_shim(tmp_path, "slow", """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <sys/socket.h>
        #include <unistd.h>
        ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *to, socklen_t length)
        {
            static int asked;
            if (n > 4000 && ++asked == 3) { /* for the server, for the lock, for the lease */
                close(open("found", O_WRONLY | O_CREAT, 0600));
                while (access("go", F_OK) != 0)
                    usleep(1000);
            }
            return ((ssize_t (*)(int, const void *, size_t, int, const struct sockaddr *, socklen_t))
                dlsym(RTLD_NEXT, "sendto"))(fd, p, n, flags, to, length);
        }""")
    inner = f"env LD_PRELOAD={shim} {nested(command='echo runs')}"
    started = fake.start("", "-c", f"{inner} & while [ ! -e found ]; do sleep 0.01; done", cwd=tmp_path)
    command = started.command
    wait_for(lambda: support.stat_of(command) is None, what="the end of the outer command")
    (tmp_path / "go").touch()
    wait_for(lambda: "release" in calls(started), what="the release")
    done = started.wait()
    assert (done.status, done.stdout, done.stderr) == (0, "runs\n", "")


def test_loss_reaches_a_nested_dlock(fake, tmp_path):
    inner = f"'{DLOCK_TEST}' run -b fake -k job -- sleep 1000; echo $? >{tmp_path}/inner"
    done = fake.run("renew=lost", "-t", "3s", "-c", inner)
    assert done.status == 79
    assert not (tmp_path / "inner").exists()  # its caller was killed with it


# ---- what is told ----


def test_verbose_tells_every_call(fake):
    done = fake.run("", "-v", "-c", "true")
    lines = done.stderr.splitlines()
    assert all(line.startswith("dlock: ") for line in lines)
    assert [any(f"fake: {call}: ok" in line for line in lines) for call in ("acquire", "release")] == [True, True]


def test_trouble_is_told_as_it_happens(long):
    started = long["trouble"]
    assert started.done.status == 0
    assert started.events("suspect")[0]["left_ms"] > 0 and "script says" in started.events("suspect")[0]["reason"]
    assert started.events("trusted")
    assert started.events()[-1] == {**started.events()[-1], "event": "verdict", "verdict": "ended", "status": 0}


@pytest.mark.parametrize("script, words, name", [
    ("acquire=busy", ["-n"], "busy"), ("acquire=again", [], "unreachable"), ("acquire=denied", [], "denied"),
    ("acquire=config", [], "refused"), ("acquire=protocol", [], "protocol"), ("release=lost", [], "lost"),
    ("release=again", [], "ended"),
])
def test_verdict_is_the_last_event(fake, script, words, name):
    started = fake.start(script, *words, "-c", "true")
    done = started.wait()
    verdict = started.events()[-1]
    assert (verdict["event"], verdict["verdict"], verdict["status"]) == ("verdict", name, done.status)
    assert f"dlock: {verdict['message']}" == one_line(done)


@pytest.mark.parametrize("words, lines", [([], 1), (["-v"], 1), (["-q"], 0)], ids=["plain", "verbose", "quiet"])
def test_a_notice_is_told_once(fake, words, lines):
    started = fake.start("notice=mind the disk,alert=1ms", "-c", "read x", *words, stdin=subprocess.PIPE)
    started.event("notice", message="mind the disk")
    done = started.finish()
    assert done.status == 1  # read's, at the end of its input
    assert done.stderr.count("dlock: mind the disk\n") == lines
    assert len(started.events("notice")) == 1
