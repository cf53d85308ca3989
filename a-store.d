store.o: backends/sql/store.c backends/sql/sql.h backends/backend.h \
 backends/common/clock.h backends/common/retry.h \
 backends/common/setting.h
backends/sql/sql.h:
backends/backend.h:
backends/common/clock.h:
backends/common/retry.h:
backends/common/setting.h:
