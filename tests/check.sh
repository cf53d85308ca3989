#!/bin/sh
# check.sh - runs the black-box tests: those of different servers side by side, a
# half or a quarter of each in a process of its own, since they mostly wait; and each
# test once.
#
#	check.sh DIRECTORY [OPTION OF PYTEST...]
#
# DLOCK and DLOCK_TEST name what is tested.  The output of each part goes to a file
# in DIRECTORY; a line every CHECK_SECONDS tells how far all are, and at the end there
# is a table of kinds of lock and backends (DIRECTORY/kinds.txt), and what has failed.
# Fails if any part has.  DLOCK_TEST_FULL=1: some tests are larger (make check-all).
set -u
cd "$(dirname "$0")/.." || exit
out=$1
shift
parts=
tables=$(mkdir -p "$out" && cd "$out" && pwd)/kinds
rm -rf "$tables"
mkdir "$tables" || exit
began=$(date +%s)

# part NAME SHARE BACKENDS MARKS: what conftest.py marks so, on these backends.
#
# A shell has its background jobs ignore SIGINT; tests, and who is tested, must not.
# In a session of its own, for the kernel sends SIGHUP to a process group that is left
# by its shell while one of its processes is stopped, and tests stop processes.
part()
{
	name=$1 share=$2 backends=$3 marks=$4
	shift 4
	DLOCK_TEST_BACKENDS=$backends DLOCK_TEST_SHARE=$share DLOCK_TEST_TABLE=$tables/$name setsid env --default-signal=INT,QUIT,HUP \
		"${PYTHON:-/usr/bin/python3}" -m pytest -v --tb=short -p no:cacheprovider -m "$marks" "$@" tests/system \
		>"$out/check-$name.log" 2>&1 </dev/null &
	eval "pid_$name=$!"
	parts="$parts $name"
}

# end STATUS: for a trap.
# shellcheck disable=SC2317
end()
{
	for p in $parts; do
		eval "kill -INT \$pid_$p" 2>/dev/null
	done
	wait
	exit "$1"
}

is_running()
{
	for p in $parts; do
		eval "kill -0 \$pid_$p" 2>/dev/null && return
	done
	return 1
}

# How far a part is: " zk1 63%", and how many have failed.
show_progress()
{
	percent=$(grep -o '[0-9]*%\]$' "$out/check-$1.log" | tail -n 1)
	failed=$(grep -c ' \(FAILED\|ERROR\) *\[' "$out/check-$1.log")
	percent=${percent%]}
	printf ' %s %s' "$1" "${percent:-0%}"
	[ "$failed" = 0 ] || printf ' (%s failed)' "$failed"
}

show_all()
{
	printf '  TEST  %4d s:' "$(($(date +%s) - began))"
	for p in $parts; do
		show_progress "$p"
	done
	echo
}

# What has failed in a part, and its last line.
show_end()
{
	eval "wait \$pid_$1"
	status=$?
	if [ "$status" != 0 ]; then
		sed -n '/^=* \(FAILURES\|ERRORS\) =*$/,$p' "$out/check-$1.log" | sed '$d'
	fi
	echo "  TEST  $1: $(tail -n 1 "$out/check-$1.log" | sed 's/^=* //; s/ =*$//')"
	return "$status"
}

# What the conformance suite (test_kinds.py) found, all parts in one table.
show_table()
{
	"${PYTHON:-/usr/bin/python3}" tests/servers/table.py "$tables"/* >"$out/kinds.txt"
	cat "$out/kinds.txt"
}

trap 'end 130' INT
trap 'end 143' TERM HUP PIPE # after SIGINT, pytest cleans up

echo "  TEST  what needs a server, side by side (some minutes); at work: tail -f $out/check-*.log"
for n in 1 2 3 4; do
	part "here$n" "$n/4" 'file redis memcached' '' "$@"
done
for n in 1 2; do
	part "zk$n" "$n/2" zk 'place or zk' "$@"
	part "pg$n" "$n/2" pg 'place or pg' "$@"
	part "mysql$n" "$n/2" mysql 'place or mysql' "$@"
done

seconds=0
while is_running; do
	sleep 1
	seconds=$((seconds + 1))
	[ $((seconds % ${CHECK_SECONDS:-20})) != 0 ] || show_all
done

# What has failed comes last, where it is looked for, and where a log that is cut still has it.
failed=0
[ -z "$(ls "$tables")" ] || show_table
for p in $parts; do
	show_end "$p" || failed=1
done
[ $failed = 0 ] || echo "  TEST  failed; all output: $out/check-*.log" >&2
exit $failed
