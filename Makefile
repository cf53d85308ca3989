# dlock - a lock for shell scripts, cron jobs and CI pipelines
#
#	make            build build/dlock
#	make demo       two commands that contend for one lock
#	make test       in two minutes, without a server; BACKEND=redis: what concerns that one
#	make check      everything that is tested (tests/README.md)
#	make check-all  the same with more contenders, rounds and torment
#	make interop-node  the same keys locked by clients from npm (needs node)
#	make map        each source file with what it is for, by room
#	make html       the manuals as pages that link to each other: build/html
#	make install    PREFIX=/usr/local, DESTDIR=; make uninstall, with the same
#	make dist deb rpm tarball image   the source, packages, a file for any Linux, a container's image: build/dist
#	make release    all of these for amd64 and arm64, with their checksums: build/release
#	make static     build/static/dlock, against musl: without pg, mysql and TLS
#	make ... ARCH=arm64   the same for another architecture, as Debian calls it: build/arm64
#
# `make deps` installs packages that are missing, from the system's own archive, if root calls it;
# otherwise it names those that an administrator has to install.  demo, check and bench call it.
# V=1 shows the commands.

PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man
BASHCOMPDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHCOMPDIR ?= $(PREFIX)/share/zsh/site-functions
FISHCOMPDIR ?= $(PREFIX)/share/fish/vendor_completions.d
PKG_CONFIG ?= pkg-config
CC ?= cc
PYTHON ?= /usr/bin/python3
WITH_REDIS ?= auto
WITH_ZK ?= auto
WITH_PG ?= auto
WITH_MYSQL ?= auto
WITH_MEMCACHED ?= auto
WITH_ETCD ?= auto
WITH_TLS ?= auto

VERSION := 1.0.0
# Of another architecture: Debian's cross compiler, and libraries from foreign packages (multiarch).
ifdef ARCH
TRIPLET := $(or $(patsubst amd64,x86_64,$(filter amd64,$(ARCH))),$(patsubst arm64,aarch64,$(filter arm64,$(ARCH))),$(error ARCH is amd64 or arm64))-linux-gnu
CC := $(TRIPLET)-gcc
OBJCOPY := $(TRIPLET)-objcopy
OBJDUMP := $(TRIPLET)-objdump
READELF := $(TRIPLET)-readelf
PKG_CONFIG := PKG_CONFIG_LIBDIR=/usr/lib/$(TRIPLET)/pkgconfig:/usr/share/pkgconfig pkg-config
O ?= build/$(ARCH)
endif
O ?= build
Q := $(if $(V),,@)

# ---- backends: auto takes those whose library is there, yes insists on it ----

$(foreach w,WITH_REDIS WITH_ZK WITH_PG WITH_MYSQL WITH_MEMCACHED WITH_ETCD WITH_TLS,$(if $(filter auto yes no,$($(w))),,$(error $(w) is auto, yes or no)))
have_pc = $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo yes)
have_src = $(if $(wildcard backends/$(1)/*.c),yes)
# $(call choose,name,what the user says,is the library there,how to get it)
choose = $(if $(filter no,$(2)),,$(if $(and $(3),$(call have_src,$(1))),yes,$(if $(filter yes,$(2)),$(error \
	$(1) backend: $(if $(call have_src,$(1)),install $(4),not part of this version)))))

USE_REDIS := $(call choose,redis,$(WITH_REDIS),$(call have_pc,hiredis),libhiredis-dev)
USE_ZK := $(call choose,zk,$(WITH_ZK),$(wildcard /usr/include/zookeeper/zookeeper.h),libzookeeper-mt-dev)
USE_PG := $(call choose,pg,$(WITH_PG),$(call have_pc,libpq),libpq-dev)
USE_MYSQL := $(call choose,mysql,$(WITH_MYSQL),$(call have_pc,libmariadb),libmariadb-dev)
USE_MEMCACHED := $(call choose,memcached,$(WITH_MEMCACHED),yes)
USE_ETCD := $(call choose,etcd,$(WITH_ETCD),yes)
# TLS for rediss://, zks:// and etcds://.  The libraries of pg and mysql do their own.
USE_TLS := $(if $(filter no,$(WITH_TLS)),,$(or $(call have_pc,openssl),$(if $(filter yes,$(WITH_TLS)),$(error TLS: install libssl-dev))))

# libpq, libmariadb and OpenSSL are loaded when they are needed, so the build uses only their headers.
include_of = $(patsubst -I%,-isystem %,$(shell $(PKG_CONFIG) --cflags $(1) 2>/dev/null))

# Other client libraries are linked from archives where there are some, since each shared object costs
# every start of dlock some 40 us (make bench).
archive = $(filter /%,$(shell $(CC) -print-file-name=lib$(1).a 2>/dev/null))
static = $(or $(call archive,$(1)),$(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null))

# ---- flags ----

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes
# -fcf-protection exists on x86 only.
HARDEN := -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection \
	$(if $(filter x86_64%,$(shell $(CC) -dumpmachine 2>/dev/null)),-fcf-protection=full) -fPIE
HARDEN_LD := -pie -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code
# This keeps a file's strings beside its other constants; only gcc knows the option.
APART := $(if $(shell $(CC) -Werror -fno-merge-constants -x c -c -o /dev/null /dev/null 2>&1),,-fno-merge-constants)
CFLAGS ?= -O2 -g
# := asks pkg-config and the compiler once, and not for each file.
HAVE := $(if $(USE_REDIS),-DHAVE_REDIS) $(if $(USE_ZK),-DHAVE_ZK -DTHREADED) \
	$(if $(USE_PG),-DHAVE_PG $(call include_of,libpq)) \
	$(if $(USE_MYSQL),-DHAVE_MYSQL $(call include_of,libmariadb)) $(if $(USE_MEMCACHED),-DHAVE_MEMCACHED) $(if $(USE_ETCD),-DHAVE_ETCD) \
	$(if $(USE_TLS),-DHAVE_OPENSSL $(call include_of,openssl))
# Objects and debug symbols name no directory of who builds: so the same source makes the same program anywhere.
PLACELESS := "-ffile-prefix-map=$(CURDIR)=." "-ffile-prefix-map=$(O)=build"
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -DDLOCK_VERSION=\"$(VERSION)\" $(WARN) $(HARDEN) $(APART) $(PLACELESS) -I. -I$(O) -MMD -MP $(HAVE) $(CFLAGS)
# Libraries that are loaded later must find the recv(), send() and poll() of backends/common/inlet.c.
LIBS := -Wl,--export-dynamic-symbol=recv,--export-dynamic-symbol=send,--export-dynamic-symbol=poll \
	$(call static,jansson) $(if $(USE_REDIS),$(call static,hiredis)) \
	$(if $(USE_ZK),$(or $(call archive,zookeeper_mt),-lzookeeper_mt) -lm) -pthread $(LDLIBS)

BACKENDS := $(wildcard backends/*.c backends/common/*.c backends/file/*.c) $(if $(USE_PG)$(USE_MYSQL),$(wildcard backends/sql/*.c)) \
	$(if $(USE_REDIS),$(wildcard backends/redis/*.c)) $(if $(USE_ZK),$(wildcard backends/zk/*.c)) \
	$(if $(USE_PG),$(wildcard backends/pg/*.c)) $(if $(USE_MYSQL),$(wildcard backends/mysql/*.c)) \
	$(if $(USE_MEMCACHED),$(wildcard backends/memcached/*.c)) $(if $(USE_ETCD),$(wildcard backends/etcd/*.c)) $(if $(STATIC),backends/musl/glibc.c)
# The code and strings that each run uses stand together, or it would have eight page faults more.
FIRST := $(patsubst %,cmd/%.c,args conf environment json main mask options parse params record run said say text variables) $(wildcard cmd/supervise/*.c)
SOURCES := $(FIRST) $(BACKENDS) $(filter-out $(FIRST),$(wildcard cmd/*.c))
OBJECTS := $(SOURCES:%.c=$(O)/%.o)
DIALECTS := $(filter-out %/common.lua,$(wildcard backends/redis/dialects/*.lua))
LUA := $(if $(USE_REDIS),$(patsubst %.lua,$(O)/%.lua.h,$(wildcard backends/redis/*.lua) $(DIALECTS)))
SQL := $(patsubst %.sql,$(O)/%.sql.h,$(if $(USE_PG),backends/pg/schema.sql) $(if $(USE_MYSQL),$(wildcard backends/mysql/*.sql)))
MADE := $(LUA) $(SQL)

.PHONY: all demo check check-all install uninstall lint format sanitize fuzz bench clean deps
all: $(O)/dlock

$(O)/dlock: $(OBJECTS)
	@echo "  LD    $@"
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# This file changes with flags and backends, and all objects depend on it; not with the directory, which they do not name.
FLAGS = $(subst $(CURDIR),.,$(CC) $(ALL_CFLAGS))
$(O)/flags: FORCE
	@$(can_build) || { echo "dlock needs a C compiler, pkg-config and jansson, and for each backend its library; on Debian:"; \
	$(if $(ARCH),echo "    dpkg --add-architecture $(ARCH)"; echo "    apt-get update";) \
	echo "    apt-get install --no-install-recommends $(BUILD_PACKAGES)"; exit 1; }
	@mkdir -p $(@D)
	@echo '$(FLAGS)' | cmp -s - $@ || echo '$(FLAGS)' >$@
FORCE:
.SECONDARY: $(MADE) $(O)/none # (an empty list would mean every file)

$(O)/%.o: %.c $(O)/flags | $(MADE)
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

# The stub shares the keeper's memory and must not write to any of it: cmd/supervise/stub.c.
$(O)/cmd/supervise/stub.o: private ALL_CFLAGS += -fno-stack-protector -fno-sanitize=all \
	-fno-profile-arcs -fno-test-coverage -Wframe-larger-than=512

# A Lua script becomes an array of its bytes, and its SHA-1, by which the server knows it.  The scripts of
# dialects all begin with common.lua.
$(DIALECTS:%.lua=$(O)/%.lua.h): backends/redis/dialects/common.lua
$(O)/%.lua.h: %.lua
	@mkdir -p $(@D)
	@echo "  LUA   $<"
	$(Q)name=$(subst -,_,$(basename $(notdir $<))); \
	{ echo "static const char $${name}_sha1[] = \"$$(cat $(filter %/common.lua,$^) $< | sha1sum | cut -c 1-40)\";"; \
	echo "static const char $${name}_lua[] = {"; \
	cat $(filter %/common.lua,$^) $< | od -An -v -tx1 | sed 's/ \(..\)/0x\1,/g'; echo "};"; } >$@

# A schema becomes a string; that of pg stands in two files.
$(O)/backends/pg/schema.sql.h: backends/pg/schema_calls.sql
$(O)/%.sql.h: %.sql
	@mkdir -p $(@D)
	@echo "  SQL   $<"
	$(Q){ echo "static const char $(basename $(notdir $<))_sql[] = {"; \
	cat $< $(filter-out $<,$^) | od -An -v -tx1 | sed 's/ \(..\)/0x\1,/g'; echo "0};"; } >$@

-include $(OBJECTS:.o=.d)

# ---- one static file ----

# It lacks pg, mysql and TLS, since a static program cannot load their libraries.  hiredis, jansson and
# libzookeeper come from the archives for glibc (backends/musl/glibc.c).  musl-gcc has no -static-pie, so
# the parts of that are named.
MUSL = /usr/lib/$(firstword $(subst -, ,$(or $(TRIPLET),$(shell uname -m))))-linux-musl
# Debian has musl-gcc for the machine's own architecture only.  The same words work for another one.
MUSL_GCC = $(if $(ARCH),$(if $(wildcard $(MUSL)/musl-gcc.specs),$(TRIPLET)-gcc -specs $(MUSL)/musl-gcc.specs),$(if $(shell command -v musl-gcc),musl-gcc))
STATIC_LD = -static -nostartfiles $(addprefix $(MUSL)/,rcrt1.o crti.o crtn.o) \
	-Wl,-pie,--no-dynamic-linker,-z,text,-z,relro,-z,now,-z,noexecstack,-z,separate-code,-z,stack-size=1048576
.PHONY: static
static:
	@$(if $(MUSL_GCC),:,echo "make static needs musl-gcc (apt install $(if $(ARCH),musl-dev:$(ARCH),musl-tools))"; exit 1)
	@mkdir -p $(O)/static/include
	@ln -sf -t $(O)/static/include $(wildcard /usr/include/hiredis /usr/include/zookeeper /usr/include/jansson*.h)
	@$(MAKE) --no-print-directory O=$(O)/static STATIC=yes CC='$(MUSL_GCC)' WITH_PG=no WITH_MYSQL=no WITH_TLS=no \
		HARDEN_LD='$(STATIC_LD)' CFLAGS='$(CFLAGS) -D_LARGEFILE64_SOURCE -Wno-format-truncation -isystem $(O)/static/include' all

# ---- packages that must be installed, by their names in Debian ----

BUILD_PACKAGES := gcc libc6-dev pkg-config libjansson-dev libhiredis-dev libssl-dev libzookeeper-mt-dev libpq-dev libmariadb-dev
ifdef ARCH
BUILD_PACKAGES := gcc-$(subst _,-,$(TRIPLET)) pkg-config $(patsubst %,%:$(ARCH),$(filter-out gcc pkg-config,$(BUILD_PACKAGES)) musl-dev)
endif
# Programs whose locks dlock takes (tests/system/promises/test_joins.py).
JOIN_PACKAGES := python3-django python3-django-redis python3-django-pglocks python3-pymemcache python3-tooz \
	python3-filelock python3-fasteners python3-portalocker python3-oslo.concurrency \
	ruby ruby-activerecord ruby-pg ruby-mysql2 \
	php-cli php-redis php-memcached php-pgsql php-symfony-lock php-illuminate-cache php-illuminate-redis
CHECK_PACKAGES := $(BUILD_PACKAGES) iproute2 libcmocka-dev python3-pytest python3-pexpect python3-psutil \
	mmdebstrap musl-tools rpm redis-server python3-redis zookeeper default-jdk-headless python3-kazoo libcurator-recipes-java \
	bash-completion postgresql pgbouncer python3-psycopg2 mariadb-server galera-4 galera-arbitrator-4 rsync python3-pymysql memcached etcd-server etcd-client clang libclang-rt-dev clang-tidy clang-format cppcheck pyflakes3 shellcheck mandoc \
	openssl libssl3 tmux vim less procps util-linux zsh fish groff-base sqlite3 jq python3-yaml ansible-core acl systemd spin strace \
	$(JOIN_PACKAGES)

# In a function's words make keeps the backslash of \#, and what that says is no directive.
hash := \#
have_cmocka = $(shell echo '$(hash)include <cmocka.h>' | $(CC) -include stdarg.h -include stddef.h -include stdint.h -include setjmp.h -E - >/dev/null 2>&1 && echo yes)
can_build = command -v $(firstword $(CC)) >/dev/null && $(PKG_CONFIG) --exists jansson 2>/dev/null

# Without dpkg nothing counts as missing: the one who builds must know.
missing = $(if $(shell command -v dpkg-query),$(filter-out $(shell dpkg-query -W -f '$${Status}/$${Package}\n' $(1) 2>/dev/null | \
	sed -n 's,^[a-z]* ok installed/,,p'),$(1)))
# $(call install,packages) says what it does; without root it says what to do.
install = if [ "$$(id -u)" != 0 ]; then \
	echo "not all that is needed is installed; an administrator can do that:"; \
	echo "    apt-get install --no-install-recommends $(1)"; exit 1; fi; \
	echo "installing with apt-get: $(1)"; mkdir -p $(O); \
	export DEBIAN_FRONTEND=noninteractive; \
	{ apt-get update -qq && apt-get install -qq -y --no-install-recommends $(1); } >$(O)/apt.log 2>&1 || \
	{ cat $(O)/apt.log; exit 1; }
install_missing = $(if $(call missing,$(1)),$(call install,$(call missing,$(1))),:)

# A user without root builds with the libraries that are there, perhaps with fewer backends.
.PHONY: deps-build
deps-build:
	@$(if $(filter 0,$(shell id -u)),$(call install_missing,$(BUILD_PACKAGES)),:)
deps:
	@$(call install_missing,$(CHECK_PACKAGES))

# ---- a demonstration ----

demo: deps-build
	@$(MAKE) --no-print-directory all
	@sh tests/demo.sh $(O)/dlock

# ---- tests ----

# make test runs the tests that need no server; make test BACKEND=redis (or zk, pg, mysql, memcached, etcd)
# those that need that one.  It installs nothing, and names the packages without which it cannot test
# something.  A shell ignores signals for a job in the background that tests need, so env restores them.
# PYTEST="--lf --durations=10" gives pytest more words, here and in make check; TESTS=tests/system/redis
# selects files.
export PYTEST
TESTS ?= tests/system
WORKERS ?= 12
.PHONY: test
test:
	@$(MAKE) --no-print-directory -j$$(nproc 2>/dev/null || echo 1) all $(O)/dlock-test $(O)/dlock-admin $(if $(BACKEND),wrong,$(if $(and $(have_cmocka),$(if $(NO_UNITS),,yes)),units))
	@$(if $(BACKEND)$(have_cmocka),:,echo "  UNIT  left out: libcmocka-dev is not installed")
	@$(PYTHON) -c 'import pytest' 2>/dev/null || { echo "python3-pytest is not installed"; exit 1; }
	@DLOCK=$(O)/dlock DLOCK_TEST=$(O)/dlock-test DLOCK_TEST_BACKENDS="$(or $(BACKEND),$(DLOCK_TEST_BACKENDS),file)" \
		env --default-signal=INT,QUIT,HUP $(PYTHON) -m pytest -q --tb=short --workers=$(WORKERS) \
		--limit=120 --known=tests/lasted.txt --progress=$(O)/test.log $(if $(BACKEND),-m $(BACKEND)) $(PYTEST) $(TESTS) </dev/null

# Puts each fault of tests/mutants/mutants.txt into a copy of the source, and asks which test finds it;
# COMPILE=1 asks only whether each compiles.
.PHONY: mutants
mutants: deps
	@COMPILE=$(COMPILE) JOBS=$(JOBS) $(PYTHON) tests/mutants/run.py $(NAME)

# A second make reads again which libraries are there, after deps has installed some.
check-all: export DLOCK_TEST_FULL := 1
check-all: export DLOCK_SOAK := 180
check-all: export LIMIT := 14400
check-all: export TEST_LIMIT := 3600
check check-all: deps
	@$(MAKE) --no-print-directory -j$$(nproc 2>/dev/null || echo 1) all $(O)/dlock-test $(O)/dlock-admin wrong
	$(Q)DLOCK=$(O)/dlock DLOCK_TEST=$(O)/dlock-test PYTHON=$(PYTHON) tests/check.sh $(O)

# Clients for node that take the same locks: needs node and npm, and a network.
NODE_PACKAGES := ioredis redlock@4.2.0 redlock5@npm:redlock@5.0.0-beta.2 ioredis-lock redis redis3@npm:redis@3.1.2 redis4@npm:redis@4 \
	redis-lock node-redis-warlock redis-semaphore simple-redis-mutex \
	pg advisory-lock graphile-migrate node-pg-migrate pg-boss@10 postgres-migrations
.PHONY: interop-node
interop-node: $(O)/dlock
	@mkdir -p $(O)/node
	$(Q)npm install --prefix $(O)/node --no-audit --no-fund --silent $(NODE_PACKAGES)
	$(Q)DLOCK=$(O)/dlock DLOCK_TEST_NODE=$(O)/node $(PYTHON) -m pytest -q -p no:cacheprovider -k 'test_node or npm' \
		tests/system/redis/test_node.py tests/system/promises/test_joins.py

include packages/packages.mk
include tests/units.mk
include tests/model.mk

# Runs units and the contract once more, with ASan and UBSan.
SANITIZE := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
sanitize: deps
	@$(MAKE) --no-print-directory O=$(O)/asan HARDEN= HARDEN_LD= CFLAGS='$(SANITIZE)' all units
	DLOCK=$(O)/asan/dlock $(PYTHON) -m pytest -q -p no:cacheprovider tests/system/promises/test_contract.py

# make bench crowd N="200 1000" BACKEND=redis measures how costs grow with the number of waiters,
# make bench load what holders and waiters are to a server, make bench kinds what readers, limits
# and several keys cost.
.PHONY: crowd load kinds bench-costs bench-crowd bench-load bench-kinds
bench: $(or $(patsubst %,bench-%,$(filter crowd load kinds,$(MAKECMDGOALS))),bench-costs)
crowd load kinds: bench; @:
bench-costs: deps
	@$(MAKE) --no-print-directory all
	@DLOCK=$(O)/dlock $(PYTHON) tests/bench/bench.py
bench-crowd bench-load: bench-%: deps
	@$(MAKE) --no-print-directory all
	@DLOCK=$(O)/dlock $(PYTHON) tests/bench/$*.py $(if $(N),--waiters $(N)) $(if $(BACKEND),--backends $(BACKEND))
bench-kinds: deps
	@$(MAKE) --no-print-directory all
	@DLOCK=$(O)/dlock $(PYTHON) tests/bench/kinds.py

# Linters; each must have nothing to say.
C_FILES = $(wildcard cmd/*.[ch] cmd/*/*.[ch] backends/*.[ch] backends/*/*.[ch] packages/*.c)
C_TESTS = $(wildcard tests/*/*.[ch])
TIDY := -*,clang-diagnostic-*,bugprone-*,clang-analyzer-*,misc-redundant-expression,readability-misleading-indentation,-bugprone-easily-swappable-parameters,-bugprone-reserved-identifier,-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling,-clang-analyzer-security.insecureAPI.strcpy,-clang-analyzer-optin.performance.Padding,-bugprone-narrowing-conversions,-bugprone-branch-clone,-bugprone-assignment-in-if-condition,-bugprone-suspicious-include,-bugprone-implicit-widening-of-multiplication-result,-clang-analyzer-valist.Uninitialized
# The analyzer and cppcheck follow paths through functions, which takes minutes: make check-all and make
# lint run them, make check does not.
comma := ,
lint_slowly := $(if $(LINT_QUICK),,yes)
lint: $(MADE) $(O)/flags
	@echo "  LINT  clang-tidy"
	$(Q)clang-tidy --quiet --warnings-as-errors='*' --checks='$(TIDY)$(if $(lint_slowly),,$(comma)-clang-analyzer-*)' $(SOURCES) -- \
		$(filter-out -MMD -MP -fcf-protection=full -fstack-clash-protection $(APART),$(ALL_CFLAGS)) 2>$(O)/tidy.log || { cat $(O)/tidy.log; exit 1; }
	$(if $(lint_slowly),@echo "  LINT  cppcheck")
	$(if $(lint_slowly),$(Q)cppcheck --quiet --error-exitcode=1 --enable=warning$(comma)performance$(comma)portability --inline-suppr \
		--std=c11 -D_GNU_SOURCE -DHAVE_REDIS -DHAVE_ZK -DHAVE_PG -DHAVE_MYSQL -DHAVE_MEMCACHED -DHAVE_ETCD -DHAVE_OPENSSL -I. -I$(O) --suppress=missingIncludeSystem --suppress=ctuuninitvar --suppress=uninitvar --suppress=ctuPointerArith $(SOURCES))
	@echo "  LINT  shellcheck, mandoc"
	$(Q)shellcheck .ci/run packages/*.sh tests/*.sh tests/model/*.sh completions/dlock.bash
	$(Q)mandoc -T lint -W style man/*.[157]
	@echo "  LINT  pyflakes"
	$(Q)! pyflakes3 tests | grep -v ' unused' # which fixtures are
	@echo "  LINT  format"
	$(Q)clang-format --dry-run -Werror $(C_FILES) $(C_TESTS)
	@echo "  LINT  what a backend never does"
	$(Q)! grep -nE '#include "cmd/' $(BACKENDS)
	$(Q)! grep -nE '\<(printf|fprintf|exit|_exit|fork|signal|sigaction)\(' $(BACKENDS) | grep -v 'sigaction(SIGPIPE, '
	$(Q)! grep -nE '\<(gets|strcat|sprintf|vsprintf|alloca)\(' $(C_FILES)

format:
	clang-format -i $(C_FILES) $(C_TESTS)

# ---- for readers ----

.PHONY: map
map:
	@sh tests/map.sh

# Makes the manuals as pages that link to each other.  A manual writes "Sy dlock Ns (1)" for another one
# (see its first lines); here that becomes a reference.
.PHONY: html
html: $(patsubst man/%,$(O)/html/%.html,$(wildcard man/*.[157]))
$(O)/html/%.html: man/%
	@mkdir -p $(@D)
	$(Q)sed 's/Sy \(dlock[a-z.-]*\) Ns (\([157]\))/Xr \1 \2/' $< | mandoc -T html -O man=%N.%S.html,toc >$@

# ---- installing ----

# A manual describes a group of subcommands.  These names make `man dlock-ls` find it, too.
MAN_LINKS := dlock-run:dlock dlock-ls:dlock-status dlock-wait:dlock-status dlock-freeze:dlock-break dlock-thaw:dlock-break \
	dlock-forget:dlock-break dlock-release:dlock-hold

PROGRAM = $(O)/dlock
install: all
	install -D -m 755 $(PROGRAM) "$(DESTDIR)$(BINDIR)/dlock"
	for f in man/*.[157]; do install -D -m 644 $$f "$(DESTDIR)$(MANDIR)/man$${f##*.}/$${f#man/}" || exit 1; done
	for f in $(MAN_LINKS); do echo ".so man1/$${f#*:}.1" >"$(DESTDIR)$(MANDIR)/man1/$${f%:*}.1" || exit 1; done
	install -D -m 644 completions/dlock.bash "$(DESTDIR)$(BASHCOMPDIR)/dlock"
	install -D -m 644 completions/_dlock "$(DESTDIR)$(ZSHCOMPDIR)/_dlock"
	install -D -m 644 completions/dlock.fish "$(DESTDIR)$(FISHCOMPDIR)/dlock.fish"

uninstall:
	rm -f $(foreach f,$(notdir $(wildcard man/*.[157])) $(foreach l,$(MAN_LINKS),$(firstword $(subst :, ,$(l))).1), \
		"$(DESTDIR)$(MANDIR)/man$(patsubst .%,%,$(suffix $(f)))/$(f)")
	rm -f "$(DESTDIR)$(BINDIR)/dlock" \
		"$(DESTDIR)$(BASHCOMPDIR)/dlock" "$(DESTDIR)$(ZSHCOMPDIR)/_dlock" "$(DESTDIR)$(FISHCOMPDIR)/dlock.fish"

clean:
	rm -rf build
