#!/bin/sh
# check.sh - runs the black-box tests: those of different servers side by side,
# since they mostly wait, and each test once.
#
#	check.sh DIRECTORY [OPTION OF PYTEST...]
#
# DLOCK and DLOCK_TEST name what is tested.  The output of each part goes to a file
# in DIRECTORY, and is shown when the part has ended; fails if any of them has.
set -u
cd "$(dirname "$0")/.." || exit
out=$1
shift

# part NAME BACKENDS MARKS: what conftest.py marks so, on these backends.  (A shell
# has its background jobs ignore SIGINT; tests, and who is tested, must not.)
part()
{
	name=$1 backends=$2 marks=$3
	shift 3
	DLOCK_TEST_BACKENDS=$backends env --default-signal=INT,QUIT "${PYTHON:-/usr/bin/python3}" -m pytest -q \
		-p no:cacheprovider -m "$marks" "$@" tests >"$out/check-$name.log" 2>&1 &
}

part here 'file redis' '' "$@"
here=$!
part zk zk 'place or zk' "$@"
zk=$!
part pg pg 'place or pg' "$@"
pg=$!
trap 'wait; exit 130' INT
trap 'kill $here $zk $pg; wait; exit 143' TERM

# shown NAME PID
shown()
{
	wait "$2"
	status=$?
	echo "  TEST  $1"
	cat "$out/check-$1.log"
	return "$status"
}

failed=0
shown here $here || failed=1
shown zk $zk || failed=1
shown pg $pg || failed=1
exit $failed
