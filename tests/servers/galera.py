# Goal of this file: a cluster of Galera, whose members all take writes: two MariaDB servers and an arbitrator
# (galera-4, galera-arbitrator-4, rsync).

import contextlib
import os
import shutil

with contextlib.suppress(ImportError):  # without it no test is run that needs it
    import pymysql

from mysql_server import MysqlServer, owner
from pg import make_directory, run_as
from support import Server, free_port

PROVIDER = "/usr/lib/galera/libgalera_smm.so"
# Who is silent is left out within seconds, and what is left is a quorum of two of three.
OPTIONS = {"evs.keepalive_period": "PT0.3S", "evs.inactive_check_period": "PT0.3S",
           "evs.suspect_timeout": "PT2S", "evs.inactive_timeout": "PT4S", "evs.install_timeout": "PT4S"}


def options_of(**more):
    return ";".join(f"{name}={value}" for name, value in {**OPTIONS, **more}.items())


class GaleraNode(MysqlServer):
    """One of a cluster; `group` is the port by which the others reach it, `known` those of all."""

    kind = "MariaDB of a cluster"

    def __init__(self, group, known):
        self.more_words = ["--wsrep-new-cluster"] * (group == known[0])
        at = f"127.0.0.1:{group}"
        options = options_of(**{"gmcast.listen_addr": f"tcp://{at}", "ist.recv_addr": f"127.0.0.1:{free_port()}", "gcache.size": "16M"})
        super().__init__(wsrep_on="ON", wsrep_provider=PROVIDER, wsrep_node_address=at, wsrep_provider_options=options,
                         wsrep_cluster_address="gcomm://" + ",".join(f"127.0.0.1:{port}" for port in known),
                         wsrep_sst_method="rsync", wsrep_sst_receive_address=f"127.0.0.1:{free_port()}",
                         binlog_format="ROW", innodb_autoinc_lock_mode=2)

    def answers(self):
        """Only who is one of a quorum, and has all that it knows, serves."""
        with contextlib.suppress(pymysql.err.OperationalError, pymysql.err.InternalError):
            return super().answers() and self.state("wsrep_ready") == "ON" and self.state("wsrep_local_state_comment") == "Synced"
        return False

    def sees_all(self):
        """One that was left out does not know it at once, but the other one does."""
        with contextlib.suppress(pymysql.err.OperationalError, pymysql.err.InternalError):
            return self.answers() and self.state("wsrep_cluster_size") == "3"
        return False

    def state(self, name):
        return dict(self.ask(f"SHOW GLOBAL STATUS LIKE '{name}'")).get(name)


class Arbitrator(Server):
    """A third member, which keeps no data."""

    kind = "garbd"

    def __init__(self, known):
        self.known = known
        super().__init__(make_directory("dlock-garbd-", owner=owner()))
        self.settle()

    def start(self, wait=True):
        address = "gcomm://" + ",".join(f"127.0.0.1:{port}" for port in self.known)
        self.launch(run_as(owner(), "garbd", "--group", "my_wsrep_cluster", "--address", address, "--options",
                           options_of(**{"gmcast.listen_addr": f"tcp://127.0.0.1:{self.port}"})), wait, cwd=str(self.directory))

    def answers(self):
        self.must_live()
        return "SYNCED" in self.log()


def lacks_galera():
    """The reason why there is none."""
    lacking = {"galera-4": not os.path.exists(PROVIDER), "galera-arbitrator-4": not shutil.which("garbd"), "rsync": not shutil.which("rsync")}
    return ", ".join(name for name, lacks in lacking.items() if lacks)


class Galera:
    """Two MariaDB servers and an arbitrator: one may be away."""

    def __init__(self):
        self.known = [free_port() for _ in range(2)]
        self.nodes = [GaleraNode(port, self.known) for port in self.known]
        self.nodes[0].more_words = ()  # it comes back to the others
        self.arbitrator = Arbitrator(self.known)

    def stop(self):
        for server in (self.arbitrator, *self.nodes):
            server.stop()
