# Goal of this file: the promise of backend.h on tokens, stated once for all tests.  A grant has a greater token than every
# earlier grant of its key that excludes it: where one of the two is a writer's, or both have the same slot.  Those that
# may hold together have different ones, in any order.
#
# in_order() decides that of grants whose order is known: of what witnesses have seen (witness.py), of histories, and of
# what each test of the suites has started (check_grants(), which the fixture `dlock` calls when a test is over).

import collections

# A grant of one key: exclusive or not, the slot (None: of no limit), the token; `who` is the caller's own.
Grant = collections.namedtuple("Grant", "alone slot token who")


def in_order(grants):
    """Yields (a grant, the one before it that it contradicts), of grants of one key in their order."""
    highest, known = {}, {}  # of all, of writers (alone), of each slot

    def higher(one, other):
        return one if other is None or one.token > other.token else other

    for grant in grants:
        if grant.token in known:
            yield grant, known[grant.token]
        known[grant.token] = grant
        lanes = ["all"] if grant.alone else ["alone"] + [grant.slot] * (grant.slot is not None)
        for before in {highest[lane] for lane in lanes if lane in highest}:
            if grant.token < before.token:
                yield grant, before
        for lane in ["all"] + (["alone"] if grant.alone else [grant.slot] * (grant.slot is not None)):
            highest[lane] = higher(grant, highest.get(lane))


def check(grants):
    found = list(in_order(grants))
    assert not found, f"tokens of grants that exclude each other are out of order: {found}"


# ---- all that a test has started ----


def check_grants(started):
    """Of two of these runs the first has the earlier grant for certain if it was seen to have it, or to be over,
    before the second was begun."""
    runs = [(run, grant) for run in started for grant in grant_of(run)]
    for n, (run, (where, grant)) in enumerate(runs):
        for later, (there, other) in runs[n + 1:]:
            if where == there and run.known is not None and run.known < later.asked:
                check([grant, other])


def grant_of(run):
    """[((the words to its place, key), Grant)] of its first key, by what it said on --status-fd; [] if none is known."""
    end = run.words.index("--") if "--" in run.words else len(run.words)
    where = sorted((word, run.words[n + 1]) for n, word in enumerate(run.words[:end - 1]) if word in ("-u", "-O", "-b"))
    foreign = any("dialect=" in word or word == "fake" for _, word in where)  # another program's numbers, or scripted ones
    if not run.is_plain or not where or foreign or run.words[0] != "run":
        return []
    return [((where, e["key"]), Grant(e["kind"] == "exclusive", e.get("slot"), e["token"], " ".join(run.words)))
            for e in run.events("acquired") if e.get("token")]
