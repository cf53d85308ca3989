driver.o: backends/mysql/driver.c backends/mysql/mysql.h \
 backends/mysql/lib.h backends/backend.h backends/common/clock.h \
 backends/mysql/login.h backends/common/url.h backends/sql/sql.h \
 backends/common/retry.h backends/mysql/connect.h \
 backends/common/setting.h backends/common/task.h backends/mysql/errors.h \
 build/backends/mysql/schema.sql.h backends/sql/lease.h \
 backends/sql/sql.h backends/sql/row.h backends/sql/session_lock.h
backends/mysql/mysql.h:
backends/mysql/lib.h:
backends/backend.h:
backends/common/clock.h:
backends/mysql/login.h:
backends/common/url.h:
backends/sql/sql.h:
backends/common/retry.h:
backends/mysql/connect.h:
backends/common/setting.h:
backends/common/task.h:
backends/mysql/errors.h:
build/backends/mysql/schema.sql.h:
backends/sql/lease.h:
backends/sql/sql.h:
backends/sql/row.h:
backends/sql/session_lock.h:
