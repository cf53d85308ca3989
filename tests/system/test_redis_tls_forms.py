# Goal of these tests: TLS to sentinels and to the nodes of a cluster, wherever one is sent.

import pytest

from redis_forms import Sentinel

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
