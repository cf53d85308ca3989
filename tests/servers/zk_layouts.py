# Goal of this file: locks in ZooKeeper as other clients keep them: places for the suites, and
# what those clients do, re-enacted where they do not run here.

import contextlib

with contextlib.suppress(ImportError):  # without it no test is run that needs it
    from kazoo.exceptions import NodeExistsError

from support import FULL
from zk import ZkPlace

LAYOUTS = ("plain", "rw-seq", "kazoo", "menagerie")

# What is in them all, unless everything is to be tested: the layouts share what they do not say themselves.
_SOME = {"test_command_is_told_about_its_lock", "test_contenders_never_overlap", "test_waiters_are_served_in_order",
         "test_capabilities"}


class LayoutPlace(ZkPlace):
    """Locks below a root of the test's own, in the layout of other clients."""

    layout = None
    ordinarily = None if FULL else _SOME

    @property
    def settings(self):
        return (f"layout={self.layout}",)


class PlainPlace(LayoutPlace):
    """A lock is one node."""

    fair = counted = False

    def take_away(self, keys, key):
        with self.server.client() as c:
            c.delete(f"{self.root}/{key}")


_KINDS = {"plain": PlainPlace}
LAYOUT_PLACES = [type(f"{layout}Place", (_KINDS.get(layout, LayoutPlace),), {"layout": layout, "id": f"zk-{layout}"}) for layout in (*LAYOUTS, "recipes")]

# What dlock-zk(7) says that they cannot do, of the NEEDS of the kinds suite.
LAYOUT_CANNOT = {f"zk-{layout}": {"limit"} for layout in LAYOUTS} | {"zk-plain": {"shared", "limit"}, "zk-recipes": {"shared", "limit", "jobs"}}
# The same for tests of steering.
LAYOUT_LACKS = {f"zk-{layout}": {"limit"} for layout in LAYOUTS} | {"zk-plain": {"freeze", "shared", "limit"}, "zk-recipes": {"shared", "limit", "jobs"}}


# ---- others' clients, re-enacted: enter() the queue, ask whether one holds(), leave() ----


class Queued:
    """One place in a directory."""

    def __init__(self, client, path):
        self.client, self.path, self.name = client, path, None

    def enter(self):
        made = self.client.create(f"{self.path}/{self.prefix}", b"", ephemeral=True, sequence=True, makepath=True)
        self.name = made.rsplit("/", 1)[1]
        return self

    def leave(self):
        self.client.delete(f"{self.path}/{self.name}")

    def ahead(self):
        """Whom it waits for, as its makers have it."""
        raise NotImplementedError

    def holds(self):
        return not self.ahead()


class RwSeq(Queued):
    """What many write for themselves: R waits for smaller W, W for all that are smaller."""

    def __init__(self, client, path, kind="W", host="ci-1"):
        super().__init__(client, path)
        self.kind, self.prefix = kind, f"{host}-{kind}-"

    def ahead(self):
        mine, found = int(self.name.rsplit("-", 1)[1]), []
        for name in self.client.get_children(self.path):
            _, kind, number = name.rsplit("-", 2)
            if int(number) < mine and "W" in (kind, self.kind):
                found.append(name)
        return found


class Menagerie(Queued):
    """menagerie's locks: lock is ReentrantZkLock, lock2 ReentrantZkLock2, readLock and writeLock are ReentrantZkReadWriteLock's."""

    SEES = {"lock": ("lock",), "lock2": ("lock",), "readLock": ("writeLock",), "writeLock": ("readLock", "writeLock")}

    def __init__(self, client, path, kind="lock2", host="ci-1", thread=12):
        super().__init__(client, path)
        self.kind = kind
        self.prefix = f"lock-{host}-{thread}-" if kind == "lock2" else f"{kind}-"

    def enter(self):
        if self.kind == "lock2" and self.client.exists(self.path):  # whoever has its host and thread is itself
            for name in self.client.get_children(self.path):
                if name.startswith(self.prefix):
                    self.name = name
                    return self
        return super().enter()

    def ahead(self):
        mine = int(self.name.rsplit("-", 1)[1])
        seen = [name for name in self.client.get_children(self.path) if name.startswith(self.SEES[self.kind])]
        return [name for name in seen if int(name[name.rindex("-") + 1:]) < mine]  # parseLong; lastIndexOf < 0 throws


class Plain:
    """One node is the lock."""

    def __init__(self, client, path):
        self.client, self.path = client, path

    def try_it(self):
        try:
            self.client.create(self.path, b"", ephemeral=True)
        except NodeExistsError:
            return False
        return True

    def leave(self):
        self.client.delete(self.path)
