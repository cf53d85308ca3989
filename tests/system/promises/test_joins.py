# Goal of these tests: the locks of other programs are the ones that dlock takes: the real
# client, as Debian or npm has it (`make interop-node`), excludes dlock and is excluded by it, and
# each gets the lock when the other gives it back.
#
# Whose clients are tested elsewhere:
#	redis-py                            redis/test_dialects.py
#	node-redlock 4, ioredis-lock        redis/test_node.py (make interop-node)
#	Curator's five recipes              zk/test_interop.py
#	kazoo's Lock, WriteLock             zk/test_layouts.py; with Curator's names: zk/test_interop.py
#	ZooKeeper's own WriteLock           zk/test_recipes.py (layout=recipes; others are refused)
#	flock, filelock, portalocker, fasteners, oslo  file/test_joined.py
#	etcdctl lock                        etcd/test_interop.py
# What Debian does not have, or only with 200 MB and more (Go), is tested by its numbers alone:
#	with_advisory_lock, django-pglock, flyway, golang-migrate, prisma (pg)      pg/test_modes.py, unit/derive.c
#	with_advisory_lock, flyway, golang-migrate, prisma (mysql)                  unit/names.c

import hashlib
import json
import os
import re
import select
import subprocess
import sys

import pytest

from support import DLOCK, PATIENCE, ROOT

PROGRAMS = os.path.join(ROOT, "tests", "servers", "joins")
MODULES = os.environ.get("DLOCK_TEST_NODE") and os.path.abspath(os.environ["DLOCK_TEST_NODE"])
INTERPRETERS = {"py": [sys.executable], "rb": ["ruby"], "php": ["php"], "js": ["node"]}
FIXTURES = {"redis": "redis_server", "symfony": "redis_server", "memcached": "memcached_server", "zk": "zk_server", "pg": "db", "mysql": "mysql_db"}
SETTINGS = {"redis": "dialect=string", "symfony": "dialect=symfony", "memcached": None, "zk": "layout=kazoo", "pg": "mode=advisory", "mysql": "mode=named"}


def pair_of_tooz(name):
    return "{},{}".format(*hashlib.md5(name.encode()).digest()[:2])


class Join:
    """A client and how dlock joins it: by a key or by a setting, made of the client's name of the lock and of the database.

    It waits if asked, and it can do without.
    """

    def __init__(self, server, program, key=lambda name: name, setting=None, waits=True, tries=True):
        self.server, self.program, self.key, self.setting = server, program, key, setting
        self.waits, self.tries = waits, tries

    def words(self, url, name, database):
        settings = [SETTINGS[self.server], *([self.setting(name, database)] if self.setting else []), f"name={self.key(name)}"]
        return ["-u", url, *(w for s in settings if s for w in ("-O", s)), "-k", "job"]


JOINS = {
    "django-redis": Join("redis", "django_redis_lock.py", lambda name: f":1:{name}"),
    "django-redis-add": Join("redis", "django_redis_cache.py", lambda name: f":1:{name}", waits=False),
    "symfony-redis": Join("symfony", "symfony_lock.php redis"),
    "laravel-redis": Join("redis", "laravel_cache.php redis", lambda name: f"laravel_database_laravel_cache:{name}"),
    "tooz-redis": Join("redis", "tooz_lock.py redis", lambda name: f"b'_tooz'_b'{name}'_lock"),
    "django-memcached": Join("memcached", "django_cache.py", lambda name: f":1:{name}", waits=False),
    "laravel-memcached": Join("memcached", "laravel_cache.php memcached", lambda name: f"laravel_cache:{name}"),
    "symfony-memcached": Join("memcached", "symfony_lock.php memcached"),
    "tooz-memcached": Join("memcached", "tooz_lock.py memcached", lambda name: f"__TOOZ_LOCK_{name}"),
    "tooz-zookeeper": Join("zk", "tooz_lock.py zookeeper", lambda name: f"/tooz/locks/{name}"),
    "django-pglocks": Join("pg", "pglocks.py", setting=lambda *_: "derive=django-pglocks"),
    "rails-pg": Join("pg", "active_record.rb postgresql", setting=lambda *_: "derive=rails-migration", waits=False),
    "symfony-pg": Join("pg", "symfony_lock.php postgresql", setting=lambda *_: "derive=symfony"),
    "tooz-pg": Join("pg", "tooz_lock.py postgresql", pair_of_tooz),
    "rails-mysql": Join("mysql", "active_record.rb mysql2", setting=lambda *_: "derive=rails-migration", waits=False),
    "tooz-mysql": Join("mysql", "tooz_lock.py mysql"),
    "npm-redis-lock": Join("redis", "redis_lock.js", lambda name: f"lock.{name}", tries=False),
    "npm-redis-semaphore": Join("redis", "redis_semaphore.js", lambda name: f"mutex:{name}"),
    "npm-redlock-5": Join("redis", "node_redlock.js"),
    "npm-simple-redis-mutex": Join("redis", "simple_redis_mutex.js", lambda name: f"@simple-redis-mutex:lock-{name}"),
    "npm-warlock": Join("redis", "warlock.js", lambda name: f"{name}:lock"),
    "npm-advisory-lock": Join("pg", "advisory_lock.js", setting=lambda *_: "derive=advisory-lock"),
    "npm-graphile-migrate": Join("pg", "graphile_migrate.js", setting=lambda *_: "derive=graphile-migrate", waits=False),
    "npm-node-pg-migrate": Join("pg", "node_pg_migrate.js", setting=lambda *_: "derive=node-pg-migrate", waits=False),
    "npm-pg-boss": Join("pg", "pg_boss.js", lambda _: "pgboss", lambda *_: "derive=pg-boss", tries=False),
    "npm-postgres-migrations": Join("pg", "postgres_migrations.js", setting=lambda *_: "derive=postgres-migrations", tries=False),
}

# Whose locks have no form that dlock knows: it must not run beside them.
STRANGERS = {
    "symfony-redis": Join("redis", "symfony_lock.php redis"),  # a sorted set, as is that of the next
    "npm-redis-semaphore-of-one": Join("redis", "redis_semaphore.js semaphore", lambda name: f"semaphore:{name}"),
}


class Client:
    """A process of a client; see serve.py for what it understands."""

    def __init__(self, program, port, database, name):
        file, *words = program.split()
        self.name = name
        self.process = subprocess.Popen([*INTERPRETERS[file.rsplit(".", 1)[1]], os.path.join(PROGRAMS, file), str(port), database or "",
                                         *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        cwd=MODULES if file.endswith(".js") else None)

    def ask(self, verb):
        self.process.stdin.write(f"{verb} {self.name}\n")
        self.process.stdin.flush()

    def answers(self, seconds=PATIENCE):
        """Is there an answer within this time?"""
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def answer(self):
        assert self.answers(), "the client says nothing"
        return self.process.stdout.readline().rstrip("\n")

    def do(self, verb):
        self.ask(verb)
        return self.answer()

    def close(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def make_client(request, nothing_is_left):
    """Starts what speaks for the client of a join: (client, how dlock joins it)."""
    made = []

    def make(join):
        server = request.getfixturevalue(FIXTURES[join.server])
        name, database = f"job-{request.node.name}", getattr(server, "name", None)
        made.append(Client(join.program, server.port, database, name))
        return made[-1], join.words(server.url, name, database)

    yield make
    for client in made:
        client.close()


def marks_of(join):
    """That of its server, if that has one."""
    marks = [getattr(pytest.mark, join.server)] if join.server not in ("memcached", "symfony") else []
    return marks + ([pytest.mark.skip(reason="make interop-node runs these")] if ".js" in join.program and not MODULES else [])


def each(joins):
    return pytest.mark.parametrize("join", [pytest.param(join, id=name, marks=marks_of(join)) for name, join in joins.items()])


def try_once(dlock, words):
    return dlock.run("run", *words, "-n", "--", "true").status


@each(JOINS)
def test_each_excludes_the_other(dlock, make_client, join):
    client, words = make_client(join)
    take = "take" if join.tries else "wait"
    assert client.do(take) == "held"
    assert try_once(dlock, words) == 75
    waiter = dlock.start("run", *words, "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).queued()
    assert not waiter.running
    assert client.do("free") == "free"
    waiter.held()
    assert not join.tries or client.do(take) == "busy"
    if join.waits:
        client.ask("wait")
        assert not client.answers(0.5)
    assert waiter.finish().status == 0
    assert (client.answer() if join.waits else client.do(take)) == "held"
    assert try_once(dlock, words) == 75
    assert client.do("free") == "free"
    assert try_once(dlock, words) == 0


@each({name: JOINS[name] for name in ("django-redis", "symfony-redis", "django-memcached", "tooz-zookeeper")})
def test_a_key_is_no_name_of_another_program(dlock, make_client, join):
    """Both run: who looks is told so, and how to join; a run says nothing where nobody would read it."""
    client, words = make_client(join)
    client.do("take")
    place = ["-u", words[1], "-k", join.key(client.name)]
    looked = dlock.run("status", *place)
    assert looked.status == 1 and " free\n  beside " in looked.stdout and "-O " in looked.stdout and "(dlock-joins(7))" in looked.stdout, looked
    assert json.loads(dlock.run("status", "-J", *place).stdout)["beside"] in looked.stdout
    assert re.search(r"^WARN  beside .*dlock-joins\(7\)", dlock.run("doctor", *place).stdout, re.M)
    done = dlock.run("run", *place, "-n", "true")
    assert (done.status, done.stderr) == (0, "")
    joined = dlock.run("status", *words)
    assert joined.status == 0 and "beside" not in joined.stdout, joined
    assert client.do("free") == "free"
    assert join.server == "zk" or "beside" not in dlock.run("status", *place).stdout


@each(STRANGERS)
def test_what_is_not_joined_is_refused(dlock, make_client, join):
    client, words = make_client(join)
    assert client.do("take") == "held"
    refused = dlock.run("run", *words, "-n", "--", "echo", "ran")
    assert (refused.status, refused.stdout) == (76, "")
    assert client.do("free") == "free"
    assert try_once(dlock, words) == 0


def test_readers_of_symfony_share_with_readers_of_dlock(dlock, make_client):
    client, words = make_client(Join("symfony", "symfony_lock.php redis-read"))
    assert client.do("take") == "held"
    reader = dlock.start("run", *words, "-s", "-t", "9s", "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    assert try_once(dlock, words) == 75
    assert client.do("free") == "free"
    assert try_once(dlock, words) == 75 and try_once(dlock, [*words, "-s"]) == 0
    assert client.do("take") == "held"
    assert reader.finish().status == 0
    assert try_once(dlock, words) == 75
    assert client.do("free") == "free"
    writer = dlock.start("run", *words, "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    assert client.do("take") == "busy"
    assert writer.finish().status == 0
    assert try_once(dlock, words) == 0


@pytest.mark.parametrize("words, said", [
    (["-b", "redis", "-O", "name=x"], "dialect="), (["-b", "redis", "-O", "dialect=string", "-O", "name="], "512 bytes"),
    (["-b", "memcached", "-O", "name=a b"], "can be called"), (["-b", "memcached", "-O", f"name={'x' * 251}"], "can be called"),
    (["-b", "memcached", "-O", "name="], "512 bytes"), (["-b", "pg", "-O", "mode=advisory", "-O", "name=report"], "derive="),
    (["-b", "pg", "-O", "derive=symfony", "-O", "name=report"], "mode=advisory only"), (["-b", "pg", "-O", "name=7"], "mode=advisory only"),
    (["-b", "zk", "-O", "name=x"], "absolute"), (["-b", "mysql", "-O", "name=x"], "mode=named only")])
def test_names_that_make_no_sense(dlock, words, said):
    refused = dlock.run("run", *words, "-k", "job", "-n", "--", "true")
    if f"without the {words[1]} backend" in refused.stderr:
        pytest.skip(f"built without {words[1]}")
    assert refused.status == 64 and said in refused.stderr


def test_a_name_is_one_lock(dlock, request):
    """Whatever the keys: two of them would be the same lock; an inner run with another word joins the outer one."""
    server = request.getfixturevalue("redis_server")
    words = ["-u", server.url, "-O", "dialect=string", "-O", "name=theirs"]
    assert dlock.run("run", *words, "-k", "a", "-k", "b", "--", "true").status == 64
    assert dlock.run("run", *words, "-k", "a", "-n", "--", DLOCK, "run", *words, "-k", "b", "-n", "--", "true").status == 0
    assert dlock.run("run", *words, "-k", "a", "--", DLOCK, "status", *words, "b").status == 0
