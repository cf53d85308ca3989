# Goal of these tests: what is remembered of jobs is told the same on every place that remembers, by ls --jobs, status
# and --done-within; and what is forgotten is due again, while nobody who holds or waits is disturbed.

import json
import re
import signal
import time

import pytest

from clocks import CLOCK, shifted
from support import PATIENCE, Refused, can, compile_shim, place_id, places, wait_for


@pytest.fixture(params=places(every=True), ids=place_id)
def place(request):
    return request.param(request)


class Jobs:
    """The subcommands that tell of jobs, at one place."""

    def __init__(self, dlock, place):
        self.dlock, self.place = dlock, place

    def do(self, cmd, *words):
        return self.dlock.run(cmd, *self.place.words, *words, events=False)

    def run(self, key, *options, command=("true",)):
        return self.do("run", "-k", self.place.key(key), *options, "--", *command).status

    def done(self, key, *options):
        """Has the job been done?"""
        return self.run(key, *options, "--skipped-exit-code", "9") == 9

    def status(self, key):
        found = self.do("status", "-J", self.place.key(key))
        assert found.status in (0, 1) and found.stderr == "", found
        return json.loads(found.stdout)

    def listed(self, *words):
        """{(key, ID or None): object} of this test."""
        done = self.do("ls", "--jobs", "-J", *words)
        assert (done.status, done.stderr) == (0, ""), done
        n, found = len(self.place.prefix), {}
        for o in map(json.loads, done.stdout.splitlines()):
            if o["key"].startswith(self.place.prefix):
                assert (o["v"], o["backend"]) == (1, self.place.name) and (o["key"][n:], o["id"]) not in found
                found[o["key"][n:], o["id"]] = o
        return found

    def forget(self, key, *words):
        done = self.do("forget", "-y", self.place.key(key), *words)
        assert done.status in (0, 1) and done.stderr.count("\n") == 1, done
        return done.status

    def within(self, *words):
        done = self.do("status", "--done-within", *words)
        assert done.stderr == "", done
        return done.status, done.stdout


@pytest.fixture
def jobs(dlock, place):
    if not can(dlock, place, "--once", "probe"):
        raise Refused("remembers no runs")
    found = Jobs(dlock, place)
    found.forget("probe")
    return found


def told(run):
    return run and (run["id"], run["status"])


def test_who_cannot_remember_says_so(dlock, place):
    if can(dlock, place, "--once", "probe"):
        return
    jobs = Jobs(dlock, place)
    for words in (("ls", "--jobs"), ("status", "--done-within", "1h", "k"), ("forget", "-y", "k")):
        done = jobs.do(*words)
        assert (done.status, done.stdout) == (78, "") and "cannot remember runs" in done.stderr, done


def test_all_jobs_are_listed(jobs):
    assert jobs.run("nightly", "--once", "a b", "--who", "alice", command=("sleep", "0.1")) == 0
    assert jobs.run("nightly", "--once", "c:r/\u00e4{d}") == 0
    assert jobs.run("nightly", "--once", "fails", command=("sh", "-c", "exit 3")) == 3
    assert jobs.run("hourly", "--cooldown", "1ms") == 0
    assert jobs.run("hourly", "--cooldown", "1ms") == 0
    assert jobs.run("broken", "--cooldown", "1h", command=("false",)) == 1
    assert jobs.run("plain") == 0
    found = jobs.listed()
    assert set(found) == {("nightly", None), ("nightly", "a b"), ("nightly", "c:r/\u00e4{d}"), ("hourly", None), ("broken", None)}
    nightly = found["nightly", None]
    assert (told(nightly["last"]), told(nightly["last_success"])) == (("fails", 3), ("c:r/\u00e4{d}", 0))
    assert (told(found["hourly", None]["last"]), told(found["hourly", None]["last_success"])) == ((None, 0), (None, 0))
    assert (told(found["broken", None]["last"]), found["broken", None]["last_success"]) == ((None, 1), None)
    one = found["nightly", "a b"]
    assert one["last"] is None and told(one["last_success"]) == ("a b", 0)
    assert one["last_success"]["who"] == "alice" and one["last_success"]["token"] > 0
    assert 0.1 <= one["last_success"]["took_s"] < PATIENCE and one["last_success"]["began"] < one["last_success"]["ended"]
    assert set(jobs.listed(jobs.place.prefix + "h*")) == {("hourly", None)}


def test_jobs_as_a_table(jobs):
    assert jobs.run("nightly", "--once", "monday", "--who", "alice") == 0
    done = jobs.do("ls", "--jobs", jobs.place.key("nightly"))
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["KEY", "ID", "STATUS", "WHO", "BEGAN", "TOOK", "SUCCESS"]
    assert sorted(row.split()[1:4] for row in rows) == [["-", "0", "alice"], ["monday", "0", "alice"]]
    done = jobs.do("ls", "--jobs", "-n", "-o", "id,token", jobs.place.key("nightly"))
    assert done.stdout.splitlines()[0].split()[1].isdigit()


def test_many_ids_are_all_listed(jobs):
    """More than a page of some"""
    for n in range(40):
        assert jobs.run("job", "--once", f"id{n}") == 0
    assert set(jobs.listed()) == {("job", None)} | {("job", f"id{n}") for n in range(40)}


def test_status_tells_the_last_success_too(jobs):
    assert jobs.status("job")["last"] is None and jobs.status("job")["last_success"] is None
    assert jobs.run("job", "--once", "a", "--who", "alice") == 0
    found = jobs.status("job")
    assert found["last"] == found["last_success"] and told(found["last"]) == ("a", 0)
    for status in (3, 4):
        assert jobs.run("job", "--once", "b", command=("sh", "-c", f"exit {status}")) == status
    after = jobs.status("job")
    assert told(after["last"]) == ("b", 4)
    assert {k: v for k, v in after["last_success"].items() if k != "command"} == found["last"]
    text = jobs.do("status", jobs.place.key("job")).stdout
    assert "last run  ID b by" in text and "success   ID a by alice, status 0" in text, text


def test_done_within(jobs):
    key, other = jobs.place.key("job"), jobs.place.key("other")
    assert jobs.within("26h", key) == (1, f"{key}: no run is remembered that ended with 0\n")
    assert jobs.run("job", "--cooldown", "1ms", "--who", "alice") == 0
    status, text = jobs.within("26h", key)
    assert status == 0 and text.startswith(f"{key}: a run by alice") and " ended with 0 at 2" in text and text.count("\n") == 1
    assert jobs.run("job", "--cooldown", "1ms", command=("false",)) == 1  # that does not count, nor against it
    assert jobs.within("26h", key)[0] == 0
    time.sleep(1.2)
    status, text = jobs.within("1s", key)
    assert status == 1 and text.endswith(", not within 1s\n"), text
    assert jobs.within("26h", key, other)[0] == 1
    done = jobs.do("status", "--done-within", "26h", "-J", key)
    assert done.status == 0 and json.loads(done.stdout)["last_success"]["status"] == 0


def test_what_is_forgotten_is_due_again(jobs):
    for n in ("a", "b"):
        assert jobs.run("job", "--once", n) == 0
    assert jobs.forget("job", "c") == 1 and jobs.forget("other") == 1
    assert jobs.forget("job", "a") == 0
    assert jobs.forget("job", "a") == 1
    assert jobs.done("job", "--once", "b") and set(jobs.listed()) == {("job", None), ("job", "b")}
    assert told(jobs.status("job")["last"]) == ("b", 0)
    assert not jobs.done("job", "--once", "a") and jobs.done("job", "--once", "a")


def test_the_last_run_is_forgotten_with_its_id(jobs):
    assert jobs.run("job", "--once", "a") == 0
    assert jobs.run("job", "--once", "b") == 0
    assert jobs.forget("job", "b") == 0
    assert told(jobs.status("job")["last"]) != ("b", 0)
    assert not jobs.done("job", "--once", "b") and jobs.done("job", "--once", "a")


def test_a_failure_is_forgotten_and_the_success_before_it_stays(jobs):
    assert jobs.run("job", "--once", "a") == 0
    assert jobs.run("job", "--once", "b", command=("false",)) == 1
    assert jobs.forget("job", "b") == 0
    assert told(jobs.status("job")["last_success"]) == ("a", 0)
    assert jobs.done("job", "--once", "a") and jobs.done("job", "--cooldown", "1h")


def test_a_cooldown_is_forgotten(jobs):
    assert jobs.run("job", "--cooldown", "1h") == 0 and jobs.done("job", "--cooldown", "1h")
    assert jobs.forget("job") == 0
    assert jobs.status("job")["last"] is None and jobs.listed() == {}
    assert not jobs.done("job", "--cooldown", "1h") and jobs.done("job", "--cooldown", "1h")
    assert jobs.run("job", "--once", "a") == 0
    assert jobs.forget("job", "a") == 0
    assert jobs.forget("job") in (0, 1) and not jobs.done("job", "--cooldown", "1h")


def test_all_ids_of_a_key_are_forgotten_and_no_other(jobs):
    for n in range(5):
        assert jobs.run("job", "--once", f"id{n}") == 0
    assert jobs.run("job2", "--once", "id0") == 0
    assert jobs.forget("job") == 0 and set(jobs.listed()) == {("job2", None), ("job2", "id0")}
    assert not jobs.done("job", "--once", "id3") and jobs.done("job2", "--once", "id0")
    assert jobs.forget("job2") == 0 and jobs.forget("job2") == 1


def test_who_holds_and_who_waits_is_not_disturbed(jobs, dlock):
    """A run that goes on is remembered when it ends; one that waits finds out then what is remembered."""
    place = jobs.place
    assert jobs.run("job", "--once", "a") == 0
    holder = dlock.hold(place, place.key("job"), "--once", "b", "-v")
    waiter = dlock.contend(place, place.key("job"), "--once", "b", "--skipped-exit-code", "9")
    waiter = waiter.queued(1) if place.counted else waiter
    assert jobs.forget("job") == 0
    assert jobs.status("job")["holders"][0]["token"] in (holder.token, None)
    assert waiter.popen.poll() is None
    assert holder.finish().status == 0
    assert waiter.wait().status == 9
    assert told(jobs.status("job")["last"]) == ("b", 0)
    assert jobs.done("job", "--once", "b") and not jobs.done("job", "--once", "a")


def test_nothing_is_forgotten_without_a_yes(jobs):
    assert jobs.run("job", "--once", "a") == 0
    done = jobs.do("forget", jobs.place.key("job"), "a")
    assert done.status == 64 and "say -y; nothing was done" in done.stderr
    assert jobs.done("job", "--once", "a")
    assert jobs.do("forget", "-y", "-q", jobs.place.key("job"), "a").stderr == ""
    wait_for(lambda: not jobs.done("job", "--once", "a"), what="the forgotten job to be due")


# ---- a run that has ended counts, whatever its status ----

ONCE = ("--once", "a")
FINAL = (*ONCE, "--no-retry")


def fails(status=3):
    return ("sh", "-c", f"exit {status}")


def skipped(jobs, *options, key="job"):
    """The status of the run because of which another is skipped; None: it is run."""
    run = jobs.dlock.start("run", *jobs.place.words, "-k", jobs.place.key(key), *options, "--skipped-exit-code", "9", "--", "true")
    done = run.wait()
    if done.status != 9:
        assert done.status == 0 and not run.events("skipped"), done
        return None
    event, = run.events("skipped")
    assert f" and ended with {event['done_status']}" in event["reason"], event
    said = "" if event["done_status"] == 0 else f"dlock: skipped 'true' under {jobs.place.key(key)}: {event['reason']}\n"
    assert done.stderr == said, done
    return event["done_status"]


def test_a_run_that_failed_is_not_retried(jobs):
    assert jobs.run("job", *FINAL, command=fails()) == 3
    assert skipped(jobs, *FINAL) == 3
    done = jobs.do("run", "-k", jobs.place.key("job"), *FINAL, "-q", "--", "true")
    assert (done.status, done.stderr) == (0, ""), done
    assert skipped(jobs, "--once", "b", "--no-retry") is None
    assert told(jobs.listed()["job", "a"]["last"]) == ("a", 3)
    assert jobs.listed()["job", "a"]["last_success"] is None
    assert skipped(jobs, *ONCE) is None  # for whom a failure never counts
    assert skipped(jobs, *ONCE) == 0 and skipped(jobs, *FINAL) == 0


def test_a_dlock_that_does_not_know_these_options_heeds_neither_run(jobs):
    """What stands there means to it what it always did."""
    key = jobs.place.key("job")
    assert jobs.run("job", *FINAL, command=fails()) == 3
    assert jobs.run("job", "--remember") == 0
    assert not jobs.place.is_done_of_old(key, "a")
    assert skipped(jobs, *FINAL) == 3
    assert jobs.run("job", *ONCE) == 0
    assert jobs.place.is_done_of_old(key, "a")


def test_a_failure_without_the_option_counts_for_nobody(jobs):
    assert jobs.run("job", *ONCE, command=fails()) == 3
    assert jobs.run("job", *FINAL, command=fails(4)) == 4
    assert jobs.run("job", *ONCE, command=fails(5)) == 5
    assert skipped(jobs, *FINAL) == 4
    assert told(jobs.status("job")["last"]) == ("a", 5)


def test_a_failure_counts_for_no_cooldown(jobs):
    assert jobs.run("job", *FINAL, "--cooldown", "1h", command=fails()) == 3
    assert not jobs.done("job", "--cooldown", "1h") and jobs.done("job", "--cooldown", "1h", "--once", "b", "--no-retry")


def test_what_failed_is_forgotten_and_due_again(jobs):
    assert jobs.run("job", *FINAL, command=fails()) == 3
    assert jobs.run("job", "--once", "b", "--no-retry", command=fails()) == 3
    assert jobs.forget("job", "a") == 0 and jobs.forget("job", "a") == 1
    assert skipped(jobs, *FINAL) is None and skipped(jobs, "--once", "b", "--no-retry") == 3
    assert jobs.forget("job") == 0 and jobs.listed() == {}
    assert skipped(jobs, "--once", "b", "--no-retry") is None


@pytest.mark.parametrize("command, status, counts", [
    (fails(79), 79, True), (fails(126), 126, True), (fails(127), 127, True), (fails(255), 255, True),
    (("sh", "-c", "kill -9 $$"), 137, True), (("sh", "-c", "kill -TERM $$"), 143, True),
    (("#!/none/such/sh",), 127, False)], ids=["79", "126", "127", "255", "KILL", "TERM", "not-executed"])
def test_the_end_counts_and_not_its_number(jobs, tmp_path, command, status, counts):
    if not counts:  # found, so that it is executed when the lock is had
        script = tmp_path / "script"
        script.write_text(command[0] + "\n", encoding="ascii")
        script.chmod(0o755)
        command = (str(script),)
    ended = jobs.do("run", "-k", jobs.place.key("job"), *FINAL, "--", *command).status
    assert ended in (status, 128 - status), ended
    assert told(jobs.status("job")["last"]) == ("a", status)
    assert skipped(jobs, *FINAL) == (status if counts else None)


def test_a_run_that_took_too_long_counts(jobs):
    assert jobs.run("job", *FINAL, "--max-run", "0.1s", command=("sleep", "60")) == 124
    assert skipped(jobs, *FINAL) == 124


def test_a_run_that_did_not_heed_a_signal_counts(jobs, dlock):
    place = jobs.place
    holder = dlock.hold(place, place.key("job"), *FINAL, "--kill-after", "0.1s", command=("sh", "-c", "trap '' TERM; sleep 60 & wait; wait"))
    holder.signal(signal.SIGTERM)
    assert holder.wait().status in (143, -15)
    assert skipped(jobs, *FINAL) == 143


def test_a_run_that_was_broken_does_not_count(jobs, dlock):
    place = jobs.place
    holder = dlock.hold(place, place.key("job"), *FINAL)
    done = jobs.do("break", place.key("job"), "-y")
    if done.status == 78:
        raise Refused("cannot break")
    assert done.status == 0 and holder.wait().status == 79
    assert skipped(jobs, *FINAL) is None


def test_whoever_waits_for_a_run_that_fails_is_skipped(jobs, dlock):
    place = jobs.place
    holder = dlock.hold(place, place.key("job"), *FINAL, command=("sh", "-c", "read line; exit 3"))
    waiters = [dlock.contend(place, place.key("job"), *FINAL, "--skipped-exit-code", "9", command=("true",)).queued()
               for _ in range(3)]
    plain = dlock.contend(place, place.key("job"), *ONCE, "--skipped-exit-code", "9", command=("true",)).queued()
    assert holder.finish().status == 3
    assert [waiter.wait().status for waiter in waiters] == [9, 9, 9]
    assert plain.wait().status == 0


def test_once_per_period_whatever_its_status(jobs):
    before = named("week")
    assert jobs.run("job", "--once-per", "week", "--no-retry", command=fails()) == 3
    assert skipped(jobs, "--once-per", "week", "--no-retry") == 3 or before != named("week")


# ---- a run that is no job ----


def test_a_run_is_shown_and_counts_for_nothing(jobs):
    assert jobs.run("job", "--remember", "--who", "alice", command=fails()) == 3
    found = jobs.status("job")
    assert told(found["last"]) == (None, 3) and found["last"]["who"] == "alice" and found["last"]["job"] is False
    assert found["last"]["began"] <= found["last"]["ended"] and found["last"]["token"] > 0
    assert jobs.run("job", "--remember") == 0
    found = jobs.status("job")
    assert told(found["last"]) == (None, 0) and found["last_success"] is None
    assert set(jobs.listed()) == {("job", None)} and not jobs.listed()["job", None]["last"]["job"]
    assert jobs.within("1h", jobs.place.key("job"))[0] == 1
    assert not jobs.done("job", "--cooldown", "1h", "--once", "a")
    found = jobs.status("job")
    assert told(found["last"]) == told(found["last_success"]) == ("a", 0) and found["last"]["job"] is True
    assert jobs.run("job", "--remember", command=("false",)) == 1
    found = jobs.status("job")
    assert (told(found["last"]), told(found["last_success"])) == ((None, 1), ("a", 0))
    assert jobs.done("job", "--once", "a") and jobs.done("job", "--cooldown", "1h")
    assert "last run  by" in jobs.do("status", jobs.place.key("job")).stdout
    assert jobs.forget("job", "a") == 0 and told(jobs.status("job")["last"]) == (None, 1)
    assert jobs.forget("job") == 0 and jobs.status("job")["last"] is None and jobs.listed() == {}


def test_a_hold_is_shown_when_it_has_been_given_back(jobs):
    key = jobs.place.key("job")
    hold = jobs.do("hold", "-k", key, "--for", "1h", "--remember", "--who", "bob")
    assert hold.status == 0, hold
    assert jobs.status("job")["last"] is None
    assert jobs.dlock.run("release", hold.stdout.strip(), events=False).status == 0
    last = jobs.status("job")["last"]
    assert (last["status"], last["who"], last["job"]) == (0, "bob", False)


def test_where_no_run_can_be_remembered_a_file_says_it_in_vain(dlock, place, tmp_path):
    """On the command line it is refused."""
    able = can(dlock, place, "--once", "probe")
    file = tmp_path / "dlock.conf"
    file.write_text("remember = yes\nno-retry = yes\n", encoding="ascii")
    words = ["run", *place.words, "-k", place.key("job")]
    done = dlock.run(*words, "--remember", "--", "true", events=False)
    assert done.status == (0 if able else 78), done
    assert able or "cannot remember runs, which --remember needs" in done.stderr
    done = dlock.run(*words, "--config", str(file), "--", *fails(7), events=False)
    assert (done.status, done.stderr) == (7, ""), done
    if able:
        last = Jobs(dlock, place).status("job")["last"]
        assert (last["status"], last["job"]) == (7, False)


def test_all_keys_of_a_run_show_it(jobs):
    keys = [jobs.place.key(k) for k in ("one", "two")]
    done = jobs.do("run", "-k", keys[0], "-k", keys[1], "--remember", "--", *fails(5))
    if done.status in (64, 78):
        raise Refused(done.stderr)
    assert done.status == 5, done
    assert [jobs.status(k)["last"]["status"] for k in ("one", "two")] == [5, 5]


# ---- a clock that was wrong once ----


@pytest.mark.parametrize("ahead, within, beyond", [(3600, "2h", "30m"), (300 * 86400, None, "299d")], ids=["1h", "300d"])
def test_a_run_that_is_dated_further_ahead_than_the_cooldown_proves_nothing(jobs, ahead, within, beyond):
    """backend.h: struct job.  And the run that is begun then is the one that counts."""
    assert jobs.run("job", "--cooldown", "1h") == 0 and jobs.done("job", "--cooldown", "1h")
    jobs.place.date_ahead(jobs.place.key("job"), ahead)
    assert within is None or jobs.done("job", "--cooldown", within)
    assert not jobs.done("job", "--cooldown", beyond)
    assert jobs.done("job", "--cooldown", beyond)
    assert jobs.within(beyond, jobs.place.key("job"))[0] == 0


# ---- an ID of the server's clock ----

FORMS = {"day": "%Y-%m-%d", "hour": "%Y-%m-%dT%H", "week": "%G-W%V"}
DAYS = 86400


def named(period, offset=0):
    return time.strftime(FORMS[period], time.gmtime(time.time() - offset))


@pytest.mark.parametrize("period", FORMS)
def test_once_per_period(jobs, period):
    before = named(period)
    assert jobs.run("job", "--once-per", period) == 0
    again = jobs.do("run", "-k", jobs.place.key("job"), "--once-per", period, "--skipped-exit-code", "9", "-v", "--", "true")
    now = named(period)
    if before == now:  # it did not end meanwhile
        assert again.status == 9 and f"ID {now} was run at" in again.stderr, again
        assert re.search(r" by \S+@\S+ and ended with 0", again.stderr), again
        assert jobs.done("job", "--once", now)  # it is an ID as any other
        assert jobs.forget("job", now) == 0 and not jobs.done("job", "--once-per", period)
    assert {key for key in jobs.listed()} - {("job", None)} <= {("job", before), ("job", now)}


@pytest.mark.parametrize("shift", [-2 * DAYS, 2 * DAYS])
def test_the_day_is_the_servers_whatever_the_host_believes(jobs, dlock, tmp_path, shift):
    """A host whose clock is two days off finds the job of today done, and does that of no other day."""
    place, shim = jobs.place, compile_shim(tmp_path, "clock", CLOCK)
    words = ["run", *place.words, "-k", place.key("job"), "--once-per", "day", "--skipped-exit-code", "9", "--", "true"]
    before = named("day")
    first = dlock.run(*words, env=shifted(place, shim, shift), events=False)
    second = dlock.run(*words, env=shifted(place, shim, -shift), events=False)
    third = dlock.run(*words, events=False)
    if before == named("day"):
        assert [first.status, second.status, third.status] == [0, 9, 9], (first, second, third)
        assert set(jobs.listed()) == {("job", None), ("job", before)}


def test_a_period_begins_with_its_offset(jobs):
    assert jobs.run("job", "--once-per", "day", "--at-offset", "23h59m") == 0
    days = {named("day", DAYS - 60), named("day", DAYS - 63)}
    found = {key for key in jobs.listed() if key[1]}
    assert len(found) == 1 and found <= {("job", day) for day in days}


def test_who_waits_keeps_the_period_in_which_it_asked(jobs, dlock):
    """A day ends while they wait, with a job that is done meanwhile; the next one is due all the same."""
    place = jobs.place
    for seconds in (4, 20, 60):  # more on a slow machine
        ends = int(time.time()) + seconds
        words = [place.key(f"job{seconds}"), "--once-per", "day", "--at-offset", f"{ends % DAYS}s", "--skipped-exit-code", "9"]
        day = named("day", ends % DAYS)
        holder = dlock.hold(place, *words)
        waiters = [dlock.contend(place, *words, command=("true",)).queued() for _ in range(3)]
        if time.time() < ends:
            break
        for run in (holder, *waiters):
            run.destroy()
    assert time.time() < ends
    wait_for(lambda: time.time() > ends + 1.5, what="the next day")
    assert holder.finish().status == 0
    late = place_id(place) == "zk-plain"  # asks for the ID when it has the lock
    assert sorted(waiter.wait().status for waiter in waiters) == ([0, 9, 9] if late else [9, 9, 9])
    assert (f"job{seconds}", day) in jobs.listed()
    assert jobs.done(f"job{seconds}", *words[1:5]) == late


def test_a_period_is_a_job_that_must_be_remembered(dlock, place):
    done = dlock.run("run", *place.words, "-k", place.key(), "--once-per", "day", "--", "true", events=False)
    assert (done.status == 78) == (not can(dlock, place, "--once", "probe")), done
