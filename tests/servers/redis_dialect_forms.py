# Goal of this file: the dialects of other tools behind sentinels, in a cluster and through
# TLS: places for the suites.

from redis_dialects import DIALECTS
from redis_forms import ClusterPlace, SentinelPlace
from redis_tls import RedisTlsPlace

FORMS = [SentinelPlace, ClusterPlace, RedisTlsPlace]
FEW = {"test_contenders_never_overlap", "test_killed_waiter_blocks_nobody_for_long"}


class _DialectForm:
    """A form of Redis in a dialect: a key is called as it is."""

    whole_record = True
    suites = {"test_contract"}

    @property
    def settings(self):
        return (*super().settings, f"dialect={self.dialect}")

    def take_away(self, keys, key):
        """From whichever server has it."""
        servers = self.forms.nodes if hasattr(self.forms, "nodes") else [self.forms.master]
        assert sum(_delete(s, key) for s in servers) == 1


def _delete(server, key):
    with server.client() as c:
        return c.delete(key) if c.role()[0] == "master" and c.keys(key) else 0


def dialect_form(dialect, form):
    queue = dialect == "redisson-fair"
    members = {"dialect": dialect, "id": f"{form.id}-{dialect}", "fair": queue, "counted": queue,
               "braces": form is not ClusterPlace, "ordinarily": FEW if (dialect, form) in _FIRST else set()}
    return type(f"{dialect}{form.__name__}", (_DialectForm, form), members)


# These speak for all of them, unless everything is to be tested.
_FIRST = {("string", SentinelPlace), ("redisson", ClusterPlace), ("redisson-fair", ClusterPlace)}
# (Of a semaphore, see redis_dialects.py.)
DIALECT_FORM_PLACES = [dialect_form(d, f) for f in FORMS for d in DIALECTS if d != "redisson-semaphore"]
