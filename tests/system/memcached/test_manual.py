# Goal of these tests: what dlock-memcached(7) tells people to type does what it says.

import getpass
import os
import pathlib
import pwd
import shutil
import subprocess

from manual import block, blocks
from pg import make_directory
from support import free_port, wait_for

PAGE = "dlock-memcached.7"


def test_the_server_of_the_manual_can_be_locked_on(dlock):
    """With the port, the directory and the user of this test."""
    place = pathlib.Path(make_directory("dlock-memcached-"))
    place.chmod(0o755)
    port, login = free_port(), place / "login"
    user = getpass.getuser()
    if os.geteuid() == 0:
        user = "nobody" if "nobody" in (u.pw_name for u in pwd.getpwall()) else "daemon"
    typed = block(PAGE, "memcached -d ").replace("/etc/dlock-memcached.login", str(login)).replace("11211", str(port))
    typed = typed.replace("-o memcache", f"-o {user}").replace("-u memcache", f"-u {user}").replace("memcached -d", "exec memcached")
    text = block(PAGE, "dlock run -u memcached://dlock@").replace("127.0.0.1", f"127.0.0.1:{port}").replace("$HOME", str(place))
    secret, line = text.splitlines()
    words = line.split()[2:6]
    url = words[1]
    subprocess.run(["sh", "-ec", secret], check=True)
    server = subprocess.Popen(["sh", "-ec", typed])
    try:
        wait_for(lambda: dlock.run("status", *words, "-k", "report").status == 1, what="the server")
        assert login.stat().st_mode & 0o777 == 0o600
        assert dlock.run("run", *words, "-k", "report", "-t", "3s", "-w", "60s", "--", "true").status == 0
        assert dlock.run("run", "-u", url.replace("dlock@", ""), "-k", "report", "-n", "--", "true").status == 77
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(place)


class Pymemcache:
    """Its add(), with the test's own client."""

    def __init__(self, client):
        self.client = client

    def add(self, key, value, expire):
        return self.client.add(key, value, expire)


def test_the_lock_of_the_manual_is_shared_with_others_that_add(dlock, at, client):
    run = block(PAGE, "-O prefix=").replace("memcached://10.0.0.5", at.url).split()
    run = run[1:run.index("--")]
    add = block(PAGE, "client.add(")

    def others_add():
        return eval(add, {"client": Pymemcache(client)})

    holder = dlock.start(*run, "--", *dlock.UNTIL_EOF, stdin=subprocess.PIPE).held()
    assert not others_add()
    assert holder.finish().status == 0
    assert others_add()
    assert dlock.run(*run, "-n", "--", "true").status == 75
    words = run[1:]
    assert "another client, whose value is 'web-1'" in dlock.run("status", *words).stdout
    assert dlock.run("break", "-y", *words).status == 78
    assert dlock.run("break", "-y", "--force", *words).status == 0
    assert dlock.run("freeze", *words).status == 0
    assert others_add(), "a freeze stops no other client"


def test_each_block_of_the_manual_is_tried():
    """Here, and the first of them in test_documents.py."""
    assert len(blocks(PAGE)) == 5 and "memcached -u nobody" in blocks(PAGE)[0]
