#!/bin/sh
# release.sh - makes the files of a release, those of `make deb tarball rpm image` for each architecture.
#
#	release.sh SOURCE DIRECTORY ARCH...    SOURCE is what `make dist` makes
#
# Each architecture has a fresh Debian 12 of its own: so nothing of this machine gets into the files,
# and Debian refuses to install some libraries for two architectures side by side.  All files are made
# twice, by two users in two directories; they have to be the same.  It needs mmdebstrap, a mirror of
# Debian, and root or what mmdebstrap takes in its place.
set -eu
source=$1 out=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
own=$(dpkg --print-architecture)

# What runs there; its words are for make.  It speaks only of a fault, and on standard error: mmdebstrap
# hands that on.
cat >"$work/build" <<'END'
set -eu
exec >&2
quietly() { "$@" >/root/log 2>&1 || { cat /root/log; exit 1; }; }
twin=/tmp/a/longer/name/twin
mkdir -p /src /root/out "$twin"
tar -C /src --strip-components=1 -xzf /root/source
tar -C "$twin" --strip-components=1 -xzf /root/source
chown -R 65534:65534 /tmp/a
cd /src
quietly make -j"$(nproc)" DIST=/root/out "$@"
if grep warning: /root/log; then exit 1; fi
cd /
quietly env TZ=Asia/Tokyo LC_ALL=C.UTF-8 HOME=/tmp chroot --userspec=65534:65534 / sh -c \
	'umask 077; cd "$1"; shift; make -j"$(nproc)" "$@"' sh "$twin" DIST=/tmp/a/out "$@"
diff -r /root/out /tmp/a/out
END
cp "$source" "$work/source"

for arch in "$@"; do
	if [ "$arch" = "$own" ]; then
		foreign=
	else
		foreign=ARCH=$arch
	fi
	# shellcheck disable=SC2016
	packages=$(${MAKE:-make} -s ${foreign:+"$foreign"} '--eval=its-packages: ; @echo $(BUILD_PACKAGES)' --no-print-directory its-packages 2>/dev/null | tail -n 1)
	echo "  FRESH Debian 12, for $arch"
	mmdebstrap --quiet --variant=minbase --format=null --architectures="$own${foreign:+,$arch}" \
		--include="make mawk rpm $(test "$foreign" || echo musl-tools) $packages" --customize-hook="copy-in $work/build $work/source /root" \
		--customize-hook="chroot \"\$1\" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin MAINTAINER=\"\$MAINTAINER\" sh /root/build ${foreign:+$foreign }WITH_REDIS=yes WITH_ZK=yes WITH_PG=yes WITH_MYSQL=yes WITH_MEMCACHED=yes WITH_ETCD=yes WITH_TLS=yes deb tarball rpm image" \
		--customize-hook="copy-out /root/out $work" bookworm - >/dev/null
	for file in "$work/out"/*; do
		mv "$file" "$out"
		echo "  PACK  $out/${file##*/}"
	done
done
