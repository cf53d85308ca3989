# Goal of these tests: a run below another dlock joins its hold only where both mean the same
# lock, by all that each has resolved: backend, server, database, user, mode, and the settings
# that name a lock.  Whoever means another lock has that one, or is refused; never a hold that
# is not his.

import os
import shlex

import pytest

from support import DLOCK, At, FilePlace, RedisPlace, places, wait_for

VARIABLES = ("DLOCK_KEEPER", "DLOCK_BACKEND", "DLOCK_KEY", "DLOCK_OPTION", "PGDATABASE", "PGSERVICE", "HOME")


def secret_file(path, text):
    path.write_text(text)
    path.chmod(0o600)


PLACES = [p for p in (FilePlace, RedisPlace) if p in places()]


@pytest.fixture(params=PLACES, ids=lambda p: p.name)
def where(request):
    return request.param(request)


def look(words):
    """A command that asks, from no dlock's environment, whether a lock is held."""
    return ["env", *(word for name in VARIABLES for word in ("-u", name)), DLOCK, "status", *words, "-k", "job"]


def nested(dlock, outer, inner, held=(), env=None, inner_env=None, key="job", wait=("-w", "5s")):
    """
    The outcome of a run below another one on the same key; its command looks at the lock that `held` leads to.  It has the time
    that an outer run takes to answer on a busy machine.
    """
    settings = [f"{name}={value}" for name, value in (inner_env or {}).items()]
    command = look(held) if held else ["true"]
    return dlock.run("run", *outer, "-k", "job", "--", "env", *settings, DLOCK, "run", "-v", *wait, *inner, "-k", key, "--", *command,
                     env=env, events=False)


def joined(result):
    assert result.status == 0, result
    return "the outer run: acquire: ok" in result.stderr


def assert_own_lock(result):
    """And it is held: status has said so with 0."""
    assert not joined(result), result


def test_what_is_kept_for_min_hold_alone_is_joined_by_nobody(dlock, where, tmp_path):
    """Whoever is left of the command wants the lock when that has ended: it is busy, as it is for others."""
    inner = f'{DLOCK} run -n {" ".join(where.words)} -k {where.key()} -- echo ran'
    left = f"(while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; {inner}; echo $? >{tmp_path}/status)"
    done = dlock.run("run", *where.words, "-k", where.key(), "--min-hold", "1m", "-c", f"{left} >{tmp_path}/out 2>&1 &")
    assert done.status == 0
    (tmp_path / "go").touch()
    wait_for(lambda: (tmp_path / "status").exists() and (tmp_path / "status").read_text(), what="its end")
    assert (tmp_path / "status").read_text() == "75\n", (tmp_path / "out").read_text()


@pytest.mark.parametrize("inner", ["jo", "job1"])
def test_a_key_that_begins_alike_is_another_lock(dlock, where, inner):
    words = ["run", *where.words, "-n"]
    held = ["env", "-u", "DLOCK_KEEPER", DLOCK, "status", *where.words, "-k", where.key(inner)]
    done = dlock.run(*words, "-k", where.key("job"), "--", DLOCK, *words, "-k", where.key(inner), "--", *held, events=False)
    assert done.status == 0, done


def test_another_last_server_of_a_list_is_another_lock(dlock, zk_server, make_proxy):
    """Here it is the same: so the lock is busy, where it would be joined."""
    urls = [["-u", f"{zk_server.url},127.0.0.1:{make_proxy(zk_server.port).port}/nested-last"] for _ in range(2)]
    assert nested(dlock, *urls, wait=("-n",)).status == 75
    assert joined(nested(dlock, urls[0], urls[0]))


# ---- settings that name the lock ----


def advisory(db, key):
    return ["-u", db.url, "-O", "mode=advisory", "-O", f"key={key}"]


def test_another_number_is_another_lock(dlock, db):
    assert_own_lock(nested(dlock, advisory(db, 76), ["-O", "key=77"], held=advisory(db, 77)))
    assert joined(nested(dlock, advisory(db, 76), ["-O", "key=76"]))
    assert joined(nested(dlock, advisory(db, 76), []))


def test_the_same_number_is_the_same_lock_whatever_the_key(dlock, db):
    assert joined(nested(dlock, advisory(db, 76), advisory(db, 76), key="other"))


def test_another_number_in_a_variable(dlock, db):
    assert_own_lock(nested(dlock, advisory(db, 76), [], held=advisory(db, 77), inner_env={"DLOCK_OPTION": "key=77"}))


def test_another_number_in_a_section_for_the_key(dlock, db, tmp_path):
    (tmp_path / ".config").mkdir()
    secret_file(tmp_path / ".config" / "dlock.conf", "[key job]\noption = key=77\n")
    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": ""}
    assert_own_lock(nested(dlock, advisory(db, 76), [], held=advisory(db, 77), inner_env=home))


def test_another_dialect_is_another_lock(dlock, own_redis):
    url = ["-u", f"redis://127.0.0.1:{own_redis.port}"]
    string = ["-O", "dialect=string"]
    assert_own_lock(nested(dlock, url, string, held=[*url, *string]))
    assert joined(nested(dlock, [*url, *string], []))


def test_another_path_is_another_lock(dlock, zk_server):
    path, url = ["-O", "path=/another"], ["-u", f"{zk_server.url}/nested"]
    assert_own_lock(nested(dlock, url, path, held=[*url, *path]))
    assert nested(dlock, url, ["-O", "layout=kazoo"]).status == 76  # the two layouts do not see each other there
    assert joined(nested(dlock, url, []))


def test_another_prefix_is_another_lock(dlock, memcached_server):
    url = ["-u", f"memcached://127.0.0.1:{memcached_server.port}"]
    prefix = ["-O", "prefix=nested-"]
    assert_own_lock(nested(dlock, url, prefix, held=[*url, *prefix]))
    assert joined(nested(dlock, [*url, *prefix], []))


def test_another_name_is_another_lock(dlock, mysql_db):
    named = ["-u", mysql_db.url, "-O", "mode=named"]
    assert_own_lock(nested(dlock, [*named, "-O", "name=a"], ["-O", "name=b"], held=[*named, "-O", "name=b"]))
    assert joined(nested(dlock, [*named, "-O", "name=a"], ["-O", "name=a"]))


# ---- what the client libraries read by themselves ----


@pytest.fixture
def two(pg_server):
    """Two databases of one server, and libpq's variables that lead to the server."""
    made = [pg_server.database(), pg_server.database()]
    yield made, {"PGHOST": "127.0.0.1", "PGPORT": str(pg_server.port), "PGUSER": "app"}
    for one in made:
        one.drop()


def test_another_database_in_a_variable(dlock, two):
    (a, b), env = two
    env = {**env, "PGDATABASE": a.name}
    assert_own_lock(nested(dlock, ["-b", "pg"], [], held=["-u", b.url], env=env, inner_env={"PGDATABASE": b.name}))
    assert_own_lock(nested(dlock, ["-b", "pg"], ["-b", "pg"], held=["-u", b.url], env=env, inner_env={"PGDATABASE": b.name}))
    assert joined(nested(dlock, ["-b", "pg"], [], env=env))
    assert joined(nested(dlock, ["-b", "pg"], ["-u", a.url], env=env))


@pytest.mark.parametrize("words", [["-b", "pg"], ["-u", "postgresql:///"]])
def test_another_service(dlock, two, words, tmp_path):
    (a, b), env = two
    sections = [f"[{name}]\nhost=127.0.0.1\nport={env['PGPORT']}\nuser=app\ndbname={db.name}\n" for name, db in (("a", a), ("b", b))]
    (tmp_path / "services").write_text("".join(sections))
    env = {"PGSERVICEFILE": str(tmp_path / "services"), "PGSERVICE": "a"}
    assert_own_lock(nested(dlock, words, [], held=["-u", b.url], env=env, inner_env={"PGSERVICE": "b"}))
    assert joined(nested(dlock, words, [], env=env))
    assert joined(nested(dlock, words, ["-u", "postgresql:///?service=a"], env=env, inner_env={"PGSERVICE": "b"}))


def option_file(home, db, more=""):
    home.mkdir()
    secret_file(home / ".my.cnf", f"[client]\nhost=127.0.0.1\nport={db.port}\nprotocol=tcp\nuser=app\n[dlock]\ndatabase={db.name}\n{more}")
    return {"HOME": str(home)}


def test_another_option_file(dlock, mysql_server, tmp_path):
    a, b = mysql_server.database(), mysql_server.database()
    try:
        homes = [option_file(tmp_path / name, db) for name, db in (("a", a), ("b", b))]
        same = option_file(tmp_path / "c", a, "# written otherwise\n")
        named = ["-b", "mysql", "-O", "mode=named"]
        assert_own_lock(nested(dlock, named, [], held=["-u", b.url, "-O", "mode=named"], env=homes[0], inner_env=homes[1]))
        assert joined(nested(dlock, named, [], env=homes[0]))
        assert joined(nested(dlock, named, [], env=homes[0], inner_env=same))
    finally:
        a.drop()
        b.drop()


# ---- what leads elsewhere by now ----


def after(dlock, change, outer, inner, held, env=None):
    """The outcome of a run below another one, when a command has changed something since that one was granted its lock."""
    command = f'{change} && exec "$@"'
    return dlock.run("run", *outer, "-k", "job", "--", "sh", "-c", command, "sh", DLOCK, "run", "-v", "-n", *inner, "-k", "job", "--", *look(held),
                     env=env, events=False)


@pytest.mark.parametrize("several", [[], ["-k", "more"]], ids=["one key", "two keys"])
def test_a_link_that_leads_to_another_directory_by_now(dlock, tmp_path, several):
    """As `current` does in the midst of a deployment.  Others find the new one as the inner run does."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "current").symlink_to("a")
    current = ["-u", f"file://{tmp_path}/current"]
    turn = f"ln -sfn b {tmp_path}/current"
    result = after(dlock, turn, [*current, *several], current, ["-u", f"file://{tmp_path}/b"])
    assert "is held" in result.stdout and "enclosing" not in result.stderr, result
    assert result.status == 79  # whoever comes now does not see the outer lock


# Not while the outer run's first renewal is on its way: a release at that moment logs in anew, to where the name leads by then.
RENEWED = "sleep 3"


def test_a_service_that_leads_to_another_database_by_now(dlock, two, tmp_path):
    (a, b), env = two
    services = tmp_path / "services"
    services.write_text(f"[s]\nhost=127.0.0.1\nport={env['PGPORT']}\nuser=app\ndbname={a.name}\n")
    env, words = {"PGSERVICEFILE": str(services), "PGSERVICE": "s"}, ["-b", "pg"]
    assert joined(after(dlock, "true", words, words, ["-u", a.url], env))
    assert_own_lock(after(dlock, f"sed -i s/{a.name}/{b.name}/ {services} && {RENEWED}", words, words, ["-u", b.url], env))


def test_a_service_that_leads_to_another_database_when_it_is_granted(dlock, two, tmp_path):
    """The outer run has waited: its lock is in the database to which the service led when it came."""
    (a, b), env = two
    services, words = tmp_path / "services", ["-b", "pg"]
    services.write_text(f"[s]\nhost=127.0.0.1\nport={env['PGPORT']}\nuser=app\ndbname={a.name}\n")
    held = dlock.hold(At(a.url), "job")
    inner = [DLOCK, "run", "-v", "-n", *words, "-k", "job", "--", *look(["-u", b.url])]
    outer = dlock.start("run", *words, "-k", "job", "--", "sh", "-c", f'{RENEWED} && exec "$@"', "sh", *inner,
                        env={"PGSERVICEFILE": str(services), "PGSERVICE": "s"})
    outer.event("waiting")
    services.write_text(services.read_text().replace(a.name, b.name))
    held.finish()
    assert_own_lock(outer.wait())


def test_an_option_file_that_leads_to_another_database_by_now(dlock, mysql_server, tmp_path):
    a, b = mysql_server.database(), mysql_server.database()
    try:
        env = option_file(tmp_path / "a", a)
        named = ["-b", "mysql", "-O", "mode=named"]
        change = f"sed -i s/{a.name}/{b.name}/ {tmp_path}/a/.my.cnf && {RENEWED}"
        assert_own_lock(after(dlock, change, named, named, ["-u", b.url, "-O", "mode=named"], env))
    finally:
        a.drop()
        b.drop()


# ---- another backend ----


def test_who_has_another_backend_gets_nothing_of_the_outer_one(dlock, mysql_db, own_redis, tmp_path):
    """Neither URL nor settings: there is no such dialect in MySQL, and no such URL."""
    outer = ["-u", f"redis://127.0.0.1:{own_redis.port}", "-O", "dialect=string"]
    home = option_file(tmp_path / "home", mysql_db)
    named = ["-O", "mode=named"]
    result = nested(dlock, outer, named, held=["-u", mysql_db.url, *named], inner_env={**home, "DLOCK_BACKEND": "mysql"})
    assert_own_lock(result)
    assert "dialect" not in result.stderr and "redis" not in result.stderr


def test_a_variable_that_names_another_backend_counts(dlock, tmp_path):
    """It is not the one that the outer run has set."""
    result = nested(dlock, ["-u", f"file://{tmp_path}"], [], inner_env={"DLOCK_BACKEND": "nonsense"})
    assert result.status == 64 and "DLOCK_BACKEND" in result.stderr


def test_the_outer_backend_is_known_without_its_variable(dlock, tmp_path):
    result = dlock.run("run", "-u", f"file://{tmp_path}", "-k", "job", "--", "env", "-u", "DLOCK_BACKEND", DLOCK, "run", "-v", "-n", "-k", "job",
                       "true", events=False)
    assert joined(result)


# ---- other ways to one place ----


@pytest.mark.parametrize("way", ["/.", "/../locks", "link"])
def test_several_ways_to_one_directory(dlock, tmp_path, way):
    locks = tmp_path / "locks"
    locks.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(locks)
    other = f"file://{tmp_path}/link" if way == "link" else f"file://{locks}{way}"
    assert joined(nested(dlock, ["-u", f"file://{locks}"], ["-u", other]))


def test_another_directory_is_another_lock(dlock, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir(mode=0o700)
    a, b = (["-u", f"file://{tmp_path}/{name}"] for name in "ab")
    assert_own_lock(nested(dlock, a, b, held=b))


def test_what_is_stated_and_what_is_the_default_are_the_same(dlock, own_redis):
    url = f"redis://127.0.0.1:{own_redis.port}"
    assert joined(nested(dlock, ["-u", url], ["-u", url + "/0"]))
    assert_own_lock(nested(dlock, ["-u", url], ["-u", url + "/1"], held=["-u", url + "/1"]))


def test_a_file_is_told_by_its_whole_name(dlock, make_redis, tmp_path):
    """The inner run may be elsewhere by now."""
    server = make_redis("--requirepass", "secret")
    secret_file(tmp_path / "pw", "secret\n")
    inner = f"cd / && exec {DLOCK} run -v -n -k {{}} true"
    for key in ("job", "other"):
        result = dlock.run("run", "-u", f"redis://127.0.0.1:{server.port}", "-O", "password-file=pw", "-k", "job", "-c", inner.format(key),
                           cwd=tmp_path, events=False)
        assert joined(result) == (key == "job"), result


# ---- a keeper that is none ----


@pytest.mark.parametrize("value", ["garbage", "@", "@" + "x" * 80, "@x", "@x/1", "@dlock-" + "0" * 32 + "/1/9fa2c34d5e6f7081", "@x/1/zzz"])
def test_what_is_no_keeper_is_no_outer_run(dlock, tmp_path, value):
    env = {"DLOCK_KEEPER": value}
    result = dlock.run("run", "-u", f"file://{tmp_path}", "-k", "job", "echo", "ran", env=env, events=False)
    assert (result.status, result.stdout, result.stderr) == (0, "ran\n", "")


# ---- an outer run that has ended ----


def left_by(dlock, *words, env=None):
    """The variables that what outlives such a run goes on with."""
    done = dlock.run("run", *words, "-k", "daemon", "--", "env", env=env, events=False)
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if line.startswith("DLOCK_"))


SERVER_NAMED = ["url", "backend and url", "DLOCK_URL", "DLOCK_FILE_URL", "file", "section", "profile"]


def names_server(how, url, tmp_path):
    """(words, variables) that name the server in such a way."""
    (tmp_path / ".config").mkdir()
    before = {"section": "[key j*]\n", "profile": "[profile p]\n"}.get(how, "")
    if how in ("file", "section", "profile"):
        secret_file(tmp_path / ".config" / "dlock.conf", f"{before}url = {url}\n")
    words = {"url": ["-u", url], "backend and url": ["-b", "file", "-u", url], "DLOCK_FILE_URL": ["-b", "file"], "profile": ["--profile", "p"]}
    env = {how: url} if how.startswith("DLOCK") else {}
    return words.get(how, []), {"HOME": str(tmp_path), "XDG_CONFIG_HOME": "", **env}


@pytest.mark.parametrize("without", [None, "DLOCK_BACKEND"], ids=["all of its variables", "but DLOCK_BACKEND"])
@pytest.mark.parametrize("how", SERVER_NAMED)
def test_what_has_ended_is_no_outer_run(dlock, tmp_path, how, without):
    """A daemon that was restarted under dlock passes its variables on to all its jobs."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir(mode=0o700)
    left = {name: value for name, value in left_by(dlock, "-u", f"file://{tmp_path}/a").items() if name != without}
    words, env = names_server(how, f"file://{tmp_path}/b", tmp_path)
    for key in ("daemon" if how != "section" else "jo", "job"):
        done = dlock.run("run", *words, "-n", "-k", key, "--", "echo", "ran", env={**left, **env}, events=False)
        assert (done.status, done.stdout, done.stderr) == (0, "ran\n", ""), done
        assert (tmp_path / "b" / f"{key}.lock").exists() and not (tmp_path / "a" / "job.lock").exists()
        assert dlock.run("status", *words, "-k", key, env={**left, **env}).status == 1
        assert dlock.run("wait", *words, "-n", "-k", key, env={**left, **env}).status == 0


@pytest.mark.parametrize("words", [[], ["-b", "file"]], ids=str)
def test_a_server_that_only_an_ended_run_has_named_is_not_guessed(dlock, tmp_path, words):
    left = left_by(dlock, "-u", f"file://{tmp_path}")
    for command in (["run", *words, "-n", "-k", "job", "true"], ["status", *words, "-k", "job"], ["wait", *words, "-k", "job"]):
        done = dlock.run(*command, env=left, events=False)
        assert done.status == 64 and done.stderr.count("\n") == 1, done
        assert "has ended: say -u, or unset DLOCK_KEEPER" in done.stderr and "say -u or -b" not in done.stderr


def test_nor_is_one_whose_password_is_hidden(dlock, make_redis):
    server = make_redis("--requirepass", "secret")
    left = left_by(dlock, "-u", f"redis://:secret@127.0.0.1:{server.port}")
    done = dlock.run("run", "-b", "redis", "-n", "-k", "job", "true", env=left, events=False)
    assert done.status == 64 and "has ended" in done.stderr, done


def test_a_backend_of_another_kind_needs_no_server_of_an_ended_run(dlock, tmp_path, own_redis):
    left = left_by(dlock, "-u", f"redis://127.0.0.1:{own_redis.port}")
    words = ["-b", "file"]
    done = dlock.run("run", *words, "-n", "-k", "job", "echo", "ran", env={**left, "DLOCK_FILE_URL": f"file://{tmp_path}"}, events=False)
    assert (done.status, done.stdout) == (0, "ran\n"), done


@pytest.mark.parametrize("words", [[], ["-b", "pg"]], ids=str)
def test_the_default_server_of_an_ended_run_is_right(dlock, two, words):
    (a, _), env = two
    env = {**env, "PGDATABASE": a.name}
    left = left_by(dlock, "-b", "pg", env=env)
    done = dlock.run("run", *words, "-n", "-k", "job", "echo", "ran", env={**env, **left}, events=False)
    assert (done.status, done.stdout) == (0, "ran\n"), done


def test_of_several_outer_runs_the_nearest_that_lives_counts(dlock, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir(mode=0o700)
    inner = f"export $({DLOCK} run -u file://{tmp_path}/b -k job env | grep ^DLOCK_KEEPER=); {DLOCK} run -v -n -k outer true"
    result = dlock.run("run", "-u", f"file://{tmp_path}/a", "-k", "outer", "-c", inner.replace("$(", '"$(').replace("=)", '=)"'), events=False)
    assert joined(result)


def test_the_configuration_shows_what_counts_below_an_ended_run(dlock, tmp_path):
    words, env = names_server("file", f"file://{tmp_path}/b", tmp_path)
    left = left_by(dlock, "-u", f"file://{tmp_path}")
    shown = dlock.run("config", *words, env={**left, **env}).stdout
    assert f"file://{tmp_path}/b" in shown and "enclosing" not in shown, shown


# ---- an outer run that does not answer ----


@pytest.mark.parametrize("words", [["-n"], ["-w", "1s"], ["-w", "100ms"]], ids=str)
def test_who_does_not_wait_does_not_wait_for_a_stopped_outer_run(dlock, where, words):
    inner = shlex.join([DLOCK, "run", *where.words, *words, "-k", where.key(), "true"])
    script = f"kill -STOP $PPID; began=$(date +%s%N); {inner}; echo $? $((($(date +%s%N) - began) / 1000000)); kill -CONT $PPID"
    result = dlock.run("run", *where.words, "-k", where.key(), "-c", script, events=False)
    status, took = result.stdout.split()
    assert status == "69" and "does not answer" in result.stderr and int(took) < 8000, result


# ---- without the outer run's variables ----


CLEARED = ["env", "-i", "PATH=/usr/bin:/bin"]


@pytest.mark.parametrize("options", [["-w", "1h"], [], ["-s"]], ids=str)
@pytest.mark.parametrize("program", ["shell", "no shell"])
def test_who_would_wait_for_its_own_parent_is_told_at_once(dlock, where, options, program):
    command = [*CLEARED, DLOCK, "run", *where.words, *options, "-k", where.key(), "echo", "ran"]
    command = ["sh", "-c", '"$@"; exit $?', "sh", *command] if program == "shell" else command
    result = dlock.run("run", *where.words, "-k", where.key(), "--", *command, events=False)
    assert (result.status, result.stdout, result.stderr.count("\n")) == (76, "", 1), result
    assert "own parent" in result.stderr and "DLOCK_KEEPER" in result.stderr and "nothing was run" in result.stderr


def test_who_does_not_wait_is_told_that_it_is_busy(dlock, where):
    inner = [*CLEARED, DLOCK, "run", *where.words, "-n", "-k", where.key(), "true"]
    assert dlock.run("run", *where.words, "-k", where.key(), "--", *inner, events=False).status == 75


@pytest.mark.parametrize("cleared", [False, True], ids=["with its variables", "without"])
def test_who_is_left_behind_waits_for_what_is_kept_for_min_hold(dlock, where, tmp_path, cleared):
    """As a stranger does: the outer run does not wait for it."""
    inner = shlex.join([*(CLEARED if cleared else []), DLOCK, "run", *where.words, "-k", where.key(), "echo", "ran"])
    left = f"(while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; {inner}; echo $? >{tmp_path}/status)"
    done = dlock.run("run", *where.words, "-k", where.key(), "--min-hold", "2s", "-c", f"{left} >{tmp_path}/out 2>&1 &")
    assert done.status == 0
    (tmp_path / "go").touch()
    wait_for(lambda: (tmp_path / "status").exists() and (tmp_path / "status").read_text(), what="its end")
    assert (tmp_path / "status").read_text() == "0\n" and "ran" in (tmp_path / "out").read_text(), (tmp_path / "out").read_text()


def test_who_names_the_server_otherwise_is_told_so(dlock, own_redis):
    urls = [f"redis://{host}:{own_redis.port}" for host in ("127.0.0.1", "localhost")]
    inner = [DLOCK, "run", "-u", urls[1], "-k", "job", "true"]
    result = dlock.run("run", "-u", urls[0], "-k", "job", "--", *inner, events=False)
    assert result.status == 76 and "names the server or its settings in another way" in result.stderr, result
    assert "missing" not in result.stderr
    result = dlock.run("run", "-u", urls[0], "-k", "job", "--", "env", "DLOCK_KEEPER=@dlock-0/1/redis=", *inner, events=False)
    assert result.status == 76 and "DLOCK_KEEPER is of another run" in result.stderr, result


@pytest.mark.parametrize(("outer", "asked", "status"), [
    (["a"], ["a"], 0), (["a", "b"], ["a", "b"], 0), (["a", "b"], ["b"], 0), (["a"], ["a", "b"], 75)])
def test_free_is_what_a_run_would_join(dlock, where, outer, asked, status):
    held, keys = ([word for key in keys for word in ("-k", where.key(key))] for keys in (outer, asked))
    wait = [DLOCK, "wait", "-n", *where.words, *keys]
    assert dlock.run("run", *where.words, *held, "--", *wait, events=False).status == status


def test_keys_of_two_outer_runs_are_not_free_together(dlock, where):
    """A run joins one of them, so it would be refused."""
    a, b = (["-k", where.key(key)] for key in "ab")
    for words, status in ((["run"], 76), (["wait"], 75)):
        inner = [DLOCK, *words, "-n", *where.words, *a, *b, *(["true"] if words == ["run"] else [])]
        done = dlock.run("run", *where.words, *a, "--", DLOCK, "run", *where.words, *b, "--", *inner, events=False)
        assert done.status == status, done


def test_what_a_run_could_not_join_is_not_free_for_others_of_its_kind(dlock, where):
    """The server would grant both: one is shared, the other free."""
    a, b = (["-k", where.key(key)] for key in "ab")
    for words, status in ((["run"], 76), (["wait"], 75)):
        inner = [DLOCK, *words, "-n", "-s", *where.words, *a, *b, *(["true"] if words == ["run"] else [])]
        done = dlock.run("run", "-s", *where.words, *a, "--", *inner, events=False)
        assert done.status == status and done.stderr.count("\n") == 1, done
        assert words == ["run"] or "): a run here could not get it: an outer run has keys of it" in done.stderr, done


def test_what_could_not_be_joined_is_free_when_it_has_ended(dlock, where, tmp_path):
    """The wait goes on in the background, where its outer run has gone."""
    status, a = tmp_path / "status", shlex.join(["-k", where.key("a")])
    wait = f"{shlex.join([DLOCK, 'wait', '-q', '-w', '20s', *where.words])} {a}; echo $? >{status}"
    assert dlock.run("run", "-s", *where.words, "-k", where.key("a"), "--", "sh", "-c", f"({wait}) >/dev/null 2>&1 & sleep 0.3",
                     events=False).status == 0
    wait_for(lambda: status.exists() and status.read_text(), what="the end of the wait")
    assert status.read_text() == "0\n"


def test_who_waits_for_somebody_else_waits(dlock, where):
    """Though that one has the same parents."""
    held = dlock.hold(where, where.key())
    waiter = dlock.contend(where, where.key(), "-w", "1h", command=["true"])
    waiter.event("waiting")
    assert held.finish().status == 0
    assert waiter.wait().status == 0


# ---- another mount namespace: what a name leads to there ----

unshares = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def below(mounts, words, *options):
    """An inner run in a mount namespace of its own, in which these files lie over those."""
    script = "".join(f"mount --bind {a} {b} && " for a, b in mounts) + 'exec "$@"'
    return ["unshare", "-m", "sh", "-c", script, "sh", DLOCK, "run", *options, *words, "-k", "job", "--", "true"]


@unshares
def test_another_server_at_the_same_socket_is_not_joined(dlock, make_redis):
    """Where somebody else holds the lock; with nothing in the socket's place it is the same server, and is joined."""
    one, other = make_redis(), make_redis()
    words = ["-u", f"redis+unix://{one.socket}"]
    busy = dlock.hold(At(f"redis+unix://{other.socket}"), "job")
    for mounts, status in (([], 0), ([(other.socket, one.socket)], 75)):
        done = dlock.run("run", *words, "-k", "job", "--", *below(mounts, words, "-n", "-v"), events=False)
        assert done.status == status and ("the outer run: acquire: ok" in done.stderr) == (status == 0), done
    assert busy.finish().status == 0


def test_a_server_that_was_restarted_is_the_same_one(dlock, make_redis, tmp_path):
    """It has made its socket anew."""
    server = make_redis("--appendonly", "yes", "--appendfsync", "always")
    words = ["-u", f"redis+unix://{server.socket}"]
    script = f'echo >{tmp_path}/begun; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exec "$0" run -n -v {shlex.join(words)} -k job -- true'
    outer = dlock.start("run", *words, "-k", "job", "--", "sh", "-c", script, DLOCK)
    wait_for(lambda: (tmp_path / "begun").exists(), what="the outer run's command")
    server.restart()
    wait_for(lambda: os.path.exists(server.socket), what="the new socket")
    (tmp_path / "go").touch()
    done = outer.wait()
    assert done.status == 0 and "the outer run: acquire: ok" in done.stderr, done


@unshares
@pytest.mark.parametrize("host, status", [("127.0.0.1", 0), ("localhost", 75)])
def test_a_host_is_another_one_where_other_hosts_are_known(dlock, own_redis, tmp_path, host, status):
    """Below another /etc/hosts a name may be another server's, an address is not."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    words = ["-u", f"redis://{host}:{own_redis.port}"]
    done = dlock.run("run", *words, "-k", "job", "--", *below([(hosts, "/etc/hosts")], words, "-n"), events=False)
    assert done.status == status, done
    done = dlock.run("run", *words, "-k", "job", "--", *below([], words, "-n"), events=False)
    assert done.status == 0, done


@unshares
@pytest.mark.parametrize("kind", ["pg", "mysql"])
def test_another_database_server_at_the_same_socket_is_not_joined(dlock, request, kind):
    one, other = (request.getfixturevalue(f"make_{kind}")() for _ in range(2))
    if kind == "pg":
        words = ["-u", f"host={one.directory} port={one.port} user=app dbname={one.name}"]
        mount = [f"{server.directory}/.s.PGSQL.{server.port}" for server in (other, one)]
    else:
        words = ["-u", f"mysql://app@localhost/{one.name}", "-O", f"socket={one.socket}"]
        mount = [other.socket, one.socket]
    busy = dlock.hold(At(other.url), "job")
    for mounts, status in (([], 0), ([mount], 75)):
        done = dlock.run("run", *words, "-k", "job", "--", *below(mounts, words, "-n", "-v"), events=False)
        assert done.status == status and ("the outer run: acquire: ok" in done.stderr) == (status == 0), done
    assert busy.finish().status == 0
