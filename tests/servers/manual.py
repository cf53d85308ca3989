# Goal of this file: the blocks of a manual page, as an administrator pastes them.

import os
import re

from support import ROOT

_ESCAPES = {"&": "", "-": "-", "(dq": '"', "e": "\\"}


def blocks(page):
    """All that is set as it is to be typed, in the order of the page."""
    with open(os.path.join(ROOT, "man", page), encoding="utf-8") as f:
        found = re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed$", f.read(), re.M | re.S)
    return [re.sub(r"\\(&|-|\(dq|e)", lambda m: _ESCAPES[m[1]], block) for block in found]


def block(page, marker):
    """The one that has `marker` in it."""
    found, = [b for b in blocks(page) if marker in b]
    return found
