# Goal of these tests: --metrics-file counts each run once, whatever else runs and whatever stands in the
# file, never changes how a run ends, and replaces nothing that is not dlock's.

import fcntl
import os
import re
import resource
import signal
import stat
import time

import pytest

from support import FilePlace, boottime, spent

RESULTS = ("ok", "failed", "max-run", "lost", "busy", "skipped", "interrupted", "unreachable", "error")
LINE = re.compile(r'(\w+)\{key="((?:[^"\\\n]|\\["\\n])*)",backend="(\w+)"(?:,result="([a-z-]+)")?\} (\d+(?:\.\d{3})?)')
MARK = "# dlock run --metrics-file, 1\n"


class Metrics:
    def __init__(self, dlock, files, path):
        self.dlock, self.files, self.path = dlock, files, path

    def run(self, *words, key="job", path=None, **options):
        return self.dlock.run("run", *self.files.words, "--metrics-file", path or self.path, "-k", key, *words, **options)

    def read(self):
        """{(name, key, backend, result): value}; checks the form on the way."""
        values, types, name = {}, {}, None
        lines = self.path.read_text().splitlines()
        assert lines.pop(0) + "\n" == MARK
        for line in lines:
            if line.startswith("# HELP "):
                continue
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                assert name not in types, "all of a metric stands together"
                types[name] = kind
                continue
            match = LINE.fullmatch(line)
            assert match, line
            assert match[1] == name and (match[1], *match.groups()[1:4]) not in values
            values[(name, match[2], match[3], match[4])] = float(match[5])
        return values

    def value(self, name, key="job", result=None):
        return self.read().get((f"dlock_{name}", key, "file", result))

    def runs(self, key="job"):
        """The results that there were."""
        return {result: n for result in RESULTS if (n := self.value("runs_total", key, result))}


@pytest.fixture
def metrics(request, dlock, tmp_path):
    return Metrics(dlock, FilePlace(request), tmp_path / "dlock.prom")


def test_a_run_is_timed_and_counted(metrics):
    """Also with a command that fails: the last success stays what it was."""
    before = time.time()
    assert metrics.run("--", "sleep", "0.3").status == 0
    after = time.time()
    start, end = metrics.value("last_start_timestamp_seconds"), metrics.value("last_end_timestamp_seconds")
    assert before - 0.1 <= start <= end - 0.29 and end <= after + 0.1
    assert metrics.value("last_success_timestamp_seconds") == end
    assert metrics.value("last_status") == 0
    assert 0.3 <= metrics.value("last_hold_seconds") <= end - start + 0.01
    assert metrics.value("last_wait_seconds") <= end - start + 0.01
    assert metrics.run("--", "sh", "-c", "exit 7").status == 7
    assert metrics.value("last_success_timestamp_seconds") == end < metrics.value("last_end_timestamp_seconds")
    assert metrics.value("last_status") == 7
    assert metrics.runs() == {"ok": 1, "failed": 1}
    assert all(metrics.value("runs_total", result=result) is not None for result in RESULTS)


def test_each_result(metrics, tmp_path):
    """A run that did not get the lock leaves the time of the last one that had it."""
    assert metrics.run("--once", "a", "--", "sleep", "0.2").status == 0
    had = metrics.value("last_hold_seconds")
    assert metrics.run("--once", "a", "--", "true").status == 0
    held = metrics.dlock.hold(metrics.files, "job")
    assert metrics.run("-n", "--", "true").status == 75
    assert metrics.run("-w", "0.3", "--", "true").status == 75
    assert metrics.value("last_wait_seconds") >= 0.3 and metrics.value("last_hold_seconds") == had
    waiting = metrics.dlock.start("run", *metrics.files.words, "--metrics-file", metrics.path, "-k", "job", "--", "true", events=True)
    waiting.event("waiting")
    waiting.signal(signal.SIGTERM)
    assert waiting.wait().status == -15
    held.finish()
    assert metrics.run("--max-run", "0.1", "--", "sleep", "9").status == 124
    assert metrics.run("--", "/no/such/command").status == 127
    assert metrics.run("--", "sh", "-c", "kill -9 $$").status == -9
    assert metrics.value("last_status") == 137
    assert metrics.runs() == {"ok": 1, "skipped": 1, "busy": 2, "interrupted": 1, "max-run": 1, "error": 1, "failed": 1}


def test_keys_of_any_form_and_of_one_run(metrics):
    """What would end a label is escaped, and read back as the same key."""
    odd = 'a"\\b{},c} 7'
    for _ in range(2):
        assert metrics.run("-k", "other", "--", "true", key=odd).status == 0
    escaped = odd.replace("\\", "\\\\").replace('"', '\\"')
    assert metrics.runs(escaped) == metrics.runs("other") == {"ok": 2}


def test_runs_that_end_together_are_all_counted(metrics):
    runs = [metrics.dlock.start("run", *metrics.files.words, "--metrics-file", metrics.path, "-k", f"job{i % 3}", "--limit", "40",
                                "--", "sleep", "0.2") for i in range(30)]
    assert [run.wait().status for run in runs] == [0] * 30
    assert [metrics.runs(f"job{i}") for i in range(3)] == [{"ok": 10}] * 3
    assert [path.name for path in metrics.path.parent.glob("dlock.prom*")] == ["dlock.prom"]


def test_a_file_that_was_replaced_while_it_was_waited_for_is_not_written(metrics, tmp_path):
    following = tmp_path / "dlock.prom.dlock"
    with open(following, "w") as of_another:
        fcntl.flock(of_another, fcntl.LOCK_EX)
        run = metrics.dlock.start("run", *metrics.files.words, "--metrics-file", metrics.path, "-k", "job", "--", "true")
        run.event("verdict")
        time.sleep(0.2)  # until it waits
        of_another.write(MARK)
        of_another.flush()
        written = following.rename(metrics.path).stat()
    assert run.wait().status == 0 and run.stderr() == "" and metrics.runs() == {"ok": 1}
    assert metrics.path.stat().st_ino != written.st_ino and not following.exists()


def test_the_oldest_keys_go_first(metrics):
    """The file does not grow for ever; what was edited into it is left out."""
    lines = [f'dlock_last_end_timestamp_seconds{{key="k{i}",backend="file"}} {1000 + i}.000\n' for i in range(300)]
    metrics.path.write_text(MARK + "nonsense\n" + "".join(lines) + 'dlock_runs_total{key="k7",backend="file",result="ok"} -4\n')
    assert metrics.run("--", "true").status == 0
    keys = {key for _, key, _, _ in metrics.read()}
    assert len(keys) == 200 and "job" in keys and "k0" not in keys


@pytest.mark.parametrize("case", ["foreign", "directory", "link", "nowhere", "next", "crashed"])
def test_what_is_not_ours_stays(metrics, tmp_path, case):
    """One line says so, and the run ends as it would have; what a crash has left is used again."""
    path, following = metrics.path, tmp_path / "dlock.prom.dlock"
    if case == "foreign":
        path.write_text("precious 1\n")
    elif case == "directory":
        path.mkdir()
    elif case == "link":
        (tmp_path / "else").write_text("")
        path.symlink_to(tmp_path / "else")
    elif case == "nowhere":
        metrics.path = path = tmp_path / "no" / "m.prom"
    elif case == "next":
        following.write_text("precious 2\n")
    else:
        following.write_text(MARK[:9])
    result = metrics.run("--", "sh", "-c", "exit 5")
    assert result.status == 5
    if case == "crashed":
        assert not result.stderr and metrics.runs() == {"failed": 1} and not following.exists()
        return
    assert result.stderr.count("\n") == 1 and "not counted in" in result.stderr
    assert case != "foreign" or path.read_text() == "precious 1\n"
    assert case != "next" or (following.read_text() == "precious 2\n" and not path.exists())
    assert case != "link" or path.is_symlink()


def test_its_mode_is_kept(metrics):
    """Whoever may read it, an administrator has said once."""
    metrics.path.write_text("")
    metrics.path.chmod(0o640)
    assert metrics.run("--", "true").status == 0
    assert stat.S_IMODE(metrics.path.stat().st_mode) == 0o640 and metrics.runs() == {"ok": 1}


def test_a_new_one_is_for_all_to_read(metrics):
    assert metrics.run("--", "true", preexec_fn=lambda: os.umask(0o027)).status == 0
    assert stat.S_IMODE(metrics.path.stat().st_mode) == 0o640
    metrics.path.unlink()
    assert metrics.run("--", "true", preexec_fn=lambda: os.umask(0o022)).status == 0
    assert stat.S_IMODE(metrics.path.stat().st_mode) == 0o644


NOBODY = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@only_root
def test_what_another_user_has_begun_is_waited_for_and_not_written(metrics, tmp_path):
    following = tmp_path / "dlock.prom.dlock"
    following.write_text("")
    os.chown(following, NOBODY, NOBODY)
    with open(following, "r+") as of_a_run:
        fcntl.flock(of_a_run, fcntl.LOCK_EX)
        result = metrics.run("--", "true")
    assert result.status == 0 and f"dlock.prom.dlock is of another user (uid {NOBODY}), whose run has not finished it" in result.stderr
    assert following.read_text() == "" and not metrics.path.exists()


@only_root
def test_what_a_run_of_another_user_has_left_is_removed_by_root(metrics, tmp_path):
    following = tmp_path / "dlock.prom.dlock"
    following.write_text("")
    os.chown(following, NOBODY, NOBODY)
    result = metrics.run("--", "true")
    assert result.status == 0 and result.stderr == "" and metrics.runs() == {"ok": 1}
    assert metrics.path.stat().st_uid == 0 and not following.exists()


@only_root
def test_what_another_user_made_first_is_not_taken_over(metrics, tmp_path):
    """Neither what it says, nor who may write in it."""
    assert metrics.run("--", "true").status == 0
    metrics.path.chmod(0o666)
    os.chown(metrics.path, NOBODY, NOBODY)
    before = metrics.path.read_text()
    result = metrics.run("--", "true")
    assert result.status == 0 and f"it is of another user (uid {NOBODY})" in result.stderr, result
    assert metrics.path.read_text() == before and metrics.path.stat().st_uid == NOBODY


@only_root
@pytest.mark.parametrize("may_write, said", [(True, "is of another user (uid 0), whose run has not finished it: remove it"),
                                             (False, "Permission denied")])
def test_who_is_refused_is_told_by_what(metrics, public, public_dlock, may_write, said):
    """By his directory at once, since no run of others ends that."""
    public.chmod(0o777)
    (public / "locks").mkdir()
    os.chown(public / "locks", NOBODY, NOBODY)
    if may_write:
        (public / "prom.dlock").touch(0o600)
    else:
        (public / "metrics").mkdir(0o755)
    path = public / ("prom" if may_write else "metrics/prom")
    began = boottime()
    result = metrics.dlock.run("run", "-u", f"file://{public}/locks", "-k", "job", "--metrics-file", path, "--", "true", program=public_dlock,
                               user=NOBODY, group=NOBODY, extra_groups=[])
    assert result.status == 0 and f"is not counted in {path}: " in result.stderr and said in result.stderr, result
    assert may_write or spent(began) < 0.9


def test_a_full_disk_changes_no_status(metrics):
    full = MARK + "".join(f'dlock_last_end_timestamp_seconds{{key="k{i}",backend="file"}} {1000 + i}.000\n' for i in range(150))
    metrics.path.write_text(full)
    result = metrics.run("--", "true", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)), events=False)
    assert result.status == 0 and "File too large" in result.stderr, result
    assert metrics.path.read_text() == full and len(list(metrics.path.parent.glob("dlock.prom*"))) == 1


def test_the_verdict_is_told_first(metrics, tmp_path):
    """What others do to the file keeps nobody from knowing how the run ended."""
    held = metrics.dlock.hold(metrics.files, "job")
    with open(tmp_path / "dlock.prom.dlock", "w") as following:
        fcntl.flock(following, fcntl.LOCK_EX)
        result = metrics.run("-n", "--", "true")
    assert result.status == 75 and re.search(r"job.*\n.*not counted in", result.stderr), result
    held.finish()


def test_the_verdict_and_v_tell_both_times(metrics):
    run = metrics.dlock.start("run", *metrics.files.words, "-k", "job", "-v", "--", "sleep", "0.3", events=True)
    assert run.wait().status == 0
    verdict = run.events("verdict")[0]
    assert verdict["held_s"] >= 0.3 and verdict["waited_s"] >= 0
    assert re.search(r"dlock: job: waited [\dms.]+ for the lock, had it for 3\d\dms", run.stderr())
    held = metrics.dlock.hold(metrics.files, "job")
    run = metrics.dlock.start("run", *metrics.files.words, "-k", "job", "-w", "0.2", "--", "true", events=True)
    assert run.wait().status == 75
    verdict = run.events("verdict")[0]
    assert verdict["waited_s"] >= 0.2 and "held_s" not in verdict
    held.finish()
