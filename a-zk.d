zk.o: backends/zk/zk.c backends/zk/zk.h backends/common/retry.h \
 backends/backend.h backends/common/clock.h backends/zk/ensemble.h \
 backends/zk/freeze.h backends/zk/data.h backends/zk/lockdir.h \
 backends/common/url.h backends/zk/call.h backends/zk/session.h \
 backends/zk/credit.h backends/common/clock.h backends/zk/layout.h \
 backends/zk/node.h backends/zk/queue.h backends/common/setting.h
backends/zk/zk.h:
backends/common/retry.h:
backends/backend.h:
backends/common/clock.h:
backends/zk/ensemble.h:
backends/zk/freeze.h:
backends/zk/data.h:
backends/zk/lockdir.h:
backends/common/url.h:
backends/zk/call.h:
backends/zk/session.h:
backends/zk/credit.h:
backends/common/clock.h:
backends/zk/layout.h:
backends/zk/node.h:
backends/zk/queue.h:
backends/common/setting.h:
