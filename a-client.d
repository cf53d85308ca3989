client.o: backends/memcached/client.c backends/memcached/client.h \
 backends/common/url.h backends/common/net.h backends/backend.h \
 backends/common/clock.h backends/common/text.h
backends/memcached/client.h:
backends/common/url.h:
backends/common/net.h:
backends/backend.h:
backends/common/clock.h:
backends/common/text.h:
