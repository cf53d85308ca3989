#!/bin/sh
# map.sh - prints each source file with the first words of it, room by room (make map).
# A header speaks for its .c file as well.
set -eu
cd "$(dirname "$0")/.."
find cmd backends -name '*.[ch]' -o -name '*.lua' -o -name '*.sql' | sed 's,/\([^/]*\)$, \1,' | sort | tr ' ' / | awk '
	{ known[$0] = 1; files[NR] = $0 }
	END {
		for (n = 1; n <= NR; n++)
			if (!(files[n] ~ /\.c$/ && (substr(files[n], 1, length(files[n]) - 1) "h") in known))
				show(files[n])
	}
	function show(path, room, name, text, line, said) {
		room = name = path
		sub(/[^\/]*$/, "", room)
		sub(/.*\//, "", name)
		if (room != last)
			printf "\n%s\n", last = room
		if (name ~ /\.h$/ && (substr(path, 1, length(path) - 1) "c") in known)
			sub(/h$/, "[ch]", name)
		while ((getline line <path) > 0 && line !~ /^#/) {
			gsub(/^[\/ ]*\*+\/?|^\/\*|^-- *| *\*\/$/, "", line)
			sub(/^ +/, "", line)
			if (!said && sub(/^[^ ]+\.[a-z]+ - /, "", line)) { text = line; said = 1 }
			else if (line == "") { if (said) break }
			else if (said) text = text " " line
			if (match(text, /[.;]( |$)/)) { text = substr(text, 1, RSTART - 1); break }
		}
		close(path)
		printf "  %-22s %s\n", name, text
	}'
