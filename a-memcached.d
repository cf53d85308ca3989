memcached.o: backends/memcached/memcached.c \
 backends/memcached/memcached.h backends/common/retry.h \
 backends/backend.h backends/common/clock.h backends/memcached/item.h \
 backends/memcached/client.h backends/common/url.h backends/common/net.h \
 backends/common/text.h
backends/memcached/memcached.h:
backends/common/retry.h:
backends/backend.h:
backends/common/clock.h:
backends/memcached/item.h:
backends/memcached/client.h:
backends/common/url.h:
backends/common/net.h:
backends/common/text.h:
