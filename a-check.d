check.o: backends/pg/check.c backends/pg/exec.h backends/pg/pg.h \
 backends/sql/sql.h backends/backend.h backends/common/clock.h \
 backends/common/retry.h backends/pg/bounds.h backends/common/inlet.h \
 backends/sql/lease.h backends/sql/sql.h backends/sql/row.h \
 backends/sql/session_lock.h
backends/pg/exec.h:
backends/pg/pg.h:
backends/sql/sql.h:
backends/backend.h:
backends/common/clock.h:
backends/common/retry.h:
backends/pg/bounds.h:
backends/common/inlet.h:
backends/sql/lease.h:
backends/sql/sql.h:
backends/sql/row.h:
backends/sql/session_lock.h:
