#!/bin/sh
# pack.sh - packs what `make install` installs, the program stripped, its debug symbols apart.
#
#	pack.sh deb PROGRAM              dlock and dlock-dbgsym, for dpkg
#	pack.sh tar PROGRAM NAME GLIBC   NAME.tar.gz and NAME-debug.tar.gz; it needs no newer glibc
#	pack.sh rpm PROGRAM MACHINE GLIBC  dlock and dlock-debuginfo, for rpm; the same
#	pack.sh image PROGRAM MACHINE    an image that podman, docker and the like load
#
# packages.mk sets the variables.
set -eu
umask 022
mkdir -p "$DIST"
DIST=$(cd "$DIST" && pwd) # rpmbuild goes elsewhere
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

READELF=${READELF:-readelf}
command -v "$READELF" >/dev/null || fail "cannot be looked at without $READELF (binutils)"
# The oldest glibc that has all that the program needs; "": it needs none.
glibc=$("$READELF" -VW "$program" | sed -n 's/.* Name: GLIBC_\([0-9.]*\) .*/\1/p' | sort -V | tail -n 1)
# It may need a newer one all the same, without a number.
abi=$("$READELF" -VW "$program" | sed -n 's/.* Name: \(GLIBC_ABI_[^ ]*\) .*/\1/p' | tr '\n' ' ')
[ ! "$abi" ] || fail "needs $abi: link it without"
id=$("$READELF" -nW "$program" | sed -n 's/.*Build ID: //p')
# Another machine may have another version of a client library, or none.
shared=$("$READELF" -dW "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
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
	# Debian's rule, which is the same on any file system: a file counts in whole KiB, all else 1.
	size=$(find "$1" -printf '%y %s\n' | awk '{ kib += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print kib }')
	mkdir "$1/DEBIAN"
	(cd "$1" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
	{
		printf '%s: %s\n' Package "${1##*/}" Version "$VERSION-1" Architecture "${ARCH:-$(dpkg --print-architecture)}" \
			Maintainer "$MAINTAINER" Installed-Size "$size" Priority optional
		cat
	} >"$1/DEBIAN/control"
	find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
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

# is_old GLIBC: it needs no newer one.
is_old()
{
	[ "$(printf '%s\n' "$glibc" "$1" | sort -V | tail -n 1)" = "$1" ] || fail "needs glibc $glibc"
}

# pack_tar NAME GLIBC
pack_tar()
{
	is_old "$2"
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

# pack_rpm MACHINE GLIBC: what rpm would add of its own is turned off: the host's name, the time, its
# strip.  It finds by itself which glibc the program asks for.
pack_rpm()
{
	is_old "$2"
	stage /usr
	doc=$tree/usr/share/doc/dlock
	install -m 644 CHANGELOG.md "$doc"
	mkdir -p "$tree/usr/share/licenses/dlock"
	licence "$tree/usr/share/licenses/dlock/LICENSE"
	find "$tree/usr/share/man" -type f -exec gzip -9n {} +
	find "$tree" "$debug" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	list "$tree" >"$work/files"
	list "$debug" >"$work/debug-files"
	LC_ALL=C sed "s|@VERSION@|$VERSION|; s|@FILES@|$work/files|; s|@DEBUG@|$work/debug-files|" packages/dlock.spec >"$work/dlock.spec"
	# the packager goes into it as it stands, whatever is in it
	HOME=$work rpmbuild --quiet -bb --target "$1-linux" --buildroot "$work/root" -D "_topdir $work/rpm" -D "_rpmdir $DIST" \
		-D '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' -D "trees $tree $debug" -D "packager $(printf %s "$MAINTAINER" | sed 's/[\\%]/&&/g')" \
		-D '_buildhost packages.invalid' -D 'use_source_date_epoch_as_buildtime 1' -D 'clamp_mtime_to_source_date_epoch 1' \
		-D '_build_id_links none' -D '__os_install_post %{nil}' -D 'debug_package %{nil}' -D '_binary_payload w9.gzdio' \
		-D '_dbpath /nonexistent' "$work/dlock.spec" >"$work/said" 2>&1 || fail "is not packed by rpmbuild: $(cat "$work/said")"
	for name in dlock dlock-debuginfo; do
		echo "  PACK  $DIST/$name-$VERSION-1.$1.rpm"
	done
}

# list TREE: its files, as rpm is to be told, and the directories that a system may have from nobody else:
# only what a package owns goes with it.
list()
{
	(cd "$1" && find . -type d '(' -name dlock -o -path './usr/share/bash-completion*' -o -path './usr/share/zsh*' -o -path './usr/share/fish*' \
		-o -path './usr/lib/debug/.build-id*' ')' -printf '%%dir /%P\n' -o ! -type d -printf '/%P\n') |
		LC_ALL=C sort | sed 's|^/.*/LICENSE$|%license &|; s|^/usr/share/doc/.*|%doc &|'
}

# blob FILE: gives it the name that its content has, and says that.
blob()
{
	digest=$(sha256sum "$1" | cut -d ' ' -f 1)
	mv "$1" "$work/image/blobs/sha256/$digest"
	echo "$digest"
}

# pack_image MACHINE: one layer, /dlock and its licences.  The archive is an OCI image, and one of
# `docker save`, for a docker that knows no other.
pack_image()
{
	[ ! "$glibc" ] || fail "needs glibc $glibc"
	case $1 in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) fail "is for $1, which has no image" ;; esac
	blobs=$work/image/blobs/sha256
	mkdir -p "$blobs" "$work/layer/licenses"
	"$OBJCOPY" --strip-all "$program" "$work/layer/dlock"
	licence "$work/layer/licenses/dlock"
	(cd "$work/layer" && printf '%s\0' dlock licenses licenses/dlock) | $TAR -C "$work/layer" --no-recursion --null -T - -cf "$work/layer.tar"
	diff=$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
	gzip -9n "$work/layer.tar"
	layer=$(blob "$work/layer.tar.gz")
	created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
	printf '{"created":"%s","architecture":"%s","os":"linux","config":{"Entrypoint":["/dlock"],"Labels":{"org.opencontainers.image.title":"dlock","org.opencontainers.image.version":"%s"}},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]},"history":[{"created":"%s","created_by":"dlock: make image"}]}' \
		"$created" "$arch" "$VERSION" "$diff" "$created" >"$work/config"
	config=$(blob "$work/config")
	printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:%s","size":%d},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"sha256:%s","size":%d}]}' \
		"$config" "$(stat -c %s "$blobs/$config")" "$layer" "$(stat -c %s "$blobs/$layer")" >"$work/manifest"
	manifest=$(blob "$work/manifest")
	printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:%s","size":%d,"platform":{"architecture":"%s","os":"linux"},"annotations":{"org.opencontainers.image.ref.name":"%s","io.containerd.image.name":"localhost/dlock:%s"}}]}' \
		"$manifest" "$(stat -c %s "$blobs/$manifest")" "$arch" "$VERSION" "$VERSION" >"$work/image/index.json"
	printf '[{"Config":"blobs/sha256/%s","RepoTags":["localhost/dlock:%s"],"Layers":["blobs/sha256/%s"]}]' "$config" "$VERSION" "$layer" >"$work/image/manifest.json"
	printf '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
	(cd "$work/image" && find . -type f -printf '%P\0' | LC_ALL=C sort -z) | $TAR -C "$work/image" --null -T - -cf "$DIST/dlock-$VERSION-$1.oci.tar"
	echo "  PACK  $DIST/dlock-$VERSION-$1.oci.tar"
}

export SOURCE_DATE_EPOCH
"pack_$kind" "$@"
