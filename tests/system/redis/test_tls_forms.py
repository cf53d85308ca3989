# Goal of these tests: TLS to sentinels, to the nodes of a cluster, wherever one is sent, and to the
# masters of Redlock.

import pytest

from redis_forms import Sentinel

from redis_tls import trust_bundle
from support import wait_for


class TlsSentinel(Sentinel):
    """Asked with TLS, and asking so."""

    def __init__(self, certificate, authority, port, clients="no"):
        self.certificate, self.authority, self.clients = certificate, authority, clients
        super().__init__("mymaster", port, 1, 1000)

    def start(self, wait=True):
        self.lines = [*self.lines, "port 0", f"tls-port {self.port}", f"tls-cert-file {self.certificate.cert}",
                      f"tls-key-file {self.certificate.key}", f"tls-ca-cert-file {self.authority.cert}", "tls-replication yes",
                      f"tls-auth-clients {self.clients}"]
        super().start(wait)

    def client(self, **options):
        return super().client(ssl=True, ssl_ca_certs=self.authority.cert, ssl_certfile=self.certificate.cert,
                              ssl_keyfile=self.certificate.key, **options)


@pytest.fixture
def make_sentinel(nothing_is_left):
    made = []

    def make(*arguments):
        made.append(TlsSentinel(*arguments))
        return made[-1]

    yield make
    for sentinel in made:
        sentinel.stop()


def run(dlock, url, authority, *options):
    return dlock.run("run", "-u", url, "-O", f"cacert={authority.cert}", "-k", "job", *options, "--", "echo", "ran")


def test_sentinels_are_asked_with_tls(dlock, make_redis_tls, make_sentinel, authority):
    server = make_redis_tls("--tls-replication", "yes")
    good = make_sentinel(authority.sign("server"), authority, server.port)
    done = run(dlock, f"rediss+sentinel://127.0.0.1:{good.port}/mymaster", authority)
    assert done.status == 0 and done.stdout == "ran\n", done
    done = run(dlock, f"rediss+sentinel://127.0.0.1:{good.port}/mymaster", authority, "-O", "tls-name=other", "-w", "1s")
    assert done.status == 78 and "is not for other" in done.stderr, done


def test_a_sentinel_that_wants_a_certificate_says_so_at_once(dlock, make_redis_tls, make_sentinel, authority):
    server, certificate = make_redis_tls("--tls-replication", "yes"), authority.sign("server")
    strict = make_sentinel(certificate, authority, server.port, "yes")
    url = f"rediss+sentinel://127.0.0.1:{strict.port},127.0.0.1:1/mymaster"
    done = run(dlock, url, authority, "-w", "30s")
    assert done.status == 77 and "wants a client certificate" in done.stderr, done
    done = run(dlock, url, authority, "-O", f"cert={certificate.cert}", "-O", f"key={certificate.key}")
    assert done.status == 0 and done.stdout == "ran\n", done


def test_sentinels_of_a_ca_that_only_the_bundle_has(dlock, make_redis_tls, make_sentinel, authority, tmp_path):
    """All are asked at once, and none of them is given up because the first has not known it."""
    server, certificate = make_redis_tls("--tls-replication", "yes"), authority.sign("server")
    sentinels = [make_sentinel(certificate, authority, server.port) for _ in range(3)]
    wrong = make_sentinel(authority.sign("wrong", san="DNS:elsewhere"), authority, server.port)
    trust_bundle(dlock, authority, tmp_path)
    for some in ([sentinels[0]], sentinels, [wrong, sentinels[0]], [wrong, *sentinels]):
        (tmp_path / "read").unlink(missing_ok=True)
        url = f"rediss+sentinel://{','.join(f'127.0.0.1:{s.port}' for s in some)}/mymaster"
        done = dlock.run("run", "-n", "-u", url, "-k", "job", "--", "echo", "ran")
        assert (done.status, done.stdout, done.stderr) == (0, "ran\n", ""), done
        assert (tmp_path / "read").read_text() == "read\n"


def test_a_cluster_s_redirections_are_followed_with_tls(dlock, make_redis_tls, authority):
    nodes = [make_redis_tls("--cluster-enabled", "yes", "--tls-cluster", "yes", "--tls-replication", "yes") for _ in range(2)]
    for node, slots in zip(nodes, ((0, 8191), (8192, 16383))):
        with node.client() as c:
            c.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
    with nodes[0].client() as c:
        c.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port)
    for node in nodes:
        wait_for(lambda node=node: "cluster_state:ok" in node.client().execute_command("CLUSTER", "INFO") or
                 node.client().cluster("INFO")["cluster_state"] == "ok", what="a cluster")
    for key in ("a", "b", "c", "d"):
        for node in nodes:
            done = dlock.run("run", "-u", f"rediss+cluster://127.0.0.1:{node.port}", "-O", f"cacert={authority.cert}", "-k", key,
                             "--", "echo", "ran")
            assert done.status == 0 and done.stdout == "ran\n", done


# ---- Redlock ----


def test_every_master_of_redlock_is_asked_with_tls(dlock, make_tls_masters, authority):
    masters = make_tls_masters()
    trust = ("-O", f"cacert={authority.cert}")
    at = masters.at()
    holder = dlock.hold(at, "job", *trust, "-t", "6s", "-v")
    wait_for(lambda: len(votes := set(masters.votes())) == 1 and votes != {None}, what="the vote of each: two of them are a grant")
    wait_for(lambda: holder.stderr().count("renew: ok") > 2, what="renewals")
    assert dlock.run("run", *at.words, *trust, "-n", "-k", "job", "--", "true").status == 75
    assert "held" in dlock.run("status", *at.words, *trust, "-k", "job").stdout
    waiter = dlock.contend(at, "job", *trust, "-w", "60s").queued()
    masters.listener()
    assert holder.finish().status == 0
    assert waiter.held().finish().status == 0
    wait_for(lambda: masters.votes() == [None] * 3, what="a release")


def test_a_certificate_counts_for_its_master_alone(dlock, make_tls_masters, authority):
    """One that is not accepted is as good as a master that fails; two are too many."""
    masters = make_tls_masters()
    hosts = masters.hosts
    trust = ("-O", f"cacert={authority.cert}", "-n", "-k", "job", "--", "echo", "ran")
    one = make_tls_masters(1, san="DNS:elsewhere")

    def is_told(hosts, name, *words):
        done = dlock.run("run", "-u", f"redlocks://{','.join(hosts)}", *words, *trust)
        assert done.status == 0 and done.stdout == "ran\n", done
        return f"is not for {name}" in done.stderr

    def is_told_at_last(*words):  # not where two have answered before the third one's handshake was over
        return any(is_told(*words) for _ in range(5))

    assert is_told_at_last([one.hosts[0], hosts[1], hosts[2]], "127.0.0.1")
    two = make_tls_masters(1, san="DNS:elsewhere")
    done = dlock.run("run", "-u", f"redlocks://{one.hosts[0]},{two.hosts[0]},{hosts[2]}", *trust)
    assert done.status == 78 and done.stdout == "" and "2 of 3 masters" in done.stderr and done.stderr.count("\n") == 1, done
    assert is_told_at_last([one.hosts[0], two.hosts[0], hosts[2]], "elsewhere", "-O", "tls-name=elsewhere")


def test_masters_of_redlock_may_want_a_certificate(dlock, make_tls_masters, authority):
    masters, ours = make_tls_masters(clients="yes"), authority.sign("client")
    words = ("run", "-u", masters.url, "-O", f"cacert={authority.cert}", "-n", "-k", "job")
    for _ in range(5):  # whoever has closed the connection before we could ask has said why
        done = dlock.run(*words, "--", "true")
        assert done.status == 77 and "wants a client certificate" in done.stderr, done
    done = dlock.run(*words, "-O", f"cert={ours.cert}", "-O", f"key={ours.key}", "--", "true")
    assert (done.status, done.stderr) == (0, "")


def test_masters_of_a_ca_that_only_the_bundle_has(dlock, make_tls_masters, authority, tmp_path):
    masters = make_tls_masters()
    trust_bundle(dlock, authority, tmp_path)
    done = dlock.run("run", "-n", "-u", masters.url, "-k", "job", "--", "echo", "ran")
    assert (done.status, done.stdout, done.stderr) == (0, "ran\n", ""), done
    assert (tmp_path / "read").read_text() == "read\n"


def test_redlock_settings_of_tls(dlock, make_masters, authority):
    masters = make_masters()
    done = dlock.run("run", "-u", masters.url, "-O", f"cacert={authority.cert}", "-k", "job", "--", "true")
    assert done.status == 64 and "redlocks://" in done.stderr, done
    for name in ("cacert", "cert", "key", "tls-name"):
        assert dlock.run("run", "-u", masters.url, "-O", f"{name}=", "-k", "job", "--", "true").status == 64
    done = dlock.run("run", "-n", "-u", masters.url.replace("redlock", "redlocks"), "-O", f"cacert={authority.cert}", "-k", "job",
                     "--", "true")
    assert done.status == 69 or done.status == 76, done  # plain ports
    assert dlock.run("run", "-u", "redlocks://h1,h2", "-k", "job", "--", "true").status == 64
