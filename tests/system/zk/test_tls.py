# Goal of these tests: zks://: whom dlock believes, whom it shows its certificate, that nothing goes in the clear, and
# that a lock is kept through TLS as it is without, though the C library knows nothing of TLS.

import collections
import re
import subprocess
import time

import pytest

from certificates import Authority
from proxy import BOTH, DOWN, UP
from redis_tls import trust_bundle
from support import run, wait_for

LEASE = ("-t", "4s")
RAN = ("echo", "ran")
SECRET = "s3cr3t-s3cr3t"


def trust(authority):
    return ("-O", f"cacert={authority.cert}")


def ours(certificate):
    return ("-O", f"cert={certificate.cert}", "-O", f"key={certificate.key}")


def is_refused(done, status, *words):
    """One line, this status, and nothing was run."""
    assert done.status == status and done.stdout == "", done
    lines = [line for line in done.stderr.splitlines() if not line.startswith("dlock: waiting")]
    assert len(lines) == 1 and lines[0].startswith("dlock: "), done
    assert [w for w in words if w not in lines[0]] == [], done


WAITED = r"dlock: waiting 3s for job; no answer yet from zks 127\.0\.0\.1:\d+\ndlock: got job( and own)? after [0-9.]+s\n"


def has_run(done):
    """It says no more than that it has waited: the first handshakes of a server without the processor take seconds."""
    assert done.status == 0 and done.stdout == "ran\n" and re.fullmatch(f"({WAITED})?", done.stderr), done


def renewals(held):
    return held.stderr().count(": renew: ok")


def lives_on(held, n=2):
    """That many renewals more are confirmed."""
    before = renewals(held)
    wait_for(lambda: renewals(held) >= before + n or held.poll() is not None, what="renewals")
    return held.poll() is None


@pytest.fixture
def at(zk_tls_server, authority):
    """Words for the server of all tests, which has no other port."""
    return ("-u", f"{zk_tls_server.url}/zks", *trust(authority))


# ---- it works ----


def test_a_lock_is_taken_kept_handed_on_and_given_back(dlock, zk_tls_server, at):
    key = ("-k", "kept")
    holder = dlock.start("run", "-v", *at, *key, "-t", "30s", "--", "cat", stdin=subprocess.PIPE).held()
    waiter = dlock.start("run", *at, *key, *LEASE, "--", *RAN).queued(1)
    assert dlock.run("run", *at, *key, "-n", "--", "true").status == 75
    assert lives_on(holder, 2)
    assert "is held" in dlock.run("status", *at, *key).stdout and "kept" in dlock.run("ls", *at).stdout
    assert holder.finish().status == 0 and "no answer" not in holder.stderr()
    assert waiter.wait().stdout == "ran\n"
    with zk_tls_server.client() as c:
        assert c.get_children("/zks/kept") == []


def test_break_and_doctor_go_through_tls(dlock, at):
    held = dlock.start("run", *at, "-k", "broken", *LEASE, "--", "sleep", "60").held()
    assert dlock.run("break", *at, "-k", "broken", "-y").status == 0
    assert held.wait().status == 79
    answers = r"OK +server +127.0.0.1:\d+ answers: ZooKeeper [\d.]+, standalone"
    wait_for(lambda: re.search(answers, dlock.run("doctor", *at).stdout), what="an answer in its second")


@pytest.mark.parametrize("bytewise", [False, True], ids=["together", "bytewise"])
def test_no_answer_is_left_lying(dlock, zk_server, make_tls_front, authority, bytewise):
    """Several answers that come in one TLS record wake the library up once; a record for each byte is many times none."""
    front = make_tls_front(zk_server.port, authority.sign("front"), bytewise, pause=0.05)
    words = ("-u", f"{front.url}/lying-{bytewise}", *trust(authority), "-k", "job")
    held = dlock.start("run", "-v", *words, "-t", "30s", "--", "cat", stdin=subprocess.PIPE).held()
    assert front.most > 1 and lives_on(held)
    assert held.finish().status == 0 and "no answer" not in held.stderr(), held.stderr()


def test_more_than_one_record_is_read(dlock, zk_tls_server, authority):
    """A list of names that takes two."""
    with zk_tls_server.client() as c:
        t = c.transaction()
        t.create("/long")
        for n in range(100):
            t.create(f"/long/{'x' * 200}{n}")
        t.commit()
    done = dlock.run("ls", "-u", f"{zk_tls_server.url}/long", *trust(authority))
    assert done.status == 0 and done.stderr == "", done


# ---- what goes over the wire ----


def test_neither_password_nor_key_go_in_the_clear(dlock, zk_server, zk_tls_server, make_proxy, authority):
    def heard(url, *words):
        proxy, seen = make_proxy(int(url.rsplit(":", 1)[1])), bytearray()

        def tap(_link, _direction, data):
            seen.extend(data)
            return data

        proxy.tap = tap
        at = url.split(":")[0] + f"://alice:{SECRET}@127.0.0.1:{proxy.port}/wire"
        has_run(run(dlock, at, "-k", "job-in-the-clear", *words))
        return bytes(seen)

    clear, encrypted = heard(zk_server.url), heard(zk_tls_server.url, *trust(authority))
    for word in (SECRET, "alice", "job-in-the-clear", "/wire"):
        assert word.encode() in clear and word.encode() not in encrypted, word
    assert encrypted[:3] == b"\x16\x03\x01"  # from the first byte on


def test_nothing_is_said_to_a_server_that_is_not_believed(dlock, zk_tls_server, make_proxy):
    """But what a handshake says."""
    proxy, seen = make_proxy(zk_tls_server.port), collections.defaultdict(bytearray)

    def tap(link, direction, data):
        seen[link].extend(data if direction == UP else b"")
        return data

    proxy.tap = tap
    done = run(dlock, f"zks://alice:{SECRET}@127.0.0.1:{proxy.port}/wire")
    is_refused(done, 78, "no CA we trust", "-O cacert=FILE", f"zks 127.0.0.1:{proxy.port} ")
    assert SECRET not in done.stderr and max(map(len, seen.values())) < 1000


# ---- whom dlock believes ----


def test_a_certificate_is_for_the_host_of_the_url(dlock, zk_server, make_tls_front, authority):
    front = make_tls_front(zk_server.port, authority.sign("named", san="DNS:localhost,DNS:zk.example.org"))
    has_run(run(dlock, f"zks://localhost:{front.port}/named", *trust(authority)))
    is_refused(run(dlock, front.url, *trust(authority)), 78, "is not for 127.0.0.1", "-O tls-name=NAME")
    has_run(run(dlock, f"{front.url}/named", *trust(authority), "-O", "tls-name=zk.example.org"))


def test_a_ca_that_only_the_bundle_has(dlock, zk_tls_server, authority, tmp_path):
    trust_bundle(dlock, authority, tmp_path)
    has_run(run(dlock, zk_tls_server.url, "-n"))
    assert dlock.run("doctor", "-u", zk_tls_server.url).status == 0


def test_a_certificate_that_goes_bad_while_we_hold_is_an_outage(dlock, zk_server, make_tls_front, authority):
    good = authority.sign("good")
    front = make_tls_front(zk_server.port, good)
    words = ("-u", f"{front.url}/turns", *trust(authority), "-k", "job", "-t", "12s")
    held = dlock.start("run", "-v", *words, "--", "cat", stdin=subprocess.PIPE).held()
    front.show(authority.sign("old", days=-1))
    front.hang_up()
    wait_for(lambda: "has expired" in held.stderr() or held.poll() is not None, what="a renewal that meets it")
    assert ": renew: no answer" in held.stderr()
    front.show(good)
    assert lives_on(held), held.result()
    assert held.finish().status == 0


def test_a_server_that_wants_a_certificate_gets_one_or_says_so(dlock, make_zk_tls, authority, tmp_path):
    """One that is known so may use what is made for its creator only."""
    server, mine = make_zk_tls(clients="need"), authority.sign("client")
    has_run(run(dlock, server.url, *trust(authority), *ours(mine)))
    has_run(run(dlock, server.url, *trust(authority), *ours(mine), "-O", "acl=creator", "-k", "own"))
    told = dlock.run("doctor", "-u", server.url, *trust(authority), *ours(mine), "-O", "acl=creator").stdout
    assert "the subject of the client certificate: nobody else may use the nodes" in told, told
    is_refused(run(dlock, server.url, *trust(authority)), 77, "wants a client certificate", "-O cert=FILE -O key=FILE")
    other = Authority(tmp_path, "other").sign("stranger")
    is_refused(run(dlock, server.url, *trust(authority), *ours(other)), 77, "does not accept the client certificate", other.cert)


# ---- it speaks something else ----


def test_the_wrong_one_of_two_ports_is_recognized(dlock, zk_server, zk_tls_server):
    done = run(dlock, zk_tls_server.url.replace("zks", "zk"), "-n")
    assert done.status in (69, 76) and "TLS (zks://)" in done.stderr, done
    done = run(dlock, zk_server.url.replace("zk", "zks"), "-n")
    assert done.status in (69, 76) and "is that its TLS port?" in done.stderr, done


def test_settings_are_for_tls_alone_and_files_are_read_first(dlock, zk_server, authority, tmp_path):
    is_refused(run(dlock, zk_server.url, *trust(authority)), 64, "zks://")
    is_refused(run(dlock, "zks://127.0.0.1:1", "-O", f"cacert={tmp_path}/none"), 78, f"cacert {tmp_path}/none")
    is_refused(run(dlock, "zks://127.0.0.1:1", "-O", "cert=/c"), 64, "-O cert=FILE and -O key=FILE")


# ---- outages ----


def test_a_hold_outlives_its_connection(dlock, zk_tls_server, make_proxy, authority):
    """Reset, silent for a while, cut within a record: each time it reconnects and goes on."""
    proxy = make_proxy(zk_tls_server.port)
    words = ("-u", f"zks://127.0.0.1:{proxy.port}/outages", *trust(authority), "-k", "job", "-t", "12s")
    held = dlock.start("run", "-v", *words, "--", "cat", stdin=subprocess.PIPE).held()
    proxy.reset()
    assert lives_on(held)
    proxy.cut(DOWN, 1000, once=True)
    wait_for(lambda: proxy.connections >= 3 or held.poll() is not None, what="another connection")
    assert lives_on(held)
    proxy.hold(*BOTH)
    time.sleep(1.5)
    proxy.heal()
    assert lives_on(held)
    assert proxy.connections >= 3 and held.finish().status == 0


def test_a_quorum_of_three(dlock, tls_ensemble, authority):
    """The holder's server dies, then the leader stands still; its waiter is told at last."""
    words = ("-u", tls_ensemble.url, *trust(authority), "-k", "job", "-t", "30s")
    held = dlock.start("run", "-v", *words, "--", "cat", stdin=subprocess.PIPE).held()
    waiter = dlock.start("run", *words, "--", *RAN).queued(1)
    dead = tls_ensemble.leader
    dead.kill()
    assert lives_on(held, 3), held.result()
    dead.start()
    assert held.finish().status == 0
    assert waiter.wait().stdout == "ran\n"


def test_one_server_with_a_bad_certificate_is_passed_over(dlock, zk_server, make_tls_front, authority):
    good, bad = (make_tls_front(zk_server.port, authority.sign(name, san=san)) for name, san in (("good", "IP:127.0.0.1"), ("bad", "IP:::1")))
    for pair in ((good, bad), (bad, good), (bad, bad, good)):
        url = "zks://" + ",".join(f"127.0.0.1:{s.port}" for s in pair)
        done = run(dlock, f"{url}/one", *trust(authority), "-w", "20s")
        assert done.status == 0 and done.stdout == "ran\n", done
    good.close()
    done = run(dlock, url, *trust(authority), "-w", "1s")
    assert done.status == 69, done  # it may come back
    is_refused(run(dlock, f"zks://127.0.0.1:{bad.port},127.0.0.1:{bad.port}", *trust(authority)), 78, "is not for 127.0.0.1")
