# Goal of these tests: each thing that is wrong with a configuration, a server or our rights there is told by dlock doctor
# in a line of its own, with the status that a run would have, or 1.  That good servers are fit is in promises/test_doctor.py.

import fcntl
import itertools
import json
import os
import signal
import struct
import subprocess

import pytest

from manual import block
from mysql_server import USER, AsMysql, mysql_url, on_galera
from pg import pg_url
from redis_forms import await_replicas
from support import DLOCK, PATIENCE, rules_of, wait_for

LOCKS, STEERS = rules_of("dlock"), rules_of("oncall")


@pytest.fixture
def doctor(dlock):
    """Runs it; returns its status, and what it has found as {check: (level, facts)}, the worst of each."""
    def examine(*words, **options):
        done = dlock.run("doctor", "-J", *words, **options)
        found = {}
        for line in done.stdout.splitlines():
            f = json.loads(line)
            level, fact = found.get(f["check"], ("ok", ""))
            found[f["check"]] = (max(level, f["level"], key=("ok", "warn", "fail").index), f"{fact}{f['fact']}\n")
        if done.status:
            assert done.stderr.count("\n") == 1 and done.stderr.startswith("dlock: "), done
        return done.status, found
    return examine


def failed(found):
    return {check for check, (level, _) in found.items() if level == "fail"}


# ---- words and files ----


def test_a_file_that_others_may_write_is_named(doctor, dlock, tmp_path):
    file = tmp_path / "dlock.conf"
    file.write_text("backend = file\n")
    file.chmod(0o646)
    status, found = doctor("--config", file)
    assert status == 78 and failed(found) == {"config"} and "chmod go-w" in found["config"][1], found
    file.chmod(0o600)
    status, found = doctor("--config", file)
    assert status == 0 and f"{file} was read" in found["config"][1] and f"named by {file}:1: backend" in found["server"][1], found


def test_each_source_is_named(doctor, dlock, tmp_path):
    url = f"file://{tmp_path}"
    assert "named by --url" in doctor("-u", url)[1]["server"][1]
    for name in ("DLOCK_URL", "DLOCK_FILE_URL"):
        done = dlock.run("doctor", *(["-b", "file"] if name != "DLOCK_URL" else []), env={name: url})
        assert done.status == 0 and f"named by {name}" in done.stdout and "cron and services have this variable only" in done.stdout, done


def test_what_is_no_url_is_refused_as_a_run_refuses_it(dlock):
    for words in ((), ("-u", "redis://h:x"), ("-b", "file", "-O", "a=b"), ("-b", "file", "a", "-t", "1s")):
        done = dlock.run("doctor", *words)
        assert done.status == dlock.run("status", "-k", "k", *(w for w in words if w not in ("-t", "1s"))).status == 64 or \
            (done.status == 64 and "-t" in words), done


def test_a_server_that_is_away(doctor, dlock):
    status, found = doctor("-u", "redis://127.0.0.1:1")
    assert status == 69 == dlock.run("run", "-n", "-u", "redis://127.0.0.1:1", "-k", "k", "true").status
    assert failed(found) == {"reachable"} and "refused" in found["reachable"][1]


def test_where_one_lock_is_named_nothing_is_tried(doctor, zk_server):
    with zk_server.client() as c:
        before = sorted(c.get_children("/"))
        status, found = doctor("-u", zk_server.url, "-O", "path=/one/lock")
        assert status == 0 and found["rights"][0] == "warn" and "right-run" not in found, found
        assert sorted(c.get_children("/")) == before


def test_a_directory_in_which_nothing_may_be_made(doctor, tmp_path):
    status, found = doctor("-u", f"file://{tmp_path}/none")
    assert status == 78 and failed(found) == {"reachable"}, found
    tmp_path.chmod(0o777)
    status, found = doctor("-u", f"file://{tmp_path}")
    assert status == 77 and "chmod +t" in found["reachable"][1], found
    tmp_path.chmod(0o700)


# ---- redis ----


def redis_as(server, *rules):
    with server.client() as c:
        c.script_flush()
        c.execute_command("ACL", "SETUSER", "some", "reset", "on", ">any", *rules)
    return f"redis://some:any@127.0.0.1:{server.port}"


def test_what_a_role_lacks_is_said_of_the_key(doctor, make_redis):
    """And not of a probe, whose name nobody knows before; of which nothing has stayed, since nothing was written."""
    server = make_redis()
    url = redis_as(server, "~other:*", "&other:*", "+@all", "-@dangerous", "+info")
    for key, shown in (((), "~dlock:{*}:*"), (("-k", "deploy"), "~dlock:{deploy}:*")):
        status, found = doctor("-u", url, *key)
        assert status == 77 and found["right-run"][0] == "fail" and shown in found["right-run"][1], found
        assert "dlock-doctor" not in str(found) and "probe" not in found, found


def stored(server):
    with server.client() as c:
        return list(c.scan_iter("*"))


def test_a_server_that_evicts(doctor, make_redis):
    server = make_redis("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru", "--save", "")
    status, found = doctor("-u", server.url)
    assert status == 1 and failed(found) == {"eviction"} and "allkeys-lru" in found["eviction"][1], found
    assert found["persistence"][0] == "warn" and found["right-run"][0] == "ok" and stored(server) == []


def test_what_doctor_finds_a_run_says(dlock, doctor, make_redis):
    """In the same words: they come from one place."""
    server = make_redis("--maxmemory", "50mb", "--maxmemory-policy", "volatile-ttl", "--save", "")
    _, found = doctor("-u", server.url)
    said = dlock.run("run", "-v", "-u", server.url, "-k", "k", "true").stderr
    assert "may lose locks: " in said and "volatile-ttl" in said and found["persistence"][1].strip() in said, said


def test_what_a_crash_costs(doctor, make_redis):
    server = make_redis("--appendonly", "yes", "--appendfsync", "always", "--save", "900 1")
    assert doctor("-u", server.url)[1]["persistence"][0] == "ok"
    with server.client() as c:
        c.config_set("appendfsync", "everysec")
        level, fact = doctor("-u", server.url)[1]["persistence"]
        assert level == "warn" and "appendfsync everysec" in fact
        c.config_set("appendonly", "no")
        level, fact = doctor("-u", server.url)[1]["persistence"]
        assert level == "warn" and "its last dump, save " in fact
    level, fact = doctor("-u", redis_as(server, *STEERS, "+info"))[1]["persistence"]
    assert level == "warn" and "does not tell" in fact


def test_memory_that_is_used_up(doctor, make_redis):
    server = make_redis("--maxmemory", "3mb")
    with server.client() as c:
        while int(c.info("memory")["used_memory"]) < 2.9 * 2 ** 20:
            c.rpush("filler", "x" * 20000)
    status, found = doctor("-u", server.url)
    assert status in (1, 69) and "memory" in failed(found), found


def test_a_replica_that_is_too_few(doctor, make_redis):
    master = make_redis("--appendonly", "yes")
    replica = make_redis("--replicaof", "127.0.0.1", str(master.port))
    with master.client() as c:  # which may hear of the replica a second after that has all there is
        await_replicas(c)
    status, found = doctor("-u", master.url)
    assert status == 0 and found["replicas"][0] == "warn", found
    with master.client() as c:  # which bounds what a fail-over forgets, and no more
        c.config_set("min-replicas-to-write", 1)
    assert doctor("-u", master.url)[1]["replicas"][0] == "warn"
    status, found = doctor("-u", master.url, "-O", "wait-replicas=1")
    assert status == 0 and found["replicas"][0] == "ok", found
    status, found = doctor("-u", master.url, "-O", "wait-replicas=2")
    assert status == 69 and {"replicas", "right-run"} <= failed(found), found
    status, found = doctor("-u", replica.url)
    assert status != 0 and "role" in failed(found), found


# What a role of the manual must have for each right, beside the names of keys.
MUST = {"right-run": ["eval", "time", "hget", "hset", "zadd", "zrange", "zscore", "pexpireat"],
        "right-look": ["eval_ro", "evalsha_ro", "type"]}


@pytest.mark.parametrize("lacks", ["hset", "pexpireat", "zadd", "zrangebyscore", "zrem", "zscore", "type", "publish"])
def test_who_is_said_to_be_able_to_break_can(dlock, doctor, make_redis, lacks):
    """By each command that a break has need of, or may have; politely, and by force."""
    server = make_redis("--appendonly", "yes")
    url = redis_as(server, *STEERS, f"-{lacks}")
    found = doctor("-u", url)[1]
    breaks = []
    for force in ([], ["--force"]):
        held = dlock.start("run", "-u", server.url, "-k", "job", "-t", "6s", "--", "sleep", "60").held()
        breaks.append(dlock.run("break", "-y", "-u", url, "-k", "job", *force).status)
        held.signal(signal.SIGTERM)
        held.wait()
    assert (found["right-break"][0] == "ok") == (breaks == [0, 0]), (found, breaks)
    assert found["right-break"][0] == "fail" or lacks not in ("zrem", "type"), found


@pytest.mark.parametrize("right, missing", [(right, one) for right, all_of in MUST.items() for one in all_of])
def test_a_right_that_is_missing(doctor, make_redis, right, missing):
    server = make_redis("--appendonly", "yes")
    url = redis_as(server, *STEERS, "+info", "+config|get", "+acl|whoami", f"-{missing}")
    status, found = doctor("-u", url)
    assert right in failed(found), found
    assert status == (77 if "right-run" in failed(found) else 1)
    left = [k for k in stored(server) if "dlock-doctor" in k]
    assert not left or (missing == "pexpireat" and found["probe"][0] == "warn"), found


def test_only_a_crowd_needs_the_right_to_count(doctor, make_redis):
    server = make_redis("--appendonly", "yes")
    status, found = doctor("-u", redis_as(server, *STEERS, "+info", "+config|get", "+acl|whoami", "-zcount"))
    assert status == 0 and found["right-look"][0] == "ok", found


def test_a_role_that_may_ask_sees_what_endangers_locks(doctor, make_redis):
    """With the rules that the manual adds for doctor; without them, eviction is not seen, and doctor says what is missing."""
    server = make_redis("--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
    more = block("dlock-redis.7", "+info").split(" oncall ")[1].split()
    status, found = doctor("-u", redis_as(server, *STEERS))
    assert status == 0 and "eviction" not in found and found["version"][0] == "warn", found
    status, found = doctor("-u", redis_as(server, *STEERS, *more))
    assert status == 1 and failed(found) == {"eviction"} and found["user"] == ("ok", "some\n"), found
    assert {check for check, (level, _) in found.items() if level != "ok"} == {"eviction"}, found


def test_who_may_only_lock(dlock, doctor, make_redis):
    """And leaves nothing all the same, though that one may not delete.  A break looks first; a freeze does not."""
    server = make_redis("--appendonly", "yes")
    url = redis_as(server, *LOCKS)
    assert dlock.run("freeze", "-u", url, "-k", "k").status == 0
    assert dlock.run("break", "-y", "-u", url, "-k", "k").status == 77
    with server.client() as c:
        c.flushall()
    status, found = doctor("-u", url)
    assert status == 1 and failed(found) == {"right-look", "right-break"}, found
    assert found["version"][0] == "warn" and found["right-run"][0] == "ok"
    assert "worst" in found["round-trip"][1] and "-> see SETTING UP in dlock-redis(7)\n" in dlock.run("doctor", "-u", url).stdout
    assert stored(server) == []


def test_keys_that_begin_as_ours_are_enough(doctor, make_redis):
    server = make_redis("--appendonly", "yes")
    rules = [r for r in STEERS if r[0] not in "~&%"]
    url = redis_as(server, *rules, "+info", "+config|get", "~dlock:{deploy*", "&dlock:{deploy*")
    assert doctor("-u", url, "-k", "deploy")[0] == 0
    assert doctor("-u", url, "-k", "other")[0] == 77


def test_a_lease_that_is_too_short_for_the_way(doctor, redis_server, make_proxy):
    proxy = make_proxy(redis_server.port)
    proxy.delay = 0.2
    status, found = doctor("-u", proxy.url, "-t", "3s")
    assert status == 1 and failed(found) == {"round-trip"}, found
    status, found = doctor("-u", proxy.url, "-t", "10s")
    assert status == 0 and found["round-trip"][0] == "warn" and "little time" in found["round-trip"][1], found


def test_masters_that_are_away(doctor, make_masters):
    masters = make_masters()
    url = f"{masters.scheme}://" + ",".join(masters.hosts)
    masters[2].stop()
    status, found = doctor("-u", url)
    assert found["quorum"][0] == "warn" and "2 of 3 masters" in found["quorum"][1], found
    masters[1].stop()
    status, found = doctor("-u", url)
    assert status == 69 and "reachable" in failed(found), found


def test_a_master_that_hangs_takes_no_time_of_the_others(doctor, make_masters):
    masters = make_masters()
    masters[0].pause()
    status, found = doctor("-u", masters.url)
    assert status == 0 and "2 of 3 masters" in found["quorum"][1], found


def test_masters_that_let_nobody_delete(doctor, make_masters):
    masters = make_masters()
    for m in masters.all:
        with m.client() as c:
            c.execute_command("ACL", "SETUSER", "default", "-del")
    status, found = doctor("-u", masters.url)
    assert not [k for m in masters.all for k in stored(m) if "dlock-doctor" in k], found


def test_sentinels_that_are_slow(doctor, make_forms):
    forms = make_forms(down_after=10000)
    status, found = doctor("-u", forms.url, "-t", "5s")
    assert status == 0 and found["fail-over"][0] == "warn", found
    status, found = doctor("-u", forms.url, "-t", "60s")
    assert status == 0 and found["fail-over"][0] == "ok", found


def test_sentinels_that_are_too_few(doctor, make_forms):
    """Those that a sentinel has not heard for so long it counts no longer."""
    forms = make_forms()
    status, found = doctor("-u", forms.url)
    assert status == 0 and found["sentinels"] == ("ok", "3 of 3 sentinels answer, and 3 say that they are enough for a fail-over\n"), found
    forms.sentinels[0].kill()
    status, found = doctor("-u", forms.url)
    assert status == 0 and found["sentinels"][0] == "warn" and "2 of 3 sentinels answer, and 2 say" in found["sentinels"][1], found
    assert f"cannot reach sentinel 127.0.0.1:{forms.sentinels[0].port}: " in found["sentinels"][1], found
    forms.sentinels[1].kill()
    wait_for(lambda: "0 say" in doctor("-u", forms.url)[1]["sentinels"][1], what="a sentinel that knows")
    status, found = doctor("-u", forms.url)
    assert status == 1 and failed(found) == {"sentinels"} and "1 of 3 sentinels answer" in found["sentinels"][1], found


@pytest.mark.parametrize("more, level", [("", "warn"), (" +sentinel|ckquorum", "ok")], ids=["least", "told"])
def test_sentinels_that_do_not_tell(doctor, make_forms, more, level):
    forms = make_forms(n=1)
    with forms.sentinels[0].client() as c:
        c.execute_command("ACL", "SETUSER", "default", *f"reset on nopass -@all +sentinel|get-master-addr-by-name{more}".split())
    status, found = doctor("-u", forms.url)
    assert status == 0 and found["sentinels"][0] == level, found


def test_a_plain_run_asks_for_nothing_more(dlock, make_redis):
    """Nor less: take and release, and the PING in front of that."""
    server = make_redis("--appendonly", "yes")
    with server.client() as c:
        for n in range(2):
            c.config_resetstat()
            assert dlock.run("run", "-u", server.url, "-k", "k", "true").status == 0
            asked = {name: s["calls"] for name, s in c.info("commandstats").items()}
            outer = {n: asked.get(f"cmdstat_{n}", 0) for n in ("evalsha", "eval", "ping", "info", "config|get", "auth", "select")}
        assert outer == {"evalsha": 2, "eval": 0, "ping": 1, "info": 0, "config|get": 0, "auth": 0, "select": 0}, asked


# ---- zk ----


def test_a_session_that_is_shorter_than_the_lease(doctor, make_zk):
    server = make_zk(maxSessionTimeout=8000)
    status, found = doctor("-u", server.url)
    assert status == 0 and found["lease"][0] == "warn" and "8.0 s" in found["lease"][1], found
    assert "the lease of 8s leaves" in found["round-trip"][1], found
    assert doctor("-u", server.url, "-t", "8s")[1]["lease"][0] == "ok"
    status, found = doctor("-u", server.url, "-t", "30s", "--grace", "7s")
    assert status == 78 and "lease" in failed(found), found


def test_a_chroot_that_is_not_there_is_not_made(doctor, zk_server):
    with zk_server.client() as c:
        for root in ("/gone", "/gone/deeper"):
            assert doctor("-u", f"{zk_server.url.rstrip('/')}{root}")[0] == 0
            assert c.exists("/gone") is None
        c.create("/gone")
        assert doctor("-u", f"{zk_server.url.rstrip('/')}/gone/deeper")[0] == 0
        assert c.get_children("/gone") == []
        c.delete("/gone")


def test_a_node_that_may_not_be_removed_is_told(doctor, zk_server):
    """Whoever may make nodes in a directory may not always delete them."""
    from kazoo.security import OPEN_ACL_UNSAFE, make_acl  # which make test does without

    may = [make_acl("world", "anyone", read=True, write=True, create=True, admin=True)]
    with zk_server.client() as c:
        c.create("/keeps", acl=may)
        status, found = doctor("-u", f"{zk_server.url.rstrip('/')}/keeps")
        c.set_acls("/keeps", OPEN_ACL_UNSAFE)
        c.delete("/keeps", recursive=True)
    assert found["probe"][0] == "warn" and "permission" in found["probe"][1], found


def test_a_member_that_is_away(doctor, ensemble):
    ensemble.followers[0].stop()
    status, found = doctor("-u", ensemble.url)
    assert status == 0 and found["quorum"][0] == "warn" and found["server"][0] == "warn", found
    assert "2 of the 3 servers of the URL answer; the ensemble has 3" in found["quorum"][1]


# ---- pg ----



@pytest.fixture
def worker(db):
    """A role that may enter the database, and no more."""
    db.ask(f"REVOKE ALL ON DATABASE {db.name} FROM PUBLIC")
    db.ask("CREATE ROLE worker LOGIN")
    db.ask(f"GRANT CONNECT ON DATABASE {db.name} TO worker")
    yield pg_url(db.server.port, "worker", db.name)
    db.drop()
    db.server.ask("DROP ROLE worker", db="postgres")


PG_RUN, PG_LOOK, PG_FREEZE, PG_BREAK = ("take", "release_alone"), ("list", "last_run"), ("freeze", "thaw"), ("ask_back", "take_away")


def test_a_database_without_the_schema_is_left_alone(doctor, db):
    for mode in ("lease", "row"):
        status, found = doctor("-u", db.url, "-O", f"mode={mode}")
        assert status == 0 and found["schema"][0] == found["rights"][0] == "warn", found
        assert not db.ask("SELECT 1 FROM pg_namespace WHERE nspname = 'dlock'")


def test_a_role_that_may_not_make_it(doctor, dlock, db, worker):
    status, found = doctor("-u", worker)
    assert status == 77 and {"schema", "right-run"} <= failed(found), found
    assert "see SETTING UP in dlock-pg(7)" in dlock.run("doctor", "-u", worker).stdout


@pytest.mark.parametrize("right, function", [*(("right-run", f) for f in PG_RUN), *(("right-look", f) for f in PG_LOOK),
                                             *(("right-freeze", f) for f in PG_FREEZE), *(("right-break", f) for f in PG_BREAK)])
def test_a_function_that_may_not_be_called(dlock, doctor, db, worker, right, function):
    assert dlock.run("run", "-u", db.url, "-k", "k", "true").status == 0
    db.ask("GRANT USAGE ON SCHEMA dlock TO worker")
    status, found = doctor("-u", worker)
    assert status == 0 and not failed(found), found
    for name, in db.ask("SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'dlock'::regnamespace AND p.proname = %s",
                        function):
        db.ask(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC")
    status, found = doctor("-u", worker)
    assert right in failed(found) and status == (77 if right == "right-run" else 1), found
    if function not in ("release_alone", "thaw"):  # without these it only ends
        assert not db.ask("SELECT 1 FROM dlock.claims")


def test_a_role_whose_transactions_are_read_only(dlock, doctor, db, worker):
    assert dlock.run("run", "-u", db.url, "-k", "k", "true").status == 0
    db.ask("GRANT USAGE ON SCHEMA dlock TO worker")
    db.ask("ALTER ROLE worker SET default_transaction_read_only = on")
    status, found = doctor("-u", worker)
    assert status != 0 and {"role", "right-run"} <= failed(found), found
    db.ask("ALTER ROLE worker SET default_transaction_read_only = off")
    db.ask("ALTER ROLE worker SET statement_timeout = '1s'")
    db.ask("ALTER ROLE worker SET idle_session_timeout = '2s'")
    status, found = doctor("-u", worker)
    assert status == 0 and found["timeouts"][0] == "warn", found
    status, found = doctor("-u", worker, "-O", "mode=advisory")  # which sets its own
    assert status == 0 and found["timeouts"][0] == "ok" and found["right-break"][0] == "warn", found


def test_an_administrator_may_break_all(dlock, doctor, db):
    url = pg_url(db.server.port, "postgres", db.name)
    assert dlock.run("run", "-u", url, "-k", "k", "true").status == 0
    assert doctor("-u", url, "-O", "mode=row")[1]["right-break"][0] == "ok"


def test_a_schema_that_the_mode_does_without(doctor, db, worker):
    db.ask("CREATE SCHEMA dlock")
    db.ask("COMMENT ON SCHEMA dlock IS 'dlock 1: older'")
    db.ask("GRANT USAGE ON SCHEMA dlock TO worker")
    status, found = doctor("-u", worker, "-O", "mode=advisory")
    assert failed(found) == set() and status == 0, (status, [found[f] for f in failed(found)])


def test_a_standby(dlock, doctor, make_pg):
    primary = make_pg(safe=True)
    assert dlock.run("run", "-u", primary.url, "-k", "k", "true").status == 0
    standby = primary.standby()
    status, found = doctor("-u", primary.url)
    assert status == 0 and found["replicas"][0] == "ok" and "1 standbys" in found["replicas"][1], found
    status, found = doctor("-u", standby.url)
    assert status == 78 and {"role", "right-run"} <= failed(found), found
    standby.stop()


def test_a_pooler(dlock, doctor, pg_server, make_pooler):
    pooler = make_pooler(pg_server)
    status, found = doctor("-u", pooler.url)
    assert status == 0 and found["pooler"][0] == "warn", found
    status, found = doctor("-u", pooler.url, "-O", "mode=advisory")
    assert status == 78 and "pooler" in failed(found), found


# ---- mysql ----

MY_RIGHTS = {"right-run": ["take", "enter", "await", "renew", "release"], "right-look": ["list", "last_run"],
             "right-freeze": ["freeze_key", "thaw"], "right-break": ["ask_back", "take_away"]}


@pytest.fixture
def poor(mysql_db):
    """Makes a user with these rights in the database."""
    def make(*grants):
        mysql_db.ask("CREATE USER poor@'%'")
        for grant in grants:
            mysql_db.ask(f"GRANT {grant.replace('DB.', f'`{mysql_db.name}`.')} TO poor@'%'")
        return mysql_url(mysql_db.port, "poor", mysql_db.name)
    yield make
    mysql_db.ask("DROP USER IF EXISTS poor@'%'")


def test_a_database_without_tables_is_left_alone(doctor, mysql_db):
    for mode in ("lease", "row", "named"):
        status, found = doctor("-u", mysql_db.url, "-O", f"mode={mode}")
        assert status == 0 and found["rights"][0] == "warn", found
        assert mysql_db.ask("SHOW TABLES") == []


@pytest.mark.parametrize("grants, level", [(("CREATE ON DB.*",), "fail"), (("CREATE ON DB.*", "CREATE ROUTINE ON DB.*"), "warn"),
                                           (("SELECT ON DB.*",), "fail")])
@pytest.mark.parametrize("by_role", [False, True])
def test_who_might_make_tables_makes_none(doctor, mysql_db, poor, grants, level, by_role):
    url = poor(*(() if by_role else grants))
    if by_role:
        mysql_db.ask("CREATE ROLE maker")
        for grant in grants:
            mysql_db.ask(f"GRANT {grant.replace('DB.', f'`{mysql_db.name}`.')} TO maker")
        mysql_db.ask("GRANT maker TO poor@'%'")
        mysql_db.ask("SET DEFAULT ROLE maker FOR poor@'%'")
    try:
        status, found = doctor("-u", url)
    finally:
        if by_role:
            mysql_db.ask("DROP ROLE maker")
    level = "warn" if by_role else level
    assert (found["schema"][0], status == 77) == (level, level == "fail"), (status, failed(found), found)
    assert mysql_db.ask("SHOW TABLES") == []


def test_tables_of_another_version_get_no_procedures(dlock, doctor, mysql_db):
    assert dlock.run("run", "-u", mysql_db.url, "-k", "k", "true").status == 0
    mysql_db.ask("DROP PROCEDURE dlock_take_3")
    status, found = doctor("-u", mysql_db.url)
    assert status == 0 and found["schema"][0] == found["rights"][0] == "warn", found
    assert not mysql_db.ask("SHOW PROCEDURE STATUS WHERE Db = DATABASE() AND Name = 'dlock_take_3'")


def test_a_user_who_may_delete_nothing_gets_no_probe(dlock, doctor, mysql_db, poor):
    assert dlock.run("run", "-u", mysql_db.url, "-k", "k", "true").status == 0
    before = mysql_db.ask("SELECT * FROM dlock_keys")
    status, found = doctor("-u", poor("EXECUTE ON DB.*"))
    assert status == 0 and all(found[right][0] == "ok" for right in MY_RIGHTS), found
    assert "5 of 5 procedures" in found["right-run"][1] and found["rights"][0] == "warn"
    assert mysql_db.ask("SELECT * FROM dlock_keys") == before


@pytest.mark.parametrize("right", MY_RIGHTS)
def test_a_procedure_that_may_not_be_called(dlock, doctor, mysql_db, poor, right):
    assert dlock.run("run", "-u", mysql_db.url, "-k", "k", "true").status == 0
    names = [f"dlock_{n}_3" for names in MY_RIGHTS.values() for n in names if n != MY_RIGHTS[right][-1]]
    status, found = doctor("-u", poor(*(f"EXECUTE ON PROCEDURE DB.{n}" for n in names)))
    assert right in failed(found) and status == (77 if right == "right-run" else 1), found


def test_a_right_to_the_older_freeze_will_do(dlock, doctor, mysql_db, poor):
    assert dlock.run("run", "-u", mysql_db.url, "-k", "k", "true").status == 0
    names = [n for n in sum(MY_RIGHTS.values(), ["freeze"]) if n != "freeze_key"]
    status, found = doctor("-u", poor(*(f"EXECUTE ON PROCEDURE DB.dlock_{n}_3" for n in names)))
    assert (status, found["right-freeze"][0]) == (0, "ok"), found


def test_on_a_cluster_the_older_freeze_will_not_do(dlock, doctor, mysql_db, make_mysql_tamper, poor):
    assert dlock.run("run", "-u", mysql_db.url, "-k", "k", "true").status == 0
    poor(*(f"EXECUTE ON PROCEDURE DB.dlock_{n}_3" for n in sum(MY_RIGHTS.values(), ["freeze"]) if n != "freeze_key"))
    url = mysql_url(make_mysql_tamper(mysql_db.server.port, on_galera, ready=0).port, "poor", mysql_db.name)
    for level, fact in ("fail", "1 of 2"), ("ok", "2 of 2"):
        found = doctor("-u", url)[1]["right-freeze"]
        assert found[0] == level and fact in found[1], found
        mysql_db.ask(f"GRANT EXECUTE ON PROCEDURE `{mysql_db.name}`.dlock_freeze_key_3 TO poor@'%'")


def test_a_role_that_only_looks_is_not_told_to_make_tables(dlock, doctor, mysql_db, poor):
    """They are there: the page of the backend has the rights that it lacks."""
    assert dlock.run("run", "-u", mysql_db.url, "-k", "k", "true").status == 0
    url = poor(*(f"EXECUTE ON PROCEDURE DB.dlock_{n}_3" for n in MY_RIGHTS["right-look"]))
    status, found = doctor("-u", url)
    assert status == 77 and failed(found) == {"right-run", "right-freeze", "right-break"}, found
    assert "schema" not in found and "-> see SETTING UP in dlock-mysql(7)\n" in dlock.run("doctor", "-u", url).stdout


def test_whose_sessions_may_be_ended(dlock, doctor, mysql_db, poor):
    assert dlock.run("run", "-u", mysql_db.url, "-k", "k", "true").status == 0
    url = poor("SELECT, INSERT, DELETE ON DB.*")
    for right, level in ("", "warn"), ("GRANT CONNECTION ADMIN ON *.* TO poor@'%'", "ok"):
        if right:
            mysql_db.ask(right)
        found = doctor("-u", url, "-O", "mode=named")[1]
        assert found["right-break"][0] == level, found


def test_a_user_without_rights(dlock, doctor, mysql_db, poor):
    status, found = doctor("-u", poor("SELECT ON DB.*"))
    assert status == 77 and "right-run" in failed(found), found


def test_a_server_that_is_read_only(dlock, doctor, make_mysql):
    server = make_mysql()
    assert dlock.run("run", "-u", server.url, "-k", "k", "true").status == 0
    server.ask("SET GLOBAL read_only = 1")
    status, found = doctor("-u", server.url)
    assert status == 78 and {"role", "right-run"} <= failed(found), found
    server.ask("SET GLOBAL read_only = 0")
    server.ask("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    status, found = doctor("-u", server.url)
    assert status == 0 and found["persistence"][0] == "warn", found


def test_replicas_of_mysql_are_told_by_their_sessions(dlock, doctor, make_mysql, request):
    """Which a user sees who has the right PROCESS; MySQL has no variable for it."""
    server = make_mysql(log_bin="log", server_id=1)
    proxy = AsMysql(server.port)
    request.addfinalizer(proxy.close)
    assert dlock.run("run", "-u", server.url, "-k", "k", "true").status == 0
    server.ask(f"GRANT PROCESS ON *.* TO {USER}@'%'")
    url = mysql_url(proxy.port)
    assert "replicas" not in doctor("-u", url)[1]
    replica = server.connect()
    with replica.cursor() as cursor:
        cursor.execute("SET @master_binlog_checksum = 'NONE', @mariadb_slave_capability = 4")
    replica._execute_command(0x12, struct.pack("<IHI", 4, 0, 7) + b"log.000001")  # COM_BINLOG_DUMP
    dumps = "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    wait_for(lambda: server.value(dumps) == 1, what="the replica")
    status, found = doctor("-u", url)
    assert status == 0 and found["replicas"][0] == "warn" and "1 replicas" in found["replicas"][1], found
    replica._force_close()


# ---- memcached ----


def test_a_cache_that_is_too_small(doctor, make_memcached):
    server = make_memcached("-m", "2")
    with server.client() as c:
        for n in itertools.count():
            c.socket.sendall(b"".join(b"set page%d 0 0 900 noreply\r\n%s\r\n" % (n * 1000 + i, b"x" * 900) for i in range(1000)))
            if int(c.stats()["evictions"]) > 0:
                break
    status, found = doctor("-u", server.url)
    assert status == 1 and "eviction" in failed(found) and found["cache"][0] == "warn", found
    assert found["right-run"][0] == "ok"


def test_a_cache_that_was_just_started(doctor, make_memcached):
    status, found = doctor("-u", make_memcached(age=2).url)
    assert status == 69 and found["uptime"][0] == "warn" and "right-run" in failed(found), found


def test_a_clock_that_is_another(doctor, make_memcached):
    server = make_memcached()
    assert doctor("-u", server.url)[1]["clock"][0] == "ok"
    server.step(3600)
    status, found = doctor("-u", server.url)
    assert found["clock"][0] == "warn", found


# ---- this machine ----


def test_few_descriptors(dlock, tmp_path):
    import resource
    done = dlock.run("doctor", "-u", f"file://{tmp_path}", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
    assert done.status == 0 and "WARN  descriptors" in done.stdout, done


@pytest.mark.parametrize("room", [800, 1500])
def test_a_reader_who_reads_no_more(dlock, redis_server, room):
    """A signal ends it all the same, and nothing of the probe stays."""
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writes, b"x" * (4096 - room))
    doctor = subprocess.Popen([DLOCK, "doctor", "-J", "-u", redis_server.url, "-k", f"unread{room}"], env=dlock.env, stdout=writes)
    with pytest.raises(subprocess.TimeoutExpired):
        doctor.wait(1)
    doctor.terminate()
    assert doctor.wait(timeout=PATIENCE) == -signal.SIGTERM
    assert not [k for k in stored(redis_server) if f"unread{room}" in k]
    os.close(reads)
    os.close(writes)


def test_the_pages_of_people(dlock, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    done = dlock.run("doctor", "-u", f"file://{place}", "-k", "k")
    assert done.status == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines and all(line.startswith(("OK    ", "WARN  ", "FAIL  ", "      ")) for line in lines), done
    assert os.listdir(place) == []
