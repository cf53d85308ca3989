# Goal of these tests: whoever may create something in a database of MySQL or MariaDB gains
# nothing by it from those who may do more: they use nothing there that others could have put.

import pytest

from faults import assert_refused
from mysql_server import MODES, Database, mysql_url
from support import At, is_free, run

SAYS = "an ordinary user, or a database of its own"

COMMANDS = {
    "run": ("run", "-n", "-k", "job", "--", "echo", "ran"), "once": ("run", "-n", "--once", "x", "-k", "job", "--", "echo", "ran"),
    "status": ("status", "-k", "job"), "ls": ("ls",), "wait": ("wait", "-w", "20s", "-k", "job"),
    "break": ("break", "-y", "-k", "job"), "force": ("break", "--force", "-y", "-k", "job"),
    "freeze": ("freeze", "-k", "job"), "thaw": ("thaw", "-y", "-k", "job")}


def at_of(command, place):
    name, *words = COMMANDS[command]
    return [name, *place.words, *words]


@pytest.fixture
def seen(mysql_server):
    """A table that only administrators may write; gives what is in it."""
    mysql_server.ask("CREATE DATABASE secret")
    mysql_server.ask("CREATE TABLE secret.seen (who VARCHAR(200), what VARCHAR(64))")
    yield lambda: mysql_server.ask("SELECT DISTINCT who, what FROM secret.seen")
    mysql_server.ask("DROP DATABASE secret")


def plant_procedures(database, user="app"):
    """All of dlock's do something else, with the rights of whoever calls them."""
    for name, parameters in database.ask("SELECT name, CONVERT(param_list USING utf8) FROM mysql.proc WHERE db = DATABASE()"):
        database.ask(f"DROP PROCEDURE {name}", user=user)
        database.ask(f"CREATE PROCEDURE {name}({parameters}) SQL SECURITY INVOKER INSERT INTO secret.seen VALUES (CURRENT_USER(), '{name}')",
                     user=user)


def plant_views(database, user="app"):
    database.ask("CREATE FUNCTION planted() RETURNS BIGINT MODIFIES SQL DATA SQL SECURITY INVOKER"
                 " BEGIN INSERT INTO secret.seen VALUES (CURRENT_USER(), 'view'); RETURN 1; END", user=user)
    database.ask("DROP TABLE dlock_grants", user=user)
    database.ask("CREATE SQL SECURITY INVOKER VIEW dlock_grants AS SELECT planted() AS n, 'named' AS mode, 'job' AS k, 0 AS waits, 0 AS shared,"
                 " 1 AS session, planted() AS since, '{}' AS record", user=user)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_planted_procedure_is_called_by_an_administrator(dlock, mysql_db, seen, command):
    assert run(dlock, mysql_db.url).status == 0
    plant_procedures(mysql_db)
    done = dlock.run(*at_of(command, At(mysql_url(mysql_db.port, "root", mysql_db.name))))
    assert seen() == [], done
    assert done.status == 78 and SAYS in done.stderr + done.stdout and "ran" not in done.stdout, done


@pytest.mark.parametrize("mode", ["row", "named"])
@pytest.mark.parametrize("command", ["run", "status", "ls", "force"])
def test_no_planted_view_is_read_by_an_administrator(dlock, mysql_db, seen, mode, command):
    assert run(dlock, mysql_db.url).status == 0
    plant_views(mysql_db)
    done = dlock.run(*at_of(command, At(mysql_url(mysql_db.port, "root", mysql_db.name), mode)))
    assert seen() == [], done
    assert done.status == 78 and SAYS in done.stderr + done.stdout and "ran" not in done.stdout, done


def test_a_database_of_an_option_file_is_looked_at_too(dlock, mysql_db, seen, tmp_path):
    """mode=named takes the one that it names."""
    assert run(dlock, mysql_db.url).status == 0
    plant_views(mysql_db)
    (tmp_path / ".my.cnf").write_text(f"[client]\ndatabase={mysql_db.name}\n")
    env = {"HOME": str(tmp_path), "MARIADB_HOME": str(tmp_path)}
    done = run(dlock, mysql_url(mysql_db.port, "root", ""), "-n", mode="named", env=env)
    assert seen() == []
    assert_refused(done, 78, SAYS)


@pytest.mark.parametrize("mode", MODES)
def test_what_can_be_planted_later_is_refused_now(dlock, mysql_db, mode):
    """Nothing is there yet, but somebody may create it."""
    assert_refused(run(dlock, mysql_url(mysql_db.port, "root", mysql_db.name), "-n", mode=mode), 78, SAYS)
    assert mysql_db.ask("SHOW TABLES") == []


RIGHTS = ["CREATE ROUTINE ON {}.*", "ALTER ROUTINE ON {}.*", "CREATE VIEW, DROP ON {}.dlock_grants", "CREATE ROUTINE ON *.*"]
WRITES = ["INSERT, UPDATE ON mysql.proc", "UPDATE ON mysql.*", "INSERT ON *.*"]  # where procedures and rights are kept


@pytest.mark.parametrize("mode", MODES)
def test_an_administrator_has_a_database_of_its_own(dlock, mysql_server, request, mode):
    """Others may use it, as long as they may change nothing."""
    own = Database(mysql_server, f"own_{mode}")
    mysql_server.ask(f"CREATE DATABASE {own.name}")
    request.addfinalizer(own.drop)
    root = mysql_url(own.port, "root", own.name)
    assert run(dlock, root, mode=mode).status == 0
    assert dlock.run("ls", *At(root, mode).words).status == 0
    mysql_server.ask("CREATE OR REPLACE USER bob@'%'")
    request.addfinalizer(lambda: mysql_server.ask("DROP USER bob@'%'"))
    mysql_server.ask(f"GRANT SELECT, INSERT, DELETE, EXECUTE ON {own.name}.* TO bob@'%'")
    assert is_free(dlock, root, mode=mode)
    assert is_free(dlock, mysql_url(own.port, "bob", own.name), mode=mode)
    mysql_server.ask("CREATE OR REPLACE ROLE planters")
    request.addfinalizer(lambda: mysql_server.ask("DROP ROLE planters"))
    mysql_server.ask("GRANT planters TO bob@'%'")
    for who in ("bob@'%'", "planters"):
        for right in RIGHTS + WRITES:
            right = right.format(own.name)
            assert run(dlock, root, "-n", mode=mode).status == 0
            mysql_server.ask(f"GRANT {right} TO {who}")
            assert_refused(run(dlock, root, "-n", mode=mode), 78, SAYS)
            mysql_server.ask(f"REVOKE {right} FROM {who}")


def test_a_right_on_a_column_elsewhere_is_one_beyond_the_database(dlock, mysql_server, mysql_db, request, seen):
    """A planted procedure could use it."""
    mysql_server.ask("CREATE OR REPLACE USER writer@'%'")
    request.addfinalizer(lambda: mysql_server.ask("DROP USER writer@'%'"))
    mysql_server.ask(f"GRANT EXECUTE ON `{mysql_db.name}`.* TO writer@'%'")
    mysql_server.ask("GRANT INSERT (who, what) ON secret.seen TO writer@'%'")
    assert run(dlock, mysql_db.url).status == 0
    plant_procedures(mysql_db)
    assert_refused(run(dlock, mysql_url(mysql_db.port, "writer", mysql_db.name), "-n"), 78, SAYS)
    assert seen() == []


def test_who_does_not_see_the_rights_of_others_sees_their_procedures(dlock, mysql_server, mysql_db, request, seen):
    """A user with two databases, one of which another user fills; one with a role; and one with rights on all of them."""
    for name in ("carol", "twin", "roled", "reader"):
        mysql_server.ask(f"CREATE OR REPLACE USER {name}@'%'")
        request.addfinalizer(lambda name=name: mysql_server.ask(f"DROP USER {name}@'%'"))
    mysql_server.ask("CREATE OR REPLACE ROLE callers")
    request.addfinalizer(lambda: mysql_server.ask("DROP ROLE callers"))
    mysql_server.ask(f"GRANT ALL ON `{mysql_db.name}`.* TO carol@'%'")
    mysql_server.ask(f"GRANT EXECUTE ON `{mysql_db.name}`.* TO twin@'%'")
    mysql_server.ask("GRANT SELECT, INSERT ON secret.* TO twin@'%'")
    mysql_server.ask(f"GRANT EXECUTE ON `{mysql_db.name}`.* TO callers")
    mysql_server.ask("GRANT INSERT ON secret.* TO callers")
    mysql_server.ask("GRANT callers TO roled@'%'")
    mysql_server.ask("SET DEFAULT ROLE callers FOR roled@'%'")
    mysql_server.ask(f"GRANT EXECUTE ON `{mysql_db.name}`.* TO reader@'%'")
    mysql_server.ask("GRANT FILE ON *.* TO reader@'%'")
    urls = {name: mysql_url(mysql_db.port, name, mysql_db.name) for name in ("carol", "twin", "roled", "reader")}
    assert run(dlock, urls["carol"]).status == 0
    for name in ("twin", "roled"):
        assert run(dlock, urls[name], "-n").status == 0
    assert_refused(run(dlock, urls["reader"], "-n"), 78, SAYS)
    plant_procedures(mysql_db, "carol")
    for name in ("twin", "roled", "reader"):
        assert_refused(run(dlock, urls[name], "-n"), 78, SAYS)
    assert seen() == []
