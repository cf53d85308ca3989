# Goal of this file: advisory_lock() of django-pglocks.

import contextlib

import django.conf
import django_pglocks

from serve import DATABASE, PORT, serve

django.conf.settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": DATABASE, "USER": "app",
                                                      "HOST": "127.0.0.1", "PORT": PORT}})


class Lock:
    def __init__(self, name):
        self.name, self.end = name, contextlib.ExitStack()

    def acquire(self, blocking):
        return self.end.enter_context(django_pglocks.advisory_lock(self.name, wait=blocking)) is not False

    def release(self):
        self.end.close()


serve(Lock)
