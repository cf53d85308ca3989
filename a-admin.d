admin.o: backends/file/admin.c backends/file/file.h backends/file/block.h \
 backends/file/tickets.h backends/backend.h backends/common/clock.h \
 backends/file/directory.h backends/file/place.h backends/common/url.h \
 backends/file/line.h backends/file/runs.h
backends/file/file.h:
backends/file/block.h:
backends/file/tickets.h:
backends/backend.h:
backends/common/clock.h:
backends/file/directory.h:
backends/file/place.h:
backends/common/url.h:
backends/file/line.h:
backends/file/runs.h:
