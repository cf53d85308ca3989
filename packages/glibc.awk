# glibc.awk - reads what `objdump -T` says of glibc, and prints for `objcopy --redefine-syms`
# the names that make a program ask for what glibc 2.31 had already.
#
# What has got a newer version since (2.34 moved threads and timers into libc.so.6) is there in
# its old one too: glibc keeps that for programs that were built then.  `SYMBOL@VERSION` is how
# an object says which it wants.
match($0, /GLIBC_2\.[0-9.]+/) {
	version = substr($0, RSTART, RLENGTH)
	split(substr(version, length("GLIBC_") + 1), part, ".")
	rank = part[2] * 100 + part[3]
	if (part[2] > 31) {
		newer[$NF] = 1
	} else if (rank >= best[$NF]) {
		best[$NF] = rank
		old[$NF] = version
	}
}
END {
	for (name in newer) {
		if (name in old)
			print name, name "@" old[name]
		else if (name ~ /^__isoc23_/) # strtol() of C23, which reads binary numbers too
			print name, substr(name, length("__isoc23_") + 1)
	}
}
