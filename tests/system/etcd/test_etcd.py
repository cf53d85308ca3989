# Goal of these tests: what is etcd's own: logins and rights, a full database, compaction, TLS, what is left behind.

import json
import signal
import subprocess
import time

import pytest

from etcd import hold, listens
from faults import assert_password_is_not_shown
from manual import block
from support import boottime, is_alive, run, wait_for

PAGE = "dlock-etcd.7"
LEASE = ("-t", "3s")


def with_login(url, login):
    return url.replace("://", f"://{login}@")


def examine(dlock, url):
    """How doctor ended, and {check: [(level, fact), ...]}."""
    done, found = dlock.run("doctor", "-J", "-u", url, "-k", "job"), {}
    for line in map(json.loads, done.stdout.splitlines()):
        found.setdefault(line["check"], []).append((line["level"], line["fact"]))
    return done, found


# ---- what is left ----


def test_nothing_is_left_behind(dlock, at, client):
    for options in ((), ("-s",), ("--limit", "3")):
        assert run(dlock, at, *options).status == 0
    holder = dlock.start("run", *at.words, "-k", "job", "--", "cat", stdin=subprocess.PIPE).held()
    assert run(dlock, at, "-n", events=False).status == 75
    assert run(dlock, at, "-w", "1s", events=False).status == 75
    waiter = dlock.start("run", *at.words, "-k", "job", "--", "true").queued(1)
    assert holder.finish().status == 0 and waiter.wait().status == 0
    assert client.names("dlock/") == []
    wait_for(lambda: client.leases() == [], timeout=40)


def test_a_job_leaves_its_runs(dlock, at, client):
    assert run(dlock, at, "--once", "a/b c").status == 0
    assert client.names("dlock/") == ["dlock/j/job/good", "dlock/j/job/id/a%2Fb%20c", "dlock/j/job/last"]
    lease, = {kv["lease"] for kv in client.range("dlock/")}
    left = int(client.ask("lease/timetolive", {"ID": lease})["TTL"])
    assert left > 399 * 86400
    assert run(dlock, at, "--once", "another").status == run(dlock, at, "--cooldown", "1ms").status == 0
    assert client.leases() == [lease], "one for all runs of a month"


def test_what_a_limited_lock_leaves_goes_with_its_release(dlock, at, client):
    """Also another permit on the same lease, which an answer that came late may have put there."""
    held = hold(dlock, at.url, "--limit", "2")
    client.put("dlock/s/job/000001", lease=client.queue()[0]["lease"])
    assert held.finish().status == 0 and client.names() == [] == client.leases()
    held = hold(dlock, at.url, "--limit", "2")
    held.signal(signal.SIGSTOP, "keeper")  # it is to find that as it releases
    client.delete(client.queue()[0]["key"])
    command = held.command
    held.popen.stdin.close()
    wait_for(lambda: not is_alive(command), what="the end of the command")
    held.signal(signal.SIGCONT, "keeper")
    assert held.wait().status == 79 and client.names() == [] == client.leases()


def test_the_mark_of_who_asked_for_it_back_goes_with_the_release(dlock, at, client):
    held = hold(dlock, at.url)
    assert dlock.run("break", "-y", *at.words, "-k", "job").status == 0
    assert held.wait().status == 79 and client.names() == []


def test_a_loss_is_noticed_at_release(dlock, at, client):
    held = hold(dlock, at.url)
    client.delete(client.queue()[0]["key"])
    done = held.finish()
    assert done.status == 79 and "no longer has it as ours" in done.stderr, done


# ---- rights ----


@pytest.fixture
def guarded(make_etcd):
    """A server with logins, made as the manual says."""
    server = make_etcd("--bcrypt-cost", "4", "--auth-token-ttl", "2")
    for line in block(PAGE, "etcdctl role add dlock").splitlines():
        server.ctl(*[word.strip("'") for word in line.split()[1:]])
    root = server.client(("root", "root-password"))
    root.ask("auth/user/add", {"name": "nobody", "password": "pw"})
    root.ask("auth/user/add", {"name": "od\\d", "password": "\"é\t"})
    return server


def test_the_role_of_the_manual_is_enough(dlock, guarded):
    url = with_login(guarded.url, "dlock:password")
    for options in ((), ("-s",), ("--limit", "2"), ("--once", "x"), ("--cooldown", "1s"), ("--unless-frozen", "all"), ("--newest",)):
        assert run(dlock, url, *options, key=f"k{options}").status == 0
    held = hold(dlock, url, *LEASE)
    waiter = dlock.start("run", "-u", url, "-k", "job", "--", "true").queued(1)
    assert dlock.run("freeze", "-u", url, "-k", "job").status == 0
    assert dlock.run("break", "-y", "-u", url, "-k", "job").status == 0
    assert held.wait().status == 79
    assert dlock.run("thaw", "-y", "-u", url, "-k", "job").status == 0
    assert waiter.wait().status == 0
    held = hold(dlock, url, *LEASE)
    assert dlock.run("break", "-y", "--force", "-u", url, "-k", "job").status == 0
    assert held.wait().status == 79
    # and no more than that
    done = run(dlock, url + "/elsewhere")
    assert done.status == 77 and "(see dlock-etcd(7))" in done.stderr, done


def test_a_password_in_what_others_have_said_is_not_shown(dlock, guarded):
    guarded.client(("root", "root-password")).ask("auth/user/changepw", {"name": "dlock", "password": "c0rrect-h@rse!"})
    assert_password_is_not_shown(dlock, with_login(guarded.url, "dlock:c0rrect-h%40rse!"), "c0rrect-h@rse!")


def test_who_may_look_may_do_nothing_else(dlock, guarded):
    held = hold(dlock, with_login(guarded.url, "dlock:password"))
    looker = with_login(guarded.url, "watcher:password")
    found = json.loads(dlock.run("status", "-J", "-u", looker, "-k", "job").stdout)
    assert found["holders"][0]["token"] == held.token and found["holders"][0]["lease_left_s"] > 0
    assert "job" in dlock.run("ls", "-u", looker).stdout
    assert dlock.run("freeze", "-u", with_login(guarded.url, "dlock:password"), "-k", "job").status == 0
    for words in (("freeze",), ("thaw", "-y"), ("break", "-y"), ("break", "-y", "--force")):
        assert dlock.run(*words, "-u", looker, "-k", "job").status == 77, words
    assert run(dlock, looker, key="other").status == 77
    assert held.finish().status == 0


def test_who_may_look_sees_jobs_and_forgets_none(dlock, guarded):
    """And what doctor says of both users."""
    url, looker = with_login(guarded.url, "dlock:password"), with_login(guarded.url, "watcher:password")
    assert run(dlock, url, "--once", "a", key="job").status == 0
    assert "job" in dlock.run("ls", "--jobs", "-u", looker).stdout
    assert dlock.run("forget", "-y", "-u", looker, "job", "a").status == 77
    assert dlock.run("forget", "-y", "-u", url, "job", "a").status == 0
    done, found = examine(dlock, url)
    assert done.status == 0 and found["user"] == [("ok", "dlock")], (done, found)
    done, found = examine(dlock, looker)
    assert done.status == 77 and found["right-run"][0][0] == "fail", (done, found)
    assert guarded.client(("root", "root-password")).names("dlock/") == []


@pytest.mark.parametrize("login, words", [
    ("", "does it want a user and password"), ("dlock:wrong-password", "wrong user or password"), ("ghost:pw", "wrong user or password"),
    ("nobody:pw", "roles do not allow"), ("od%5Cd:%22%C3%A9%09", "roles do not allow")])
def test_wrong_logins(dlock, guarded, login, words):
    done = run(dlock, with_login(guarded.url, login) if login else guarded.url)
    assert done.status == 77 and words in done.stderr and "wrong-password" not in done.stderr, done


def test_a_server_without_logins(dlock, at):
    done = run(dlock, with_login(at.url, "dlock:password"))
    assert done.status == 77 and "leave user and password out" in done.stderr, done


def test_a_login_that_has_expired(dlock, guarded):
    """A token ends 2 s after its last use, and with each restart."""
    url = with_login(guarded.url, "dlock:password")
    held = hold(dlock, url, "-t", "12s")  # renewed each 4 s
    waiter = dlock.start("run", "-u", url, "-k", "job", "-t", "12s", "--", "true").queued(1)
    time.sleep(6)
    guarded.restart()
    time.sleep(6)
    assert held.poll() is None and waiter.poll() is None
    assert held.finish().status == 0
    assert waiter.wait().status == 0


def test_a_login_that_expires_within_a_release(dlock, guarded, make_meddler):
    """Its lease is revoked once more, when it is done; that concerns nobody."""
    expired = []

    def edit(path, _, answer):
        if path == "lease/revoke" and not expired:
            expired.append(1)
            return {"error": "x", "message": "etcdserver: invalid auth token", "code": 16}
        return answer

    between = make_meddler(guarded.port, edit)
    done = run(dlock, with_login(between.url, "dlock:password"), "-t", "2m")  # so long a lease is revoked
    assert expired and (done.status, done.stderr) == (0, ""), done


def test_users_and_roles_that_change(dlock, guarded):
    """Every token of before is refused then, with another code."""
    url = with_login(guarded.url, "dlock:password")
    held = hold(dlock, url, *LEASE)
    waiter = dlock.start("run", "-u", url, "-k", "job", *LEASE, "--", "true").queued(1)
    time.sleep(1.5)
    guarded.client(("root", "root-password")).ask("auth/user/add", {"name": "another", "password": "pw"})
    time.sleep(3)
    assert held.poll() is None and waiter.poll() is None
    assert held.finish().status == 0
    assert waiter.wait().status == 0


def test_the_password_is_in_a_file(dlock, guarded, tmp_path):
    file = tmp_path / "password"
    file.write_text("password\n")
    file.chmod(0o600)
    url = with_login(guarded.url, "dlock")
    assert run(dlock, url, "-O", f"password-file={file}").status == 0
    assert run(dlock, url).status == 64


# ---- a full database, compaction ----


def test_a_full_database(dlock, make_etcd):
    """It takes nothing new; who holds a lock goes on, and gives it back, or has it taken by force."""
    server = make_etcd("--quota-backend-bytes", str(2 << 20))
    client = server.client()
    held, other = hold(dlock, server.url, *LEASE), hold(dlock, server.url, key="forced")
    client.put("dlock/q/foreign/1")
    with pytest.raises(OSError, match="database space exceeded"):
        while True:
            client.put("big", "x" * 200000)
    done = run(dlock, server.url, "-n", key="other")
    assert done.status == 69 and "its database is full" in done.stderr, done
    time.sleep(4)
    assert held.poll() is None
    assert held.finish().status == 0
    assert client.queue() == []
    for key in ("foreign", "forced"):
        done = dlock.run("break", "-y", "--force", "-u", server.url, "-k", key)
        assert done.status == 0 and client.queue(key) == [], done
    assert other.wait().status == 79
    done, found = examine(dlock, server.url)
    assert done.status == 69 and "fail" in {level for level, _ in found["database"]}, found


def test_an_old_server_whose_database_is_full(dlock, at, client, make_meddler):
    """It refuses every transaction, also one that only deletes (before 3.4.20 and 3.5.7)."""
    full = []

    def instead(path):
        return {"error": "x", "message": "etcdserver: mvcc: database space exceeded", "code": 8} if full and path == "kv/txn" else None

    held = hold(dlock, make_meddler(at.server.port, instead=instead).url)
    full.append(1)
    done = held.finish()
    assert (done.status, done.stderr) == (0, "") and client.names() == [], done


def test_compaction_under_waiters(dlock, at, client):
    held = dlock.start("run", *at.words, "-k", "job", "--", "cat", stdin=subprocess.PIPE).held()
    waiters = [dlock.start("run", *at.words, "-k", "job", "--", "true").queued(n) for n in (1, 2, 3)]
    for n in range(5):
        client.put("other", str(n))
    client.ask("kv/compaction", {"revision": client.revision(), "physical": True})
    assert held.finish().status == 0
    assert [w.wait().status for w in waiters] == [0] * 3


# ---- a long queue, strange keys ----


@pytest.mark.parametrize("name", ["z" * 300, "a\0b", "a" * 4000])
def test_a_strange_key_in_the_queue_is_waited_for(dlock, at, client, name):
    """As etcdctl does, which waits for whatever stands below the name."""
    key = f"dlock/q/job/{name}"
    client.put(key)
    for options in ((), ("-s",), ("--limit", "2")):
        assert run(dlock, at, "-n", *options, events=False).status == 75, options
    waiter = dlock.start("run", *at.words, "-k", "job", "--", "true").queued(1)
    began = boottime()
    assert client.delete(key) == 1
    assert waiter.wait().status == 0 and boottime() - began < 2


def test_a_page_of_keys_that_cannot_be_read(dlock, at, client):
    for n in range(150):
        client.put(f"dlock/q/job/{n}\0")
    for options in ((), ("-s",), ("--limit", "2")):
        assert run(dlock, at, "-n", *options, events=False).status == 75, options
    found = json.loads(dlock.run("status", "-J", *at.words, "-k", "job").stdout)
    assert len(found["holders"]) == 1 and len(found["waiters"]) == 149, found
    assert dlock.run("freeze", *at.words, "-k", "z").status == 0
    client.put("dlock/q/a\0b/1")
    assert [line.split()[0] for line in dlock.run("ls", *at.words).stdout.splitlines()[1:]][-1] == "z"


def test_strange_keys_hide_no_others(dlock, at, client):
    for name in ("a\0b/1", "a/1", "b", "b/1", "c" * 4000, "d/" + "d" * 4000, "d/1", "e/1"):
        client.put(f"dlock/q/{name}")
    listed = dlock.run("ls", *at.words)
    assert listed.status == 0 and [line.split()[0] for line in listed.stdout.splitlines()[1:]] == ["a", "b", "d", "e"], listed


def test_a_strange_freeze_is_passed_over(dlock, at, client):
    client.put("dlock/f/a/b")
    assert dlock.run("freeze", *at.words, "-k", "z").status == 0
    listed = dlock.run("ls", *at.words)
    assert listed.status == 0 and [line.split()[0] for line in listed.stdout.splitlines()[1:]] == ["z"], listed


def test_a_name_that_is_no_keys_is_not_listed(dlock, at, client):
    """Another client's: dlock writes the key aa in one way only."""
    def listed(*options):
        return [json.loads(line)["key"] for line in dlock.run("ls", "-J", *options, *at.words).stdout.splitlines()]

    assert dlock.run("run", *at.words, "-k", "aa", "--once", "1", "--", "true").status == 0
    for kv in client.range("dlock/j/aa/"):
        client.put(kv["key"].replace("aa", "a%61"), kv["value"])
    before = listed("--jobs")
    assert before and set(before) == {"aa"}, before
    assert dlock.run("forget", "-y", *at.words, "aa").status == 0
    assert listed("--jobs") == []
    client.put("dlock/q/aa/1")
    client.put("dlock/q/a%61/1")
    client.put("dlock/f/%62")
    assert listed() == ["aa"]


def test_a_holder_with_a_long_name_is_broken_by_force(dlock, at, client):
    client.put("dlock/q/job/" + "z" * 300)
    assert dlock.run("break", "-y", "--force", *at.words, "-k", "job").status == 0
    assert client.queue() == []



@pytest.mark.parametrize("name", ["a\0b", "a" * 4000], ids=["NUL", "long"])
def test_a_holder_whose_name_cannot_be_read(dlock, at, client, name):
    client.put(f"dlock/q/job/{name}")
    client.put("dlock/q/job/a")
    done = dlock.run("break", "-y", "--force", *at.words, "-k", "job")
    assert done.status == 78 and "cannot be read" in done.stderr, done
    assert len(client.queue()) == 2


def test_a_queue_of_many_pages(dlock, at, client):
    """More than are read at once stand before us: others' keys, which are let go."""
    lease = client.grant(120)
    for n in range(150):
        client.put(f"dlock/q/job/{n + 1:x}{'.r' if 0 < n < 140 else ''}", "", lease)
    waiter = dlock.start("run", *at.words, "-k", "job", "--", "true")
    assert waiter.queued(150)
    reader = dlock.start("run", *at.words, "-k", "job", "-s", "--", "true").queued()
    refused = run(dlock, at, "--limit", "2", events=False)
    assert refused.status == 76, refused
    done = json.loads(dlock.run("status", "-J", *at.words, "-k", "job").stdout)
    assert len(done["waiters"]) == 151 and len(done["holders"]) == 1
    row = json.loads(dlock.run("ls", "-J", *at.words).stdout)
    assert row["waiting"] == 151
    client.revoke(lease)
    assert waiter.wait().status == 0 and reader.wait().status == 0


def test_a_permit_without_its_holder_is_passed_over(dlock, at, client):
    """Somebody has deleted the holder's key, and not its permit."""
    held = [dlock.start("run", *at.words, "-k", "job", "--limit", "2", "-t", "6s", "--", "sh", "-c", "echo $DLOCK_SLOT; exec cat",
                        stdin=subprocess.PIPE) for _ in range(2)]
    for one in held:
        one.held()
    client.delete(client.queue()[0]["key"])
    left, = json.loads(dlock.run("status", "-J", *at.words, "job").stdout)["holders"]
    free = str(1 - left["slot"])
    done = run(dlock, at, "--limit", "2", "-n", command=("sh", "-c", "echo $DLOCK_SLOT"), events=False)
    assert done.status == 75 or done.status == 0 and done.stdout.strip() == free
    again = run(dlock, at, "--limit", "2", command=("sh", "-c", "echo $DLOCK_SLOT"))
    assert again.status == 0 and again.stdout.strip() == free


def test_the_holders_of_a_page_are_asked_for_at_once(dlock, at, make_meddler):
    """Each packet of its own would cost a round trip."""
    held, between = [hold(dlock, at.url, "-s") for _ in range(3)], make_meddler(at.server.port)
    told = json.loads(dlock.run("status", "-J", "-u", between.url, "-k", "job").stdout)
    assert [one["token"] for one in told["holders"]] == sorted(one.token for one in held)
    assert all(0 < one["lease_left_s"] <= 60 for one in told["holders"]), told
    # the last one: has another program a lock that is called like the key?
    assert [path for path, _ in between.asked] == ["kv/txn"] * 2 + ["lease/timetolive"] * 3 + ["kv/range"]


# ---- times ----


def test_a_break_is_heard_before_the_next_renewal(dlock, at):
    """From the first renewal on there is a watch."""
    held = hold(dlock, at.url, "-t", "9s")
    time.sleep(4)
    began = boottime()
    assert dlock.run("break", "-y", *at.words, "-k", "job").status == 0
    assert held.wait().status == 79
    assert boottime() - began < 2.5


def test_a_lease_below_the_servers_least(dlock, make_etcd):
    server = make_etcd("--election-timeout", "5000", "--heartbeat-interval", "500")
    held = hold(dlock, server.url, *LEASE)
    time.sleep(4)
    assert held.poll() is None and held.finish().status == 0


# ---- TLS ----


def test_tls(dlock, make_etcd, authority):
    server = make_etcd(certificate=authority.sign("server"), authority=authority)
    ca = ("-O", f"cacert={authority.cert}")
    assert run(dlock, server.url, *ca).status == 0
    held = dlock.start("run", "-u", server.url, *ca, "-k", "job", *LEASE, "--", "cat", stdin=subprocess.PIPE).held()
    waiter = dlock.start("run", "-u", server.url, *ca, "-k", "job", *LEASE, "--", "true").queued(1)
    time.sleep(4)
    assert held.finish().status == 0 and waiter.wait().status == 0
    assert run(dlock, server.url).status == 78
    done = run(dlock, server.url.replace("etcds", "etcd"))
    assert done.status == 69 and "does it want TLS (etcds://)?" in done.stderr, done
    assert run(dlock, server.url.replace("etcds", "etcd"), *ca).status == 64


def test_a_client_certificate(dlock, make_etcd, authority):
    mine = authority.sign("client")
    server = make_etcd("--client-cert-auth", "--trusted-ca-file", authority.cert, certificate=authority.sign("server"), authority=authority,
                       mine=mine)
    words = ("-O", f"cacert={authority.cert}")
    with_mine = (*words, "-O", f"cert={mine.cert}", "-O", f"key={mine.key}")
    assert run(dlock, server.url, *with_mine).status == 0
    assert run(dlock, server.url, *words).status == 77


def test_a_gateway_that_is_off(dlock, make_etcd):
    server = make_etcd()
    server.kill()
    server.options = ("--enable-grpc-gateway=false",)
    server.start(wait=False)
    wait_for(lambda: listens(server.port))
    done = run(dlock, server.url)
    assert done.status == 78 and "JSON gateway is off" in done.stderr, done


@pytest.mark.parametrize("url, words", [
    ("etcd://", "names no host"), ("etcd://h:0", "port"), ("etcd://h?x=1", "query"), ("etcd://u@h", "user and a password"),
    ("etcd://h/%zz", "prefix"), ("etcd://h:1/a@b", "'@'"), ("etcd://%FF:pw@h", "UTF-8")])
def test_urls_that_make_no_sense(dlock, url, words):
    done = run(dlock, url)
    assert done.status == 64 and words in done.stderr and done.stderr.count("\n") == 1, done


def test_the_name_setting(dlock):
    for value in ("", "a/", "x" * 513):
        assert run(dlock, "etcd://h", "-O", f"name={value}").status == 64


def test_etcdctl_sees_what_the_manual_says(dlock, at, client):
    dlock.start("run", *at.words, "-k", "job", "--who", "alice", "--", "cat", stdin=subprocess.PIPE).held()
    one, = client.range("dlock/")
    assert one["key"] == f"dlock/q/job/{one['lease']:x}" and one["value"].startswith("dlock1 ") and "alice" in one["value"]
