#!/bin/sh
# check.sh - what `make check` does once all is built: the black-box tests, many side by
# side since they mostly wait (tests/servers/workers.py); beside them units, and then, with a tenth
# of the processors, what reads and computes: lint, models, fuzzers.
#
#	check.sh DIRECTORY [OPTION OF PYTEST...]
#
# DLOCK and DLOCK_TEST name what is tested.  DIRECTORY gets check-tests.log (a line for
# each test as it begins and ends), check-tools.log, kinds.txt (a table of kinds of lock
# and backends) and lasted.txt (how long tests took; tests/lasted.txt is a copy).
# WORKERS is how many tests run side by side, LIMIT the seconds that all may take.
# PYTEST: more words for pytest.  Fails if any has.  DLOCK_TEST_FULL=1: some tests are larger (make check-all).
set -u
PYTEST=${PYTEST:-}
cd "$(dirname "$0")/.." || exit
out=$1
shift
mkdir -p "$out" || exit

# end STATUS: for a trap.  After SIGINT, pytest cleans up.
# shellcheck disable=SC2317
end()
{
	kill -INT "${tests:-$!}" 2>/dev/null
	kill -TERM "-${tools:-$!}" 2>/dev/null || kill -TERM "${tools:-$!}" 2>/dev/null
	wait
	exit "$1"
}

share=1
[ "${DLOCK_TEST_FULL:-}" ] || { export LINT_QUICK=1 MODEL_TRUST=1; share=3; }
export MODEL_SECONDS="${MODEL_SECONDS:-1800}" # of a model that gets what is left
# Units come first, and have their share: some of them look at a clock.  The rest has a tenth.
# Linux gives each session a share of its own, where the kernel groups by sessions.  Both
# are given back after the tests: a busy machine would leave nothing to the tools for ever.
# shellcheck disable=SC2016
in_turn='failed=; "$@" units || failed=units-have-failed
{ echo 10 >/proc/self/autogroup; } 2>/dev/null
exec nice -n 5 "$@" lint model fuzz-smoke $failed'

tests='' tools=''
trap 'end 130' INT
trap 'end 143' TERM HUP PIPE
echo "  TEST  with real servers, side by side; what runs and what has failed: $out/check-tests.log"
setsid sh -c "$in_turn" in_turn "${MAKE:-make}" --no-print-directory -k -j2 >"$out/check-tools.log" 2>&1 </dev/null &
tools=$!

# A shell has its background jobs ignore SIGINT; tests, and what they test, must not.
# shellcheck disable=SC2086
setsid env --default-signal=INT,QUIT,HUP timeout --foreground -s INT -k 300 "${LIMIT:-3600}" \
	"${PYTHON:-/usr/bin/python3}" -m pytest -q --tb=short --workers="${WORKERS:-18}" --limit="${TEST_LIMIT:-300}" --share=$share \
	--progress="$out/check-tests.log" --known=tests/lasted.txt --lasted="$out/lasted.txt" $PYTEST "$@" tests/system </dev/null &
tests=$!

failed=0
wait "$tests" || failed=1
{ echo 0 >"/proc/$tools/autogroup"; renice -n 0 -g "$tools"; } >/dev/null 2>&1
echo "  TEST  units, lint, models and fuzzers, which have run beside the tests: $out/check-tools.log"
wait "$tools" || failed=1
cat "$out/check-tools.log"
[ $failed = 0 ] || echo "  TEST  failed" >&2
exit $failed
