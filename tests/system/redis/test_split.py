# Goal of these tests: a network that is split, so that a deposed master still answers
# those on its side, and a master that dies with what its replica has not got: where
# nobody overlaps, and where somebody may, and then the tokens tell who came later.

import contextlib
import os
import threading

import pytest
import redis

from net import Net, SentinelsOn, dlock_on
from redis_forms import await_replicas
from support import FULL, At, boottime, wait_for
from witness import check_seen, compile_witness, read_seen

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces of a network")


@pytest.fixture(scope="module")
def witness(tmp_path_factory):
    return compile_witness(tmp_path_factory.mktemp("witness"))


@pytest.fixture
def seen(witness, tmp_path):
    return Judge(witness, tmp_path)


class Judge:
    """Makes commands that are seen to run, by the kernel."""

    def __init__(self, witness, directory):
        self.program, self.log, self.over, self.judge = (str(p) for p in (witness, directory / "seen", directory / "over",
                                                                          directory / "judge"))
        self.path = directory / "seen"
        self.path.touch()

    def command(self, ms):
        return (self.program, self.log, self.over, str(ms), "x", self.judge)

    def end(self):
        """Who runs, ends."""
        with open(self.over, "w", encoding="utf-8"):
            pass

    def all(self):
        return read_seen(self.path)

    def grants(self):
        return len(self.path.read_text().splitlines())


class Contenders:
    """Each takes the lock again and again, by a program of its own, until finish()."""

    def __init__(self, dlock, at, seen, programs, options=(), ms=20):
        self.results, self.ended = [], threading.Event()
        self.threads = [threading.Thread(target=self._contend, args=(dlock, at, seen.command(ms), p, options), daemon=True)
                        for p in programs]
        for t in self.threads:
            t.start()

    def _contend(self, dlock, at, command, program, options):
        while not self.ended.is_set():
            self.results.append(dlock.run("run", *at.words, "-k", "job", "-w", "5s", "--wait-tree", *options, "--", *command,
                                          program=program, timeout=120))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """They end with a test that has failed, too: the next one would find them."""
        self.ended.set()
        for t in self.threads:
            t.join(120)

    def finish(self):
        self.__exit__()
        assert not any(t.is_alive() for t in self.threads)
        return self.results


# ---- a split ----


@pytest.fixture
def net(nothing_is_left):
    made = Net("master", "replica", "clients")
    yield made
    made.stop()


@pytest.fixture
def forms(net):
    made = SentinelsOn(*net.machines[:2])
    yield made
    made.stop()


def is_deposed(forms, server):
    """The two sentinels that are not with the old master name another."""
    return all(int(s.client().sentinel_get_master_addr_by_name(forms.name)[1]) != server.port for s in forms.sentinels[1:])


def is_replica(server):
    """One that becomes a replica cuts its clients off."""
    with contextlib.suppress(redis.exceptions.ConnectionError), server.client() as c:
        return c.role()[0] == "slave"
    return False


@root
@pytest.mark.parametrize("heal", [True, False] if FULL else [True], ids=lambda heal: "healed" if heal else "for-good")
def test_who_is_with_a_deposed_master_is_stopped_before_another_begins(dlock, net, forms, seen, tmp_path, heal):
    """With wait-replicas=1; the old master renews whatever it is asked, and nobody there knows better."""
    old = forms.servers[0]
    here, there = (dlock_on(m, tmp_path) for m in net.machines[:2])
    at = At(forms.url)
    at.words += ["-O", "wait-replicas=1"]
    holder = dlock.start("run", *at.words, "-k", "job", "-t", "6s", "--wait-tree", "--", *seen.command(600000), program=here).held()
    net.split(*net.machines[:2])
    with Contenders(dlock, at, seen, [here, there], ("-t", "6s")) as contenders:
        wait_for(lambda: is_deposed(forms, old), what="a new master")
        assert old.client().role()[0] == "master"
        done = holder.wait()
        assert done.status == 79 and "wait-replicas" in done.stderr, done
        before = seen.grants()
        wait_for(lambda: seen.grants() > before + 5, what="grants on the other side")
        if heal:
            net.heal()
            wait_for(lambda: is_replica(old), what="the end of the old master")
            wait_for(lambda: seen.grants() > before + 20, what="grants")
        contenders.finish()
    check_seen(seen.all())


@root
def test_who_reaches_both_sides_leaves_a_deposed_master(dlock, net, forms, seen, tmp_path):
    """It goes on with what the new one has of it; nothing is waited for but sentinels alongside."""
    old = forms.servers[0]
    here, there, both = (dlock_on(m, tmp_path) for m in net.machines)
    at = At(forms.url)
    holder = dlock.start("run", "-v", *at.words, "-k", "job", "-t", "6s", "--wait-tree", "--", *seen.command(600000), program=both).held()
    with old.client() as c:
        await_replicas(c, 2)
    net.split(*net.machines[:2])
    with Contenders(dlock, at, seen, [there, both], ("-t", "6s")) as contenders:
        wait_for(lambda: is_deposed(forms, old), what="a new master")
        assert old.client().role()[0] == "master"
        before = holder.stderr().count("renew: ok")
        wait_for(lambda: holder.stderr().count("renew: ok") > before + 3, what="renewals at the new master")
        assert holder.poll() is None
        assert not old.client().exists("dlock:{job}:q") or seen.grants() == 1
        net.heal()
        wait_for(lambda: is_replica(old), what="the end of the old master")
        seen.end()
        assert holder.wait().status == 0
        wait_for(lambda: seen.grants() > 10, what="grants")
        contenders.finish()
    check_seen(seen.all())


# ---- a master that dies with what its replica has not got ----


def lose_master(forms):
    """It dies, and with it the sentinel on its machine."""
    forms.sentinels[0].kill()
    killed = forms.kill_master()
    return killed


def test_an_overlap_without_wait_replicas_is_told_by_the_tokens(dlock, make_forms, seen):
    """The holder knows but the sentinel that died with the master, so nobody tells it before its lease ends."""
    forms = make_forms()
    replica = forms.servers[1]
    alone = At(f"redis+sentinel://127.0.0.1:{forms.sentinels[0].port}/{forms.name}")
    forms.cut_off(replica)
    first = dlock.start("run", *alone.words, "-k", "job", "-t", "20s", "--wait-tree", "--", *seen.command(600000)).held()
    killed = lose_master(forms)
    replica.resume()
    forms.await_other(killed.port)
    second = dlock.start("run", *At(forms.url).words, "-k", "job", "-t", "20s", "-w", "60s", "--", *seen.command(0))
    assert second.wait().status == 99  # it has seen the first one
    assert first.poll() is None
    overlapped = [s for s in seen.all() if s.verdict != "alone"]
    assert [s.tokens["job"] for s in overlapped] == [second.token] and second.token > first.token
    assert first.wait().status == 79


def test_no_overlap_with_wait_replicas(dlock, make_forms, seen):
    """What the replica lacks is not granted; what it has it knows when it is the master."""
    forms = make_forms()
    replica = forms.servers[1]
    words = [*At(f"redis+sentinel://127.0.0.1:{forms.sentinels[0].port}/{forms.name}").words, "-O", "wait-replicas=1", "-k", "job"]
    forms.cut_off(replica)
    done = dlock.run("run", *words, "-n", "--", *seen.command(600000))
    assert done.status == 69 and seen.grants() == 0, done
    replica.resume()
    first = dlock.start("run", *words, "-t", "12s", "-w", "60s", "--wait-tree", "--", *seen.command(600000)).held()
    ends = boottime() + 12
    lose_master(forms)
    second = dlock.start("run", *At(forms.url).words, "-k", "job", "-t", "12s", "-w", "60s", "--", *seen.command(0))
    assert second.wait().status == 0
    assert first.wait().status == 79
    check_seen(seen.all())
    assert second.token > first.token and boottime() > ends - 1
