# Goal of these tests: what stands in a configuration file counts as the manual
# says, is said by `dlock config`, and is never misread in silence: a file that
# is wrong, or that others could have written or read a password from, is
# refused before anything is locked.

import json
import os
import pwd
import re
import shutil
import subprocess

import pytest

from support import DLOCK_TEST, compile_shim

NOBODY = 65534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


class Files:
    """The user's and the system's configuration, and dlocks that read them."""

    def __init__(self, dlock, directory):
        self.dlock, self.home = dlock, directory / "home"
        self.user, self.system = self.home / ".config" / "dlock.conf", directory / "system.conf"
        self.user.parent.mkdir(parents=True)
        self.other = directory / "other.conf"
        self.env = {"HOME": str(self.home), "XDG_CONFIG_HOME": "", "TEST_SYSTEM_CONF": str(self.system)}

    def write(self, user=None, system=None, mode=0o600):
        for path, text in ((self.user, user), (self.system, system)):
            if text is not None:
                path.write_text(text, encoding="utf-8")
                path.chmod(mode)

    def run(self, *words, env=None, **options):
        return self.dlock.run(*words, program=DLOCK_TEST, events=False, env={**self.env, **(env or {})}, **options)

    def rows(self, *words, **options):
        """What `dlock config -J` tells."""
        result = self.run("config", "-J", *words, **options)
        assert result.status == 0 and result.stderr == "", result
        return [json.loads(line) for line in result.stdout.splitlines()]

    def row(self, name, *words, **options):
        found = [row for row in self.rows(*words, **options) if row["name"] == name]
        assert len(found) == 1, found
        return found[0]

    def value(self, name, *words, **options):
        return self.row(name, *words, **options).get("value")

    def refuse(self, status, *says, words=("-k", "k"), touch=None, **options):
        mark = self.home / "ran"
        result = self.run("run", *words, "--", "touch", mark, **options)
        assert result.status == status, result
        assert result.stderr.startswith("dlock: ") and result.stderr.count("\n") == 1, result
        assert result.stderr[:-1].isprintable(), result
        for word in says:
            assert str(word) in result.stderr, (word, result)
        assert not mark.exists()
        return result.stderr


@pytest.fixture
def files(dlock, tmp_path):
    return Files(dlock, tmp_path)


@pytest.fixture
def locks(tmp_path):
    """URLs of directories."""

    def make(name):
        directory = tmp_path / f"locks-{name}"
        directory.mkdir(mode=0o700, exist_ok=True)
        return f"file://{directory}"

    return make


def used(tmp_path):
    """Those where something was locked."""
    return {p.name[len("locks-"):] for p in tmp_path.glob("locks-*") if any(p.iterdir())}


# ---- which source counts ----


def test_the_strongest_source_says_all_switches(files):
    """As many as it names, or with an empty value none: so a run passes what a file says for all."""
    def switches(*words, **options):
        return [row.get("value") for row in files.rows(*words, **options) if row["name"] == "unless-frozen"]

    assert switches() == ["-"]
    files.write(system="unless-frozen = all\nunless-frozen = weekend\n[key own]\nunless-frozen =\n", user="[key other]\nunless-frozen = other\n")
    assert switches() == ["all", "weekend"] and switches("-k", "own") == [None] and switches("-k", "other") == ["other"]
    assert switches("--unless-frozen=mine", "--unless-frozen", "yours") == ["mine", "yours"]
    assert switches(env={"DLOCK_UNLESS_FROZEN": "of all"}) == ["of all"]
    assert switches("--unless-frozen=") == [None]


@pytest.mark.parametrize("lines, says", [
    (["a", "b", "c", "d", "e"], ("5: ", "more than 4")), (["a", "a"], ("2: ", "twice")), (["a", ""], ("2: ", "empty")), (["", ""], ("2: ", "twice")),
    (["a b\x7f"], ("1: ", "control")),
])
def test_switches_that_make_no_sense(files, lines, says):
    files.write(user="".join(f"unless-frozen = {line}\n" for line in lines))
    files.refuse(78, *says)


def test_no_setting_is_lost_where_many_stand_together(files):
    lines = [f"option = n{i}={i}\n" for i in range(34)]
    stronger = [word for i in range(4) for word in ("-O", f"n{i}=x")]
    files.write(user="[key k]\n" + "".join(lines[:32]))
    assert [row["value"] for row in files.rows("-k", "k", *stronger) if row["name"] == "option"][-1] == "n31=31"
    files.write(user="[key k]\n" + "".join(lines))
    result = files.run("config", "-k", "k", *stronger)
    assert result.status == 78 and f"{files.user}:34: more than 32 settings" in result.stderr, result


def test_a_fresh_shell_needs_no_variable(files, locks, tmp_path):
    files.write(user=f"# ours\nurl = {locks('a')}\n\nttl: 60s\n")
    result = files.run("run", "-k", "k", "--", "sh", "-c", "echo $DLOCK_BACKEND")
    assert (result.status, result.stdout, result.stderr) == (0, "file\n", "")
    assert used(tmp_path) == {"a"}


def test_the_strongest_source_counts(files):
    files.write(user="ttl = 14s\n[key k]\nttl = 13s\n[profile p]\nttl = 11s\n",
                system="ttl = 16s\n[key k]\nttl = 15s\n[profile p]\nttl = 12s\n")
    ranks = [  # each without those before it
        (("-t", "9s"), {"DLOCK_TTL": "10s"}, "--ttl", "9s"),
        ((), {"DLOCK_TTL": "10s"}, "DLOCK_TTL", "10s"),
        ((), {}, files.user, "11s"),
    ]
    for words, env, origin, value in ranks:
        row = files.row("ttl", "-k", "k", "--profile", "p", *words, env=env)
        assert (row["value"], row["from"]) == (value, str(origin))
    assert files.value("ttl", "-k", "k") == "13s"
    assert files.value("ttl") == files.value("ttl", "-k", "other") == "14s"
    files.write(user="[profile p]\nwhy = x\n")
    assert files.value("ttl", "-k", "k", "--profile", "p") == "12s"
    assert files.value("ttl", "-k", "k") == "15s"
    row = files.row("ttl")
    assert (row["value"], row["origin"], row["from"], row["line"]) == ("16s", "file", str(files.system), 1)
    files.write(system="")
    assert files.row("ttl") == {"v": 1, "name": "ttl", "value": "30s", "origin": "default"}


def test_of_sections_that_match_the_later_one_counts(files):
    files.write(user='ttl = 5s\n[key "deploy/*"]\nttl = 6s\nwhy = all\n[key deploy/web]\nttl = 7s\n[key "deploy/?"]\nttl = 8s\n')
    for key, ttl, why in (("deploy/web", "7s", "all"), ("deploy/x", "8s", "all"), ("deploy/a/b", "6s", "all"), ("deploy", "5s", "-")):
        assert (files.value("ttl", "-k", key), files.value("why", "-k", key)) == (ttl, why)


def test_a_group_has_one_owner(files, locks):
    files.write(user="[key k]\nbackend = redis\n[key slow]\nwait = 5m\n", system=f"url = {locks('a')}\nnonblock = yes\n")
    assert files.value("backend", "-k", "k") == "redis"
    assert files.value("url", "-k", "k") is None
    assert files.value("url") == locks("a")
    assert files.value("url", "-b", "redis", env={"DLOCK_REDIS_URL": "redis://h"}) == "redis://h"
    assert (files.value("nonblock", "-k", "slow"), files.value("wait", "-k", "slow")) == ("no", "5m")
    assert (files.value("nonblock"), files.value("wait")) == ("yes", "0")
    # a variable is stronger than a file, also the one that a backend has for its URL
    files.write(user="url = redis://file\n", system="")
    row = files.row("url", env={"DLOCK_REDIS_URL": "redis://variable"})
    assert (row["value"], row["from"]) == ("redis://variable", "DLOCK_REDIS_URL")
    assert files.value("url", env={"DLOCK_FILE_URL": locks("b")}) == "redis://file"


def test_settings_count_by_name_and_belong_to_their_server(files, locks):
    files.write(user="option = a=1\noption = b=2\n[key k]\noption = b=3\n", system="url = redis://h\noption = a=4\noption = c=5\n")

    def settings(*words, **options):
        return [row.get("value") for row in files.rows(*words, **options) if row["name"] == "option"]

    assert settings() == ["a=1", "b=2", "c=5"]
    assert settings("-k", "k") == ["b=3", "a=1", "c=5"]
    assert settings("-O", "c=6") == ["c=6", "a=1", "b=2"]
    assert settings(env={"DLOCK_OPTION": "a=7 d=8"}) == ["a=7", "d=8", "b=2", "c=5"]
    # of another server they say nothing
    assert settings("-u", locks("a")) == settings("-b", "file") == []
    assert settings(env={"DLOCK_URL": "redis://other", "DLOCK_OPTION": "a=7"}) == ["a=7"]
    files.write(user="option = a=1\nurl = redis://h\n")
    assert settings() == ["a=1"]
    assert settings(env={"DLOCK_REDIS_URL": "redis://other", "DLOCK_OPTION": "b=7"}) == ["b=7"]
    assert settings(env={"DLOCK_FILE_URL": locks("a")}) == ["a=1"]
    files.write(user="option = a=1\nbackend = redis\n", system="")
    assert settings(env={"DLOCK_REDIS_URL": "redis://this"}) == ["a=1"]


def test_a_wrong_url_is_refused_wherever_it_stands(files, locks):
    files.write(user="[key other]\nurl = redos://:s3cret@h\n")
    said = files.refuse(78, f"{files.user}:2: url 'redos...'", "did you mean redis://?", words=("-u", locks("a"), "-k", "k"))
    assert "s3cret" not in said
    files.write(user="url = redis://h\n")
    env = {"DLOCK_REDIS_URL": "redis://:" + 1000 * "s3cret" + "@h"}
    said = files.refuse(64, "DLOCK_REDIS_URL 'redis...'", "too long", words=("-b", "redis", "-k", "k"), env=env)
    assert "s3cret" not in said


def test_a_setting_that_the_backend_does_not_have(files, locks):
    """Whoever reads the message learns where it stands."""
    files.write(user=f"url = {locks('a')}\n[key k]\noption = colour=red\noption = name=/x\n")
    files.refuse(78, f"{files.user}:3: option: the file backend has no setting 'colour'", "name, path")
    for env, words, origin in (({"DLOCK_OPTION": "lock=flock shape=x"}, [], "DLOCK_OPTION"), ({}, ["-O", "shape=x"], "--option")):
        files.refuse(64, f"{origin}: the file backend has no setting 'shape'", words=[*words, "-k", "other"], env=env)
    assert [row["value"] for row in files.rows("-k", "k") if row["name"] == "option"] == ["colour=red", "name=/x"]


@pytest.mark.parametrize("text, says", [
    ("backend = redis\noption = dialect=nonsense", ":2: option: the redis backend knows no dialect 'nonsense'"),
    ("url = redis://h:99999\noption = connect-timeout=1s", ":1: url: the redis URL has a wrong port"),
    ("url = zk://h\noption = acl=creator\noption = path=x", ":3: option: -O path"),
    ("url = zk://h\noption = path=/x\noption = acl=creator", ":3: option: -O acl=creator needs a creator"),
    ("url = memcached://h\n[key k]\noption = connect-timeout=0\n[key j]\noption = connect-timeout=3", ":3: option: connect-timeout"),
    ("backend = file\noption = lock=spin\noption = path=/x", ":3: option: lock is flock or fcntl"),
    ("backend = file\noption = lock=flock", ":2: option: lock= goes with path=FILE only"),
])
def test_a_value_that_the_backend_does_not_know(files, text, says):
    """It alone knows, and says so when it is opened; in whose line that stands is said all the same."""
    files.write(user=text)
    files.refuse(78, f"{files.user}{says}")
    for words in (("status", "k"), ("doctor", "-k", "k"), ("hold", "k", "--for", "1s")):
        result = files.run(*words)
        assert result.status == 78 and f"{files.user}{says}" in result.stdout + result.stderr, result


def test_a_value_of_the_command_line_is_no_mistake_of_a_file(files):
    files.write(user="url = redis://h\noption = connect-timeout=1s\n")
    assert str(files.user) not in files.refuse(64, "knows no dialect 'x'", words=("-O", "dialect=x", "-k", "k"))
    files.write(user="option = connect-timeout=1s\n")
    assert str(files.user) not in files.refuse(64, "has a wrong port", words=("-u", "redis://h:99999", "-k", "k"))
    assert str(files.user) not in files.refuse(64, "has a wrong port", words=("-b", "redis", "-k", "k"), env={"DLOCK_REDIS_URL": "redis://h:99999"})


def test_several_keys_must_agree(files, locks):
    """Otherwise a run of both and a run of one could hold the same key on two servers."""
    files.write(user=f"url = {locks('a')}\n[key deploy]\nurl = {locks('b')}\n[key build]\nwhy = x\n[key \"*\"]\nttl = 20s\n")
    said = files.refuse(78, f"{files.user}:3: url", "[key deploy]", "'build'", "--url", words=("-k", "deploy", "-k", "build"))
    assert locks("b") not in said
    files.refuse(78, f"{files.user}:5: why", "'deploy'", words=("-u", locks("c"), "-k", "build", "-k", "deploy"))
    both = ("-u", locks("c"), "--why", "y", "-k", "build", "-k", "deploy")
    assert files.run("run", *both, "--", "true").status == 0
    assert files.value("ttl", *both) == "20s"
    files.write(user=f"url = {locks('a')}\n[key deploy]\noption = x=y\n")
    files.refuse(78, f"{files.user}:3: option", words=("-k", "deploy", "-k", "build"))


def test_a_profile_that_is_nowhere_is_a_mistake(files):
    files.write(user="[profile production]\n")
    files.refuse(64, "'prodction'", "did you mean production", files.user, f"{files.system} (not there)",
                 words=("--profile", "prodction", "-k", "k"))
    files.other.write_text("")
    said = files.refuse(64, "no profile 'x'", files.other, env={"DLOCK_PROFILE": "x", "DLOCK_CONFIG": str(files.other)})
    assert str(files.user) not in said
    # an empty one is one
    assert files.value("profile", "--profile", "production") == "production"


# ---- which files ----


def test_config_names_the_only_file(files):
    files.write(user="ttl = 10s\nwhy = user\n", system="who = system\n")
    files.other.write_text("ttl = 20s\n")
    for words, env in ((("--config", files.other), {}), ((), {"DLOCK_CONFIG": str(files.other)})):
        assert files.value("ttl", *words, env=env) == "20s"
        assert files.value("who", *words, env=env) == files.value("why", *words, env=env) == "-"
    assert [row["value"] for row in files.rows("--config", files.other) if row["name"] == "file"] == [str(files.other)]
    assert files.value("ttl", "--config", "/dev/null") == "30s"
    assert files.value("ttl", env={"DLOCK_CONFIG": ""}) == "10s"


def test_the_users_file_is_where_xdg_says(files, tmp_path):
    files.write(user="ttl = 10s\n")
    xdg = tmp_path / "xdg"
    xdg.mkdir()
    (xdg / "dlock.conf").write_text("ttl = 20s\n")
    assert files.value("ttl", env={"XDG_CONFIG_HOME": str(xdg)}) == "20s"
    assert files.value("ttl", env={"XDG_CONFIG_HOME": "relative"}) == "10s"
    assert files.value("ttl", env={"HOME": ""}) == files.value("ttl", env={"HOME": "x"}) == "30s"
    assert files.value("ttl", env={"HOME": "/dev/null"}) == "30s"
    assert [(row["value"], row["origin"]) for row in files.rows() if row["name"] == "file"] == [
        (str(files.user), "read"), (str(files.system), "absent")]


def test_without_a_home_the_password_database_knows_it(files):
    """A service of the system has no HOME; it must not lock elsewhere than its user does."""
    home = pwd.getpwuid(os.geteuid()).pw_dir
    for value in ("", "relative"):
        shown = [row["value"] for row in files.rows(env={"HOME": value}) if row["name"] == "file"]
        assert shown == [f"{home}/.config/dlock.conf", str(files.system)]


SHORT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
ssize_t read(int fd, void *buf, size_t n) {
	static int calls;
	ssize_t (*next)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
	if (getenv("STOP_AT") && ++calls > atoi(getenv("STOP_AT"))) return 0;
	return next(fd, buf, n > 7 ? 7 : n);
}
"""


def test_a_file_is_read_to_its_end_or_not_at_all(files, locks, tmp_path):
    """Some file systems give less than is asked for: what is missing may name the server."""
    shim = compile_shim(tmp_path, "short", SHORT)
    files.write(user=f"ttl = 60s\nurl = {locks('a')}\n")
    assert files.value("url", env={"LD_PRELOAD": shim}) == locks("a")
    files.refuse(78, files.user, "ended after 14 of its", env={"LD_PRELOAD": shim, "STOP_AT": "2"})


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "device", "huge"])
def test_what_is_no_file_is_refused(files, kind):
    says = {"missing": "No such file", "huge": "longer than 65536"}.get(kind, "not a regular file")
    path = "/dev/zero" if kind == "device" else files.other
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "huge":
        path.write_text("# comment\n" * 6600)
    files.refuse(78, path, says, words=("--config", path, "-k", "k"))
    if kind in ("directory", "fifo"):
        shutil.move(path, files.user)
        files.refuse(78, files.user, says)


def test_a_file_that_others_can_write_is_refused(files):
    for mode in (0o664, 0o646):
        files.write(user="ttl = 10s\n", mode=mode)
        files.refuse(78, files.user, f"chmod go-w {files.user}")
    files.write(user="ttl = 10s\n", mode=0o644)
    assert files.value("ttl") == "10s"


def test_a_named_file_that_others_can_write_is_refused(files):
    files.other.write_text("ttl = 10s\n")
    files.other.chmod(0o646)
    files.refuse(78, f"chmod go-w {files.other}", words=("--config", files.other, "-k", "k"))


@as_root
def test_one_password_file_serves_several_services(dlock, public, make_redis):
    """Root's may be readable by a group; one's own may not: and it is said which rule failed."""
    url = f"redis://127.0.0.1:{make_redis('--requirepass', 's3cret').port}"
    secret = public / "secret"
    secret.write_text("s3cret\n")
    shutil.copy(DLOCK_TEST, public / "dlock")

    def run():
        return dlock.run("run", "-u", url, "-O", f"password-file={secret}", "-k", "k", "--", "true", program=public / "dlock", events=False,
                         env={"HOME": "/"}, user=NOBODY, group=NOBODY, extra_groups=[])

    for owner, mode, status, says in ((0, 0o640, 0, ""), (0, 0o660, 78, "written by its group"), (0, 0o644, 78, "read by everybody"),
                                      (NOBODY, 0o600, 0, ""), (NOBODY, 0o640, 78, "read by its group"), (1, 0o644, 78, "belongs to uid 1")):
        os.chown(secret, owner, NOBODY)
        secret.chmod(mode)
        result = run()
        assert result.status == status and says in result.stderr and (status or not result.stderr), result


@as_root
def test_a_file_of_somebody_else_is_refused(dlock, public):
    files = Files(dlock, public)
    files.write(user="ttl = 10s\n", mode=0o644)
    os.chown(files.user, NOBODY, NOBODY)
    files.refuse(78, files.user, f"uid {NOBODY}", "sudo -H")
    # root's and one's own are not
    shutil.copy(DLOCK_TEST, public / "dlock")
    for path in (files.home, files.user.parent):
        path.chmod(0o755)

    def row():
        result = files.dlock.run("config", "-J", program=public / "dlock", env=files.env, user=NOBODY, group=NOBODY, extra_groups=[])
        assert result.status == 0, result
        return [r for r in map(json.loads, result.stdout.splitlines()) if r["name"] == "ttl"][0]["value"]

    assert row() == "10s"
    os.chown(files.user, 0, 0)
    assert row() == "10s"
    # one that is there, but not for us, is not passed over
    files.user.chmod(0o600)
    result = files.dlock.run("config", program=public / "dlock", env=files.env, user=NOBODY, group=NOBODY, extra_groups=[])
    assert result.status == 78 and "Permission denied" in result.stderr and "--config" in result.stderr, result
    # but where we may not even look, there is none
    files.user.parent.chmod(0o700)
    assert row() == "30s"


PASSWORDS = ["url = redis://u:s3cret@h", "url = redis://:s3cret@h", "url = host=h password=s3cret", "url = postgresql://h/d?password=s3cret",
             "option = password=s3cret"]


@pytest.mark.parametrize("line", PASSWORDS)
@pytest.mark.parametrize("section", ["", "[key other]\n", "[profile p]\n"])
def test_a_password_that_others_can_read_is_refused(files, line, section):
    for mode, whom in ((0o640, "by its group"), (0o604, "by everybody")):
        files.write(user=f"{section}{line}\n", mode=mode)
        if mode == 0o640 and os.geteuid() == 0:
            continue  # root lets a group read it
        said = files.refuse(78, f"{files.user}:{2 if section else 1}:", "password", whom, f"chmod 600 {files.user}")
        assert "s3cret" not in said
    files.user.chmod(0o640 if os.geteuid() == 0 else 0o600)
    result = files.run("config", "-k", "other", "--profile", "p") if "profile" in section else files.run("config", "-k", "other")
    assert result.status == 0 and "s3cret" not in result.stdout and "xxxxxx" in result.stdout, result


def test_a_password_reaches_the_server_and_nothing_else(files, make_redis):
    server = make_redis("--requirepass", "s3cret")
    files.write(user=f"url = redis://:s3cret@127.0.0.1:{server.port}\n")
    result = files.run("run", "-k", "k", "--", "env")
    assert result.status == 0 and "s3cret" not in result.stdout + result.stderr, result


# ---- what stands in a file ----

WRONG = [  # text, line, what is said
    ("ttl = 1x", 1, ["ttl '1x'", "1.5s"]),
    ("\n# c\nttl = 1s", 3, ["ttl '1s'", "from 3s"]),
    ("tll = 5s", 1, ["'tll'", "did you mean ttl?"]),
    ("server = x", 1, ["'server' is no option"]),
    ("DLOCK_TTL = 5s", 1, ["'DLOCK_TTL'"]),
    ("--ttl = 5s", 1, ["'--ttl'"]),
    ("ttl", 1, ["NAME = VALUE"]),
    ("ttl 5s", 1, ["NAME = VALUE"]),
    ("url redis://h", 1, ["'url redis'"]),
    ("= 5", 1, ["''"]),
    ("ttl =", 1, ["ttl ''"]),
    ("ttl = 5s ; five", 1, ["comment", "line of its own"]),
    ("url = file:///x # here", 1, ["comment", "line of its own"]),
    ("ttl = 5s\nttl = 6s", 2, ["twice", "line 1"]),
    ("[key k]\nttl = 5s\n\nttl = 6s", 4, ["twice", "line 2"]),
    ("[default]\nttl = 5s", 1, ["[default]", "before them"]),
    ("[profil p]", 1, ["did you mean profile?"]),
    ("[key]", 1, ["[key]", '[key "PATTERN"]']),
    ("[keyk]", 1, ["[keyk]"]),
    ('[key "k]', 1, ['[key "PATTERN"]']),
    ('[key k"]', 1, ['[key "PATTERN"]']),
    ('[key ""]', 1, ['[key "PATTERN"]']),
    ("[key k", 1, ["ends with its ]"]),
    ("[key k] ttl = 5s", 1, ["ends with its ]"]),
    ("[]", 1, ["[]"]),
    ("shared = maybe", 1, ["shared 'maybe'", "yes, no"]),
    ("shared = yes\nlimit = 3", 1, ["shared and", ":2: limit", "contradict"]),
    ("once = a\nonce-per = day", 1, ["once and", ":2: once-per", "contradict"]),
    ("nonblock = yes\nwait = 3s", 1, ["nonblock and", ":2: wait", "contradict"]),
    ("backend = reddis", 1, ["did you mean redis?"]),
    ("url = nowhere", 1, ["url 'nowhere...'", "scheme"]),
    ("option = x", 1, ["NAME=VALUE"]),
    ("option = name=x\noption = path=/x\noption = name=y", 3, ["this setting", "given twice here, first in line 1"]),
    ("[key k]\noption = name=x\n\noption = name=x", 4, ["this setting", "given twice here, first in line 2"]),
    ("[profile other]\noption = name=x\noption = name=", 3, ["this setting", "given twice here, first in line 2"]),
    ("[key other]\nttl = 1s", 2, ["ttl '1s'"]),
    ("[profile p]\nttl = 1s", 2, ["ttl '1s'"]),
    ("ttl = 5s\0\n", 1, ["control character"]),
    ("who = \x1b[31m", 1, ["control character"]),
    ("who = " + "x" * 9000, 1, ["longer than"]),
    ("url = redis://h\nbackend = file", 2, ["backend (file) and", ":1: url (redis)", "contradict"]),
    ("log = fd:2", 1, ["log 'fd:2'", "one call"]),
    ("log = dlock.log", 1, ["log 'dlock.log'", "begins with a /"]),
    ("grace = 40s", 1, ["grace 40s", "--ttl 30s", "too short"]),
]


@pytest.mark.parametrize("text, line, says", WRONG, ids=[ascii(row[0])[:40] for row in WRONG])
def test_what_is_wrong_is_said_with_its_line(files, text, line, says):
    files.write(user=text)
    words = ("-k", "k") if "grace" not in text else ("-b", "file", "-k", "k")
    files.refuse(78, *says, f"{files.user}:{line}: ", words=words)


@pytest.mark.parametrize("name", ["key", "config", "profile", "command", "status-fd", "token", "force", "for", "pid", "shell", "yes", "json",
                                  "noheadings", "output", "watch"])
def test_what_is_said_for_one_occasion_has_no_place_in_a_file(files, name):
    files.write(user=f"ttl = 5s\n{name} = yes\n")
    files.refuse(78, f"{files.user}:2: {name} ", "cannot stand in a file")


def test_every_other_option_has_the_words_of_the_command_line(files):
    values = {"backend": "redis", "url": "redis://h", "option": "a=b", "wait": "1h30m", "conflict-exit-code": "9", "ttl": "90s", "grace": "2s",
              "signal": "USR1", "min-hold": "3s", "max-run": "1h", "kill-after": "7s", "once": "2026", "at-offset": "2h", "cooldown": "1h", "skipped-exit-code": "4",
              "who": "me and you", "why": "ticket #1;2", "limit": "3",
              "metrics-file": "/var/lib/m.prom", "log": "/var/log/dlock.log", "unless-frozen": "all"}
    flags = {"newest", "wait-tree", "no-retry", "remember", "show-arguments", "quiet", "verbose"}
    alone = {"nonblock", "shared", "exclusive"}  # not beside wait, limit
    files.write(user="once-per = week\n")
    assert files.value("once-per") == "week"  # not beside once
    names = files.run("help", "--raw", "config").stdout.split()
    assert set(names) == {*values, *flags, *alone, "once-per"}
    values["why"] = "ticket;2"
    files.write(user="".join(f"{n} = {v}\n" for n, v in values.items()) + "".join(f"{n} = on\n" for n in flags))
    rows = {row["name"]: row for row in files.rows()}
    for name, value in values.items():
        assert (rows[name]["value"], rows[name]["origin"]) == (value, "file")
    assert {rows[name]["value"] for name in flags} == {"yes"}
    for name in alone:
        files.write(user=f"{name} = true\n")
        assert files.value(name) == "yes"
        files.write(user=f"{name} = no\n")
        assert (files.value(name), files.row(name)["line"]) == ("no", 1)


def test_a_file_counts_for_the_command(files, locks):
    files.write(user=f"url = {locks('a')}\nlimit = 3\n[key busy]\nexclusive = yes\nnonblock = yes\nconflict-exit-code = 9\n")
    assert files.run("run", "-k", "k", "--", "sh", "-c", "echo $DLOCK_SLOT").stdout == "0\n"
    result = files.run("run", "-u", locks("a"), "-k", "busy", "--", DLOCK_TEST, "run", "-k", "busy", "--", "true",
                       env={"DLOCK_KEEPER": ""})
    assert result.status == 0, result  # it joins
    result = files.run("run", "-k", "busy", "--", "env", "-u", "DLOCK_KEEPER", "-u", "DLOCK_BACKEND", "-u", "DLOCK_KEY", DLOCK_TEST, "run",
                       "-k", "busy", "--", "true")
    assert result.status == 9 and "busy" in result.stderr, result


def test_every_subcommand_finds_its_server(files, dlock, locks):
    files.write(user=f"url = {locks('a')}\n[key b]\nurl = {locks('b')}\n[profile p]\nurl = {locks('p')}\n")
    holder = dlock.start("run", "-u", locks("b"), "-k", "b", "--", "cat", stdin=subprocess.PIPE).held()
    assert files.run("status", "b").status == 0
    assert files.run("status", "a").status == files.run("status", "--profile", "p", "b").status == 1
    assert files.run("wait", "-w", "0", "b").status == 75
    assert files.run("ls", "-n").stdout == ""  # names no key
    assert files.run("freeze", "a").status == 0
    assert len(files.run("ls", "-n").stdout.splitlines()) == 1
    assert files.run("thaw", "-y", "a").status == 0
    files.refuse(78, f"{files.user}:3: url", words=("-k", "a", "-k", "b"))
    assert files.run("status", "a", "b").status == 78
    holder.popen.stdin.close()
    assert holder.wait().status == 0
    files.write(user="nonsense = 1\n")
    for words in (["status", "a"], ["ls"], ["wait", "a"], ["break", "-y", "a"], ["freeze", "a"], ["thaw", "-y", "a"]):
        result = files.run(*words)
        assert result.status == 78 and f"{files.user}:1: 'nonsense'" in result.stderr, (words, result)


def test_what_a_file_says_of_runs_is_no_answer_of_other_subcommands(files, dlock, locks):
    """Status 0 of `dlock wait` means that the lock is free, whatever cron jobs like to hear."""
    files.write(user=f"url = {locks('a')}\nnonblock = yes\nconflict-exit-code = 0\n")
    holder = dlock.start("run", "-u", locks("a"), "-k", "k", "--", "cat", stdin=subprocess.PIPE).held()
    assert files.run("run", "-k", "k", "--", "false").status == 0  # that is what it is for
    assert files.run("wait", "-w", "0.2s", "-k", "k").status == 75
    waiter = dlock.start("wait", "-k", "k", program=DLOCK_TEST, env=files.env)
    holder.popen.stdin.close()
    assert holder.wait().status == waiter.wait().status == 0


# ---- dlock config ----


def test_config_tells_every_origin(files, locks):
    files.write(user=f'url = {locks("a")}\n\n[key "deploy/*"]\nttl = 2m\n', mode=0o644)
    result = files.run("config", "-k", "deploy/web", "--grace", "3s", "--wait-tree", env={"DLOCK_WHY": "x  y", "DLOCK_QUIET": "off"})
    assert result.status == 0 and result.stderr == "", result
    lines = dict(line.split(None, 1) for line in result.stdout.splitlines())
    assert lines["url"].split() == [locks("a"), f"{files.user}:1"]
    assert lines["backend"].split() == ["file", f"{files.user}:1"]
    assert lines["ttl"].split(None, 1) == ["2m", f'{files.user}:4 [key "deploy/*"]']
    assert lines["grace"].split() == ["3s", "--grace"]
    assert lines["wait-tree"].split() == ["yes", "--wait-tree"] and lines["quiet"].split() == ["no", "DLOCK_QUIET"]
    assert lines["why"].split() == ["x", "y", "DLOCK_WHY"]
    assert lines["max-run"].split() == ["inf", "default"]
    assert lines["key"].split() == ["deploy/web", "--key"]


def test_config_needs_neither_backend_nor_file(files):
    rows = {row["name"]: row for row in files.rows(env={"HOME": ""})}
    assert rows["backend"] == {"v": 1, "name": "backend", "origin": "default"}
    assert not any(row.get("from") for row in rows.values())
    result = files.run("config")
    assert result.status == 0 and re.search(r"^backend +- +default$", result.stdout, re.M)


@pytest.mark.parametrize("words, shared, exclusive", [([], "no", "yes"), (["-x"], "no", "yes"), (["-s"], "yes", "no"), (["--limit", "4"], "no", "no")])
def test_config_tells_one_kind(files, words, shared, exclusive):
    assert (files.value("shared", *words), files.value("exclusive", *words)) == (shared, exclusive)


def test_config_tells_of_a_variable_that_nobody_reads(files):
    """It is where one looks when a setting does not count."""
    result = files.run("config", env={"DLOCK_WIAT": "5s"})
    assert result.status == 0 and "DLOCK_WIAT (did you mean DLOCK_WAIT?)" in result.stderr, result
    assert files.run("config", "-q", env={"DLOCK_WIAT": "5s"}).stderr == ""


def test_config_masks_passwords_of_all_sources(files):
    for words, env in ((["-u", "redis://u:s3cret@h"], {}), ([], {"DLOCK_URL": "redis://u:s3cret@h"}),
                       (["-b", "redis"], {"DLOCK_REDIS_URL": "redis://u:s3cret@h"}), (["-b", "pg", "-O", "password=s3cret"], {})):
        for json_too in ([], ["-J"]):
            result = files.run("config", *words, *json_too, env=env)
            assert result.status == 0 and "s3cret" not in result.stdout and "xxxxxx" in result.stdout, result


@pytest.mark.parametrize("url", ["redis://u:64738/s3?a=b@h:6379/0", "redis+sentinel://:64738/s3@h/m", "redis+cluster://u:64738#s3@h", "redlock://u:64738/s3@a,b,c",
                                 "mysql://u:64738/s3@h/d", "postgresql://u:64738/s3@h/d", "zk://u:64738/s3@h", "zks://u:64738/s3@h", "memcached://u:64738/s3@h", "etcd://u:64738/s3@h"])
def test_a_password_with_a_slash_is_refused_and_told_nowhere(files, url):
    result = files.run("config", "-u", url)
    assert result.status == 0 and "64738" not in result.stdout and "s3" not in result.stdout and "xxx@" in result.stdout, result
    result = files.run("run", "-n", "-u", url, "-k", "k", "true")
    assert result.status == 64 and "%2F" in result.stderr and "64738" not in result.stderr and "s3" not in result.stderr, result
    files.write(user=f"url = {url}\n", mode=0o644)
    assert "s3" not in files.refuse(78, "this line has a password")


@pytest.mark.parametrize("url", ["redis://u:s3cret", "redis://h1:1,u:s3cret", "redis:u:s3cret@h", "redis:/u:s3cret@h", "postgresql:///d?passWord=s3cret",
                                 "postgresql://h/d?user=u&PASSWORD=s3cret", "zk://s3cret:h", "zks://s3cret:h", "mysql://u:s3cret/d", "etcd:s3cret"])
def test_what_is_not_understood_behind_a_scheme_is_hidden(files, url):
    """It may be a password that was not written as it must be."""
    scheme = url[:url.index(":")]
    for words, env in ((["-u", url], {}), ([], {"DLOCK_URL": url})):
        result = files.run("config", *words, env=env)
        assert "s3cret" not in result.stdout + result.stderr and scheme in result.stdout + result.stderr, result
        assert "s3cret" not in files.run("run", *words, "-nk", "k", "true", env=env).stderr
    files.write(user=f"url = {url}\n", mode=0o604)
    assert "s3cret" not in files.refuse(78, str(files.user))


def test_a_user_alone_may_be_a_password(files, tmp_path):
    """Unless a password stands elsewhere, or none is needed."""
    assert "redis://xxxxxx@h" in files.run("config", "-u", "redis://s3cret@h").stdout
    assert "etcd://xxxxxx@h" in files.run("config", "-u", "etcd://s3cret@h").stdout
    (tmp_path / "password").write_text("x")
    (tmp_path / "password").chmod(0o600)
    assert "redis://dlock@h" in files.run("config", "-u", "redis://dlock@h", "-O", f"password-file={tmp_path}/password").stdout
    for url in ("postgresql://dlock@h/d", "mysql://dlock@h/d"):
        assert url in files.run("config", "-u", url).stdout


@pytest.mark.parametrize("url", ["redis://s3cr3t@h", "redis://s3cr3t:@h", "redis://s3c/r3t@h", "redis+sentinel://s3cr3t@h/m", "redlock://s3cr3t@a,b,c",
                                 "etcd://s3cr3t@h", "zk://s3cr3t@h", "memcached://s3cr3t@h"])
@pytest.mark.parametrize("section", ["", "[key *]\n"])
def test_what_may_be_a_password_is_hidden_and_not_read_from_a_file_of_everybody(files, tmp_path, section, url):
    """redis-cli -u takes a user alone for a password."""
    files.write(user=f"{section}url = {url}\n", mode=0o604)
    said = files.refuse(78, f"{files.user}:", "password", "chmod 600")
    assert "s3c" not in said and "r3t" not in said
    files.user.chmod(0o600)
    shown = files.run("config", "-k", "a").stdout
    assert "xxx" in shown and "s3c" not in shown and "r3t" not in shown
    refused = files.run("run", "-nk", "a", "true")
    assert refused.status == 78 and "s3c" not in refused.stderr and "r3t" not in refused.stderr, refused


def test_a_user_whose_password_stands_elsewhere_may_be_known_to_everybody(files, tmp_path):
    (tmp_path / "password").write_text("x")
    (tmp_path / "password").chmod(0o600)
    files.write(user="url = redis://dlock@127.0.0.1:1\n", mode=0o644)
    words = ["-O", f"password-file={tmp_path}/password"]
    assert "redis://dlock@127" in files.run("config", *words).stdout
    assert files.run("run", *words, "-nk", "a", "true").status == 69


@pytest.mark.parametrize("service", ["DLOCK", "DLOCK_REDIS"])
def test_links_of_a_service_of_this_name_are_no_mistakes(files, service):
    """Kubernetes sets them for a Service named dlock; what only looks like one is told of."""
    links = {"SERVICE_HOST": "10.0.0.1", "SERVICE_PORT": "6379", "SERVICE_PORT_CLIENT": "6379", "PORT": "tcp://10.0.0.1:6379",
             "PORT_6379_TCP": "tcp://10.0.0.1:6379", "PORT_6379_TCP_PROTO": "tcp", "PORT_6379_TCP_PORT": "6379", "PORT_6379_TCP_ADDR": "10.0.0.1"}
    assert files.run("config", env={f"{service}_{name}": value for name, value in links.items()}).stderr == ""
    assert f"{service}_PORT" in files.run("config", env={f"{service}_PORT": "6379"}).stderr


def test_a_short_password_is_hidden_in_its_place_only(files, make_redis):
    server = make_redis("--requirepass", "r")
    url = f"redis://:r@127.0.0.1:{server.port}"
    assert f"redis://:x@127.0.0.1:{server.port}" in files.run("config", "-u", url).stdout
    result = files.run("run", "-u", url, "-k", "k", "--who", "bert", "--",
                       "env", "-u", "DLOCK_KEEPER", DLOCK_TEST, "run", "-n", "-u", url, "-k", "k", "true")
    assert result.status == 75 and "held by bert" in result.stderr, result


def test_config_is_a_check(files):
    files.write(user="ttl = x\n")
    result = files.run("config")
    assert result.status == 78 and result.stdout == "" and f"{files.user}:1: ttl 'x'" in result.stderr, result


def test_config_is_json_whatever_is_said(files):
    files.write(user='[key "a\\"b*"]\nwhy = "\\\u00e9'.replace('\\"', "?") + '"\n')
    row = files.row("why", "-k", "axb\\c\u202e")
    assert row["value"] == '"\\\u00e9"' and row["section"] == 'key "a?b*"'
    assert files.value("key", "-k", "a\u202eb") == "a\u202eb"
    assert "\u202e" not in files.run("config", "-k", "a\u202eb").stdout


# ---- below another dlock ----


def nested(files, outer, inner, env=None):
    result = files.run("run", *outer, "--", DLOCK_TEST, "run", *inner, "--", "true", env=env)
    assert result.status == 0, result


def test_a_nested_run_goes_where_the_enclosing_one_goes(files, locks, tmp_path):
    """As without files: what they say of every run is weaker than the dlock around it."""
    files.write(user=f"url = {locks('file')}\n")
    nested(files, ("-u", locks("outer"), "-k", "a"), ("-k", "b"))
    assert used(tmp_path) == {"outer"}
    nested(files, ("-u", locks("outer"), "-k", "a"), ("-k", "a"))  # joins
    # the same file for both
    nested(files, ("-k", "a"), ("-k", "b"))
    nested(files, ("-k", "a"), ("-n", "-k", "a"))
    assert used(tmp_path) == {"outer", "file"}


def test_a_nested_run_obeys_a_section_for_its_key(files, locks, tmp_path):
    """For all others lock that key there, too."""
    files.write(user=f"url = {locks('file')}\noption = nonsense=1\n[key b]\nurl = {locks('b')}\n[profile p]\nurl = {locks('p')}\n")
    outer = ("-u", locks("outer"), "-k", "a")
    nested(files, outer, ("-k", "b"))
    assert used(tmp_path) == {"outer", "b"}
    nested(files, outer, ("-k", "c", "--profile", "p"))
    assert used(tmp_path) == {"outer", "b", "p"}
    nested(files, ("-k", "b"), ("-n", "-k", "b"))  # joins
    nested(files, outer, ("-k", "c"), env={"DLOCK_URL": locks("variable")})
    assert used(tmp_path) == {"outer", "b", "p", "variable"}


# ---- what it costs ----


def test_each_file_is_opened_and_read_once(files, locks, tmp_path):
    files.write(user=f"url = {locks('a')}\n", system="ttl = 60s\n")
    log = tmp_path / "calls"
    subprocess.run(["strace", "-f", "-o", log, DLOCK_TEST, "run", "-k", "k", "--", "true"], env={**os.environ, **files.env}, check=True)
    calls = log.read_text().splitlines()
    for path in (files.user, files.system):
        assert len([c for c in calls if str(path) in c]) == 1
        n = next(i for i, c in enumerate(calls) if str(path) in c)
        pid, fd = calls[n].split()[0], calls[n].split()[-1]
        after = [c.split(None, 1)[1] for c in calls[n + 1:] if c.startswith(pid)]
        # the second read finds its end
        assert [c.split("(")[0] for c in after[:4]] == ["newfstatat" if "newfstatat" in after[0] else "fstat", "read", "read", "close"], after[:5]
        assert after[3].startswith(f"close({fd})")
    assert not [c for c in calls if "/etc/passwd" in c or "nsswitch" in c]
