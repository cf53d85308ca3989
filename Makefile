# dlock - a lock for shell scripts, cron jobs and CI pipelines
#
#	make            build build/dlock
#	make demo       two commands that contend for one lock
#	make check      everything that is tested
#	make install    PREFIX=/usr/local, DESTDIR=
#
# What is missing is installed by `make deps` (demo and check call it), from
# the system's own packages.  V=1 shows the commands.

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

VERSION := 0.1.0
O ?= build
Q := $(if $(V),,@)

# ---- which backends: auto takes what is there, yes insists ----

have_pc = $(shell $(PKG_CONFIG) --exists $(1) 2>/dev/null && echo yes)
have_src = $(if $(wildcard backends/$(1)/*.c),yes)
# $(call choose,name,what the user says,is the library there,how to get it)
choose = $(if $(filter no,$(2)),,$(if $(and $(3),$(call have_src,$(1))),yes,$(if $(filter yes,$(2)),$(error \
	$(1) backend: $(if $(call have_src,$(1)),install $(4),not part of this version)))))

USE_REDIS := $(call choose,redis,$(WITH_REDIS),$(call have_pc,hiredis),libhiredis-dev)
USE_ZK := $(call choose,zk,$(WITH_ZK),$(wildcard /usr/include/zookeeper/zookeeper.h),libzookeeper-mt-dev)
USE_PG := $(call choose,pg,$(WITH_PG),$(call have_pc,libpq),libpq-dev)

# Client libraries are taken from archives where there are some: each shared
# object costs every start of dlock some 40 us (make bench).
archive = $(wildcard $(shell $(PKG_CONFIG) --variable=libdir $(1) 2>/dev/null)/lib$(1).a)
static = $(or $(call archive,$(1)),$(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null))

# ---- flags ----

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes
# -fcf-protection exists on x86 only.
HARDEN := -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection \
	$(if $(filter x86_64%,$(shell $(CC) -dumpmachine)),-fcf-protection=full) -fPIE
HARDEN_LD := -pie -Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code
CFLAGS ?= -O2 -g
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -DDLOCK_VERSION=\"$(VERSION)\" $(WARN) $(HARDEN) -I. -I$(O) -MMD -MP \
	$(if $(USE_REDIS),-DHAVE_REDIS) $(if $(USE_ZK),-DHAVE_ZK) $(if $(USE_PG),-DHAVE_PG) $(CFLAGS)
LIBS = $(call static,jansson) $(if $(USE_REDIS),$(call static,hiredis)) -pthread $(LDLIBS)

BACKENDS := backends/registry.c backends/clock.c backends/encode.c backends/trace.c backends/file.c \
	$(if $(USE_REDIS),$(wildcard backends/redis/*.c)) $(if $(USE_ZK),$(wildcard backends/zk/*.c)) \
	$(if $(USE_PG),$(wildcard backends/pg/*.c))
SOURCES := $(wildcard cmd/*.c) $(BACKENDS)
OBJECTS := $(SOURCES:%.c=$(O)/%.o)
LUA := $(if $(USE_REDIS),$(patsubst %.lua,$(O)/%.lua.h,$(wildcard backends/redis/*.lua)))

.PHONY: all demo check install uninstall lint format sanitize fuzz bench clean deps
all: $(O)/dlock

$(O)/dlock: $(OBJECTS)
	@echo "  LD    $@"
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LIBS)

# Objects made with other flags or backends are no use: this file changes with them.
$(O)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(CC) $(ALL_CFLAGS)' | cmp -s - $@ || echo '$(CC) $(ALL_CFLAGS)' >$@
FORCE:
.SECONDARY: $(LUA)

$(O)/%.o: %.c $(O)/flags | $(LUA)
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

# A script becomes its bytes and its SHA-1, by which the server knows it.
$(O)/%.lua.h: %.lua
	@mkdir -p $(@D)
	@echo "  LUA   $<"
	$(Q){ echo "static const char $(basename $(notdir $<))_sha1[] = \"$$(sha1sum <$< | cut -c 1-40)\";"; \
	echo "static const char $(basename $(notdir $<))_lua[] = {"; \
	od -An -v -tx1 $< | sed 's/ \(..\)/0x\1,/g'; echo "};"; } >$@

-include $(OBJECTS:.o=.d)

clean:
	rm -rf build
