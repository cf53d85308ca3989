# Goal of these tests: each row of the table of signals (cmd/supervise/signals.c) with real processes, with a terminal and
# without, beside the same command without dlock as the measure: it gets each signal as often.

import contextlib
import os
import pathlib
import pty
import re
import signal
import subprocess
import time

import pytest

from support import DLOCK, FilePlace, children_of, compile_shim, compiled, descendants_of, is_alive, is_free, kill, name_of, stat_of, wait_for

HERE = pathlib.Path(__file__).parent
MARK = signal.SIGRTMIN + 10  # sent last: what has come before it was passed on before it, or is not passed on

TOOL = r"""
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <poll.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/ioctl.h>
    #include <sys/prctl.h>
    #include <sys/signalfd.h>
    #include <sys/stat.h>
    #include <sys/time.h>
    #include <sys/wait.h>
    #include <unistd.h>

    static int open_orders(const char *log, const char *who)
    {
        char path[4096];

        snprintf(path, sizeof path, "%s.%s", log, who);
        mkfifo(path, 0600);
        return open(path, O_RDWR);
    }

    static void obey(int orders)
    {
        char line[64] = "";
        int pid, sig;

        if (read(orders, line, sizeof line - 1) > 0 && sscanf(line, "%d %d", &pid, &sig) == 2)
            kill(pid, sig);
    }

    /* True in a child, which ends with this process. */
    static int fork_beside(void)
    {
        pid_t parent = getpid();

        if (fork() != 0)
            return 0;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(0);
        return 1;
    }

    /* Logs its pid and each signal but TSTP, which stops it; it, or a process below it, sends signals as it is told. */
    static int catch(const char *log, int apart)
    {
        int own = open_orders(log, "command"), others = open_orders(log, "below"), fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
        struct signalfd_siginfo info;
        sigset_t caught;

        sigfillset(&caught);
        sigprocmask(SIG_SETMASK, &caught, NULL);
        if (apart)
            setpgid(0, 0);
        if (fork_beside()) {
            for (;;)
                obey(others);
        }
        sigdelset(&caught, SIGTSTP);
        sigdelset(&caught, SIGCHLD);
        sigprocmask(SIG_SETMASK, &caught, NULL);
        struct pollfd set[] = {{signalfd(-1, &caught, 0), POLLIN, 0}, {own, POLLIN, 0}};
        dprintf(fd, "%d\n", (int)getpid());
        while (poll(set, 2, -1) > 0) {
            if (set[1].revents)
                obey(own);
            if (!set[0].revents || read(set[0].fd, &info, sizeof info) != sizeof info)
                continue;
            dprintf(fd, "%d\n", (int)info.ssi_signo);
            if (info.ssi_signo == SIGUSR2)
                return 5;
        }
        return 1;
    }

    /* The leader of a session, in which the words are a job, and in the foreground of the terminal that stdin is. */
    static int lead(const char *log, char **words)
    {
        int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600), terminal = isatty(0) && ioctl(0, TIOCSCTTY, 0) == 0, status;
        pid_t job;

        signal(SIGTTOU, SIG_IGN);
        job = fork();
        setpgid(job, job);
        if (terminal)
            tcsetpgrp(0, job ? job : getpid());
        if (job == 0) {
            signal(SIGTTOU, SIG_DFL);
            execvp(words[0], words);
            _exit(127);
        }
        dprintf(fd, "%d\n", (int)job);
        while (waitpid(job, &status, WUNTRACED) == job && WIFSTOPPED(status))
            dprintf(fd, "stopped\n");
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

    int main(int argc, char **argv)
    {
        struct itimerval soon = {.it_value.tv_sec = 3};

        if (strcmp(argv[1], "catch") == 0)
            return catch(argv[2], argc > 3);
        if (strcmp(argv[1], "lead") == 0)
            return lead(argv[2], argv + 3);
        if (strcmp(argv[1], "alarm") == 0)
            setitimer(ITIMER_REAL, &soon, NULL);
        if (strcmp(argv[1], "elder") == 0 && fork_beside()) {
            setpgid(0, 0);
            for (;;)
                pause();
        }
        execvp(argv[2], argv + 2);
        return 127;
    }
"""


@pytest.fixture
def files(request):
    """Locks in a fresh directory."""
    return FilePlace(request)


@pytest.fixture
def tool(tmp_path):
    return compiled(tmp_path / "tool", TOOL, "-O1")


def state_of(pid):
    found = stat_of(pid)
    return found and found[1]


class Job:
    """Words that a session leader has started, with a terminal or without; a catcher among them."""

    def __init__(self, dlock, tool, directory, terminal, words, catcher="log"):
        directory.mkdir(parents=True)
        self.log, self.led, self.said = directory / catcher, directory / "led", directory / "said"
        self.master, slave = pty.openpty() if terminal else (None, None)
        with open(self.said, "wb") as said:
            self.popen = subprocess.Popen([tool, "lead", str(self.led), *map(str, words)], env=dlock.env, cwd=directory, start_new_session=True,
                                          stdin=slave if terminal else subprocess.DEVNULL, stdout=said, stderr=said)
        if terminal:
            os.close(slave)
        self.pid = self.lines(self.led)[0]

    @staticmethod
    def lines(path, n=1):
        wait_for(lambda: path.exists() and path.read_text().count("\n") >= n, what=f"{n} lines of {path}")
        return [int(line) if line.lstrip("-").isdigit() else line for line in path.read_text().split()]

    @property
    def command(self):
        return self.lines(self.log)[0]

    def got(self, sig=MARK):
        """What the command has got, when it has got this one."""
        wait_for(lambda: int(sig) in self.lines(self.log)[1:], what=f"signal {int(sig)}")
        return self.lines(self.log)[1:]

    def order(self, who, whom, sig):
        with open(f"{self.log}.{who}", "w", encoding="ascii") as orders:
            orders.write(f"{whom} {int(sig)}")

    def key(self, key):
        os.write(self.master, bytes([ord(key) & 0x1f]))

    def stopped(self, n=1):
        wait_for(lambda: self.led.read_text().count("stopped") >= n, what="the job to stop")

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.command, signal.SIGUSR2)
        return self.popen.wait(60)

    def close(self):
        left = {self.popen.pid, *descendants_of(self.popen.pid)}
        for pid in left:
            kill(pid)
        self.popen.wait()
        if self.master is not None:
            os.close(self.master)


@pytest.fixture
def jobs(dlock, tool, tmp_path):
    """Starts jobs: (name, terminal?, words)."""
    started = []

    def start(name, terminal, *words, **options):
        started.append(Job(dlock, tool, tmp_path / name, terminal, words, **options))
        return started[-1]

    yield start
    for job in started:
        job.close()


def under(files, *options):
    return [DLOCK, "run", *files.words, "-k", files.key(), *options, "--"]


# ---- the command runs ----


def kill_pid(sig):
    def act(job):
        kill(job.pid, sig)
        return sig
    return act


def kill_group(sig):
    def act(job):
        os.killpg(job.pid, sig)
        return sig
    return act


def ordered(who, whom, sig):
    """The command, or a process below it, sends it to dlock (or to a plain command), or to its own group."""
    def act(job):
        job.order(who, job.pid if whom == "job" else 0, sig)
        return sig
    return act


def press(key, sig):
    def act(job):
        job.key(key)
        return sig
    return act


def stop_and_continue(send):
    """By TSTP, which stops it, and CONT."""
    def act(job):
        send(job.pid, signal.SIGTSTP)
        wait_for(lambda: state_of(job.command) == "T", what="the command to stop")
        send(job.pid, signal.SIGCONT)
        return signal.SIGCONT
    return act


def nothing(_):
    """A timer that was set before does it."""
    return signal.SIGALRM


BOTH, TERMINAL = (True, False), (True,)

# rows, where, what is done to it; what stands before its words
RUNNING = {
    "kill PID": ("R5 R3", BOTH, kill_pid(signal.SIGTERM)),
    "from below": ("R5 R3", BOTH, ordered("below", "job", signal.SIGTERM)),
    "by the command": ("R5 R3", BOTH, ordered("command", "job", signal.SIGHUP)),
    "a timer": ("R5 R3", BOTH, nothing, "alarm"),
    "TSTP and CONT": ("R5 R3", BOTH, stop_and_continue(kill)),
    "CONT alone": ("R5 R3", BOTH, kill_pid(signal.SIGCONT)),
    "a key": ("R4", TERMINAL, press("c", signal.SIGINT)),
    "kill -GROUP": ("R4 R3", BOTH, kill_group(signal.SIGTERM)),
    "TSTP and CONT to the group": ("R4 R3", BOTH, stop_and_continue(os.killpg)),
    "kill 0 from below": ("R4", BOTH, ordered("below", "group", signal.SIGTERM)),
    "kill 0 by the command": ("R4", BOTH, ordered("command", "group", signal.SIGTERM)),
}


@pytest.mark.parametrize("case, terminal", [(case, terminal) for case, told in RUNNING.items() for terminal in told[1]])
def test_the_command_gets_what_a_plain_one_gets(jobs, tool, files, case, terminal):
    _, _, act, *before = RUNNING[case]
    got = []
    for name, words in (("plain", []), ("dlock", under(files))):
        job = jobs(name, terminal, *([tool, *before] if before else []), *words, tool, "catch", "log")
        assert job.command
        if words and terminal:
            witness_of(job)
        sent = act(job)
        job.got(sent)
        kill(job.pid, MARK)
        got.append(sorted(job.got()))
        assert job.end() == 5
    assert got[0] == got[1]


def witness_of(job, n=1):
    """The first moments of a run are other rows."""
    return wait_for(lambda: (found := [p for p in descendants_of(job.pid) if name_of(p) == "group-witness"])[n - 1:] and found,
                    what="the witness")[0]


def pending(pid):
    """Signals that it has not read yet."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return any(int(line.split()[1], 16) for line in f if line.startswith(("SigPnd", "ShdPnd")))


def settle():
    """Nothing else shows that nothing comes."""
    time.sleep(0.1)


# What stands before dlock has left it a child: there is no witness, and nothing but siginfo tells (the rows with "?").
UNKNOWN = {
    "kill PID": ("R8", kill_pid(signal.SIGTERM), 1),
    "kill -GROUP": ("R8", kill_group(signal.SIGTERM), 2),
    "kill 0 from below": ("R8", ordered("below", "group", signal.SIGTERM), 2),
    "kill 0 by the command": ("R6", ordered("command", "group", signal.SIGTERM), 1),
    "CONT in the foreground": ("R7", kill_pid(signal.SIGCONT), 0),
    "a key": ("R4", press("c", signal.SIGINT), 1),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_rather_twice_than_never(jobs, tool, files, case):
    _, act, most = UNKNOWN[case]
    job = jobs("dlock", True, tool, "elder", *under(files), tool, "catch", "log")
    assert job.command
    settle()
    sent = act(job)
    if most:
        job.got(sent)
    settle()
    kill(job.pid, MARK)
    assert min(most, 1) <= job.got().count(sent) <= most
    assert job.end() == 5


def test_pkill_means_no_witness(jobs, tool, files):
    """Else dlock would take what was sent to all processes of its name for a signal to the group."""
    job = jobs("dlock", True, *under(files), tool, "catch", "log")
    assert job.command
    witness = witness_of(job)
    wait_for(lambda: pathlib.Path(f"/proc/{witness}/cmdline").read_bytes().strip(bytes(1)) == b"group-witness", what="its words to go")
    assert os.listdir(f"/proc/{witness}/fd") == ["0"]
    told = subprocess.run(["pgrep", "-f", str(files.directory)], capture_output=True, text=True, check=True).stdout.split()
    assert str(job.pid) in told and str(witness) not in told
    kill(job.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(witness), what="its end with the front")


def test_a_killed_witness_is_none(jobs, tool, files):
    job = jobs("dlock", True, *under(files), tool, "catch", "log")
    assert job.command
    witness = witness_of(job)
    kill(witness)
    wait_for(lambda: not stat_of(witness), what="its end")
    kill(job.pid, signal.SIGTERM)
    job.got(signal.SIGTERM)
    kill(job.pid, MARK)
    assert job.got() == [signal.SIGTERM, MARK]
    assert job.end() == 5


def test_a_witness_that_does_not_answer_holds_nothing_up(jobs, tool, files):
    job = jobs("dlock", True, *under(files), tool, "catch", "log")
    assert job.command
    witness = witness_of(job)
    kill(witness, signal.SIGSTOP)
    kill(job.pid, signal.SIGTERM)
    job.got(signal.SIGTERM)
    kill(job.pid, MARK)
    assert job.got() == [signal.SIGTERM, MARK]
    assert job.end() == 5


def test_after_a_quiet_wait_there_is_a_witness(dlock, jobs, tool, files):
    """Nothing else would wake the front then."""
    holder = dlock.hold(files, files.key())
    job = jobs("dlock", True, *under(files, "-q"), tool, "catch", "log")
    settle()
    assert holder.finish().status == 0
    assert job.command
    witness_of(job)
    os.killpg(job.pid, signal.SIGTERM)
    job.got(signal.SIGTERM)
    kill(job.pid, MARK)
    assert job.got() == [signal.SIGTERM, MARK]
    assert job.end() == 5


# ---- who signals groups ----


@pytest.mark.parametrize("how", ["kill %1", "hang-up", "timeout", "timeout --foreground", "kill 0"])
def test_programs_that_signal_a_whole_job(jobs, tool, files, tmp_path, how):
    """Beside a plain command: timeout(1) sends two itself, but dlock adds none."""
    sig = signal.SIGHUP if how == "hang-up" else signal.SIGTERM
    counts = []
    for name, words in (("plain", []), ("dlock", under(files))):
        line = " ".join(map(str, [*words, tool, "catch", tmp_path / name / "log"]))
        go = tmp_path / name / "go"
        kills = "kill %1; wait" if how == "kill %1" else "kill -HUP $$; wait; wait"
        above = {
            "kill 0": ["sh", "-c", f"trap 'trap : TERM; kill 0' USR1; {line} & while :; do wait; done"],
            "timeout": ["timeout", "1", *line.split()],
            "timeout --foreground": ["timeout", "--foreground", "1", *line.split()],
        }.get(how, ["bash", "--norc", "--noprofile", "-i", "-m", "-c", f"{line} & while [ ! -e {go} ]; do sleep 0.05; done; {kills}"])
        job = jobs(name, True, *above)
        command = job.command
        front = stat_of(stat_of(command)[2])[2] if words else command
        if words:
            witness_of(job)
        if how == "kill 0":
            kill(job.pid, signal.SIGUSR1)
        go.touch()
        job.got(sig)
        settle()
        kill(front, MARK)
        counts.append(job.got().count(sig))
        kill(command, signal.SIGUSR2)
        wait_for(lambda command=command: not is_alive(command), what="its end")
    assert counts[0] >= 1 and counts[1] in ((1, 2) if how == "timeout" else (counts[0],)), counts


@pytest.mark.parametrize("how", ["a key", "kill PID"])
def test_a_command_in_a_group_of_its_own(jobs, tool, files, how):
    job = jobs("dlock", True, *under(files), tool, "catch", "log", "apart")
    assert os.getpgid(job.command) == job.command
    if how == "a key":
        job.key("c")
    else:
        kill(job.pid, signal.SIGINT)
    job.got(signal.SIGINT)
    kill(job.pid, MARK)
    assert job.got() == [signal.SIGINT, MARK]
    assert job.end() == 5


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "none"])
def test_what_is_below_an_inner_run_goes_on(dlock, jobs, tool, files, terminal):
    """TSTP and CONT to the outer one alone."""
    inner = [DLOCK, "run", *files.words, "-k", "inner", "--"]
    job = jobs("dlock", terminal, *under(files), *inner, tool, "catch", "log")
    assert job.command
    if terminal:
        witness_of(job, 2)
    for n in range(2):
        kill(job.pid, signal.SIGTSTP)
        wait_for(lambda: state_of(job.command) == "T", what="the command to stop")
        if terminal:
            job.stopped(n + 1)
        kill(job.pid, signal.SIGCONT)
        wait_for(lambda: state_of(job.command) == "S", what="the command to go on")
    assert job.end() == 5


def test_what_is_continued_as_soon_as_it_has_stopped(jobs, tool, files):
    """dlock is about to stop with it, or has not heard of it yet."""
    job = jobs("dlock", True, *under(files), tool, "catch", "log")
    assert job.command
    command = job.command
    witness_of(job)
    for n in range(150):
        os.killpg(job.pid, signal.SIGTSTP)
        while state_of(command) != "T":  # without a pause
            pass
        until = time.monotonic() + n * 7e-6
        while time.monotonic() < until:
            pass
        os.killpg(job.pid, signal.SIGCONT)
        kill(job.pid, MARK)
        wait_for(lambda n=n: job.lines(job.log).count(int(MARK)) > n, what="the job to go on")
    assert job.end() == 5


def test_what_is_continued_in_the_moment_in_which_dlock_stops(jobs, tool, files, tmp_path):
    """The kernel cancels CONT by the stop, and the keeper has heard of it before."""
    shim = compile_shim(tmp_path, "continued", """
        #include <signal.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int raise(int sig) {
            static int done;
            if (sig == SIGTSTP && !done++ && kill(0, SIGCONT) == 0) usleep(200000);
            return syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), sig);
        }""")
    job = jobs("dlock", True, "env", f"LD_PRELOAD={shim}", *under(files), tool, "catch", "log")
    assert job.command
    witness_of(job)
    os.killpg(job.pid, signal.SIGTSTP)
    job.got(signal.SIGCONT)
    settle()
    kill(job.pid, MARK)
    assert job.got() == [signal.SIGCONT, MARK]
    assert job.end() == 5


def test_a_continue_after_two_stops_of_which_the_second_is_the_first(jobs, tool, files, tmp_path):
    """dlock stops by both at once: it never reads the second, which the witness has got as well."""
    shim = compile_shim(tmp_path, "twice", """
        #include <signal.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int raise(int sig) {
            static int done;
            if (sig == SIGTSTP && !done++) kill(0, sig);
            return syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), sig);
        }""")
    job = jobs("dlock", True, "env", f"LD_PRELOAD={shim}", *under(files), tool, "catch", "log")
    assert job.command
    witness_of(job)
    os.killpg(job.pid, signal.SIGTSTP)
    job.stopped()
    kill(job.pid, signal.SIGCONT)
    assert job.got(signal.SIGCONT) == [signal.SIGCONT]
    assert job.end() == 5


# ---- the lock is waited for ----


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "none"])
@pytest.mark.parametrize("words", [["run", "--", "true"], ["hold", "--for", "1h"]], ids=lambda w: w[0])
def test_a_timer_ends_the_waiting(dlock, jobs, tool, files, words, terminal):
    """`alarm N; exec dlock`"""
    holder = dlock.hold(files, files.key())
    job = jobs("dlock", terminal, tool, "alarm", DLOCK, words[0], *files.words, "-k", files.key(), *words[1:])
    assert job.popen.wait(60) == 128 + signal.SIGALRM
    assert holder.finish().status == 0
    assert is_free(dlock, files)


# ---- what the command has left is waited for ----


def left_behind(tool, *words):
    """A command that leaves two catchers, one in its group and one elsewhere, and ends with 4 when there is a file `go`."""
    return [*words, "sh", "-c", f"{tool} catch log & setsid {tool} catch elsewhere & echo $$ >pid; "
                                "while [ ! -s log ] || [ ! -s elsewhere ] || [ ! -e go ]; do sleep 0.02; done; exit 4"]


@pytest.mark.parametrize("reaped", [True, False], ids=["", "before the keeper knows"])
@pytest.mark.parametrize("terminal, how", [(True, "kill PID"), (False, "kill PID"), (True, "kill -GROUP")])
def test_what_is_left_gets_a_signal_once(jobs, tool, files, how, terminal, reaped):
    """The command has ended, also in the moment before it is reaped."""
    job = jobs("dlock", terminal, *left_behind(tool, *under(files, "--wait-tree")))
    command, = job.lines(job.log.parent / "pid")
    keeper = stat_of(command)[2]
    if terminal:
        witness_of(job)
    if not reaped:
        kill(keeper, signal.SIGSTOP)
    (job.log.parent / "go").touch()
    wait_for(lambda: not is_alive(command) and not (reaped and stat_of(command)), what="the end of the command")
    (os.killpg if how == "kill -GROUP" else kill)(job.pid, signal.SIGTERM)
    if not reaped:
        kill(job.pid, MARK)
        wait_for(lambda: not pending(job.pid), what="the front to have read all")
        kill(keeper, signal.SIGCONT)
    logs = [job.log, job.log.parent / "elsewhere"]
    for log in logs:
        wait_for(lambda: signal.SIGTERM in job.lines(log)[1:], what="TERM")
    if reaped:
        kill(job.pid, MARK)
    for log in logs:
        wait_for(lambda: int(MARK) in job.lines(log)[1:], what="the mark")
        assert job.lines(log)[1:] == [signal.SIGTERM, MARK]
        kill(job.lines(log)[0], signal.SIGUSR2)
    assert job.popen.wait(60) == 4


@pytest.mark.parametrize("late", ["front", "front and keeper"])
@pytest.mark.parametrize("how", ["kill -GROUP", "a key"])
def test_what_has_killed_the_command_is_for_nobody_else(jobs, tool, files, late, how):
    """If dlock reads it within a second; the next one is for those that are left."""
    job = jobs("dlock", True, *under(files, "--wait-tree"),
               "sh", "-c", f"trap : INT TERM; {tool} catch log & setsid {tool} catch elsewhere & echo $$ >pid; "
                           "while [ ! -s log ] || [ ! -s elsewhere ]; do sleep 0.02; done; exec sleep 1000")
    command, = job.lines(job.log.parent / "pid")
    wait_for(lambda: name_of(command) == "sleep", what="the command")
    sig = signal.SIGTERM if how == "kill -GROUP" else signal.SIGINT
    send = (lambda: os.killpg(job.pid, sig)) if how == "kill -GROUP" else (lambda: job.key("c"))
    witness_of(job)
    asleep = [job.pid, *[stat_of(command)[2]] * ("keeper" in late)]
    for pid in asleep:
        kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    send()
    wait_for(lambda: not is_alive(command) and ("keeper" in late or not stat_of(command)), what="the end of the command")
    for pid in asleep:
        kill(pid, signal.SIGCONT)
    kill(job.pid, MARK)
    elsewhere = job.log.parent / "elsewhere"
    wait_for(lambda: int(MARK) in job.lines(elsewhere)[1:], what="the mark")
    if time.monotonic() - began < 1:
        assert not {signal.SIGTERM, signal.SIGINT} & set(job.lines(elsewhere)[1:])
    send()
    wait_for(lambda: signal.SIGTERM in job.lines(elsewhere)[1:], what="TERM")
    for log in (job.log, elsewhere):
        kill(job.lines(log)[0], signal.SIGUSR2)
    assert job.popen.wait(60) == 128 + sig


# A program whose first thread ends, and another one goes on.
THREADS = r"""
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <unistd.h>
    static void *work(void *set)
    {
        int sig;
        for (printf("%d\n", (int)getpid()), fflush(stdout); sigwait(set, &sig) == 0 && sig != SIGTERM;)
            continue;
        _exit(7);
    }
    int main(void)
    {
        static sigset_t set;
        pthread_t other;
        sigfillset(&set);
        sigdelset(&set, SIGTSTP);
        pthread_sigmask(SIG_SETMASK, &set, NULL);
        pthread_create(&other, NULL, work, &set);
        pthread_exit(NULL);
    }
"""


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "none"])
def test_a_command_lives_as_long_as_one_of_its_threads(jobs, files, tmp_path, terminal):
    """The kernel shows it as a zombie when its first thread has ended."""
    job = jobs("dlock", terminal, *under(files), compiled(tmp_path / "threads", THREADS, "-O1", "-pthread"))
    command, = job.lines(job.said)
    wait_for(lambda: state_of(command) == "Z", what="the end of its first thread")
    if terminal:
        witness_of(job)
        job.key("z")
        job.stopped()
        os.killpg(job.pid, signal.SIGCONT)
        wait_for(lambda: state_of(job.pid) == "S", what="dlock to go on")
    kill(job.pid, signal.SIGTERM)
    assert job.popen.wait(60) == 7


def test_ctrl_c_ends_what_has_joined(jobs, tool, files):
    """Without --wait-tree: the shell between has made them ignore the key."""
    inner = " ".join(map(str, under(files)))
    left = f"{inner} {tool} catch log & while [ ! -s log ]; do sleep 0.02; done; echo $$ >ended; exit 4"
    job = jobs("dlock", True, *under(files), "sh", "-c", left)
    wait_for(lambda: (job.log.parent / "ended").exists() and not is_alive(int((job.log.parent / "ended").read_text() or job.pid)),
             what="the end of the command")
    job.key("c")
    assert job.got(signal.SIGTERM).count(signal.SIGTERM) == 1
    assert job.end() == 4


# ---- the keeper's own, and a hold ----


@pytest.mark.parametrize("min_hold", [True, False], ids=["min-hold", "plain"])
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "none"])
def test_term_to_the_keeper(jobs, tool, files, terminal, min_hold):
    """With --min-hold others are shown its pid."""
    job = jobs("dlock", terminal, *under(files, *["--min-hold", "1ms"] * min_hold), tool, "catch", "log")
    kill(stat_of(job.command)[2], signal.SIGTERM)
    if min_hold:
        job.got(signal.SIGTERM)
    settle()
    kill(job.pid, MARK)
    assert job.got() == [signal.SIGTERM] * min_hold + [MARK]
    assert job.end() == 5


@pytest.mark.parametrize("whose", ["front", "keeper"])
def test_term_ends_a_hold_for_nobody(dlock, files, whose):
    assert dlock.run("hold", *files.words, "-k", files.key(), "--for", "1h").status == 0
    front = int(re.search(r"\(pid (\d+)", dlock.run("status", *files.words, "-k", files.key()).stdout)[1])
    kill(front if whose == "front" else children_of(front)[0], signal.SIGTERM)
    wait_for(lambda: is_free(dlock, files), what="the release")


# ---- each row is tested ----

HERE_BY_NAME = {
    "W3": "test_a_timer_ends_the_waiting", "S3": "test_a_timer_ends_the_waiting", "R3": "test_a_command_in_a_group_of_its_own",
    "L5": "test_what_is_left_gets_a_signal_once", "L7": "test_what_is_left_gets_a_signal_once", "L3": "test_ctrl_c_ends_what_has_joined",
    "L8": "test_what_has_killed_the_command_is_for_nobody_else",
    "H3": "test_term_ends_a_hold_for_nobody", "K2": "test_term_ends_a_hold_for_nobody", "K3": "test_term_to_the_keeper",
    "K4": "test_term_to_the_keeper",
}
ELSEWHERE = {
    "A1": "test_terminal.py::test_a_command_that_stops_by_itself_stops_the_job",
    "A2": "test_process.py::test_broken_output_of_dlock_does_the_command_no_harm",
    "W1": "test_terminal.py::test_a_run_that_is_stopped_while_it_waits_keeps_nobody_waiting",
    "W2": "test_terminal.py::test_ctrl_z_without_a_shell_costs_no_place",
    "W3": "test_process.py::test_a_waiting_dlock_gives_up_its_place_and_dies_of_the_signal",
    "W4": "test_process.py::test_ignored_signals_stay_ignored",
    "R1": "test_terminal.py::test_a_suspended_job_ends_with_its_shell",
    "R2": "test_terminal.py::test_a_shell_inside_can_be_suspended",
    "R5": "test_terminal.py::test_a_hang_up_is_one_signal",
    "L1": "test_terminal.py::test_ctrl_z_stops_what_is_waited_for_when_the_command_has_ended",
    "L2": "test_terminal.py::test_ctrl_z_without_a_shell_stops_nothing",
    "L3": "test_terminal.py::test_ctrl_c_ends_what_is_waited_for_when_the_command_has_ended",
    "L4": "test_terminal.py::test_ctrl_c_that_the_caller_ignores_ends_nothing_of_what_is_waited_for",
    "L7": "test_process.py::test_a_signal_reaches_who_has_joined_when_the_command_has_ended",
    "H1": "test_hold.py::test_a_signal_while_the_handle_is_written",
    "H4": "test_hold.py::test_signals_release_nothing",
    "S1": "test_terminal.py::test_a_suspended_hold_that_waits_keeps_nobody_waiting",
    "S2": "test_parent.py::test_a_hold_waits_with_its_parent_and_is_kept_without",
    "S3": "test_hold.py::test_a_signal_when_the_handle_has_been_written",
    "K1": "test_hold.py::test_a_signal_that_comes_with_the_grant",
}
BY_UNITS = {"A3", "H2", "L6", "L9"}  # moments that no test can hit: tests/unit/signals.c


def test_each_row_of_the_table_is_tested():
    root = HERE.parent.parent.parent
    rows = set(re.findall(r"^ \* ([A-Z]\d) ", (root / "cmd/supervise/signals.c").read_text(), re.M))
    decided = set(re.findall(r"/\* ([A-Z]\d) \*/", (root / "cmd/supervise/signals.c").read_text()))
    units = set(re.findall(r'\{"([A-Z]\d)"', (root / "tests/unit/signals.c").read_text()))
    assert rows == decided == units and len(rows) > 25
    here = {row for told in [*RUNNING.values(), *UNKNOWN.values()] for row in told[0].split()}
    assert rows == here | set(HERE_BY_NAME) | set(ELSEWHERE) | BY_UNITS
    for name in HERE_BY_NAME.values():
        assert callable(globals()[name])
    for name in ELSEWHERE.values():
        file, function = name.split("::")
        assert f"\ndef {function}(" in (HERE / file).read_text(), name
