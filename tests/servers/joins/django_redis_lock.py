# Goal of this file: cache.lock() of django-redis.

import django.conf
from django.core.cache import caches

from serve import LEASE, PORT, serve

django.conf.settings.configure(CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache",
                                                   "LOCATION": f"redis://127.0.0.1:{PORT}/0"}})
serve(lambda name: caches["default"].lock(name, timeout=LEASE))
