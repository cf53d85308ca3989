#!/bin/sh
# run.sh - runs one of the models through spin, in one line if all is well.
#
#	run.sh DIRECTORY MODEL holds [-DNAME=VALUE...]	every state is searched, and nothing is found
#	run.sh DIRECTORY MODEL PROPERTY [-DNAME=VALUE...]	that this property does not hold is found
#
# A property is named in a comment behind its assertion; with -DPROGRESS it is
# PROGRESS; where nothing can happen any more, though somebody waits, STUCK.  What is left in DIRECTORY: the output, and the trail of what was found
# (cd DIRECTORY/...; spin -t -p -D... MODEL.pml).  MODEL_MEMORY (MB) and MODEL_SECONDS
# bound each search; MODEL_OPTIMIZE=-O2 is for one that takes longer than its compiler.  One
# that did not come to its end is a failure.  Of a state 64 bits are kept (HC4), so that one
# in very many may be taken for another.
#
# A model does not read the code: what it shows stays shown until its text changes.  proved.txt, beside this
# file, has a line for each run that did as expected, with a sum of the model and of this script; a run adds
# its own.  With MODEL_TRUST=1 (make check) what stands there is not run again, and nothing is written.
set -eu
model=$2 expected=$3
from=$(cd "$(dirname "$0")" && pwd)
out=$1/$model-$(shift 2; echo "$*" | tr -cd 'A-Za-z0-9=_ ' | tr ' ' '-')
shift 3
proved=$from/proved.txt
sum=$(cat "$from/$model.pml" "$from/run.sh" | sha256sum | cut -c1-16)
if [ "${MODEL_TRUST:-}" ] && known=$(grep -xE "$model $* $sum $expected, [0-9.e+]+ states" "$proved"); then
	echo "  MODEL $model $*: ${known#*"$sum" } (shown before)"
	exit 0
fi

# In place of what another text has shown.
keep()
{
	{ grep -vE "^$model $* [0-9a-f]+ " "$proved" || :; echo "$model $* $sum $found, $states states"; } | LC_ALL=C sort >"$proved.new"
	if cmp -s "$proved.new" "$proved"; then rm "$proved.new"; else mv "$proved.new" "$proved"; fi
}

fail()
{
	cat pan.log
	echo "  MODEL $model $*: $why; all of it: $out"
	exit 1
}

rm -rf "$out"
mkdir -p "$out"
cp "$from/$model.pml" "$out"
cd "$out"
case " $* " in
*" -DPROGRESS "*) safety='' search=-a ;;
*) safety=-DSAFETY search='' ;;
esac
optimize=${MODEL_OPTIMIZE:--O0}

why="spin does not understand it"
spin -a "$@" "$model.pml" >pan.log 2>&1 || fail "$@"
why="its verifier is not to be compiled"
${CC:-cc} -w "$optimize" $safety -DHC4 -DMEMLIM="${MODEL_MEMORY:-1000}" -o pan pan.c >>pan.log 2>&1 || fail "$@"
why="the search did not come to its end"
timeout "${MODEL_SECONDS:-300}" ./pan $search -m1000000 -w22 >>pan.log 2>&1 || fail "$@"
rm -f pan pan.[bchmpt]

states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log | head -1)
if ! grep -q 'errors: [1-9]' pan.log; then
	found=holds
elif grep -q 'acceptance cycle' pan.log; then
	found=PROGRESS
elif grep -q '^pan:1: invalid end state' pan.log; then
	found=STUCK
else
	line=$(spin -t "$@" "$model.pml" 2>&1 | sed -n "s/^spin: $model.pml:\([0-9]*\), Error: assertion violated.*/\1/p")
	found=$(sed -n "${line:-1}s,.*/\* \([A-Z_]*\) \*/.*,\1,p" "$model.pml")
fi
if grep -qE 'max search depth too small|out of memory|memory limit|search not completed' pan.log && [ "$found" = holds ]; then
	fail "$@"
fi
why="$expected was expected, ${found:-an error} found"
[ "$found" = "$expected" ] || fail "$@"
[ "${MODEL_TRUST:-}" ] || keep "$@"
echo "  MODEL $model $*: $found, $states states"
