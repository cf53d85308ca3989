# Goal of this file: cache.add() of Django with memcached (by pymemcache).

import django.conf
from django.core.cache import caches

from serve import PORT, Added, serve

django.conf.settings.configure(CACHES={"default": {"BACKEND": "django.core.cache.backends.memcached.PyMemcacheCache",
                                                   "LOCATION": f"127.0.0.1:{PORT}"}})
serve(lambda name: Added(caches["default"], name))
