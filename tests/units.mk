# units.mk - what is tested and fuzzed function by function, without a server.
#
#	make units        every tests/unit/*.c and the simulator (cmocka)
#	make fuzz-smoke   each tests/fuzz/*.c for FUZZ_SMOKE_SECONDS
#	make fuzz         each for FUZZ_SECONDS
#
# $(O)/dlock-test is dlock with one backend more, the scripted one of tests/servers/fake.c, and
# with the file $TEST_SYSTEM_CONF for /etc/dlock.conf, and the socket $TEST_LOG_SOCKET for /dev/log.
# $(O)/dlock-admin calls a backend's admin_ops one by one: tests/servers/admin.c.
# $(O)/dlock-reads and $(O)/dlock-acks have zk backends that get it wrong: tests/servers/zk_*.c;
# $(O)/dlock-mute a libzookeeper that leaves lines out of its log;
# $(O)/dlock-forgets a Redlock that counts the votes of masters that have just restarted,
# $(O)/dlock-brief one with leases of 3 s at most.

FUZZ_SMOKE_SECONDS ?= 1
FUZZ_SECONDS ?= 60

# ---- units ----

UNITS := $(filter-out $(if $(USE_REDIS),,unit/redis unit/answer unit/dialect unit/topology) $(if $(USE_ETCD),,unit/etcd) $(if $(USE_ZK),,unit/zk unit/credit unit/message unit/tunnel) $(if $(USE_PG),,unit/derive unit/hosts unit/bounds unit/pg_errors) $(if $(USE_MYSQL),,unit/names unit/mysql_errors) $(if $(USE_PG)$(USE_MYSQL),,unit/lease_place unit/sql unit/value) $(if $(USE_MEMCACHED),,unit/memcached) $(if $(USE_TLS),,unit/openssl), \
	$(patsubst tests/%.c,%,$(wildcard tests/unit/*.c))) model/simulate model/several
UNIT_LIB = $(filter-out $(O)/cmd/main.o,$(OBJECTS))
CMOCKA = $(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null || echo -lcmocka)

.PHONY: units
units: $(UNITS:%=$(O)/tests/%)
	@for t in $^; do echo "  UNIT  $$t"; $$t >$$t.log 2>&1 || { cat $$t.log; echo "$$t has failed"; exit 1; }; done

# What make check ends with then.
.PHONY: units-have-failed
units-have-failed:
	@exit 1

$(UNITS:%=$(O)/tests/%): $(O)/tests/%: $(O)/tests/%.o $(UNIT_LIB)
	@echo "  LD    $@"
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(CMOCKA) $(LIBS)

# it runs several keys on a clock of its own
$(O)/tests/model/several: override LDFLAGS += -Wl,--wrap=instant_now
# it looks by a clock of its own
$(O)/tests/unit/before: override LDFLAGS += -Wl,--wrap=instant_now
# it has a TLS of its own
$(O)/tests/unit/tunnel: override LDFLAGS += -Wl,--wrap=tls_again,--wrap=tls_start,--wrap=tls_close
# it has no memory at times
$(O)/tests/unit/etcd: override LDFLAGS += -Wl,--wrap=malloc

# ---- dlock with the fake backend ----

TEST_OBJECTS = $(filter-out $(O)/backends/registry.o $(O)/cmd/conf.o $(O)/cmd/log.o,$(OBJECTS)) $(O)/tests/registry.o $(O)/tests/conf.o $(O)/tests/log.o $(O)/tests/servers/fake.o $(O)/tests/servers/fake_look.o

$(O)/dlock-test: $(TEST_OBJECTS)
	@echo "  LD    $@"
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(O)/tests/registry.o: backends/registry.c $(O)/flags
	@mkdir -p $(@D)
	@echo "  CC    $< (with the fake)"
	$(Q)$(CC) $(ALL_CFLAGS) -DWITH_FAKE -c -o $@ $<

$(O)/tests/conf.o: cmd/conf.c $(O)/flags
	@mkdir -p $(@D)
	@echo "  CC    $< (with another system's file)"
	$(Q)$(CC) $(ALL_CFLAGS) '-DCONF_SYSTEM_FILE=environment_get("TEST_SYSTEM_CONF")' -c -o $@ $<

$(O)/tests/log.o: cmd/log.c $(O)/flags
	@mkdir -p $(@D)
	@echo "  CC    $< (with another syslog)"
	$(Q)$(CC) $(ALL_CFLAGS) -include cmd/environment.h '-DLOG_SOCKET=environment_get("TEST_LOG_SOCKET")' -c -o $@ $<

# ---- a backend's admin_ops, called one by one ----

$(O)/dlock-admin: $(O)/tests/servers/admin.o $(filter-out $(O)/cmd/main.o,$(OBJECTS))
	@echo "  LD    $@"
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# ---- dlock with backends that get it wrong ----

WRONG = $(if $(USE_ZK),$(O)/dlock-reads $(O)/dlock-acks $(O)/dlock-mute) $(if $(USE_REDIS),$(O)/dlock-forgets $(O)/dlock-brief)

.PHONY: wrong
wrong: $(WRONG)

$(O)/dlock-reads $(O)/dlock-acks: $(O)/dlock-%: $(filter-out $(O)/backends/zk/node.o,$(OBJECTS)) $(O)/tests/servers/zk_%.o
	@echo "  LD    $@"
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(O)/dlock-mute: $(OBJECTS) $(O)/tests/servers/zk_mute.o
	@echo "  LD    $@"
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -Wl,--wrap=zookeeper_init2 -o $@ $^ $(LIBS)

$(O)/dlock-forgets $(O)/dlock-brief: $(O)/dlock-%: $(filter-out $(O)/backends/redis/quorum.o,$(OBJECTS)) $(O)/tests/servers/redlock_%.o
	@echo "  LD    $@"
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

-include $(O)/tests/servers/redlock_forgets.d $(O)/tests/servers/redlock_brief.d $(O)/tests/servers/admin.d $(UNITS:%=$(O)/tests/%.d) $(O)/tests/registry.d $(O)/tests/conf.d $(O)/tests/log.d $(O)/tests/servers/fake.d $(O)/tests/servers/fake_look.d $(O)/tests/servers/zk_reads.d $(O)/tests/servers/zk_acks.d $(O)/tests/servers/zk_mute.d

# ---- fuzzing: clang, with the files under attack compiled once more and watched ----
# What these files call in others comes from the ordinary build, so that a new call needs no word here.

FUZZ_CC ?= clang
FUZZ_SANITIZE = -fsanitize=address,undefined -fno-sanitize-recover=undefined
FUZZ_CFLAGS = -std=c11 -D_GNU_SOURCE -DDLOCK_VERSION='"$(VERSION)"' $(WARN) -I. -I$(O) -O1 -gline-tables-only -fsanitize=fuzzer-no-link $(FUZZ_SANITIZE)
FUZZERS := $(filter-out $(if $(USE_REDIS),,url resp) $(if $(USE_MEMCACHED),,memcached) $(if $(USE_ETCD),,etcd) $(if $(USE_ZK),,ensemble),$(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/*.c)))
FUZZ_TARGETS = $(FUZZERS:%=$(O)/fuzz/%)
# $(call fuzz,seconds): one line for each target, all of its output when it finds something
fuzz = for t in $(FUZZERS); do echo "  FUZZ  $$t ($(1) s)"; \
	mkdir -p $(O)/fuzz/$$t.corpus $(O)/fuzz/$$t.found; \
	$(O)/fuzz/$$t -max_total_time=$(1) -timeout=10 -max_len=4096 -print_final_stats=1 \
	-artifact_prefix=$(O)/fuzz/$$t.found/ $(O)/fuzz/$$t.corpus >$(O)/fuzz/$$t.log 2>&1 || \
	{ tail -50 $(O)/fuzz/$$t.log; echo "$$t has found something: $(O)/fuzz/$$t.found"; exit 1; }; done

.PHONY: fuzz fuzz-smoke
fuzz: $(FUZZ_TARGETS)
	@$(call fuzz,$(FUZZ_SECONDS))

# Without clang's fuzzer there is nothing to run; everything else that goes wrong is an error.
fuzz-smoke:
	@mkdir -p $(O)/fuzz; \
	if echo 'int LLVMFuzzerTestOneInput(void); int LLVMFuzzerTestOneInput(void) { return 0; }' | \
	$(FUZZ_CC) -fsanitize=fuzzer,address,undefined -x c -o $(O)/fuzz/probe - 2>/dev/null; \
	then $(MAKE) --no-print-directory fuzz FUZZ_SECONDS=$(FUZZ_SMOKE_SECONDS); \
	else echo "  FUZZ  skipped: $(FUZZ_CC) or its fuzzer runtime (libclang-rt-dev) is not installed"; fi

watched = $(patsubst %.c,$(O)/fuzz/%.o,$(1))

$(O)/fuzz/duration: $(call watched,cmd/parse.c backends/common/libc.c cmd/text.c)
$(O)/fuzz/url: $(call watched,backends/redis/address.c backends/common/setting.c backends/common/trusted.c backends/common/identity.c backends/common/url.c backends/common/endpoint.c backends/common/encode.c)
$(O)/fuzz/ensemble: $(call watched,backends/zk/ensemble.c backends/common/url.c backends/common/endpoint.c backends/common/encode.c)
$(O)/fuzz/key: $(call watched,backends/common/url.c backends/common/endpoint.c backends/common/encode.c cmd/text.c)
$(O)/fuzz/resp: $(call watched,backends/redis/resp.c backends/redis/script.c)
$(O)/fuzz/memcached: $(call watched,backends/memcached/client.c backends/memcached/item.c $(addprefix backends/common/,instant.c refuse.c resolve.c secret.c stream.c sha.c task.c url.c endpoint.c encode.c))
$(O)/fuzz/etcd: $(call watched,$(addprefix backends/etcd/,http.c kv.c queue.c) $(addprefix backends/common/,instant.c resolve.c stream.c sha.c task.c url.c endpoint.c encode.c))
$(O)/fuzz/block: $(call watched,backends/file/block.c backends/file/tickets.c backends/common/task.c)
$(O)/fuzz/runs: $(call watched,backends/file/runs.c backends/file/directory.c backends/file/block.c backends/file/line.c backends/file/place.c backends/file/tickets.c backends/common/encode.c backends/common/job.c backends/common/refuse.c backends/common/sha.c backends/common/task.c)
$(O)/fuzz/view: $(call watched,cmd/view.c cmd/held.c cmd/supervise/process.c cmd/show.c cmd/columns.c cmd/screen.c cmd/record.c cmd/json.c cmd/text.c cmd/mask.c cmd/parse.c backends/common/libc.c backends/common/instant.c cmd/params.c)
$(O)/fuzz/conf: $(call watched,cmd/conf.c cmd/said.c cmd/variables.c cmd/supervise/join_address.c cmd/options.c cmd/params.c cmd/parse.c backends/common/libc.c cmd/text.c cmd/mask.c backends/registry.c $(addprefix backends/common/,instant.c setting.c trusted.c identity.c url.c endpoint.c encode.c))
$(O)/fuzz/record: $(call watched,cmd/record.c cmd/supervise/process.c cmd/json.c cmd/text.c cmd/mask.c cmd/parse.c cmd/params.c backends/common/libc.c)

$(O)/fuzz/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) -MMD -MP -c -o $@ $<

$(O)/fuzz/others.a: $(filter-out $(O)/cmd/main.o,$(OBJECTS))
	@mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcs $@ $^

$(FUZZ_TARGETS): $(O)/fuzz/%: $(O)/fuzz/tests/fuzz/%.o $(O)/fuzz/others.a
	@echo "  FUZZ  $@ (build)"
	$(Q)$(FUZZ_CC) $(FUZZ_SANITIZE) -fsanitize=fuzzer -o $@ $(filter %.o,$^) $(O)/fuzz/others.a $(LIBS)

-include $(wildcard $(O)/fuzz/*/*.d $(O)/fuzz/*/*/*.d)
