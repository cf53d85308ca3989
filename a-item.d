item.o: backends/memcached/item.c backends/memcached/item.h \
 backends/memcached/client.h backends/common/url.h backends/common/net.h \
 backends/backend.h backends/common/clock.h backends/common/sha256.h
backends/memcached/item.h:
backends/memcached/client.h:
backends/common/url.h:
backends/common/net.h:
backends/backend.h:
backends/common/clock.h:
backends/common/sha256.h:
