# units.mk - what is tested and fuzzed function by function, without a server.
#
#	make units        every tests/unit_*.c and the simulator (cmocka)
#	make fuzz-smoke   each tests/fuzz_*.c for FUZZ_SMOKE_SECONDS
#	make fuzz         each for FUZZ_SECONDS
#
# $(O)/dlock-test is dlock with one backend more: the scripted one of tests/fake.c.
# $(O)/dlock-reads and $(O)/dlock-acks have zk backends that get it wrong: tests/zk_*.c.

FUZZ_SMOKE_SECONDS ?= 5
FUZZ_SECONDS ?= 60

# ---- units ----

UNITS := $(filter-out $(if $(USE_REDIS),,unit_redis unit_answer) $(if $(USE_ZK),,unit_zk) $(if $(USE_PG),,unit_derive), \
	$(patsubst tests/%.c,%,$(wildcard tests/unit_*.c))) simulate
UNIT_LIB = $(filter-out $(O)/cmd/main.o,$(OBJECTS))
CMOCKA = $(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null || echo -lcmocka)

.PHONY: units
units: $(UNITS:%=$(O)/tests/%)
	@for t in $^; do echo "  UNIT  $$t"; $$t >$$t.log 2>&1 || { cat $$t.log; echo "$$t has failed"; exit 1; }; done

$(UNITS:%=$(O)/tests/%): $(O)/tests/%: $(O)/tests/%.o $(UNIT_LIB)
	@echo "  LD    $@"
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(CMOCKA) $(LIBS)

# ---- dlock with the fake backend ----

TEST_OBJECTS = $(filter-out $(O)/backends/registry.o,$(OBJECTS)) $(O)/tests/registry.o $(O)/tests/fake.o

$(O)/dlock-test: $(TEST_OBJECTS)
	@echo "  LD    $@"
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

$(O)/tests/registry.o: backends/registry.c $(O)/flags
	@mkdir -p $(@D)
	@echo "  CC    $< (with the fake)"
	$(Q)$(CC) $(ALL_CFLAGS) -DWITH_FAKE -c -o $@ $<

# ---- dlock with zk backends that get it wrong ----

WRONG = $(if $(USE_ZK),$(O)/dlock-reads $(O)/dlock-acks)

.PHONY: wrong
wrong: $(WRONG)

$(O)/dlock-reads $(O)/dlock-acks: $(O)/dlock-%: $(filter-out $(O)/backends/zk/zk.o,$(OBJECTS)) $(O)/tests/zk_%.o
	@echo "  LD    $@"
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

-include $(UNITS:%=$(O)/tests/%.d) $(O)/tests/registry.d $(O)/tests/fake.d $(O)/tests/zk_reads.d $(O)/tests/zk_acks.d

# ---- fuzzing: clang, with what each target needs compiled in once more and watched ----

FUZZ_CC ?= clang
FUZZ_CFLAGS = -std=c11 -D_GNU_SOURCE -DDLOCK_VERSION='"$(VERSION)"' $(WARN) -I. -I$(O) -O1 -g \
	-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined
FUZZERS := $(filter-out $(if $(USE_REDIS),,fuzz_url fuzz_resp),$(patsubst tests/%.c,%,$(wildcard tests/fuzz_*.c)))
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

$(O)/fuzz/fuzz_duration: cmd/parse.c cmd/text.c
$(O)/fuzz/fuzz_url: backends/redis/address.c backends/endpoint.c backends/encode.c
$(O)/fuzz/fuzz_key: backends/encode.c cmd/parse.c cmd/text.c
$(O)/fuzz/fuzz_resp: backends/redis/resp.c
$(O)/fuzz/fuzz_header: backends/file/header.c
$(O)/fuzz/fuzz_record: cmd/record.c cmd/object.c cmd/text.c

$(FUZZ_TARGETS): $(O)/fuzz/%: tests/%.c
	@mkdir -p $(@D)
	@echo "  FUZZ  $@ (build)"
	$(Q)$(FUZZ_CC) $(FUZZ_CFLAGS) -o $@ $^ $(LIBS)
