# packages.mk - what is handed on to others, all of it into $(DIST).
#
#	make dist      dlock-VERSION.tar.gz: the source, the same bytes each time
#	make deb       dlock_VERSION-1_ARCH.deb and dlock-dbgsym_VERSION-1_ARCH.deb: for the release
#	               that makes it, and newer ones (its libc6 is asked for)
#	make tarball   dlock-VERSION-linux-MACHINE.tar.gz: needs glibc 2.31 or newer; where musl-gcc
#	               is, dlock-VERSION-linux-MACHINE-static.tar.gz: needs nothing
#	make rpm       dlock-VERSION-1.MACHINE.rpm and dlock-debuginfo-VERSION-1.MACHINE.rpm: the
#	               program of the tarball, for Fedora, RHEL 9, SUSE and their like
#	make image     dlock-VERSION-MACHINE.oci.tar: the static program as a container's image
#	make release   all of them for amd64 and arm64, packages/INSTALL, and SHA256SUMS: into
#	               $(O)/release
#
# With ARCH=arm64 (or amd64) for that architecture, whatever the machine's own is.
#
# All are the same bytes wherever, whenever and by whom they are made of one source, with the same
# compiler and libraries.  Programs are stripped; a tarball's debug symbols lie beside it, in NAME-debug.tar.gz.
# VERSION stands in the Makefile; CHANGELOG.md has a heading for it.

DIST ?= $(O)/dist
OBJCOPY ?= objcopy
OBJDUMP ?= objdump
READELF ?= readelf
MAINTAINER ?= the dlock authors <dlock@packages.invalid>
# When it was made: the time of the commit; in a source archive, that of its files.
SOURCE_DATE_EPOCH ?= $(or $(if $(wildcard .git),$(shell git log -1 --format=%ct 2>/dev/null)),$(shell stat -c %Y CHANGELOG.md))

RELEASE := dlock-$(VERSION)
MACHINE = $(firstword $(subst -, ,$(shell $(CC) -dumpmachine)))
BINARY = $(RELEASE)-linux-$(MACHINE)
# Whoever packs, wherever and when, gets the same bytes.
TAR = tar --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime=@$(SOURCE_DATE_EPOCH)
PACK = MAKE='$(MAKE)' DIST='$(DIST)' VERSION='$(VERSION)' OBJCOPY='$(OBJCOPY)' READELF='$(READELF)' MAINTAINER='$(subst ','\'',$(MAINTAINER))' TAR='$(TAR)' \
	SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) LC_ALL=C ARCH='$(ARCH)' NOTICES='$(call notices,$@)' sh packages/pack.sh
# Of the libraries inside, as far as this machine has them.
notices = $(wildcard $(foreach package,libjansson-dev $(if $(USE_REDIS),libhiredis-dev) $(if $(USE_ZK),libzookeeper-mt-dev) \
	$(if $(filter tarball-static image,$(1)),musl),/usr/share/doc/$(package)/copyright))

.PHONY: dist deb tarball tarball-glibc tarball-static rpm image release

# ---- the source ----

# What git knows; elsewhere all that is there: that is a source archive.
FILES = $(if $(wildcard .git),git ls-files -z,find . -type f ! -path './$(O)/*' ! -path ./dlock ! -path '*/__pycache__/*' \
	! -path '*/.pytest_cache/*' -printf '%P\0')
dist:
	@grep -q '^## $(VERSION)\>' CHANGELOG.md || { echo "CHANGELOG.md says nothing of $(VERSION)"; exit 1; }
	@mkdir -p $(DIST)
	$(Q)$(FILES) >$(DIST)/files
	$(Q)LC_ALL=C sort -z -o $(DIST)/files $(DIST)/files
	$(Q)$(TAR) --transform='s,^,$(RELEASE)/,' --null -T $(DIST)/files -cf $(DIST)/$(RELEASE).tar
	$(Q)gzip -9nf $(DIST)/$(RELEASE).tar
	@rm $(DIST)/files
	@echo "  PACK  $(DIST)/$(RELEASE).tar.gz"

# ---- for Debian and its like ----

deb: all
	$(Q)$(PACK) deb $(O)/dlock

# ---- for any Linux ----

tarball: tarball-glibc $(if $(MUSL_GCC),tarball-static)
	@$(if $(MUSL_GCC),:,echo "no tarball of a static program: make static needs musl-gcc")

# The objects of $(O)/dlock once more, linked so that they ask for nothing that glibc 2.31 has
# not: packages/glibc.c and glibc.awk.  Threads, timers and dlopen() were in libraries of their own.
part = $(shell $(CC) -print-file-name=$(1))
# Makes $(DIST)/$@/dlock.
define link_for_old_glibc
	@mkdir -p $(DIST)/$@
	$(Q)$(OBJDUMP) -T $(call part,libc.so.6) | awk -f packages/glibc.awk >$(DIST)/$@/symbols
	$(Q)$(OBJCOPY) --redefine-sym __libc_start_main=start_main $(call part,Scrt1.o) $(DIST)/$@/start.o
	$(Q)$(CC) $(filter-out -MMD -MP,$(ALL_CFLAGS)) -c -o $(DIST)/$@/glibc.o packages/glibc.c
	$(Q)$(CC) -r -nostdlib -o $(DIST)/$@/whole.o $(DIST)/$@/start.o $(DIST)/$@/glibc.o $(OBJECTS) $(filter %.a,$(LIBS))
	$(Q)$(OBJCOPY) --redefine-syms=$(DIST)/$@/symbols $(DIST)/$@/whole.o
	$(Q)$(CC) $(HARDEN_LD) $(CFLAGS) $(LDFLAGS) -nostartfiles -o $(DIST)/$@/dlock $(foreach f,crti.o crtbeginS.o,$(call part,$(f))) \
		$(DIST)/$@/whole.o $(filter-out %.a,$(LIBS)) -Wl,--no-as-needed $(foreach l,libpthread.so.0 libdl.so.2 librt.so.1,$(call part,$(l))) \
		$(foreach f,crtendS.o crtn.o,$(call part,$(f)))
endef

tarball-glibc: all
	$(link_for_old_glibc)
	$(Q)$(PACK) tar $(DIST)/$@/dlock $(BINARY) 2.31
	@rm -r $(DIST)/$@

tarball-static: static
	$(Q)$(PACK) tar $(O)/static/dlock $(BINARY)-static 0

# ---- for Fedora, RHEL, SUSE ----

rpm: all
	@command -v rpmbuild >/dev/null || { echo "make rpm needs rpmbuild (apt install rpm)"; exit 1; }
	$(link_for_old_glibc)
	$(Q)$(PACK) rpm $(DIST)/$@/dlock $(MACHINE) 2.31
	@rm -r $(DIST)/$@

# ---- for containers ----

image: static
	$(Q)$(PACK) image $(O)/static/dlock $(MACHINE)

# ---- a release ----

RELEASED := amd64 arm64
# SHA256SUMS is written last: where it is, all files are.
release:
	@[ ! -e .git ] || git diff --quiet HEAD || { echo "make release packs what is committed: git status says what is not"; exit 1; }
	@command -v mmdebstrap >/dev/null || { echo "make release needs mmdebstrap (apt install mmdebstrap)"; exit 1; }
	@rm -rf $(O)/release
	@$(MAKE) --no-print-directory DIST=$(O)/release dist
	$(Q)MAINTAINER='$(subst ','\'',$(MAINTAINER))' sh packages/release.sh $(O)/release/$(RELEASE).tar.gz $(O)/release $(RELEASED)
	@install -m 644 packages/INSTALL $(O)/release
	$(Q)cd $(O)/release && LC_ALL=C sha256sum * >../SHA256SUMS && mv ../SHA256SUMS . && chmod 644 *
	@echo "  SUMS  $(O)/release/SHA256SUMS"
