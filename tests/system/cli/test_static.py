# Goal of these tests: what `make static` builds is one file that needs nothing, and its locks
# are those of the ordinary program, beside which it is used.

import functools
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile

import pytest

from once import made_once
from support import DLOCK, FULL, ROOT, is_free, wait_for, where

if not shutil.which("musl-gcc"):
    pytest.skip("musl-gcc is not installed (apt install musl-tools)", allow_module_level=True)
STATIC = os.path.join(ROOT, "build", "static", "dlock")
BACKENDS = ["file", "redis", "zk", "memcached", "etcd"]
there = where(lambda place: place.name in BACKENDS)


@pytest.fixture(scope="module")
def static():
    made_once("static", lambda _: build())  # two makes at a time read each other's unfinished objects
    return STATIC


def build():
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}  # nothing of a make that tests another
    quickly = [] if FULL else ["CFLAGS=-O0"]  # a third of the time
    done = subprocess.run(["make", "-j2", "-C", ROOT, "static", *quickly], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600, check=False)
    assert done.returncode == 0 and "warning" not in done.stdout, done.stdout


@pytest.fixture
def other(static, dlock):
    """Runs the static program, unless it is told which."""
    dlock.start = functools.partial(dlock.start, program=static)
    return dlock


def said_by(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


def test_it_needs_no_other_file(static):
    assert "statically linked" in said_by("ldd", static)
    headers = said_by("readelf", "-ldW", static)
    assert "INTERP" not in headers and "(NEEDED)" not in headers
    assert "DYN (Position-Independent Executable file)" in headers  # its addresses are random all the same


def test_it_is_packed_for_any_linux(static, tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    subprocess.run(["make", "-s", "-C", ROOT, "-o", "static", "tarball-static", f"DIST={tmp_path}"], env=env, check=True)
    archive, = tmp_path.glob(f"dlock-*-linux-{os.uname().machine}-static.tar.gz")
    subprocess.run(["tar", "-C", tmp_path, "--strip-components=1", "-xzf", archive], check=True)
    program = tmp_path / "bin/dlock"
    assert said_by(program, "version") == said_by(static, "version")
    assert ".symtab" in said_by("readelf", "-SW", static) and ".symtab" not in said_by("readelf", "-SW", program)


def blob_of(image, digest):
    """What has it, and has it rightly."""
    kind, _, value = digest.partition(":")
    data = (image / "blobs" / kind / value).read_bytes()
    assert hashlib.sha256(data).hexdigest() == value
    return data


def test_it_is_packed_as_an_image(static, tmp_path):
    """One layer of it and its licences, the same each time, as the specification of OCI images and `docker save` have it."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    for name, zone in (("a", "UTC"), ("b", "Asia/Tokyo")):
        subprocess.run(["make", "-s", "-C", ROOT, "-o", "static", "image", f"DIST={tmp_path}/{name}"], env={**env, "TZ": zone}, check=True)
    first, second = (next((tmp_path / name).iterdir()) for name in "ab")
    version, arch = said_by(static, "version").split()[1], {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    assert first.name == second.name == f"dlock-{version}-{os.uname().machine}.oci.tar" and first.read_bytes() == second.read_bytes()
    image, root = tmp_path / "image", tmp_path / "root"
    with tarfile.open(first) as archive:
        archive.extractall(image)
    assert json.loads((image / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    entry, = json.loads((image / "index.json").read_text())["manifests"]
    manifest = json.loads(blob_of(image, entry["digest"]))
    layer, = manifest["layers"]
    for part in (entry, layer, manifest["config"]):
        assert len(blob_of(image, part["digest"])) == part["size"]
    config = json.loads(blob_of(image, manifest["config"]["digest"]))
    assert (config["architecture"], config["os"], config["config"]["Entrypoint"]) == (arch, "linux", ["/dlock"])
    data = gzip.decompress(blob_of(image, layer["digest"]))
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(data).hexdigest()]
    saved, = json.loads((image / "manifest.json").read_text())
    assert {"sha256:" + os.path.basename(path) for path in (saved["Config"], *saved["Layers"])} == {manifest["config"]["digest"], layer["digest"]}
    assert saved["RepoTags"] == [f"localhost/dlock:{version}"] == [entry["annotations"]["io.containerd.image.name"]]
    with tarfile.open(fileobj=io.BytesIO(data)) as files:
        assert files.getnames() == ["dlock", "licenses", "licenses/dlock"]
        files.extractall(root)
    for name in ("proc", "dev", "locks"):  # as whoever runs it makes them
        (root / name).mkdir()
    script = 'mount -t proc p "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" /dlock run -u file:///locks -k a -- /dlock status -u file:///locks a'
    done = subprocess.run(["unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, root],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("a (directory /locks) is held\n"), done


def test_it_says_what_it_can_do(other, static):
    assert "[s]" not in said_by(static, "version")  # without TLS
    lines = [line.split() for line in said_by(static, "version").splitlines()[1:] if line[2:3] != " "]
    assert [words[0] for words in lines if words[1:4] != ["not", "compiled", "in"]] == BACKENDS
    done = other.run("run", "-u", "postgres://localhost", "-k", "a", "--", "true")
    assert done.status == 78 and "without the pg backend" in done.stderr
    done = other.run("run", "-u", "zks://localhost", "-k", "a", "--", "true")
    assert done.status == 78 and "TLS is not compiled in" in done.stderr


@there
@pytest.mark.parametrize("script, status", [("exit 3", 3), ("kill -TERM $$", -signal.SIGTERM)])
def test_status_is_the_commands_own(other, place, script, status):
    done = other.run("run", *place.words, "-k", place.key(), "--", "sh", "-c", script)
    assert (done.status, done.stderr) == (status, "")


@there
def test_both_programs_take_the_same_lock(other, place, tmp_path):
    script = 'mkdir "$0" || exit 99; sleep 0.02; rmdir "$0"; echo $DLOCK_TOKEN'
    crowd = [other.contend(place, place.key(), command=("sh", "-c", script, tmp_path / "inside"), program=(DLOCK, STATIC)[n % 2])
             for n in range(12)]
    done = [s.wait() for s in crowd]
    assert [d.status for d in done] == [0] * 12 and len({int(d.stdout) for d in done}) == 12


@there
def test_each_sees_the_others_holder_and_breaks_its_lock(other, place):
    for holds, breaks in ((STATIC, DLOCK), (DLOCK, STATIC)):
        holder = other.contend(place, place.key(), "-t", "6s", program=holds).held()
        shown = other.run("status", *place.words, "-k", place.key(), program=breaks)
        assert shown.status == 0 and " is held\n" in shown.stdout, shown
        assert other.run("run", *place.words, "-k", place.key(), "-n", "--", "true", program=breaks).status == 75
        assert other.run("break", *place.words, "-k", place.key(), "-y", program=breaks).status == 0
        assert holder.wait().status == 79
    assert is_free(other, place)


@there
def test_a_killed_keeper_takes_the_command_along(other, place):
    holder = other.hold(place, place.key(), "-t", "3s")
    holder.signal(signal.SIGKILL, "keeper")
    assert holder.wait().status == 79
    assert other.hold(place, place.key()).finish().status == 0


def test_the_signal_that_musl_keeps_to_itself_is_passed_on_and_stays_blocked(other, tmp_path):
    words = ["run", "-u", f"file://{tmp_path}", "-k", "a", "--"]
    done = other.run(*words, "grep", "SigBlk", "/proc/self/status", restore_signals=False,
                     preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [34]))
    assert int(done.stdout.split()[1], 16) == 1 << 33
    held = other.start(*words, "bash", "-c", "trap 'exit 4' 34; echo ready; while sleep 0.05; do :; done")
    wait_for(lambda: "ready" in held.stdout(), what="the command")
    held.signal(34)
    assert held.wait().status == 4
