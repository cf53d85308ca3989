# Goal of these tests: what dlock-etcd(7) tells people to type does what it says.

import subprocess

from manual import block, blocks
from support import PATIENCE, wait_for

PAGE = "dlock-etcd.7"


def test_the_roles_of_the_manual(dlock, make_etcd, tmp_path):
    """What they are good for is tested in test_etcd.py."""
    server = make_etcd("--bcrypt-cost", "4")
    for line in block(PAGE, "etcdctl role add dlock").splitlines():
        server.ctl(*line.split()[1:])
    typed = block(PAGE, "dlock run -u etcd://dlock@").replace("127.0.0.1", f"127.0.0.1:{server.port}").replace("$HOME", str(tmp_path))
    login, line = typed.splitlines()
    subprocess.run(["sh", "-ec", login], check=True)
    words = line.split()
    assert dlock.run(*words[1:words.index("--")], "--", "true").status == 0
    assert dlock.run("run", "-u", server.url, "-k", "report", "-n", "--", "true").status == 77


def test_the_lock_of_the_manual_is_shared_with_etcdctl(dlock, at):
    words = block(PAGE, "-O name=").replace("etcd://10.0.0.5", at.url).split()
    words = words[1:words.index("--")]
    others = block(PAGE, "etcdctl lock app").split()[1:3]
    holder = dlock.start(*words, "--", "cat", stdin=subprocess.PIPE).held()
    process = at.server.etcdctl(*others, "true")
    wait_for(lambda: len(at.server.client().range("app/nightly/")) == 2)
    assert process.poll() is None
    assert holder.finish().status == 0
    assert process.wait(PATIENCE) == 0
    process.communicate()


def test_each_block_of_the_manual_is_tried():
    """Here, and the first of them in test_documents.py."""
    assert len(blocks(PAGE)) == 5 and "etcd --data-dir" in blocks(PAGE)[0]
