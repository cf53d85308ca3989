# Goal of these tests: what dlock-recipes(7) offers to be copied does what is said beside it.
# Each block is tried: run as it stands, or read as those do that are to run it.

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

from support import DLOCK, PATIENCE, descendants_of, kill, name_of, wait_for

spec = importlib.util.spec_from_file_location("documents", pathlib.Path(__file__).parent / "test_documents.py")
documents = importlib.util.module_from_spec(spec)
spec.loader.exec_module(documents)
RECIPES, TOP, block_with, blocks, text_of, tried = (getattr(documents, name) for name in (
    "RECIPES", "TOP", "block_with", "blocks", "text_of", "tried"))

# Where a block is tried; those without a name of a test here, in test_documents.py.
TRIED = ["--once \"$(date", "--done-within", "# nightly.service", "runs-on", "CI_JOB_URL", "pipeline {", "ssh build1", "ansible-playbook", "ansible.builtin",
         "FROM debian:12", "kind: CronJob", "ENTRYPOINT", "./manage migrate", "= :locked", "lock=$(dlock hold", "exec 9>",
         "-O path=/srv/locks/backup", "sudo --preserve", "-k geocoder", "./rebuild-cache", "$ dlock run -b file -k cache",
         "-k account-7", "echo inner", "$(MAKE)", "--held-over", "exporter/dlock.prom", "alert: JobNotDone",
         "log = syslog", "journalctl --since", "$programname ==", "sed 's/.*{", "unless-frozen = all-deploys", "dlock freeze all-deploys",
         "-k report --once-per", "Install dlock", "extends: .dlock", "skopeo copy", "COPY --from=registry",
         "install -m 640", "dlock-shop.prom", "backup: status", "dlock freeze -k", "import os, subprocess"]


def test_each_block_of_the_recipes_is_tried():
    found = blocks(RECIPES)
    assert [block for block in found if sum(marker in block for marker in TRIED) != 1] == []
    assert len(found) == len(TRIED)


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def try_it(tmp_path):
    """try_it(LINES...): what a shell says to them, where a lock is in tmp_path."""
    url = f"export DLOCK_BACKEND=file DLOCK_FILE_URL=file://{tmp_path}"
    return lambda *lines: tried([url, *lines], tmp_path)


# ---- schedulers ----


def test_a_host_that_comes_late_exits_at_once(try_it):
    """What is to be used where no runs are recorded."""
    words = re.search(r"^\.Ql (-n -E 0 --min-hold 30s)$", text_of(RECIPES).replace("\\-", "-"), re.M)[1].replace("30s", "4s")
    done = try_it(f"dlock run {words} -q -k nightly -- echo ran", f"dlock run {words} -q -k nightly -- echo ran; echo $?")
    assert done.stdout == "ran\n0\n"


def test_what_is_rolled_out_can_be_used(tmp_path):
    """As root of a host types it, with directories and a group of the test; the job's user is the test's."""
    etc = tmp_path / "etc"
    etc.mkdir()
    section = block_with("dlock-shop.prom", RECIPES).replace("/var/lib/node_exporter", str(tmp_path))
    (tmp_path / "dlock.conf").write_text(f"url = file://{tmp_path}\n{section}", encoding="utf-8")
    (tmp_path / "redis.password").write_text("secret\n", encoding="utf-8")
    typed = block_with("install -m 640", RECIPES).replace("/etc/", f"{etc}/").replace("-g dlock", f"-g {os.getegid()}")
    done = tried(["set -e", f"export DLOCK_CONFIG={etc}/dlock.conf", typed.replace("runuser -u jobs -- ", ""), "dlock run -k shop/a -- echo ran"],
                 tmp_path)
    assert done.returncode == 0 and f"{etc}/dlock.conf:1" in done.stdout and done.stdout.endswith("ran\n"), done
    assert (etc / "dlock" / "redis.password").stat().st_mode & 0o777 == 0o640
    assert 'key="shop/a"' in (tmp_path / "dlock-shop.prom").read_text(encoding="utf-8")


def test_an_alert_is_mailed_where_a_job_has_not_been_done(try_it):
    """As cron starts it: what is printed is mailed."""
    command = re.search(r"^0 8 \* \* \* +(.*)$", block_with("--done-within", RECIPES), re.M)[1]
    command = command.replace("/usr/local/bin/dlock", "dlock")
    ran = "dlock run -q -k {} --once-per day -- true".format
    first = try_it(ran("nightly"), command).stdout.splitlines()
    assert len(first) == 2 and "ended with 0" in first[0] and first[1].startswith("prices: no run"), first
    assert try_it(ran("prices"), command).stdout == ""


def test_a_job_that_fails_without_a_word_or_hangs_is_mailed_once(tmp_path, try_it):
    line = re.search(r"^5 4 \* \* \* +(.*)$", block_with("backup: status", RECIPES), re.M)[1]
    command = line.replace("/usr/local/bin/dlock", "dlock").replace("/usr/local/bin", str(tmp_path))
    program(tmp_path / "backup", "exit 3")
    assert [try_it(command).stdout for _ in range(2)] == ["backup: status 3\n", ""]
    program(tmp_path / "backup", "exec sleep 1000")
    command = command.replace("-k backup", "-k other").replace("--max-run 3h", "--max-run 100ms")
    hung, later = (try_it(command).stdout for _ in range(2))
    assert (hung.startswith("dlock: stopped "), hung.splitlines()[1:], later) == (True, ["backup: status 124"], "")


def units(directory):
    """The files of the systemd block, with a dlock that is there."""
    for unit in re.split(r"^# (?=nightly\.)", block_with("# nightly.service", RECIPES), flags=re.M)[1:]:
        name, _, text = unit.partition("\n")
        (directory / name).write_text(text.replace("/usr/local/bin/dlock", DLOCK))
    return [directory / f"nightly.{kind}" for kind in ("service", "timer")]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd")
@pytest.mark.parametrize("kept", [False, True], ids=["as written", "with --min-hold"])
def test_systemd_has_nothing_to_say_to_the_units(tmp_path, kept):
    service, timer = units(tmp_path)
    if kept:
        text = service.read_text().replace("Type=oneshot", "Type=exec\nExitType=cgroup")
        service.write_text(text.replace("-q ", "-q --min-hold 1m "))
    done = subprocess.run(["systemd-analyze", "verify", service, timer], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "nightly" in line] == [], done


def test_the_service_runs_the_job_on_one_host(dlock, tmp_path, try_it):
    """Whichever comes later, by however much within the half day, says nothing; one that comes early waits."""
    line = re.search(r"^ExecStart=(.*)$", units(tmp_path)[0].read_text(), re.M)[1].replace("/usr/local/bin", str(tmp_path))
    program(tmp_path / "nightly", "echo ran")
    holder = dlock.start("run", "-u", f"file://{tmp_path}", "-k", "nightly", "sleep", "1").held()
    assert try_it(f"{line} &", f"{line} &", "wait").stdout == "ran\n"
    assert holder.wait().status == 0
    done = try_it(line)
    assert (done.returncode, done.stdout) == (0, "")


def test_hosts_of_the_same_second_are_spread_and_one_runs_the_job(tmp_path, try_it):
    """Each host has its own second, below 60; as cron does it, a backslash is taken off each %."""
    line = re.search(r"^0 3 \* \* \* +(.*)$", block_with("-k report --once-per", RECIPES), re.M)[1].replace("\\%", "%")
    line = line.replace("/usr/local/bin", str(tmp_path))
    program(tmp_path / "report", "echo ran; /bin/sleep 0.5")
    program(tmp_path / "sleep", 'echo "$1" >>seconds; exec /bin/sleep 0')
    program(tmp_path / "hostname", 'echo "web-$HOST"')
    done = try_it(f"PATH={tmp_path}:$PATH", "for n in $(seq 1 20); do (export HOST=$n; " + line + ") & done; wait; export HOST=1;", line)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    seconds = [int(s) for s in (tmp_path / "seconds").read_text().split()]
    assert len(set(seconds)) > 10 and max(seconds) < 60


# ---- what a release has ----


def release(tmp_path, name):
    """A file of a release with a dlock that is there, its checksum, and programs that fetch it and install it in tmp_path."""
    tree = tmp_path / name / "bin"
    tree.mkdir(parents=True)
    shutil.copy(DLOCK, tree / "dlock")
    subprocess.run(["tar", "-C", tmp_path, "-czf", tmp_path / f"{name}.tar.gz", name], check=True)
    program(tmp_path / "fetch", f'[ "$2" = dlock.tar.gz ] && [ "$3" = https://files.example.org/dlock/{name}.tar.gz ] && cp "{tmp_path}/{name}.tar.gz" "$2"')
    for tool in ("curl", "wget"):
        program(tmp_path / tool, 'exec fetch "$@"')
    program(tmp_path / "sudo", 'exec "$@"')
    (tmp_path / "local").mkdir()
    done = subprocess.run(["sha256sum", tmp_path / f"{name}.tar.gz"], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()[0]


@pytest.mark.parametrize("marker, kind", [("Install dlock", ""), ("extends: .dlock", "-static")])
def test_runners_take_the_files_of_a_release(tmp_path, try_it, marker, kind):
    """Only those of the right checksum."""
    yaml = pytest.importorskip("yaml")
    version = text_of(TOP / "Makefile").split("\nVERSION := ")[1].split()[0]
    checksum = release(tmp_path, f"dlock-{version}-linux-x86_64{kind}")
    found = yaml.safe_load(block_with(marker, RECIPES))
    step = found[0] if isinstance(found, list) else found[".dlock"]
    variables = step.get("env") or step["variables"]
    lines = step["run"].splitlines() if "run" in step else step["before_script"]
    lines = [line.replace("/usr/local", f"{tmp_path}/local") for line in lines]
    start = [f"set -e; export PATH={tmp_path}:$PATH RELEASE={variables['RELEASE']} SHA256="]
    assert re.fullmatch("[0-9a-f]{64}", variables["SHA256"])
    wrong = try_it(start[0] + variables["SHA256"], *lines)
    assert wrong.returncode != 0 and not (tmp_path / "local/bin/dlock").exists()
    done = try_it(start[0] + checksum, *lines, f"{tmp_path}/local/bin/dlock version | head -n 1")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == f"dlock {version}", done
    if kind:
        program(tmp_path / "migrate.sh", "dlock status migrate/prod")
        done = try_it(*found["migrate"]["script"])
        assert done.returncode == 0 and "is held" in done.stdout


def test_the_image_is_named_as_it_is_packed():
    """What it is, test_static.py tells."""
    version = text_of(TOP / "Makefile").split("\nVERSION := ")[1].split()[0]
    name = re.search(r"oci-archive:(\S+) docker://registry.example.org/dlock:(\S+)", block_with("skopeo copy", RECIPES))
    assert name.groups() == (f"dlock-{version}-x86_64.oci.tar", f"{version}-x86_64")
    assert block_with("COPY --from=registry", RECIPES) == f"COPY --from=registry.example.org/dlock:{version}-x86_64 /dlock /usr/local/bin/dlock\n"


# ---- all deploys ----


def test_one_switch_stops_all_deploys(tmp_path):
    conf = block_with("unless-frozen = all-deploys", RECIPES)
    conf = re.sub("^url = .*$", f"url = file://{tmp_path}", conf, flags=re.M).replace("option =", "# option =")
    (tmp_path / "dlock.conf").write_text(conf)
    program(tmp_path / "deploy.sh", "echo deployed")
    commands, answers = documents.example("dlock freeze all-deploys", RECIPES)
    done = tried([f"export DLOCK_CONFIG={tmp_path}/dlock.conf", *commands], tmp_path)
    found = done.stdout.splitlines()
    assert len(found) == len(answers) and [found[n] for n in (0, 2, 3)] == [answers[n] for n in (0, 2, 3)], done.stdout
    for part in answers[1].split(" by ")[0].split(" (redis 10.0.0.5:6379)"):
        assert part in found[1]
    for part in ('"incident 4711"', "until dlock thaw; not waiting (-n), nothing was run"):
        assert part in found[1]
    mixed = tried([f"export DLOCK_CONFIG={tmp_path}/dlock.conf", "dlock run -n -k deploy/shop -k other -- true"], tmp_path)
    assert mixed.returncode == 78, mixed.stdout  # as said below


# ---- Jenkins, Ansible ----


def test_locks_in_use_are_frozen_where_there_is_no_switch(dlock, tmp_path, try_it):
    for key in ("deploy/shop", "deploy/a b", "other"):
        dlock.start("run", "-u", f"file://{tmp_path}", "-k", key, "--", "sleep", "1000").held()
    done = try_it(block_with("dlock freeze -k", RECIPES), "dlock ls -J | jq -c '[.key, .frozen.why]'")
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("[")) == [
        '["deploy/a b","incident 4711"]', '["deploy/shop","incident 4711"]', '["other",null]'], done


def test_the_pipeline_waits_less_than_its_timeout_and_deploys(tmp_path, try_it):
    text = block_with("pipeline {", RECIPES)
    hours = int(re.search(r"timeout\(time: (\d+), unit: 'HOURS'\)", text)[1])
    script = re.search(r"^ *sh '([^']*)'$", text, re.M)[1]
    assert hours > int(re.search(r"-w (\d+)h ", script)[1])
    assert text.count("{") == text.count("}") and "DLOCK_URL = credentials(" in text
    program(tmp_path / "deploy.sh", "dlock status deploy/prod")
    done = try_it("JOB_NAME=shop BUILD_URL=4711", script)
    assert done.returncode == 0 and '"shop 4711"' in done.stdout, done.stdout


def test_an_aborted_build_releases_the_lock_when_its_command_has_ended(dlock, tmp_path):
    """TERM reaches dlock's processes and the command's, in any order."""
    run = dlock.start("run", "-u", f"file://{tmp_path}", "-k", "deploy", "--", "sh", "-c",
                      f"trap 'until [ -e {tmp_path}/go ]; do sleep 0.05; done; exit 7' TERM; sleep 1000 & wait", events=False)
    wait_for(lambda: sum(name_of(p) == "sleep" for p in descendants_of(run.pid)) == 1, what="the command")
    for pid in (run.pid, *descendants_of(run.pid)):
        kill(pid, 15)
    time.sleep(0.3)
    assert dlock.run("status", "-u", f"file://{tmp_path}", "deploy").status == 0
    (tmp_path / "go").touch()
    assert run.wait().status == 7
    assert dlock.run("status", "-u", f"file://{tmp_path}", "deploy").status == 1


def test_a_playbook_runs_once_at_a_time(dlock, tmp_path, try_it):
    line = block_with("ansible-playbook", RECIPES).strip()
    program(tmp_path / "ansible-playbook", "echo $1")
    assert try_it(line).stdout == "site.yml\n"
    holder = dlock.start("run", "-u", f"file://{tmp_path}", "-k", "ansible/shop", "sleep", "1000").held()
    assert try_it(line).returncode == 75
    holder.destroy()


def test_a_task_of_ansible_runs_on_one_host(dlock, tmp_path, try_it):
    """Its conditions are expressions that Python reads as Ansible does."""
    yaml = pytest.importorskip("yaml")
    task, = yaml.safe_load(block_with("ansible.builtin", RECIPES))
    words = task["ansible.builtin.command"]["argv"]
    assert all(isinstance(word, str) for word in words) and task["environment"] == {"DLOCK_URL": "{{ dlock_url }}"}

    def says(condition, status):
        return eval(task[condition], {task["register"]: type("Result", (), {"rc": status})})

    program(tmp_path / "reindex", "exit $FAIL")
    holder = None
    for fail, changed, failed in (("", True, False), ("3", False, True), ("busy", False, False)):
        if fail == "busy":
            holder = dlock.start("run", "-u", f"file://{tmp_path}", "-k", "reindex", "sleep", "1000").held()
        status = try_it(f"FAIL={fail} {' '.join(words)}").returncode
        assert (says("changed_when", status), says("failed_when", status)) == (changed, failed), fail
    holder.destroy()
    option = re.search(r"^\.Ql (--cooldown 1h .*) \.$", text_of(RECIPES), re.M)[1]
    line = " ".join(words).replace("-n", f"-n {option}")
    assert [says("changed_when", try_it(line).returncode) for _ in range(2)] == [True, False]


@pytest.mark.skipif(not shutil.which("ansible-playbook"), reason="no ansible-core")
@pytest.mark.parametrize("busy", [False, True], ids=["free", "busy"])
def test_ansible_itself_runs_the_task(dlock, tmp_path, try_it, busy):
    """What it says of its task at the end: changed where the command was run, neither changed nor failed where the lock was taken."""
    task = block_with("ansible.builtin", RECIPES).replace("./reindex", str(tmp_path / "reindex"))
    task = "\n".join("    " + line for line in task.splitlines())
    play = f"- hosts: localhost\n  connection: local\n  gather_facts: false\n  vars: {{dlock_url: 'file://{tmp_path}'}}\n  tasks:\n{task}\n"
    (tmp_path / "site.yml").write_text(play)
    program(tmp_path / "reindex", "touch ran; dlock status reindex")
    holder = dlock.start("run", "-u", f"file://{tmp_path}", "-k", "reindex", "sleep", "1000").held() if busy else None
    line = block_with("ansible-playbook", RECIPES).strip()
    done = try_it("export LC_ALL=C.UTF-8 ANSIBLE_LOCALHOST_WARNING=0 ANSIBLE_NOCOLOR=1 HOME=$PWD", line)
    assert done.returncode == 0 and f"changed={0 if busy else 1} " in done.stdout and "failed=0" in done.stdout, done.stdout
    assert (tmp_path / "ran").exists() == (not busy)
    if holder:
        holder.destroy()


# ---- images and containers ----


def test_the_image_is_built_with_what_the_makefile_names(dlock):
    text = block_with("FROM debian:12", RECIPES).replace("\\\n", " ")
    build, run = [set(re.findall(r"(?<= )(?:lib[\w-]+|make|gcc|pkg-config)(?= |$)", line))
                  for line in re.findall(r"^RUN apt-get (.*)$", text, re.M)]
    needed = re.search(r"^BUILD_PACKAGES := (.*)$", (TOP / "Makefile").read_text(encoding="utf-8"), re.M)[1].split()
    assert build == {"make", *needed} and run == {"libpq5", "libmariadb3"}
    assert len(re.findall(r"^FROM debian:12", text, re.M)) == 2 and "make -C /src install DESTDIR=/out" in text


def first_process(tmp_path, *words):
    """It runs as process 1 of a container would."""
    program(tmp_path / "inside", f"export PATH={tmp_path}:$PATH DLOCK_URL=file://{tmp_path}; exec " + '"$@"')
    shutil.copy(DLOCK, tmp_path / "dlock")
    return subprocess.Popen(["unshare", "-fp", "--mount-proc", tmp_path / "inside", *words], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def words_of_an_image():
    """ENTRYPOINT and CMD."""
    found = re.findall(r'"([^"]*)"', block_with("ENTRYPOINT", RECIPES))
    assert found[0] == "dlock"
    return found


def words_of_a_pod():
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load(block_with("kind: CronJob", RECIPES))
    assert (job["kind"], job["apiVersion"], job["spec"]["schedule"]) == ("CronJob", "batch/v1", "5 2 * * *")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    container, = pod["containers"]
    assert pod["restartPolicy"] == "Never" and container["env"][0]["name"] == "DLOCK_URL"
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "dlock", "key": "url"}
    assert all(isinstance(word, str) for word in container["command"])
    return container["command"]


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces everywhere")
CONTAINERS = pytest.mark.parametrize("words_of", [words_of_an_image, words_of_a_pod])


@AS_ROOT
@CONTAINERS
def test_process_1_passes_signals_on_and_collects_what_others_leave(dlock, tmp_path, words_of):
    orphan = "sh -c 'sleep 0.1 & sleep 0.1 &'; sleep 0.5; until ps -eo stat= >states; ! grep -q Z states; do sleep 0.1; done"
    program(tmp_path / "nightly", f"cd {tmp_path}; {orphan}; trap 'echo cleaned; exit 3' TERM; : >up; sleep 1000 & wait")
    with first_process(tmp_path, *words_of()) as process:
        wait_for((tmp_path / "up").exists, what="the command")
        one, = [p for p in descendants_of(process.pid) if re.search(r"^NSpid:.*\t1$", pathlib.Path(f"/proc/{p}/status").read_text(), re.M)]
        assert name_of(one) == "dlock"
        kill(one, 15)
        said = process.communicate(timeout=PATIENCE)[0]
    assert (process.returncode, said) == (3, "cleaned\n")
    assert dlock.run("status", "-u", f"file://{tmp_path}", "nightly").status == 1


@AS_ROOT
def test_process_1_ends_with_128_and_the_signal(tmp_path):
    program(tmp_path / "nightly", "kill -KILL $$")
    with first_process(tmp_path, *words_of_an_image()) as process:
        assert process.wait(PATIENCE) == 128 + 9


@AS_ROOT
def test_process_1_ends_a_wait_on_term(dlock, tmp_path):
    holder = dlock.start("run", "-u", f"file://{tmp_path}", "-k", "nightly", "sleep", "1000").held()
    program(tmp_path / "nightly", "echo ran")
    with first_process(tmp_path, *words_of_an_image()) as process:
        status = ["status", "-J", "-u", f"file://{tmp_path}", "nightly"]
        wait_for(lambda: '"waiters":[]' not in dlock.run(*status).stdout.replace(" ", ""), what="the waiter")
        kill(next(p for p in descendants_of(process.pid) if name_of(p) == "dlock"), 15)
        said = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 128 + 15 and "ran" not in said
    holder.destroy()


@AS_ROOT
@pytest.mark.parametrize("option, background", [("--min-hold=1000s", "true"), ("--wait-tree", "(sleep 0.7; echo late) &"), ("-q", "(sleep 1; echo late) &")])
def test_nothing_outlives_process_1(dlock, tmp_path, option, background):
    """So nobody keeps the lock; what runs in the background is waited for only with --wait-tree."""
    program(tmp_path / "nightly", background)
    dlock_word, run, *rest = words_of_an_image()
    with first_process(tmp_path, dlock_word, run, option, *rest) as process:
        said = process.communicate(timeout=PATIENCE)[0]
    assert (process.returncode, "late" in said) == (0, option == "--wait-tree")
    assert dlock.run("status", "-u", f"file://{tmp_path}", "nightly").status == 1


# ---- scripts ----


def test_replicas_migrate_one_after_the_other(tmp_path, try_it):
    line = block_with("./manage migrate", RECIPES).strip()
    program(tmp_path / "manage", '[ "$1" = migrate ] && ! [ -e done ] || exit 0; echo migrating; sleep 0.3; touch done')
    program(tmp_path / "server", '[ -e done ] && echo serving')
    done = try_it(*[f"({line}) &" for _ in range(3)], "wait")
    assert done.stdout.splitlines() == ["migrating"] + 3 * ["serving"]


def test_a_section_of_a_script_is_the_same_with_flock_and_with_dlock(dlock, tmp_path, try_it):
    """When the lock is free, and when it is not."""
    scripts = [block_with("exec 9>", RECIPES).replace("/srv/locks", str(tmp_path)), block_with("lock=$(dlock hold", RECIPES)]
    for n, script in enumerate(scripts):
        program(tmp_path / f"script{n}", script)
    free = [try_it(f"./script{n}", "echo $?").stdout for n in (0, 1)]
    assert free[0] == free[1] == "this runs under the lock\nthis does not\n0\n"
    holder = dlock.start("run", "-u", f"file://{tmp_path}", "-k", "backup", "flock", tmp_path / "backup", "sleep", "1000").held()
    wait_for(lambda: subprocess.run(["flock", "-n", tmp_path / "backup", "true"], check=False).returncode, what="flock")
    busy = [try_it(f"./script{n} 2>log", "echo $?").stdout for n in (0, 1)]
    assert busy[0] == busy[1] == "1\n"
    holder.destroy()
    for n, script in enumerate(scripts):  # it is released where it says so
        program(tmp_path / f"script{n}", script.replace('echo "this does not"', "flock -n backup true && dlock status backup; echo $?"))
    url = f"unset DLOCK_BACKEND DLOCK_FILE_URL; export DLOCK_URL=file://{tmp_path}"
    assert [try_it(url, f"./script{n}").stdout.splitlines()[-1] for n in (0, 1)] == ["1", "1"]
    assert try_it("./script1").stdout.splitlines()[-1] == "1", "DLOCK_BACKEND is as it was"


def test_a_program_in_python_holds_a_lock_for_a_section(tmp_path, try_it):
    look = '    os.system("dlock status backup | head -n 1")\n'.lstrip()
    program = block_with("import os, subprocess", RECIPES).replace('print("this', look + 'print("this') + look
    (tmp_path / "program.py").write_text(program)
    said = try_it("/usr/bin/python3 -u program.py").stdout
    assert re.fullmatch(r"backup \(.*\) is held\nthis runs under the lock\nbackup \(.*\) is free\n", said), said


def rows():
    """The table of what does the same, as [flock's line, dlock's line]."""
    table = re.search(r"^\.It Sy flock Ta Sy dlock$(.*?)^\.El$", text_of(RECIPES), re.M | re.S)[1]
    return [[re.sub(r"^Li ", "", cell) for cell in row.split(" Ta ")] for row in re.findall(r"^\.It (.*)$", table.replace("\\&", ""), re.M)]


def test_the_table_of_flock_is_read():
    assert len(rows()) == 8 and all(len(row) == 2 for row in rows())


class Side:
    """One of both ways to lock: its lines run in a directory, whose lock somebody may hold."""

    def __init__(self, n, directory):
        self.n, self.directory = n, directory
        self.holder = None
        self.env = {"PATH": f"{directory}:{os.environ['PATH']}", "DLOCK_BACKEND": "file", "DLOCK_FILE_URL": f"file://{directory}",
                    "USER": "alice", "SHELL": "/bin/sh"}

    def hold(self, *kind):
        words = [["flock", *kind, "lock"], ["dlock", "run", *kind, "-k", "lock", "--"]][self.n]
        self.holder = subprocess.Popen([*words, "sh", "-c", "echo; read x; exit"], cwd=self.directory, env=self.env, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)
        assert self.holder.stdout.readline()

    def start(self, line):
        line = line.replace("FILE", "lock").replace("NAME", "lock").replace("CMD", "./command").replace("STRING", "./command")
        return subprocess.Popen(["bash", "-c", line], cwd=self.directory, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                text=True)

    def free(self):
        self.holder.communicate()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_of_the_table_of_flock_does_the_same_on_both_sides(tmp_path, row):
    """Free, held by another, held by a reader: what ran, when, and the status, but for 1 and 75."""
    shutil.copy(DLOCK, tmp_path / "dlock")
    program(tmp_path / "command", "echo ran; exit 3")
    sides = [Side(n, tmp_path) for n in (0, 1)]
    assert [side.start(line).communicate()[0] for side, line in zip(sides, row)] == ["ran\n", "ran\n"]
    for kind in ([], ["-s"]):
        for side in sides:
            side.hold(*kind)
        started = [side.start(line) for side, line in zip(sides, row)]
        joins, gives_up = kind == ["-s"] and "-s" in row[0].split(), re.search(r" -[nw]", row[0])
        time.sleep(0 if joins or gives_up else 0.5)
        assert joins or gives_up or [process.poll() for process in started] == [None, None], "they wait"
        if not gives_up and not joins:
            for side in sides:
                side.free()
        said = [process.communicate(timeout=PATIENCE)[0] for process in started]
        statuses = [process.returncode for process in started]
        if gives_up:
            assert said == ["", ""] and statuses == ([9, 9] if "-E 9" in row[0] else [1, 75])
        else:
            assert said == ["ran\n", "ran\n"] and statuses == [3, 3]
        for side in sides:
            if side.holder.poll() is None:
                side.free()


def test_what_is_said_to_differ_from_flock_does(try_it):
    late = "sh -c '(sleep 1000 >/dev/null 2>&1 & echo $! >pid)'"
    done = try_it(f"flock f {late}; flock -n f true; echo $?; kill $(cat pid)",
                  f"flock -o f {late}; flock -n f true; echo $?; kill $(cat pid)",
                  f"dlock run -k f -- {late}; dlock run -n -k f true; echo $?; kill $(cat pid)",
                  "dlock run -k f --wait-tree -- sh -c '(sleep 0.5; echo waited) &'",
                  "export SHELL=/bin/bash; flock f -c 'echo ${BASH_VERSION:+bash}'; dlock run -k f -c 'readlink /proc/$$/exe' | grep -c dash")
    assert done.stdout.split() == ["1", "0", "0", "waited", "bash", "1" if os.path.realpath("/bin/sh").endswith("dash") else "0"]


def test_while_programs_move_from_flock_they_take_its_lock(dlock, tmp_path, try_it):
    line = block_with("-O path=/srv/locks/backup", RECIPES).strip().replace("/srv/locks", str(tmp_path))
    program(tmp_path / "backup.new", "flock -n backup true; echo $?")
    assert try_it(line.replace("./backup", "./backup.new")).stdout == "1\n"
    for file in ("backup", "backup.lock"):  # the lock of a key is another one
        done = try_it(f"flock {file} sh -c 'touch up; until [ -e go ]; do sleep 0.05; done' & until [ -e up ]; do sleep 0.05; done",
                      f"flock -n {file} true; echo $?; dlock run -n -k backup -- echo apart; touch go; wait; rm up go")
        assert done.stdout == "1\napart\n"


def test_sudo_keeps_the_url(tmp_path, try_it):
    line = block_with("sudo --preserve", RECIPES).strip().replace("/usr/local/bin", str(tmp_path))
    keep = re.match(r"sudo --preserve-env=(\w+) ", line)[1]
    program(tmp_path / "sudo", f'shift; exec env -i PATH="$PATH" "{keep}=${keep}" "$@"')
    program(tmp_path / "nightly", "dlock status nightly")
    done = try_it("unset DLOCK_BACKEND DLOCK_FILE_URL", f"export DLOCK_URL=file://{tmp_path}", line)
    assert done.returncode == 0 and "nightly (directory" in done.stdout, done.stdout


def test_each_of_a_few_has_a_key_of_its_own(tmp_path, try_it):
    line = block_with("-k geocoder", RECIPES).strip()
    (tmp_path / "keys").write_text("".join(f"key{n}\n" for n in range(4)))
    program(tmp_path / "worker", 'echo "$API_KEY" | tee -a started; until [ "$(wc -l <started)" = 4 ]; do sleep 0.05; done')
    done = try_it(*[f"{line} &" for _ in range(4)], "wait")
    assert sorted(done.stdout.split()) == [f"key{n}" for n in range(4)]


def test_a_cache_is_rebuilt_once(tmp_path, try_it):
    line = block_with("./rebuild-cache", RECIPES).strip()
    program(tmp_path / "rebuild-cache", "echo rebuilding")
    program(tmp_path / "serve-from-cache", "echo serving")
    done = try_it(*[f"({line}) &" for _ in range(3)], "wait")
    assert sorted(done.stdout.split()) == ["rebuilding"] + 3 * ["serving"]


def test_the_makefile_passes_jobs_on(tmp_path, try_it):
    (tmp_path / "Makefile").write_text(block_with("$(MAKE)", RECIPES) + "deploy-unlocked: a b\na b:\n\t@dlock status deploy/x | head -1; sleep 1\n")
    done = try_it("unset MAKEFLAGS MAKELEVEL", "make -s -j2 ENV=x deploy", "echo $?")
    assert done.stdout.splitlines()[-1] == "0" and done.stdout.count("is held") == 2 and "jobserver" not in done.stdout, done.stdout


# ---- alerts ----


def test_cron_mails_of_a_lock_that_is_held_too_long_and_of_nothing_else(dlock, tmp_path, try_it):
    line = block_with("--held-over", RECIPES).split("*  ")[1].strip().replace("/usr/local/bin/dlock", "dlock")
    holder = dlock.start("run", "-u", f"file://{tmp_path}", "-k", "backup", "sleep", "1000").held()
    done = try_it(line)
    assert (done.returncode, done.stdout) == (0, "")
    done = try_it(f"sleep 0.3; {line.replace('2h', '200ms')}")
    assert done.returncode == 1 and done.stdout.startswith("backup ") and done.stdout.count("\n") == 1
    holder.destroy()


def test_prometheus_reads_what_the_rules_ask_for(dlock, tmp_path, try_it):
    yaml = pytest.importorskip("yaml")
    setting, cron = (line.replace("/var/lib/node_exporter", str(tmp_path)) for line in block_with("exporter/dlock.prom", RECIPES).split("\n\n"))
    (tmp_path / "conf").write_text(setting)
    listed = cron.split("*  ")[1].strip().replace("/usr/local/bin/dlock", "dlock")
    assert dlock.run("run", "--config", tmp_path / "conf", "-u", f"file://{tmp_path}", "-k", "nightly", "true").status == 0
    holder = dlock.start("run", "-u", f"file://{tmp_path}", "-k", "nightly", "sleep", "1000").held()
    assert try_it(listed).returncode == 0 and not (tmp_path / "locks.new").exists()
    holder.destroy()
    told = (tmp_path / "dlock.prom").read_text() + (tmp_path / "locks.prom").read_text()
    rules = yaml.safe_load(block_with("alert: JobNotDone", RECIPES))["groups"][0]["rules"]
    asked = {name for rule in rules for name in re.findall(r"dlock_\w+", rule["expr"])}
    assert len(rules) == len(asked) == 4
    assert asked <= set(re.findall(r'^(dlock_\w+)\{key="nightly",backend="file"', told, re.M))


# ---- the log ----


def test_the_log_tells_who_stopped_a_deployment(dlock, tmp_path, try_it):
    """By the line of the recipe, from what two users have logged in one file; syslog has the same lines."""
    line = block_with("sed 's/.*{", RECIPES).strip().replace("/var/log", str(tmp_path))
    env = {"DLOCK_LOG": f"{tmp_path}/dlock.log"}
    words = ["-u", f"file://{tmp_path}", "-k", "deploy/prod", "--who"]
    carol = dlock.start("run", *words, "carol", "-t", "3s", "sleep", "1000", env=env).held()
    assert dlock.run("break", "-y", *words, "bob", "--why", "hotfix 4711", env=env).status == 0
    assert carol.wait().status == 79
    told = sorted((row.split("\t") for row in try_it(line).stdout.splitlines()), key=lambda row: row[1])  # both are told at once
    assert [(row[1], row[2], row[3]) for row in told] == [("break", "bob", "hotfix 4711"), ("lost", "carol", "")], told
    assert told[0][4].startswith("carol (pid ") and 'broken by bob "hotfix 4711"' in told[1][5]
    setting, shown, sent = (block_with(marker, RECIPES) for marker in ("log = syslog", "journalctl --since", "$programname =="))
    (tmp_path / "conf").write_text(setting)
    assert re.search(r"^log +syslog ", dlock.run("config", "--config", tmp_path / "conf").stdout, re.M)
    assert "-t dlock " in shown and "== 'dlock'" in sent and sent.count("(") == sent.count(")")
