#!/bin/sh
# Two commands want one lock: see who gets it when.  Usage: demo.sh path/to/dlock
set -eu
dlock=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
start=$(date +%s)

show() {
	sed -u "s/^/    $1: /"
}

# What runs under the lock says when it begins, works for two seconds, says when it ends.
# shellcheck disable=SC2016
job='echo "begins at second $(($(date +%s) - START)), token $DLOCK_TOKEN"; sleep 2; echo "ends at second $(($(date +%s) - START))"'

echo "Two jobs ask for the lock 'deploy' at once; each works for two seconds:"
echo
echo "  \$ dlock run -b file -k deploy -- job"
export START="$start" DLOCK_URL="file://$dir"
"$dlock" run -k deploy --why "the first" -c "$job" 2>&1 | show first &
sleep 0.3
"$dlock" run -k deploy --why "the second" -c "$job" 2>&1 | show second &
sleep 0.3
echo
echo "A third will not wait (-n):"
echo
"$dlock" run -n -k deploy -- echo "this is never printed" 2>&1 | show third || true
echo
wait
echo
echo "One after the other, and each got a greater token.  Next: README.md, or $dlock help."
