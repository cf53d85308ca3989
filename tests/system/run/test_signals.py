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

from support import DLOCK, FilePlace, children_of, compiled, descendants_of, is_alive, is_free, kill, stat_of, wait_for

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
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
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
        struct itimerval soon = {.it_value.tv_usec = 300000};

        if (strcmp(argv[1], "catch") == 0)
            return catch(argv[2], argc > 3);
        if (strcmp(argv[1], "lead") == 0)
            return lead(argv[2], argv + 3);
        if (strcmp(argv[1], "alarm") == 0)
            setitimer(ITIMER_REAL, &soon, NULL);
        if (strcmp(argv[1], "elder") == 0 && fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
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
        for pid in [self.popen.pid, *descendants_of(self.popen.pid)]:
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
    "by the command": ("R5 R3", (False,), ordered("command", "job", signal.SIGHUP)),
    "a timer": ("R5 R3", BOTH, nothing, "alarm"),
    "TSTP and CONT": ("R5 R3", (False,), stop_and_continue(kill)),
    "CONT alone": ("R5 R3", (False,), kill_pid(signal.SIGCONT)),
    "a key": ("R4", TERMINAL, press("c", signal.SIGINT)),
    "kill -GROUP": ("R4 R3", (False,), kill_group(signal.SIGTERM)),
    "TSTP and CONT to the group": ("R4 R3", (False,), stop_and_continue(os.killpg)),
    "kill 0 by the command": ("R4", BOTH, ordered("command", "group", signal.SIGTERM)),
}


@pytest.mark.parametrize("case, terminal", [(case, terminal) for case, told in RUNNING.items() for terminal in told[1]])
def test_the_command_gets_what_a_plain_one_gets(jobs, tool, files, case, terminal):
    _, _, act, *before = RUNNING[case]
    got = []
    for name, words in (("plain", []), ("dlock", under(files))):
        job = jobs(name, terminal, *([tool, *before] if before else []), *words, tool, "catch", "log")
        assert job.command
        if words:
            settle(job)
        sent = act(job)
        job.got(sent)
        kill(job.pid, MARK)
        got.append(sorted(job.got()))
        assert job.end() == 5
    assert got[0] == got[1]


def settle(job):
    """The first moments of a run are another row."""
    time.sleep(0.1)


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


@pytest.mark.parametrize("terminal", [False], ids=["none"])
def test_what_is_below_an_inner_run_goes_on(dlock, jobs, tool, files, terminal):
    """TSTP and CONT to the outer one alone."""
    inner = [DLOCK, "run", *files.words, "-k", "inner", "--"]
    job = jobs("dlock", terminal, *under(files), *inner, tool, "catch", "log")
    assert job.command
    for n in range(2):
        kill(job.pid, signal.SIGTSTP)
        wait_for(lambda: state_of(job.command) == "T", what="the command to stop")
        if terminal:
            job.stopped(n + 1)
        kill(job.pid, signal.SIGCONT)
        wait_for(lambda: state_of(job.command) == "S", what="the command to go on")
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
    """A command that leaves two catchers, one in its group and one elsewhere, and ends with 4."""
    return [*words, "sh", "-c", f"{tool} catch log & setsid {tool} catch elsewhere & "
                                "while [ ! -s log ] || [ ! -s elsewhere ]; do sleep 0.02; done; echo $$ >ended; exit 4"]


@pytest.mark.parametrize("terminal, how", [(True, "kill PID"), (False, "kill PID")])
def test_what_is_left_gets_a_signal_once(jobs, tool, files, how, terminal):
    job = jobs("dlock", terminal, *left_behind(tool, *under(files, "--wait-tree")))
    wait_for(lambda: (job.log.parent / "ended").exists() and not is_alive(int((job.log.parent / "ended").read_text() or job.pid)),
             what="the end of the command")
    settle(job)
    (os.killpg if how == "kill -GROUP" else kill)(job.pid, signal.SIGTERM)
    logs = [job.log, job.log.parent / "elsewhere"]
    for log in logs:
        wait_for(lambda: signal.SIGTERM in job.lines(log)[1:], what="TERM")
    kill(job.pid, MARK)
    for log in logs:
        wait_for(lambda: int(MARK) in job.lines(log)[1:], what="the mark")
        assert job.lines(log)[1:] == [signal.SIGTERM, MARK]
        kill(job.lines(log)[0], signal.SIGUSR2)
    assert job.popen.wait(60) == 4


def test_ctrl_c_ends_what_has_joined(jobs, tool, files):
    """Without --wait-tree: the shell between has made them ignore the key."""
    inner = " ".join(map(str, under(files)))
    job = jobs("dlock", True, *under(files), "sh", "-c", f"{inner} {tool} catch log & while [ ! -s log ]; do sleep 0.02; done; echo $$ >ended; exit 4")
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
    settle(job)
    kill(job.pid, MARK)
    assert job.got() == [signal.SIGTERM] * min_hold + [MARK]
    assert job.end() == 5


@pytest.mark.parametrize("whose", ["front", "keeper"])
def test_term_ends_a_hold_for_nobody(dlock, files, whose):
    assert dlock.run("hold", *files.words, "-k", files.key(), "--for", "1h").status == 0
    front = int(re.search(r"\(pid (\d+)", dlock.run("status", *files.words, "-k", files.key()).stdout)[1])
    kill(front if whose == "front" else children_of(front)[0], signal.SIGTERM)
    wait_for(lambda: is_free(dlock, files), what="the release")
