# Goal of these tests: passwords and option files, TLS, servers with settings of their own or
# read-only, and the tables that are made at first use.

import os
import shutil
import signal
import subprocess
import time

import pytest

from certificates import Authority
from databases import a_hold_leaves_its_directory
from faults import IMPATIENT, PATIENT, assert_password_is_not_shown, assert_refused
from mysql_server import DB, mysql_url, owner
from pg import make_directory
from proxy import DOWN, UP
from support import At, is_free, run, wait_for


# ---- passwords ----


@pytest.fixture
def carl(mysql_db):
    """A user with a password."""
    mysql_db.server.ask("CREATE OR REPLACE USER carl@'%' IDENTIFIED BY 'open sesame@/'")
    mysql_db.server.ask(f"GRANT ALL ON {mysql_db.name}.* TO carl@'%'")
    yield mysql_db
    mysql_db.server.ask("DROP USER carl@'%'")


def secret_file(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_password_in_the_url(dlock, carl):
    assert run(dlock, mysql_url(carl.port, "carl:open%20sesame%40%2F", carl.name)).status == 0
    done = run(dlock, mysql_url(carl.port, "carl:wr0ng", carl.name))
    assert_refused(done, 77, "carl")
    assert "wr0ng" not in done.stderr
    assert_refused(run(dlock, mysql_url(carl.port, "carl", carl.name)), 77)


def test_a_password_in_what_others_have_said_is_not_shown(dlock, carl):
    assert_password_is_not_shown(dlock, mysql_url(carl.port, "carl:open%20sesame%40%2F", carl.name), "open sesame@/")


def test_password_in_a_file(dlock, carl, tmp_path):
    url = mysql_url(carl.port, "carl", carl.name)
    assert run(dlock, url, "-O", f"password-file={secret_file(tmp_path / 'pw', 'open sesame@/' + chr(10))}").status == 0
    assert_refused(run(dlock, url, "-O", f"password-file={secret_file(tmp_path / 'pub', 'x', 0o644)}"), 78, "by everybody", "chmod 600")


def test_option_files_say_who_we_are(dlock, carl, tmp_path):
    """The groups that MySQL's own programs read, and ours; what the URL says stands."""
    secret_file(tmp_path / ".my.cnf", f"[client]\nuser=nobody\nport=1\n[dlock]\nuser=carl\npassword=\"open sesame@/\"\n"
                f"host=127.0.0.1\nport={carl.port}\nprotocol=tcp\n")
    env = {"HOME": str(tmp_path)}
    assert run(dlock, f"mysql:///{carl.name}", env=env).status == 0
    assert run(dlock, f"mysql://127.0.0.1:{carl.port}/{carl.name}", env=env).status == 0
    assert_refused(run(dlock, mysql_url(carl.port, "carl:wr0ng", carl.name), env=env), 77)
    done = run(dlock, f"mysql://127.0.0.1:1/{carl.name}", *IMPATIENT, env=env)
    assert_refused(done, 69, "refused")


def test_a_password_of_an_option_file_is_not_shown_in_what_others_have_said(dlock, carl, tmp_path):
    secret_file(tmp_path / ".my.cnf", "[client]\nuser=carl\npassword=\"open sesame@/\"\n")
    url = f"mysql://127.0.0.1:{carl.port}/{carl.name}"
    assert_password_is_not_shown(dlock, url, "open sesame@/", env={"HOME": str(tmp_path)})


def test_option_files_do_not_weaken(dlock, carl, tmp_path):
    """What they say is read late by the library: what must stand stands."""
    secret_file(tmp_path / ".my.cnf", "[client]\nlocal-infile=1\ninit-command=\"SET autocommit=0, time_zone='+09:00',"
                " sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES', innodb_lock_wait_timeout=100\"\nreconnect=1\nconnect-timeout=1\n")
    env = {"HOME": str(tmp_path)}
    holder = dlock.contend(At(carl.url), "job", env=env).held()
    assert dlock.run("run", *At(carl.url).words, "-k", "job", "-n", "--", "true", env=env).status == 75
    assert abs(carl.value("SELECT since FROM dlock_holds") / 1e6 - time.time()) < 60
    assert holder.finish().status == 0


def test_unix_socket(dlock, mysql_db):
    done = run(dlock, f"mysql://app@localhost/{mysql_db.name}", "-O", f"socket={mysql_db.server.socket}")
    assert done.status == 0
    assert run(dlock, f"mysql://app@/{mysql_db.name}", "-O", f"socket={mysql_db.server.socket}").status == 0
    done = run(dlock, mysql_db.url, "-O", f"socket={mysql_db.server.socket}")
    assert_refused(done, 64, "socket")
    done = run(dlock, f"mysql://app@localhost/{mysql_db.name}", "-O", "socket=/nowhere/s", *IMPATIENT)
    assert_refused(done, 69, "/nowhere/s", "No such file")


@pytest.mark.parametrize("url, word", [
    ("mysql://h:0/d", "port"), ("mysql://h:99999/d", "port"), ("mysql://a,b/d", "more than one"), ("mysql://h/d?x=1", "query"),
    ("mysql://h/a%2", "database"), ("mysql://h/a/b", "database"), ("mysql:h", "//"), ("mysql://u%zz@h/", "user"),
    ("mysql://h/" + "x" * 65, "64")])
def test_urls_that_are_none(dlock, url, word):
    assert_refused(run(dlock, url), 64, word)


# ---- signals ----


def test_a_reader_who_has_gone_ends_a_list(dlock, mysql_db):
    """By SIGPIPE, as on every backend: libmariadb would have the process ignore that."""
    assert dlock.run("freeze", *At(mysql_db.url).words, "-k", "job").status == 0
    gone, into = os.pipe()
    os.close(gone)
    done = dlock.start("ls", "-n", *At(mysql_db.url).words, stdout=into).wait()
    os.close(into)
    assert (done.status, done.stderr) == (-signal.SIGPIPE, "")


# ---- TLS ----


@pytest.fixture(scope="module")
def authority():
    """In a directory that the server can read."""
    directory = make_directory("dlock-tls-", owner=owner())
    yield Authority(directory)
    shutil.rmtree(directory)


@pytest.fixture
def make_tls(make_mysql, authority):
    def make(**certificate):
        made = authority.sign("server", **certificate)
        if owner():
            shutil.chown(made.key, owner()["user"])
        return make_mysql(ssl_cert=made.cert, ssl_key=made.key, ssl_ca=authority.cert, bind_address="127.0.0.1,127.0.0.2")
    return make


def test_tls(dlock, make_tls, authority, make_proxy):
    server = make_tls()
    proxy = make_proxy(server.port)
    up = []
    proxy.tap = lambda link, direction, data: (up.append(data) if direction == UP else None) or data
    for settings in (("cacert=" + authority.cert,), ("tls=verify", "cacert=" + authority.cert), ("tls=encrypt",)):
        up.clear()
        words = [w for s in settings for w in ("-O", s)]
        holder = dlock.contend(At(mysql_url(proxy.port)), "job", *words, "-t", "6s", "-v").held()
        waiter = dlock.contend(At(mysql_url(proxy.port)), "job", *words, command=("true",)).queued(1)
        wait_for(lambda h=holder: h.stderr().count("renew: ok") > 1, what="renewals")
        assert holder.finish().status == 0 and waiter.wait().status == 0
        assert b"dlock_take" not in b"".join(up)
    assert run(dlock, mysql_url(proxy.port), "-O", "tls=off").status == 0
    assert b"dlock_take" in b"".join(up)


@pytest.mark.parametrize("named", ["by-the-option-file", "by-settings"])
def test_a_hold_leaves_the_directory_that_its_files_were_named_from(dlock, make_tls, authority, tmp_path, named):
    """It connects again with the same option file and certificate."""
    server = make_tls()
    (tmp_path / "my.cnf").write_text("[client]\nuser=app\nssl-ca=ca\nssl-verify-server-cert=1\n" * (named == "by-the-option-file"))
    shutil.copy(authority.cert, tmp_path / "ca")

    def sessions(end=False):
        return server.terminate() if end else server.sessions()

    words = [] if named == "by-the-option-file" else ["-O", "cacert=ca"]
    a_hold_leaves_its_directory(dlock, tmp_path, ["-u", mysql_url(server.port), *words], {"MARIADB_HOME": "."}, sessions,
                                lambda: server.value("SELECT MAX(ends) FROM dlock_holds", db=DB))


@pytest.mark.parametrize("words", [("status", "-k", "job"), ("freeze", "-k", "job"), ("run", "-n", "-k", "job", "--", "true")])
def test_tls_that_is_cut_off(dlock, make_tls, authority, make_proxy, words):
    """OpenSSL's writes raise SIGPIPE; nobody ends by it."""
    server = make_tls()
    run(dlock, server.url)
    proxy = make_proxy(server.port)
    at = [*At(mysql_url(proxy.port)).words, "-O", "cacert=" + authority.cert, *IMPATIENT]
    for n in (1500, 2500, 3000, 3300, 3600):
        proxy.cut(DOWN, n)
        done = dlock.run(words[0], *at, *words[1:])
        assert done.status in (0, 1, 69), (n, done)
        proxy.cut(DOWN, 1 << 30)
        dlock.run("thaw", *At(server.url).words, "-y", "-k", "job")


@pytest.mark.parametrize("amid", [UP, DOWN], ids=["its hello", "the server's"])
def test_a_connection_that_is_reset_while_tls_is_set_up(dlock, make_tls, authority, make_proxy, amid):
    """libmariadb calls that a failure of TLS, as it does a wrong certificate: here nothing is wrong but the network."""
    proxy = make_proxy(make_tls().port)
    resets = []

    def reset(link, direction, data):
        if direction == amid and b"\x16\x03" in data:  # a record of the handshake, maybe behind the wish for one
            resets.append(direction)
            link.reset()
        return data

    proxy.tap = reset
    done = dlock.run("run", *At(mysql_url(proxy.port)).words, "-O", "cacert=" + authority.cert, *IMPATIENT, "-k", "job", "--", "true")
    assert done.status == 69 and resets, done


def test_tls_that_falls_silent(dlock, make_tls, authority, make_proxy):
    """The farewell to a connection that is cut off raises SIGPIPE, by which nobody ends."""
    server = make_tls()
    run(dlock, server.url)
    proxy = make_proxy(server.port)

    def fall_silent(link, direction, data):
        if direction == UP and data.startswith(b"\x17\x03\x03") and len(data) > 450:  # the setting up of the session
            proxy.hold(DOWN)
        return data

    proxy.tap = fall_silent
    done = dlock.run("status", *At(mysql_url(proxy.port)).words, "-O", "cacert=" + authority.cert, *IMPATIENT, "-k", "job")
    assert done.status == 69, done


def elsewhere(server):
    """Its address for which a name is verified: libmariadb 3.4 takes any name of 127.0.0.1."""
    return server.url.replace("127.0.0.1", "127.0.0.2")


def test_a_certificate_that_is_not_good(dlock, make_tls, authority, tmp_path):
    server = make_tls(san="DNS:elsewhere.example")
    done = run(dlock, elsewhere(server), "-O", "cacert=" + authority.cert)
    assert_refused(done, 78)
    other = Authority(tmp_path, "other")
    assert_refused(run(dlock, server.url, "-O", "cacert=" + other.cert), 78)
    assert run(dlock, server.url, "-O", "tls=encrypt").status == 0


def test_option_files_do_not_switch_verification_off(dlock, make_tls, authority, tmp_path):
    server = make_tls(san="DNS:elsewhere.example")
    secret_file(tmp_path / ".my.cnf", "[client]\nssl-verify-server-cert=0\nssl=0\n")
    done = run(dlock, elsewhere(server), "-O", "cacert=" + authority.cert, env={"HOME": str(tmp_path)})
    assert_refused(done, 78)


@pytest.mark.parametrize("settings", [("tls=encrypt",), ("tls=verify",)])
def test_a_server_without_tls(dlock, make_mysql, settings):
    """MariaDB 11.4 and later make themselves a certificate, unless they are told not to."""
    done = run(dlock, make_mysql(ssl="0").url, *[w for s in settings for w in ("-O", s)])
    assert_refused(done, 78, "TLS")


# ---- what the server must be ----


def test_read_only_servers_are_refused(dlock, make_mysql):
    """Also to who may write all the same; a holder loses its lock there, for it may be a replica now."""
    server = make_mysql()
    server.ask("CREATE DATABASE own")
    root = mysql_url(server.port, "root", "own")
    assert run(dlock, root).status == 0
    holder = dlock.hold(At(root), "job", "-t", "3s")
    server.ask("SET GLOBAL read_only = 1")
    for url in (root, server.url):
        assert_refused(run(dlock, url, "-n"), 78, "read-only")
    assert holder.wait().status == 79
    server.ask("SET GLOBAL read_only = 0")
    assert run(dlock, root, "-w", "20s").status == 0


def test_a_waiter_outlives_a_promotion(dlock, make_mysql):
    server = make_mysql()
    server.ask("CREATE DATABASE own")
    root = mysql_url(server.port, "root", "own")
    holder = dlock.hold(At(root), "job", "-t", "30s")
    waiter = dlock.contend(At(root), "job", "-t", "30s", command=("true",)).queued(1)
    server.ask("SET GLOBAL read_only = 1")
    server.terminate()
    time.sleep(1)
    server.ask("SET GLOBAL read_only = 0")
    assert holder.finish().status == 0
    assert waiter.wait().status == 0


def test_a_server_with_settings_of_its_own(dlock, make_mysql):
    """Of what it says for new sessions nothing is left that matters."""
    server = make_mysql(default_time_zone="+05:30", sql_mode="ANSI,PIPES_AS_CONCAT,ORACLE", transaction_isolation="SERIALIZABLE",
                        completion_type=2, autocommit=0, innodb_lock_wait_timeout=100, max_statement_time=1, wait_timeout=2,
                        character_set_server="latin1", div_precision_increment=0, init_connect="SET time_zone='-03:00', timestamp=1000,"
                        " sql_select_limit=0, max_join_size=1, character_set_results=utf16, collation_connection=utf16_general_ci",
                        default_storage_engine="MyISAM")
    key = "schlüssel"
    holder = dlock.hold(At(server.url), key, "-t", "9s", "--why", "größer", "-v")
    waiter = dlock.contend(At(server.url), key, "-s", command=("true",)).queued(1)
    since, record = server.ask("SELECT since, record FROM dlock_holds", db="app")[0]
    assert abs(since / 1e6 - time.time()) < 60 and "größer".encode() in record
    wait_for(lambda: holder.stderr().count("renew: ok") > 0, what="a renewal")
    assert holder.finish().status == 0
    assert waiter.wait().status == 0
    assert server.ask("SELECT 1 FROM information_schema.tables WHERE table_schema = 'app' AND engine <> 'InnoDB'") == []


def test_a_server_whose_sysdate_is_now(dlock, make_mysql):
    server = make_mysql(sysdate_is_now=1)
    holder = dlock.hold(At(server.url), "job", "-t", "6s", "-v")
    waiter = dlock.contend(At(server.url), "job", command=("true",)).queued(1)
    wait_for(lambda: holder.stderr().count("renew: ok") > 1, what="renewals")
    assert holder.finish().status == 0
    assert waiter.wait().status == 0


def test_no_replica_is_spoken_of_where_there_is_none(dlock, make_mysql):
    """By the same number as of a replica, a server tells of other options that are in the way."""
    done = run(dlock, make_mysql(enforce_storage_engine="Aria").url)
    assert_refused(done, 78, "NO_ENGINE_SUBSTITUTION")
    assert "replica" not in done.stderr


def test_an_unknown_database(dlock, mysql_server):
    assert_refused(run(dlock, mysql_url(mysql_server.port, "root", db="nowhere")), 78, "nowhere")
    assert_refused(run(dlock, mysql_url(mysql_server.port, "root", db="")), 78, "dlock")  # which is what it is called then


# ---- the tables ----


def test_tables_are_made_at_first_use(dlock, mysql_db):
    """By any number at once."""
    many = [dlock.contend(At(mysql_db.url), f"job{i % 3}", *PATIENT, command=("true",)) for i in range(9)]
    assert [w.wait().status for w in many] == [0] * 9


def test_looking_makes_nothing(dlock, mysql_db):
    done = dlock.run("status", *At(mysql_db.url).words, "-k", "job")
    assert done.status == 1, done
    assert mysql_db.ask("SHOW TABLES") == []


def test_who_may_not_make_them_is_told_how(dlock, mysql_db):
    """Then EXECUTE is enough, and the tables are out of reach."""
    server, name = mysql_db.server, mysql_db.name
    server.ask("CREATE OR REPLACE USER poor@'%'")
    server.ask(f"GRANT EXECUTE ON {name}.* TO poor@'%'")
    url = mysql_url(mysql_db.port, "poor", name)
    assert_refused(run(dlock, url), 77, "dlock help mysql-schema", "GRANT EXECUTE")
    script = dlock.run("help", "mysql-schema")
    assert script.status == 0
    subprocess.run(["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(mysql_db.port), "-u", "app", name],
                   input=script.stdout, text=True, check=True)
    holder = dlock.hold(At(url), "job", "-t", "6s", "-v")
    waiter = dlock.contend(At(url), "job", "-s", command=("true",)).queued(1)
    wait_for(lambda: holder.stderr().count("renew: ok") > 1, what="renewals")
    assert holder.finish().status == 0 and waiter.wait().status == 0
    server.ask("DROP USER poor@'%'")
    assert is_free(dlock, mysql_db.url)
