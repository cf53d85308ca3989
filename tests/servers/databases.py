# Goal of this file: what tests of PostgreSQL and of MariaDB share.

from support import boottime, run, wait_for


class Database:
    """One of a server's databases; `url_of` makes the URL of a port."""

    def __init__(self, server, name, url_of):
        self.server, self.name, self.port = server, name, server.port
        self.url_of, self.url = url_of, url_of(server.port, db=name)

    def through(self, proxy):
        """The same through a proxy."""
        return self.url_of(proxy.port, db=self.name)

    def ask(self, sql, *arguments, **options):
        return self.server.ask(sql, *arguments, db=self.name, **options)

    def value(self, sql, *arguments, **options):
        return self.server.value(sql, *arguments, db=self.name, **options)

    def sessions(self):
        return self.server.sessions(self.name)

    def terminate(self):
        return self.server.terminate(self.name)


# ---- dlock on them ----


def token_of(dlock, url, mode):
    done = run(dlock, url, command=("printenv", "DLOCK_TOKEN"), mode=mode)
    assert done.status == 0, done
    return int(done.stdout)


def wait_for_renewals(holder, count=1):
    """Waits until as many more renewals have succeeded as dlock -v tells of."""
    def told():
        return holder.stderr().count("renew: ok")

    before = told()
    wait_for(lambda: told() >= before + count, what="a renewal")
    assert holder.poll() is None


def a_wait_takes_less(seconds, dlock, at, status, wait, when_queued=lambda: None, before=lambda: None):
    """One of three, that is: a machine that is busy makes a wait longer."""
    for _ in range(3):
        before()
        began = boottime()
        waiter = dlock.contend(at, "job", "-w", wait, command=("true",))
        waiter.event("waiting")
        when_queued()
        assert waiter.wait().status == status
        if boottime() - began < seconds:
            return True
    return False
