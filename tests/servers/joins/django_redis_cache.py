# Goal of this file: cache.add() of Django with Redis (by django-redis).

import django.conf
from django.core.cache import caches

from serve import PORT, Added, serve

django.conf.settings.configure(CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache",
                                                   "LOCATION": f"redis://127.0.0.1:{PORT}/0"}})
serve(lambda name: Added(caches["default"], name))
