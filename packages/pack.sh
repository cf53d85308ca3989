#!/bin/sh
# pack.sh - packs what `make install` installs, the program stripped, its debug symbols apart.
#
#	pack.sh deb PROGRAM              dlock and dlock-dbgsym, for dpkg
#	pack.sh tar PROGRAM NAME GLIBC   NAME.tar.gz and NAME-debug.tar.gz; it needs no newer glibc
#
# packages.mk sets the variables.
set -eu
umask 022
mkdir -p "$DIST"
work=$(mktemp -d "$DIST/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
tree=$work/dlock debug=$work/dlock-dbgsym
kind=$1 program=$2
shift 2

fail()
{
	echo "$program $*" >&2
	exit 1
}

# The oldest glibc that has all that the program needs; "": it needs none.
glibc=$(readelf -VW "$program" | sed -n 's/.* Name: GLIBC_\([0-9.]*\) .*/\1/p' | sort -V | tail -n 1)
# It may need a newer one all the same, without a number.
abi=$(readelf -VW "$program" | sed -n 's/.* Name: \(GLIBC_ABI_[^ ]*\) .*/\1/p' | tr '\n' ' ')
[ ! "$abi" ] || fail "needs $abi: link it without"
id=$(readelf -nW "$program" | sed -n 's/.*Build ID: //p')
# Another machine may have another version of a client library, or none.
shared=$(readelf -dW "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
	sed -E '/^(libc|libm|libpthread|libdl|librt)\.so\.|^ld-linux/d' | tr '\n' ' ')
[ ! "$shared" ] || fail "needs $shared: install the archives (.a) of these libraries"

# licence FILE: that of dlock, and those of the libraries that are inside.
licence()
{
	for notice in LICENSE $NOTICES; do
		[ "$notice" = LICENSE ] || printf '\n---- inside: %s ----\n\n' "$(basename "${notice%/copyright}")"
		cat "$notice"
	done >"$1"
	chmod 644 "$1"
}

# stage PREFIX [WORD...]: makes $tree of what `make install WORD...` does, and $debug of the file
# that a debugger looks for.
stage()
{
	prefix=$1 symbols=$debug$1/lib/debug/.build-id/${id%"${id#??}"}/${id#??}.debug
	shift
	mkdir -p "${symbols%/*}" "$tree$prefix/share/doc/dlock"
	"$OBJCOPY" --only-keep-debug "$program" "$symbols"
	chmod 644 "$symbols"
	"$OBJCOPY" --strip-all "$program" "$work/stripped"
	env -u MAKEFLAGS -u BINDIR -u MANDIR -u BASHCOMPDIR -u ZSHCOMPDIR -u FISHCOMPDIR "$MAKE" -s -o all install PROGRAM="$work/stripped" DESTDIR="$tree" PREFIX="$prefix" "$@"
	install -m 644 README.md "$tree$prefix/share/doc/dlock"
}

# build DIRECTORY: the package of what stands there, whose name it has.  Reads what its control
# file says of its own.
build()
{
	size=$(du -sk --apparent-size "$1" | cut -f 1)
	mkdir "$1/DEBIAN"
	(cd "$1" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
	{
		printf '%s: %s\n' Package "${1##*/}" Version "$VERSION-1" Architecture "$(dpkg --print-architecture)" \
			Maintainer "$MAINTAINER" Installed-Size "$size" Priority optional
		cat
	} >"$1/DEBIAN/control"
	dpkg-deb --root-owner-group -Zxz --build "$1" "$DIST" >"$work/said"
	sed -n "s/.* in '\(.*\)'.*/  PACK  \1/p" "$work/said"
}

pack_deb()
{
	doc=$tree/usr/share/doc/dlock
	[ "$glibc" ] || fail "does not say which glibc it needs"
	stage /usr ZSHCOMPDIR=/usr/share/zsh/vendor-completions
	licence "$doc/copyright"
	install -m 644 CHANGELOG.md "$doc/changelog"
	printf 'dlock (%s-1) unstable; urgency=medium\n\n  * Version %s: see changelog.gz.\n\n -- %s  %s\n' "$VERSION" "$VERSION" \
		"$MAINTAINER" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" >"$doc/changelog.Debian"
	find "$tree/usr/share/man" "$doc"/changelog* -type f -exec gzip -9n {} +
	mkdir -p "$debug/usr/share/doc"
	ln -s dlock "$debug/usr/share/doc/dlock-dbgsym"
	build "$tree" <<-END
		Section: utils
		Multi-Arch: foreign
		Depends: libc6 (>= $glibc)
		Recommends: libpq5, libmariadb3, libssl3t64 | libssl3, ca-certificates
		Suggests: redis-server | valkey-server, zookeeperd, postgresql, mariadb-server | default-mysql-server, memcached, etcd-server
		Description: run commands under a lock that many machines can share
		 dlock runs a command under a lock: one run at a time, the others wait in
		 line, and if the lock is lost, the command is stopped.  It is made for shell
		 scripts, cron jobs and CI pipelines.
		 .
		 The lock lives in a directory, for one machine, or on a server, for many:
		 Redis, ZooKeeper, PostgreSQL, MySQL, MariaDB, etcd or memcached.
	END
	build "$debug" <<-END
		Section: debug
		Auto-Built-Package: debug-symbols
		Depends: dlock (= $VERSION-1)
		Build-Ids: $id
		Description: debug symbols for dlock
	END
}

# pack_tar NAME GLIBC
pack_tar()
{
	[ "$(printf '%s\n' "$glibc" "$2" | sort -V | tail -n 1)" = "$2" ] || fail "needs glibc $glibc"
	stage "/$1"
	install -m 644 CHANGELOG.md packages/INSTALL "$tree/$1/share/doc/dlock"
	licence "$tree/$1/share/doc/dlock/LICENSE"
	# no directories: those that are there keep their owners and modes
	(cd "$tree" && find "$1" ! -type d -print0) | $TAR -C "$tree" --null -T - -cf "$DIST/$1.tar"
	(cd "$debug" && find "$1" ! -type d -print0) | $TAR -C "$debug" --null -T - -cf "$DIST/$1-debug.tar"
	for tar in "$DIST/$1.tar" "$DIST/$1-debug.tar"; do
		gzip -9nf "$tar"
		echo "  PACK  $tar.gz"
	done
}

export SOURCE_DATE_EPOCH
"pack_$kind" "$@"
