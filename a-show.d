show.o: cmd/show.c cmd/show.h cmd/look.h cmd/supervise/join_search.h \
 cmd/supervise/join_asker.h cmd/supervise/join_wire.h \
 backends/common/setting.h backends/backend.h backends/common/clock.h \
 cmd/supervise/join_site.h cmd/plan.h cmd/supervise/lease.h \
 cmd/supervise/keeper_address.h cmd/supervise/link.h \
 cmd/supervise/child.h cmd/supervise/step.h backends/common/alert.h \
 backends/common/clock.h cmd/view.h cmd/record.h cmd/plan.h cmd/text.h \
 cmd/screen.h cmd/object.h cmd/parse.h
cmd/show.h:
cmd/look.h:
cmd/supervise/join_search.h:
cmd/supervise/join_asker.h:
cmd/supervise/join_wire.h:
backends/common/setting.h:
backends/backend.h:
backends/common/clock.h:
cmd/supervise/join_site.h:
cmd/plan.h:
cmd/supervise/lease.h:
cmd/supervise/keeper_address.h:
cmd/supervise/link.h:
cmd/supervise/child.h:
cmd/supervise/step.h:
backends/common/alert.h:
backends/common/clock.h:
cmd/view.h:
cmd/record.h:
cmd/plan.h:
cmd/text.h:
cmd/screen.h:
cmd/object.h:
cmd/parse.h:
