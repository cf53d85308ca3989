# Goal of this file: locks in ZooKeeper as other clients keep them: places for the suites, and
# what those clients do, re-enacted where they do not run here.

from kazoo.exceptions import NoNodeError

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


LAYOUT_PLACES = [type(f"{layout}Place", (PlainPlace if layout == "plain" else LayoutPlace,), {"layout": layout, "id": f"zk-{layout}"})
                 for layout in LAYOUTS]

# What dlock-backends(7) says that they cannot do, of the NEEDS of the kinds suite.
LAYOUT_CANNOT = {f"zk-{layout}": {"limit"} for layout in LAYOUTS} | {"zk-plain": {"shared", "limit"}}
