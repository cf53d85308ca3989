# Goal of these tests: what is handed on to others is complete, is the same whoever packs it, works
# where it is unpacked or installed, and leaves nothing behind.

import contextlib
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

import pytest

from support import DLOCK, FULL, ROOT

# As in test_make.py: nothing of a make that tests another one.
ENV = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "DLOCK", "GNUMAKE"))}
TOP = pathlib.Path(ROOT)
OLDEST = (2, 31)  # of glibc
BACKENDS = ["file", "redis", "zk", "pg", "mysql", "memcached", "etcd"]
MAINTAINER = "A O'B & \\1 /C <a@b.example>"
if DLOCK != str(TOP / "build/dlock"):
    pytest.skip("another program than build/dlock is tested, and only that one is packed", allow_module_level=True)


def said_by(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    assert done.returncode == 0, (words, done.stdout)
    return done.stdout


def make(*goals, where=ROOT, **options):
    """What is built already is packed."""
    return said_by("make", "-s", "-C", where, "-o", "all", *goals, env={**ENV, **options.pop("env", {})}, **options)


def one(directory, pattern):
    found, = pathlib.Path(directory).glob(pattern)
    return found


def needed_glibc(program):
    """The versions that it asks for, each as a tuple of numbers."""
    return {tuple(map(int, v.split("."))) for v in re.findall(r" Name: GLIBC_([\d.]+) ", said_by("readelf", "-VW", program))}


def build_id(program):
    return re.search(r"Build ID: (\w+)", said_by("readelf", "-nW", program))[1]


def check_it_runs(program, tmp_path):
    """It is the version that was built, and takes a lock."""
    assert said_by(program, "version") == said_by(DLOCK, "version")
    (tmp_path / "locks").mkdir()
    done = subprocess.run([program, "run", "-u", f"file://{tmp_path}/locks", "-k", "a", "--", "sh", "-c", "echo $DLOCK_KEY; exit 3"],
                          env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "a\n")


def check_notices(text):
    """Of dlock and of each library that is inside."""
    assert text.startswith((TOP / "LICENSE").read_text(encoding="utf-8"))
    for library in ("libhiredis-dev", "libjansson-dev", "libzookeeper-mt-dev"):
        assert f"inside: {library}" in text, text
    assert "Apache" in text and text.count("opyright") > 5


def check_symbols(program, debug):
    """It is stripped; what a debugger will look for is there, and belongs to it."""
    name = build_id(program)
    symbols = one(debug, f"**/lib/debug/.build-id/{name[:2]}/{name[2:]}.debug")
    sections = said_by("readelf", "-SW", program), said_by("readelf", "-SW", symbols)
    assert [(".debug_info" in s, ".symtab" in s) for s in sections] == [(False, False), (True, True)]
    assert build_id(symbols) == name
    assert (program.stat().st_mode & 0o111, symbols.stat().st_mode & 0o111) == (0o111, 0)


# ---- the version ----


def test_the_version_comes_from_one_place(tmp_path):
    version, = re.findall(r"^VERSION := (\S+)$", (TOP / "Makefile").read_text(encoding="utf-8"), re.M)
    assert said_by(DLOCK, "version").startswith(f"dlock {version}\n")
    assert re.findall(r"^## (\S+)", (TOP / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[0] == version
    assert f"This is version {version}," in (TOP / "README.md").read_text(encoding="utf-8")
    done = subprocess.run(["make", "-s", "-C", ROOT, "dist", "VERSION=99.1", f"DIST={tmp_path}"], env=ENV, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 2 and "CHANGELOG.md says nothing of 99.1" in done.stdout


# ---- the source ----


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dist")
    make("dist", f"DIST={directory}")
    return one(directory, "dlock-*.tar.gz")


@pytest.fixture
def unpacked(source, tmp_path):
    """It, where there is no git."""
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path)
    return tmp_path / source.name.removesuffix(".tar.gz")


@pytest.mark.full  # make release compares all that it makes, too
def test_the_source_archive_is_the_same_each_time(source, unpacked, tmp_path):
    make("dist", f"DIST={tmp_path}/again", env={"TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"}, umask=0o077)
    assert one(tmp_path, "again/*").read_bytes() == source.read_bytes()
    (unpacked / "tests/__pycache__").mkdir()  # that somebody has worked there is no matter
    (unpacked / "tests/__pycache__/x.pyc").touch()
    make("dist", f"DIST={tmp_path}/third", where=unpacked)
    assert one(tmp_path, "third/*").read_bytes() == source.read_bytes()
    make("dist", f"DIST={tmp_path}/older", env={"SOURCE_DATE_EPOCH": "1700000000"})
    with tarfile.open(one(tmp_path, "older/*")) as archive:
        members = archive.getmembers()
    assert {(m.mtime, m.uid, m.gid, m.mode | 0o100) for m in members} == {(1700000000, 0, 0, 0o744)} | {(1700000000, 0, 0, 0o755)}
    assert [m.name for m in members] == sorted(m.name for m in members)


def test_dlock_is_built_from_the_source_archive(unpacked, tmp_path):
    """One backend of it: that all files are there, the next test and `make check-all` tell."""
    git = tmp_path / "bin/git"
    git.parent.mkdir()
    git.write_text("#!/bin/sh\necho 'git: not found' >&2; exit 127\n")
    git.chmod(0o755)
    said_by("make", "-s", "-C", unpacked, "CFLAGS=-O0", *(f"WITH_{w}=no" for w in ("REDIS", "ZK", "PG", "MYSQL", "MEMCACHED", "ETCD", "TLS")),
            env={**ENV, "PATH": f"{git.parent}:{ENV['PATH']}"}, timeout=300)
    assert json.loads(said_by(unpacked / "build/dlock", "version", "-J"))["backends"] == ["file"]
    assert said_by(unpacked / "build/dlock", "version").splitlines()[0] == said_by(DLOCK, "version").splitlines()[0]


def test_an_object_is_the_same_in_any_directory(unpacked, tmp_path):
    """Its debug symbols, and so the program's build ID, name no directory of who builds."""
    for n, where in enumerate((TOP, unpacked)):
        make(f"O={tmp_path}/{n}", f"{tmp_path}/{n}/cmd/exit.o", where=where)
    objects = [(tmp_path / str(n) / "cmd/exit.o").read_bytes() for n in range(2)]
    assert objects[0] == objects[1] and b"cmd/exit.c" in objects[0]


@pytest.mark.skipif(not (TOP / ".git").exists(), reason="this is a source archive, which has no list of its own to compare with")
def test_the_source_archive_has_what_git_has(unpacked):
    known = said_by("git", "-C", ROOT, "ls-files", "-z").split("\0")[:-1]
    assert sorted(str(p.relative_to(unpacked)) for p in unpacked.rglob("*") if p.is_file()) == sorted(known)


# ---- for Debian ----


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The directory of both; whoever packs may hide his files."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb: this is no Debian, and packs no .deb")
    directory = tmp_path_factory.mktemp("deb")
    make("deb", f"DIST={directory}", "BINDIR=/elsewhere", env={"MAINTAINER": MAINTAINER, "MANDIR": "/elsewhere"}, umask=0o077)
    return directory


def test_the_package_says_what_it_needs(packages):
    version = said_by(DLOCK, "version").split()[1]
    names = sorted(path.name for path in packages.iterdir())
    arch = said_by("dpkg", "--print-architecture").strip()
    assert names == [f"dlock-dbgsym_{version}-1_{arch}.deb", f"dlock_{version}-1_{arch}.deb"]
    fields = dict(re.findall(r"^(\S+): (.*)$", said_by("dpkg-deb", "-f", packages / names[1]), re.M))
    assert fields["Maintainer"] == MAINTAINER and fields["Version"] == f"{version}-1"
    newest = ".".join(map(str, max(needed_glibc(DLOCK))))
    assert fields["Depends"] == f"libc6 (>= {newest})"
    # the libraries that dlock loads, as Debian 12 and 13 call them
    packages_of = {"libpq.so.5": "libpq5", "libmariadb.so.3": "libmariadb3", "libssl.so.3": "libssl3t64 | libssl3"}
    assert fields["Recommends"].split(", ") == [*packages_of.values(), "ca-certificates"]
    loaded = {library["file"] for library in json.loads(said_by(DLOCK, "version", "-J"))["libraries"]}
    assert loaded <= {*packages_of, "libssl.so.1.1"}  # the last one is of Debian 11
    symbols = dict(re.findall(r"^(\S+): (.*)$", said_by("dpkg-deb", "-f", packages / names[0]), re.M))
    assert symbols["Depends"] == f"dlock (= {version}-1)"


@pytest.mark.full  # make release compares all that it makes, too
def test_the_packages_are_the_same_each_time(packages, tmp_path):
    """On another file system, too, whose directories have other sizes."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else tmp_path) as elsewhere:
        make("deb", f"DIST={elsewhere}", env={"MAINTAINER": MAINTAINER, "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "DPKG_DEB_THREADS_MAX": "1"})
        for package in packages.iterdir():
            assert pathlib.Path(elsewhere, package.name).read_bytes() == package.read_bytes(), package.name


def test_the_package_has_what_make_install_installs(packages, tmp_path):
    package = one(packages, "dlock_*")
    listed = [line.split(None, 5) for line in said_by("dpkg-deb", "-c", package).splitlines()]
    assert {(mode, owner) for mode, owner, *_ in listed} == {("drwxr-xr-x", "root/root"), ("-rw-r--r--", "root/root"), ("-rwxr-xr-x", "root/root")}
    assert [name for mode, *_, name in listed if mode == "-rwxr-xr-x"] == ["./usr/bin/dlock"]
    there = {name.removeprefix("./usr/").removesuffix(".gz") for mode, *_, name in listed if mode[0] == "-"}
    make("install", f"DESTDIR={tmp_path}", "PREFIX=/usr", "ZSHCOMPDIR=/usr/share/zsh/vendor-completions")
    installed = {str(path.relative_to(tmp_path / "usr")) for path in tmp_path.rglob("*") if path.is_file()}
    assert there - installed == {f"share/doc/dlock/{name}" for name in ("README.md", "changelog", "changelog.Debian", "copyright")}
    assert installed <= there


def test_the_package_is_unpacked_and_runs(packages, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for package in packages.iterdir():
        said_by("dpkg-deb", "-R", package, tree / package.name.partition("_")[0])
    root = tree / "dlock"
    check_it_runs(root / "usr/bin/dlock", tmp_path)
    check_symbols(root / "usr/bin/dlock", tree / "dlock-dbgsym")
    assert said_by("md5sum", "--quiet", "-c", "DEBIAN/md5sums", cwd=root) == ""
    doc = root / "usr/share/doc/dlock"
    check_notices((doc / "copyright").read_text(encoding="utf-8"))
    changes = gzip.decompress((doc / "changelog.Debian.gz").read_bytes()).decode()
    told = said_by("dpkg-parsechangelog", "-l-", input=changes) if shutil.which("dpkg-parsechangelog") else changes
    assert said_by("dpkg-deb", "-f", one(packages, "dlock_*"), "Version").strip() in told and MAINTAINER in told
    pages = [path for path in (root / "usr/share/man").rglob("*") if path.is_file()]
    assert len(pages) > 20 and all(re.search(r"\.[157]\.gz$", page.name) for page in pages)
    for page in pages:  # a page that is another one's names it as `man` finds it
        text = gzip.decompress(page.read_bytes()).decode()
        assert not text.startswith(".so ") or (root / "usr/share/man" / f"{text.split()[1]}.gz").exists(), page
    assert [path for path in root.rglob("*") if path.is_file() and ROOT.encode() in path.read_bytes()] == []


# ---- for Fedora, RHEL, SUSE ----


@pytest.fixture(scope="module")
def rpms(tmp_path_factory):
    if not shutil.which("rpmbuild"):
        pytest.skip("no rpmbuild (apt install rpm)")
    directory = tmp_path_factory.mktemp("rpm")
    make("rpm", f"DIST={directory}", env={"MAINTAINER": MAINTAINER}, umask=0o077)
    return directory


def query(package, form):
    return said_by("rpm", "-qp", "--qf", form, package)


def test_the_rpm_says_what_it_needs(rpms):
    version, machine = said_by(DLOCK, "version").split()[1], os.uname().machine
    names = sorted(path.name for path in rpms.iterdir())
    assert names == [f"dlock-{version}-1.{machine}.rpm", f"dlock-debuginfo-{version}-1.{machine}.rpm"]
    main, debug = (rpms / name for name in names)
    for package in (main, debug):
        assert "digests OK" in said_by("rpm", "-K", package)
        assert query(package, "%{PACKAGER}|%{VERSION}-%{RELEASE}|%{ARCH}|%{BUILDHOST}") == f"{MAINTAINER}|{version}-1|{machine}|packages.invalid"
    needs = said_by("rpm", "-qp", "--requires", main)
    assert max(tuple(map(int, v.split("."))) for v in re.findall(r"\(GLIBC_([\d.]+)\)", needs)) <= OLDEST
    assert set(re.findall(r"^(lib\w+)\.so", needs, re.M)) <= {"libc", "libm", "libpthread", "libdl", "librt"}
    loaded = {library["file"] for library in json.loads(said_by(DLOCK, "version", "-J"))["libraries"]}
    assert set(re.findall(r"lib\w+\.so[.\d]+", said_by("rpm", "-qp", "--recommends", main))) == loaded
    assert f"dlock = {version}-1\n" in said_by("rpm", "-qp", "--requires", debug)


def test_the_rpm_has_what_make_install_installs(rpms, tmp_path):
    package = one(rpms, "dlock-[0-9]*")
    listed = [line.split() for line in query(package, "[%{FILENAMES} %{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME}\\n]").splitlines()]
    assert {(mode, owner) for _, mode, owner in listed} == {("drwxr-xr-x", "root:root"), ("-rw-r--r--", "root:root"), ("-rwxr-xr-x", "root:root")}
    assert [name for name, mode, _ in listed if mode == "-rwxr-xr-x"] == ["/usr/bin/dlock"]
    there = {name.removeprefix("/usr/").removesuffix(".gz") for name, mode, _ in listed if mode[0] == "-"}
    make("install", f"DESTDIR={tmp_path}", "PREFIX=/usr")
    installed = {str(path.relative_to(tmp_path / "usr")) for path in tmp_path.rglob("*") if path.is_file()}
    assert there - installed == {"share/doc/dlock/README.md", "share/doc/dlock/CHANGELOG.md", "share/licenses/dlock/LICENSE"} and installed <= there
    assert said_by("rpm", "-qp", "--licensefiles", package) == "/usr/share/licenses/dlock/LICENSE\n"
    assert said_by("rpm", "-qp", "--scripts", "--triggers", package) == ""


def test_what_the_rpms_bring_goes_with_them(rpms, tmp_path):
    """Its directories, too, but for those that any system has."""
    if os.geteuid() != 0:
        pytest.skip("rpm installs below a directory as root only")
    root = tmp_path / "root"
    for directory in ("usr/bin", "usr/lib/debug", "usr/share/man/man1", "usr/share/man/man5", "usr/share/man/man7", "usr/share/doc", "usr/share/licenses"):
        (root / directory).mkdir(parents=True)
    rpm = ["rpm", "--root", root, "--dbpath", "/db"]
    before = {path for path in root.rglob("*")}
    said_by(*rpm, "-i", "--nodeps", *rpms.iterdir())
    assert said_by(*rpm, "-V", "--nodeps", "dlock", "dlock-debuginfo") == ""
    assert {path.relative_to(root).as_posix() for path in root.rglob("*")} >= {"usr/bin/dlock", "usr/share/doc/dlock/README.md"}
    said_by(*rpm, "-e", "dlock-debuginfo", "dlock")
    assert {path for path in root.rglob("*") if path != root / "db" and root / "db" not in path.parents} == before


def test_the_rpm_is_the_same_each_time_is_unpacked_and_runs(rpms, tmp_path):
    make("rpm", f"DIST={tmp_path}/again", env={"MAINTAINER": MAINTAINER, "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"})
    for package in rpms.iterdir():
        assert (tmp_path / "again" / package.name).read_bytes() == package.read_bytes()
        tree = tmp_path / re.sub(r"-\d.*", "", package.name)
        tree.mkdir()
        with open(package, "rb") as f, subprocess.Popen(["rpm2archive", "-"], stdin=f, stdout=subprocess.PIPE) as archive, \
                tarfile.open(fileobj=archive.stdout, mode="r|gz") as files:
            files.extractall(tree)
    program = tmp_path / "dlock/usr/bin/dlock"
    check_symbols(program, tmp_path / "dlock-debuginfo")
    check_it_runs(program, tmp_path)
    check_notices((tmp_path / "dlock/usr/share/licenses/dlock/LICENSE").read_text(encoding="utf-8"))


# ---- for any Linux ----


def unpack(directory, tmp_path, ending):
    """The tree of a tarball, and that of its debug symbols."""
    with contextlib.ExitStack() as stack:
        for name, more in (("tree", ""), ("debug", "-debug")):
            archive = stack.enter_context(tarfile.open(one(directory, f"dlock-*-linux-{ending}{more}.tar.gz")))
            assert {(m.uid, m.gid, m.mode & 0o022) for m in archive.getmembers()} == {(0, 0, 0)}
            archive.extractall(tmp_path / name)
    return one(tmp_path / "tree", "*"), tmp_path / "debug"


@pytest.fixture(scope="module")
def tarball(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tarball")
    make("tarball-glibc", f"DIST={directory}", umask=0o077)
    return directory


def test_the_tarball_asks_for_an_old_glibc_and_no_other_library(tarball, tmp_path):
    tree, debug = unpack(tarball, tmp_path, os.uname().machine)
    program = tree / "bin/dlock"
    assert max(needed_glibc(program)) <= OLDEST < max(needed_glibc(DLOCK))
    libraries = set(re.findall(r"\(NEEDED\).*\[(\w+)\.so", said_by("readelf", "-dW", program)))
    assert libraries <= {"libc", "libm", "libpthread", "libdl", "librt"}
    assert "Flags: NOW PIE" in said_by("readelf", "-dW", program)
    # those that are loaded later are to find it what they find in any program
    exported = [set(re.findall(r" [TWi] (\w+)", said_by("nm", "-D", p))) for p in (program, DLOCK)]
    assert exported[0] == exported[1]
    check_symbols(program, debug)
    check_it_runs(program, tmp_path)


def test_the_tarball_is_installed_as_it_says(tarball, tmp_path):
    archive = one(tarball, f"*-{os.uname().machine}.tar.gz")
    text = (TOP / "packages/INSTALL").read_text(encoding="utf-8")
    where = tmp_path / "local"
    (where / "share").mkdir(parents=True)
    (where / "share").chmod(0o2775)
    (where / "pages/man1").mkdir(parents=True)
    (where / "pages/man1/other.1").touch()
    (where / "share/man").symlink_to("../pages")
    commands = [command for command in re.findall(r"^    (.*)$", text, re.M) if re.match(r"tar .*-linux-", command)]
    assert [command.split()[1] for command in commands] == ["-C", "-tzf"]
    for command in commands:
        said_by("sh", "-euc", command.replace("dlock-VERSION-linux-MACHINE.tar.gz", str(archive)).replace("/usr/local", str(where)))
        if command.startswith("tar -C"):
            assert said_by(where / "bin/dlock", "version") == said_by(DLOCK, "version")
            assert (where / "share/doc/dlock/INSTALL").exists() and (where / "pages/man1/dlock.1").exists()
            assert (where / "share").stat().st_mode & 0o7777 == 0o2775 and (where / "share/man").is_symlink()
            check_notices((where / "share/doc/dlock/LICENSE").read_text(encoding="utf-8"))
    assert [path.name for path in where.rglob("*") if path.is_file()] == ["other.1"]


def test_a_program_that_asks_for_more_is_not_packed(tmp_path):
    """Each with a sentence, and nothing is left."""
    env = {**ENV, "DIST": str(tmp_path), "VERSION": "1", "OBJCOPY": "objcopy", "TAR": "tar", "SOURCE_DATE_EPOCH": "0", "MAKE": "make"}
    for program, said in ((DLOCK, "needs glibc 2."), ("/bin/bash", "needs libtinfo.so.")):
        done = subprocess.run(["sh", "packages/pack.sh", "tar", program, "x", "2.31"], cwd=ROOT, env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 1 and f"{program} {said}" in done.stdout and done.stdout.count("\n") == 1
        assert list(tmp_path.iterdir()) == []


def test_a_program_that_needs_an_abi_is_not_packed(tmp_path):
    readelf = tmp_path / "bin/readelf"
    readelf.parent.mkdir()
    readelf.write_text("#!/bin/sh\necho '  0x0010:   Name: GLIBC_ABI_DT_RELR  Flags: none  Version: 2'\n")
    readelf.chmod(0o755)
    done = subprocess.run(["sh", "packages/pack.sh", "tar", DLOCK, "x", "2.31"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**ENV, "DIST": str(tmp_path), "PATH": f"{readelf.parent}:{ENV['PATH']}"}, text=True, check=False)
    assert done.returncode == 1 and "needs GLIBC_ABI_DT_RELR" in done.stdout, done


# ---- in fresh systems: make check-all ----

# Nobody's process is seen there, and whoever is interrupted leaves no mounts; only the network and its packages are this machine's.
APART = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
QUIETLY = 'quietly() { "$@" >/root/log 2>&1 || { cat /root/log; exit 1; }; }\n'
TRY = """
mkdir /tmp/locks
dlock version -J
dlock run -u file:///tmp/locks -k a -- sh -c 'dlock status -u file:///tmp/locks a >/tmp/said; exit 3' || test $? = 3
grep -q '^a (directory /tmp/locks) is held' /tmp/said
quietly apt-get install -y --no-install-recommends redis-server
quietly redis-server --port 0 --unixsocket /tmp/redis --daemonize yes --save ''
for try in 1 2 3 4 5; do redis-cli -s /tmp/redis ping >/dev/null 2>&1 || sleep 1; done
dlock run -u redis+unix:///tmp/redis -k a -- sh -c 'dlock status -u redis+unix:///tmp/redis a >/tmp/said; exit 4' || test $? = 4
grep -q '^a (redis /tmp/redis) is held' /tmp/said
redis-cli -s /tmp/redis shutdown nosave
for name in zk://127.0.0.1:1 postgresql://127.0.0.1:1 mysql://127.0.0.1:1; do
    dlock run -u $name -k a -w 1s -- true 2>/tmp/said || echo "$? $(cat /tmp/said)"
done
rm -r /tmp/locks /tmp/said
"""
GONE = """
find / -xdev ! -path '/root/*' ! -path '/proc/*' ! -path '/sys/*' '(' -name 'dlock*' -o -name _dlock ')'
"""


def in_fresh(suite, tmp_path, script, *files, packages="ca-certificates", foreign=False):
    """What a shell says in a Debian that has these files in /root, and these packages; what it leaves in /root/out is in `tmp_path`.

    `foreign`: arm64's packages are to be had there, too.
    """
    if not FULL:
        pytest.skip("installs a whole Debian, a minute each: make check-all does, or DLOCK_TEST_FULL=1")
    if not foreign and (os.geteuid() != 0 or not shutil.which("mmdebstrap")):
        pytest.skip("needs root and mmdebstrap")
    (tmp_path / "try").write_text("mkdir /root/out\n" + QUIETLY + script)
    words = [*APART, "mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", "--format=null",
             *(["--architectures=amd64,arm64"] if foreign else []),
             f"--customize-hook=copy-in {tmp_path}/try {' '.join(map(str, files))} /root",
             "--customize-hook=echo BEGIN; chroot $1 sh -eu /root/try", f"--customize-hook=copy-out /root/out {tmp_path}", suite, "-"]
    done = subprocess.run(words, env={**ENV, "DEBIAN_FRONTEND": "noninteractive", "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=3000, check=False)
    if not foreign and "BEGIN" not in done.stdout and re.search("Could not resolve|Could not connect|Failed to fetch", done.stdout):
        pytest.skip(f"{suite} cannot be fetched")
    assert done.returncode == 0, done.stdout
    return done.stdout.partition("BEGIN\n")[2]


def check_fresh(said, found):
    """All backends work there; these libraries are there."""
    told = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    assert told["backends"] == BACKENDS
    assert {library["file"] for library in told["libraries"] if library["found"]} == {"libpq.so.5", "libmariadb.so.3", found}
    for name in ("zk", "pg", "mysql"):
        assert re.search(rf"^69 dlock: .*{name} 127\.0\.0\.1:1.*[Cc]onnection refused", said, re.M), (name, said)


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_the_package_is_installed_works_and_is_purged(packages, tmp_path, suite):
    said = in_fresh(suite, tmp_path, f"""
        quietly apt-get install -y -o APT::Install-Recommends=true /root/*.deb
        dpkg -V dlock dlock-dbgsym
        {TRY}
        quietly apt-get remove -y dlock dlock-dbgsym
        echo removed:; {GONE}
        quietly dpkg --purge dlock dlock-dbgsym
        echo purged:; dpkg-query -W dlock || true; {GONE}""", *packages.iterdir())
    check_fresh(said, "libssl.so.3")
    removed = said.partition("removed:\n")[2]
    assert [line for line in removed.splitlines() if line.startswith("/") and "/var/lib/dpkg/info/" not in line] == []
    assert said.partition("purged:\n")[2].splitlines() == ["dpkg-query: no packages found matching dlock"]


@pytest.mark.parametrize("suite", ["bullseye", "trixie"])
def test_the_tarball_runs_on_an_old_and_a_new_system(tarball, tmp_path, suite):
    packages, found = ("libpq5,libmariadb3,libssl1.1", "libssl.so.1.1") if suite == "bullseye" else ("libpq5,libmariadb3", "libssl.so.3")
    said = in_fresh(suite, tmp_path, "tar -C /usr/local --strip-components=1 -xzf /root/dlock-*.tar.gz" + TRY,
                    one(tarball, f"*-{os.uname().machine}.tar.gz"), packages=packages)
    check_fresh(said, found)


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_the_package_is_made_of_the_source_archive(source, tmp_path, suite):
    """With what the README says that it needs."""
    words = re.search(r"^(apt-get install) (.*)$", (TOP / "README.md").read_text(encoding="utf-8"), re.M)[2]
    said = in_fresh(suite, tmp_path, f"""
        quietly apt-get install -y --no-install-recommends {words}
        mkdir /tmp/empty; cd /tmp/empty
        tar -xzf /root/dlock-*.tar.gz
        cd dlock-*
        quietly make -j2 deb tarball-glibc
        quietly apt-get install -y ./build/dist/dlock_*.deb
        dlock version -J
        tar -C /usr/local --strip-components=1 -xzf build/dist/dlock-*-linux-$(uname -m).tar.gz
        /usr/local/bin/dlock version -J""", source)
    first, second = (line for line in said.splitlines() if line.startswith("{"))  # a newer gcc may warn of more
    assert first == second and json.loads(first)["backends"] == BACKENDS


@pytest.mark.skipif(not FULL, reason="installs a whole Debian: make check-all does, or DLOCK_TEST_FULL=1")
def test_the_image_is_read_and_run_by_others(tmp_path):
    """As an OCI image and as one of docker's; the root of who runs it has to be a mount point."""
    make("-j2", "image", f"O={tmp_path}/built", f"DIST={tmp_path}/image", timeout=600)  # others use build/static
    image = one(tmp_path / "image", "*.oci.tar")
    said = in_fresh("bookworm", tmp_path, f"""
        cat >/root/outer <<'END'
        mount --bind / /mnt
        mount -t proc p /mnt/proc; mount -t sysfs s /mnt/sys; mount -t tmpfs t /mnt/var/tmp
        exec chroot /mnt sh -eu /root/inner
END
        cat >/root/inner <<'END'
        {QUIETLY}
        export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
        quietly skopeo --insecure-policy copy docker-archive:/root/{image.name} oci:/tmp/copy
        printf 'FROM oci-archive:/root/{image.name} AS dlock\nFROM scratch\nCOPY --from=dlock /dlock /usr/local/bin/dlock\n' >/tmp/Dockerfile
        quietly buildah bud -f /tmp/Dockerfile -t taken /tmp
        quietly buildah from --name given oci-archive:/root/{image.name}
        quietly buildah from --name taken taken
        buildah inspect --format 'entrypoint {{{{.OCIv1.Config.Entrypoint}}}}' given
        buildah run given -- /dlock version
        buildah run taken -- /usr/local/bin/dlock version
END
        unshare --mount --propagation unchanged sh -eu /root/outer""", image, packages="ca-certificates,skopeo,buildah")
    assert "entrypoint [/dlock]" in said and len(re.findall(r"^(?:entrypoint .*\])?dlock [\d.]+$", said, re.M)) == 2, said


# ---- a release ----


def release(tmp_path, *words, changed=False, **env):
    """What make says where git says that something is not committed, or that all is."""
    git = tmp_path / "bin/git"
    git.parent.mkdir(exist_ok=True)
    git.write_text(f"#!/bin/sh\n[ \"$1\" != diff ] || exit {int(changed)}\n")
    git.chmod(0o755)
    return subprocess.run(["make", "-C", ROOT, f"O={tmp_path}/built", "release", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**ENV, "PATH": f"{git.parent}:{ENV['PATH']}", **env}, check=False)


@pytest.mark.skipif(not (TOP / ".git").exists(), reason="this is a source archive, which is as it was packed")
def test_no_release_is_made_of_what_is_not_committed(tmp_path):
    (tmp_path / "built/release").mkdir(parents=True)
    done = release(tmp_path, changed=True)
    assert done.returncode == 2 and "make release packs what is committed" in done.stdout and (tmp_path / "built/release").exists(), done


# An mmdebstrap that makes no Debian: make runs here, on another source, and writes below a directory.
STAND_IN = r"""#!/bin/sh
for word in "$@"; do
    hook=${word#--customize-hook=}
    case $hook in
    copy-in*) set -- $hook; sed 's,/root\b\|/src\b\|/tmp/a\b,DIRECTORY&,g' "$2" >DIRECTORY/root/build ;;
    chroot*) sh -c "$(echo "$hook" | sed 's,chroot "$1" ,,; s,/root/build,DIRECTORY&,')" || { echo 'E: mmdebstrap failed to run'; exit 25; } ;;
    esac
done
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a release is made as root")
@pytest.mark.parametrize("fault", ["this is odd; exit 3", "x.c:1: warning: this is odd"])
def test_a_release_that_is_not_made_says_why(tmp_path, fault):
    """By what make said in the fresh Debian, or by its warning; the maintainer's name gets there as it stands."""
    for name in ("bin", "debian/root", "source/dlock"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bin/mmdebstrap").write_text(STAND_IN.replace("DIRECTORY", f"{tmp_path}/debian"))
    (tmp_path / "bin/mmdebstrap").chmod(0o755)
    (tmp_path / "source/dlock/Makefile").write_text(f"deb:; @printenv MAINTAINER >{tmp_path}/maintainer; echo {fault}\ntarball rpm image:\n")
    said_by("tar", "-C", tmp_path / "source", "-czf", tmp_path / "debian/root/source", "dlock")
    done = release(tmp_path, MAINTAINER=MAINTAINER)
    assert done.returncode == 2 and re.search("^(x.c:1: warning: )?this is odd$", done.stdout, re.M) and "Error 25" in done.stdout, done
    assert (tmp_path / "maintainer").read_text() == MAINTAINER + "\n"


def test_install_names_the_files_that_are_packed():
    text, packing = ((TOP / "packages" / name).read_text(encoding="utf-8") for name in ("INSTALL", "packages.mk"))
    names = set(re.findall(r"\bdlock[-_]VERSION[\w.-]*\w", packing))
    assert len(names) == 6 and [name for name in names if name not in text] == []
    for subcommand, name in (("pg-schema", "psql"), ("mysql-schema", "mysql")):
        assert f"dlock help {subcommand} | {name} DATABASE" in text and len(said_by(DLOCK, "help", subcommand)) > 10000


# ---- the files of a release, in fresh systems: make check-all, which fails where that cannot be tried ----


@pytest.fixture(scope="module")
def released(source, tmp_path_factory):
    """The directory of a release's files, each of which was made twice (packages/release.sh)."""
    directory = tmp_path_factory.mktemp("release")
    if not FULL:
        pytest.skip("installs two Debians, and builds four times in each: make check-all does, or DLOCK_TEST_FULL=1")
    tree = directory / "tree"  # nothing else is built there meanwhile
    tree.mkdir()
    said_by("tar", "-C", tree, "--strip-components=1", "-xzf", source)
    said_by(*APART, "make", "-s", "-C", tree, "release", env={**ENV, "MAINTAINER": MAINTAINER, "TMPDIR": str(directory)}, timeout=3000)
    said_by("sha256sum", "--quiet", "-c", "SHA256SUMS", cwd=tree / "build/release")
    return tree / "build/release"


def test_a_release_has_all_files_and_their_sums(released):
    """Each for both architectures."""
    version = said_by(DLOCK, "version").split()[1]
    names = {f"dlock-{version}.tar.gz", "INSTALL", "SHA256SUMS"}
    for arch, machine in (("amd64", "x86_64"), ("arm64", "aarch64")):
        names |= {f"{name}_{version}-1_{arch}.deb" for name in ("dlock", "dlock-dbgsym")}
        names |= {f"{name}-{version}-1.{machine}.rpm" for name in ("dlock", "dlock-debuginfo")}
        names |= {f"dlock-{version}-linux-{machine}{kind}.tar.gz" for kind in ("", "-debug", "-static", "-static-debug")}
        names |= {f"dlock-{version}-{machine}.oci.tar"}
    assert {path.name for path in released.iterdir()} == names
    assert {line.split()[1] for line in (released / "SHA256SUMS").read_text().splitlines()} == names - {"SHA256SUMS"}
    assert said_by("dpkg-deb", "-f", one(released, "dlock_*_arm64.deb"), "Maintainer").strip() == MAINTAINER


def test_what_is_packed_for_arm64_runs_there(released, tmp_path):
    """A processor that is emulated, and its libraries; the commands that it runs are this machine's."""
    said = in_fresh("trixie", tmp_path, f"""
        printf '#!/bin/sh\nexec qemu-aarch64 "$EMULATED" "$@"\n' >/usr/local/bin/dlock
        chmod 755 /usr/local/bin/dlock
        export EMULATED=/usr/bin/dlock
        quietly apt-get install -y -o APT::Install-Recommends=true /root/dlock*.deb
        dpkg -V dlock:arm64 dlock-dbgsym:arm64
        {TRY}
        for kind in aarch64 aarch64-static; do
            mkdir -p /opt/$kind /tmp/locks
            tar -C /opt/$kind --strip-components=1 -xzf /root/dlock-*-linux-$kind.tar.gz
            export EMULATED=/opt/$kind/bin/dlock
            dlock run -u file:///tmp/locks -k a -- sh -c 'dlock status -u file:///tmp/locks a >/tmp/said; exit 3' || test $? = 3
            grep -q '^a (directory /tmp/locks) is held' /tmp/said
            dlock run -u file:///tmp/locks -k a --max-run 1s -- sleep 60 || echo "$kind $?"
            dlock doctor -u file:///tmp/locks >/tmp/said || cat /tmp/said
        done""", *released.glob("dlock*_arm64.deb"), *released.glob("*aarch64.tar.gz"), *released.glob("*aarch64-static.tar.gz"),
                    packages="ca-certificates,qemu-user,libc6:arm64", foreign=True)
    check_fresh(said, "libssl.so.3")
    assert re.search("^aarch64 124$", said, re.M) and re.search("^aarch64-static 124$", said, re.M), said
    assert "FAIL" not in said
