# Goal of this file: one table of what every place did in every scenario of the
# conformance suite (promises/test_kinds.py).


def outcome(report):
    """What a report says of its scenario; None: nothing, as far as it is."""
    if report.failed:
        return "FAILED"
    if report.skipped:
        return "skipped" if report.when == "setup" else "refused"
    return "passed" if report.when == "call" else None


def scenario(item, place):
    """Its name: the first line of the test's docstring, and its parameters but the place."""
    more = item.callspec.id.replace(place, "", 1).strip("-").replace("-", ", ")
    return item.function.__doc__.split("\n")[0] + (f" ({more})" if more else "")


class Results:
    """(scenario, place): outcome."""

    def __init__(self):
        self.found = {}

    def add(self, name, place, what):
        if what and self.found.get((name, place)) != "FAILED":
            self.found[name, place] = what

    def lines(self):
        names = sorted({name for name, _ in self.found})
        columns = list(dict.fromkeys(place for _, place in self.found))
        width = max(map(len, names))
        yield f"{'':{width}}" + "".join(f"  {c:>11}" for c in columns)
        for name in names:
            yield f"{name:{width}}" + "".join(f"  {self.found.get((name, c), '-'):>11}" for c in columns)
        outcomes = list(self.found.values())
        yield ", ".join(f"{outcomes.count(o)} {words}" for o, words in (
            ("passed", "passed"), ("refused", "refused by capability"), ("FAILED", "failed"), ("skipped", "skipped"))
            if o in outcomes)
