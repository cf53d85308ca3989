#!/bin/sh
# map.sh - prints each source file with the first words of it, room by room (make map).
# A header speaks for its .c file as well.
set -eu
cd "$(dirname "$0")/.."
git ls-files 'cmd/*.[ch]' 'backends/*.[ch]' 'backends/*.lua' 'backends/*.sql' | sed 's,/\([^/]*\)$, \1,' | sort | tr ' ' / | while read -r file; do
	case $file in
	*.c) [ -f "${file%.c}.h" ] && continue ;;
	esac
	room=${file%/*}
	[ "$room" = "${last-}" ] || printf '\n%s/\n' "$room"
	last=$room
	name=${file##*/}
	[ ! -f "${file%.h}.c" ] || [ "$name" = "${name%.h}" ] || name="${name%.h}.[ch]"
	sed -n '1,6{s,^[/ ]*\*\{1\,2\}/\{0\,1\} \{0\,1\},,;s,^-- *,,;s,^/\* *,,;s, *\*/$,,;p}' "$file" | awk -v name="$name" '
		!said && sub(/^[^ ]+\.[a-z]+ - /, "") { text = $0; said = 1; next }
		said && !done { if ($0 == "" || $0 ~ /^#/) done = 1; else text = text " " $0 }
		END { if (match(text, /[.;]( |$)/)) text = substr(text, 1, RSTART - 1); printf "  %-22s %s\n", name, text }'
done
