# Goal of these tests: a MySQL or MariaDB server is found in each way that its own programs
# know, and one that is away, refuses or is something else is reported as what it is, with no
# password in it.

import contextlib
import socket
import threading

import pymysql
import pytest

from faults import IMPATIENT, assert_refused
from mysql_server import MODES, mysql_url
from strangers import stranger
from support import At, free_port, is_free, run, wait_for

SECRET = "s3cr3t:/@%"
QUOTED = "s3cr3t%3A%2F%40%25"


# ---- where a server is ----


def test_unix_socket(dlock, mysql_server):
    words = ["-u", "mysql://app@localhost/app", "-O", f"socket={mysql_server.socket}", "-k", "socket", "-n"]
    done = dlock.run("run", *words, "--", "printenv", "DLOCK_BACKEND")
    assert (done.status, done.stdout, done.stderr) == (0, "mysql\n", "")


@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
def test_forms_of_an_address(dlock, mysql_server, scheme):
    url = f"{scheme}://app@127.0.0.1:{mysql_server.port}/app"
    assert dlock.run("run", "-u", url, "-k", "forms", "-n", "--", "true").status == 0


def test_an_option_file_names_the_server(dlock, mysql_server, mysql_db, tmp_path):
    """And keeps the password off the command line; what is stated stands."""
    mysql_server.ask("CREATE USER filed@'%' IDENTIFIED BY 'in the file'")
    mysql_server.ask(f"GRANT ALL ON `{mysql_db.name}`.* TO filed@'%'")
    (tmp_path / ".my.cnf").write_text(f"[client]\nhost=127.0.0.1\nport={free_port()}\nuser=filed\npassword=in the file\n"
                                      f"[dlock]\nport={mysql_server.port}\n")
    env = {"HOME": str(tmp_path), "MARIADB_HOME": str(tmp_path)}
    try:
        done = dlock.run("run", "-u", f"mysql:///{mysql_db.name}", "-k", "filed", "-n", "--", "true", env=env)
        assert done.status == 0, done
        url = f"mysql://filed:wrong@127.0.0.1:{mysql_server.port}/{mysql_db.name}"
        assert dlock.run("run", "-u", url, "-k", "filed", "-n", "--", "true", env=env).status == 77
    finally:
        mysql_server.ask("DROP USER filed@'%'")


@pytest.mark.parametrize("url", ["mysql://127.0.0.1:99999/app", "mysql://127.0.0.1:port/app", "mysql://[::1/app",
                                 "mysql://h/a/b", "mysql://h/%zz"])
def test_addresses_that_make_no_sense(dlock, url):
    assert_refused(dlock.run("run", "-u", url, "-k", "job", "--", "echo", "ran"), 64)


@pytest.mark.parametrize("setting", ["mode=", "mode=LEASE", "mode=advisory", "colour=red", "socket=relative", "tls=maybe",
                                     "connect-timeout=never"])
def test_settings_that_make_no_sense(dlock, mysql_server, setting):
    assert_refused(run(dlock, mysql_server.url, "-O", setting), 64, setting.split("=")[0])


# ---- who does not answer, or is something else ----


def test_missing_socket(dlock, tmp_path):
    done = dlock.run("run", "-u", "mysql://app@localhost/app", "-O", f"socket={tmp_path}/none", *IMPATIENT, "-k", "job", "true")
    assert_refused(done, 69, f"{tmp_path}/none")


def test_nobody_who_is_silent_is_waited_for(dlock, own_mysql):
    own_mysql.pause()
    for mode in MODES:
        assert_refused(run(dlock, own_mysql.url, *IMPATIENT, mode=mode), 69, str(own_mysql.port))
    own_mysql.resume()


@contextlib.contextmanager
def talker(banner):
    """A port where everybody hears this, after a word of his own where it is an answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, contextlib.suppress(ConnectionError):
                        client.sendall(banner)
                        client.recv(1000)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("banner", [b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
                                    b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", b"-ERR unknown command\r\n", b"N" * 9])
def test_another_kind_of_server_is_known_at_once(dlock, banner):
    with talker(banner) as port:
        done = run(dlock, mysql_url(port), "-w", "inf", timeout=20)
        assert_refused(done, 76, str(port), "MySQL")


@pytest.mark.parametrize("name", ["PostgreSQL", "Redis"])
def test_a_server_that_waits_for_a_word_of_ours_is_known_soon(dlock, name):
    """As a MySQL never does."""
    with stranger(name) as port:
        assert_refused(run(dlock, mysql_url(port), "-w", "inf", timeout=20), 76, str(port), "is no MySQL", f"{name} answers there")


def test_a_server_too_old(dlock, mysql_server, make_mysql_tamper):
    """MariaDB 10 writes 5.5.5- before its version; 11 does not."""
    version = mysql_server.value("SELECT VERSION()").split("-")[0].encode()

    def older(number, body):
        return [body.replace(version, b"10.2.000000"[:len(version)], 1)] if number == 0 else [body]

    proxy = make_mysql_tamper(mysql_server.port, older, ready=0)
    assert_refused(run(dlock, mysql_url(proxy.port)), 78, "10.2")


# ---- who may not ----


def test_wrong_password(dlock, mysql_server, mysql_db):
    mysql_server.ask("CREATE USER locked@'%%' IDENTIFIED BY %s", SECRET)
    try:
        mysql_server.ask(f"GRANT ALL ON `{mysql_db.name}`.* TO locked@'%'")
        for mode in MODES:
            url = f"mysql://locked:{QUOTED}@127.0.0.1:{mysql_server.port}/{mysql_db.name}"
            assert run(dlock, url, mode=mode).status == 0
            done = run(dlock, url.replace("s3cr3t", "wr0ng"), mode=mode)
            assert_refused(done, 77, "password")
            assert "wr0ng" not in done.stderr and "s3cr3t" not in done.stderr
    finally:
        mysql_server.ask("DROP USER locked@'%'")
    assert_refused(run(dlock, mysql_db.url), 78, "definer", "dlock help mysql-schema")  # who has made the procedures is gone
    assert run(dlock, mysql_db.url, mode="named").status == 0


def test_no_right_to_make_anything(dlock, mysql_db):
    """Until an administrator has run the schema; then EXECUTE is all that it takes."""
    mysql_db.ask("CREATE USER user@'%'")
    try:
        mysql_db.ask(f"GRANT EXECUTE ON `{mysql_db.name}`.* TO user@'%'")
        url = mysql_url(mysql_db.port, "user", mysql_db.name)
        done = run(dlock, url)
        assert_refused(done, 77, "dlock help mysql-schema | mysql", "GRANT EXECUTE ON")
        assert run(dlock, mysql_db.url).status == 0
        for options in ((), ("-s",), ("--limit", "3"), ("--once", "x")):
            assert run(dlock, url, *options).status == 0
        for cmd in ("ls", "status -k job", "freeze -k job", "thaw -y -k job", "wait -k job"):
            words = cmd.split()
            assert dlock.run(words[0], "-u", url, *words[1:]).status in (0, 1)
    finally:
        mysql_db.ask("DROP USER user@'%'")


def test_a_database_that_is_not_there(dlock, mysql_server):
    for mode in MODES:
        done = run(dlock, mysql_url(mysql_server.port, "root", "nowhere"), mode=mode)
        assert_refused(done, 78, "nowhere")


def test_too_many_connections_are_waited_for(dlock, make_mysql):
    server = make_mysql(max_connections=10)
    for mode in MODES:
        assert run(dlock, server.url, mode=mode).status == 0

    def connected():
        with contextlib.suppress(pymysql.err.OperationalError):  # a run before counts for a moment
            return server.connect(user="app")

    crowd = [wait_for(connected, what="a connection") for _ in range(10)]
    for mode in MODES:
        assert_refused(run(dlock, server.url, "-n", mode=mode), 69, "connection")
    started = [dlock.contend(At(server.url, mode), mode, "-w", "1m", command=("true",)) for mode in MODES]
    for waiter in started:
        waiter.event("waiting" if waiter.events("waiting") else "retrying")
    for c in crowd:
        c.close()
    assert [waiter.wait().status for waiter in started] == [0] * len(MODES)


@pytest.mark.parametrize("mode, table", [("lease", "dlock_keys"), ("lease", "dlock_holds"), ("lease", "dlock_waiters"),
                                         ("row", "dlock_rows"), ("row", "dlock_grants"), ("named", "dlock_grants")])
def test_engines_without_transactions_are_refused(dlock, mysql_db, mode, table):
    """Somebody has made the tables in MyISAM: nothing would be locked, and nothing undone."""
    def rows():
        return [mysql_db.value(f"SELECT COUNT(*) FROM {name}") for name, in mysql_db.ask("SHOW TABLES")]

    assert run(dlock, mysql_db.url).status == 0
    assert run(dlock, mysql_db.url, mode=mode).status == 0
    before = rows()
    mysql_db.ask(f"ALTER TABLE {table} ENGINE = MyISAM")
    for options in ["-n"], ["-w", "1m"], *([] if mode == "named" else [["-n", "-s"]]):
        assert_refused(run(dlock, mysql_db.url, *options, mode=mode), 78, "InnoDB", "ALTER TABLE")
    assert rows() == before
    mysql_db.ask(f"ALTER TABLE {table} ENGINE = InnoDB")
    assert is_free(dlock, mysql_db.url, mode=mode)


def test_a_user_of_the_procedures_alone_is_told_of_engines(dlock, mysql_server, mysql_db):
    """Who may not see the tables; the procedures do."""
    assert run(dlock, mysql_db.url).status == 0
    mysql_server.ask("CREATE USER caller@'%'")
    mysql_server.ask(f"GRANT EXECUTE ON `{mysql_db.name}`.* TO caller@'%'")
    url = mysql_url(mysql_server.port, "caller", db=mysql_db.name)
    assert run(dlock, url).status == 0
    mysql_db.ask("ALTER TABLE dlock_keys ENGINE = MyISAM")
    assert_refused(run(dlock, url, "-n"), 78, "InnoDB", "ALTER TABLE")
    mysql_server.ask("DROP USER caller@'%'")
