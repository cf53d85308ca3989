# bash completion for dlock                                -*- shell-script -*-
#
# The options stand here, so that completing one of them starts nothing; tests
# compare them with `dlock help --raw`.  Only a key is asked for, of the server
# that the line names: for half a second at most, and silently.

# What a key in $1 is, as the user has typed it: sets `plain` to what stands
# before the cursor without quotes, and `open` to the quote that is open there.
# `whole`: how much of `plain` stands before the piece that readline completes.
# Fails where only a shell could tell; nothing of a word is ever evaluated.
_dlock_read_word()
{
	local i c

	plain='' open='' whole=0
	for ((i = 0; i < ${#1}; i++)); do
		c=${1:i:1}
		case $open$c in
		[\$\`]* | \"[\$\`]) return 1 ;;
		"''" | '""') return 1 ;; # closed again: readline's pieces are others
		"'"?) plain+=$c ;;
		\\ | '"'\\)
			((i++))
			plain+=${1:i:1}
			;;
		'"'?) plain+=$c ;;
		[\'\"])
			open=$c
			whole=${#plain}
			;;
		*)
			plain+=$c
			[[ $COMP_WORDBREAKS == *"$c"* ]] && whole=${#plain}
			;;
		esac
	done
	return 0
}

# The keys that are in use, exactly as they are, one a line.  `ls` writes what
# is not plain between quotes; a key with bytes that no terminal should see has
# another escape there, and is left out.
_dlock_live_keys()
{
	timeout 0.5 dlock ls -n -o KEY "$@" </dev/null 2>/dev/null | LC_ALL=C sed -nE \
		-e "/^[^'\\\\]+[^\\\\]*\$/p" -e "/^'([^\\\\]|\\\\[\\\\'])*'\$/{s/^'(.*)'\$/\\1/;s/\\\\(.)/\\1/g;p;}"
}

# Offers the live keys for `cur`.  $@: the words between dlock's name and the
# cursor, of which those that name the server are handed on.
_dlock_keys()
{
	local server=() plain open whole typed key value

	while (($#)); do
		[[ $1 == -- ]] && break
		value=
		case $1 in
		-[buO] | --backend | --url | --option | --config | --profile)
			value=${2-}
			server+=("$1")
			shift
			;;
		-[buO]?*)
			value=${1:2}
			server+=("${1:0:2}")
			;;
		--backend=* | --url=* | --option=* | --config=* | --profile=*)
			value=${1#*=}
			server+=("${1%%=*}")
			;;
		esac
		shift
		[[ $value ]] || continue
		case $value in
		\"*\" | \'*\') value=${value:1:-1} ;;
		\~/*) value=$HOME/${value:2} ;;
		esac
		# another server than the one that is meant would be worse than none
		[[ $value == *[\$\`\"\'\\]* ]] && return
		server+=("$value")
	done
	_dlock_read_word "$cur" || return
	typed=$plain
	while IFS= read -r key; do
		[[ $key == "$typed"* ]] || continue
		key=${key:whole}
		case $open in
		\') COMPREPLY+=("${key//\'/\'\\\'\'}") ;;
		\")
			key=${key//\\/\\\\} key=${key//\"/\\\"} key=${key//\$/\\\$}
			COMPREPLY+=("${key//\`/\\\`}")
			;;
		*)
			printf -v key %q "$key"
			COMPREPLY+=("$key")
			;;
		esac
	done < <(_dlock_live_keys "${server[@]}")
}

# Sets `options` to those that subcommand $1 knows.
_dlock_options()
{
	local ask='--config --profile --backend --url --option'
	local kind='--shared --exclusive --limit' wait='--nonblock --wait --conflict-exit-code'
	local lease='--newest --ttl --grace --signal' said='--who --why' shown='--show-arguments'
	local job='--min-hold --max-run --kill-after --wait-tree --once --once-per --at-offset --cooldown --no-retry --skipped-exit-code'

	case $1 in
	run) options="--key $ask $kind $wait --unless-frozen $lease $job --with-parent --remember --command $said $shown --status-fd --metrics-file --log --quiet --verbose" ;;
	hold) options="--key $ask $kind $wait --unless-frozen $lease --remember $said $shown --log --for --pid --with-parent --shell --quiet --verbose" ;;
	status) options="--key $ask --unless-frozen --done-within --json --watch" ;;
	ls) options="$ask --jobs --json --noheadings --output --format --held-over --watch" ;;
	wait) options="--key $ask $kind $wait --quiet" ;;
	break) options="--key $ask --wait $said --log --token --force --yes --json --quiet" ;;
	freeze) options="--key $ask $said --log --for --until --json --quiet" ;;
	forget) options="--key $ask --log --yes --quiet" ;;
	thaw) options="--key $ask $said --log --yes --json --quiet" ;;
	release) options='--key --shell --quiet' ;;
	doctor) options="--key $ask --unless-frozen --ttl --grace --json" ;;
	config) options="--key $ask $kind $wait --unless-frozen $lease $job --remember $said $shown --metrics-file --log --json --quiet --verbose" ;;
	version) options='--json' ;;
	*) options='' ;;
	esac
	[[ ! $options ]] || options+=' --help'
}

# Offers values for the option $1, whose subcommand is $2; fails if it has none.
_dlock_value()
{
	case $1 in
	--key | -k | --unless-frozen) _dlock_keys "${words[@]:2:cword-2}" ;;
	--config | --metrics-file) _filedir ;;
	--log)
		_filedir
		mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W 'syslog fd:' -- "$cur")
		;;
	--backend | -b)
		mapfile -t COMPREPLY < <(compgen -W 'file redis zk pg mysql memcached etcd' -- "$cur")
		;;
	--url | -u)
		mapfile -t COMPREPLY < <(compgen -W 'file:/// redis:// rediss:// redis+unix:/// redis+sentinel:// rediss+sentinel:// redis+cluster:// rediss+cluster:// redlock:// redlocks:// zk:// zks:// etcd:// etcds:// postgresql:// mysql:// mariadb:// memcached://' -- "$cur")
		compopt -o nospace
		__ltrim_colon_completions "$cur"
		;;
	--option | -O) _dlock_setting ;;
	--output | -o)
		mapfile -t COMPREPLY < <(compgen -W 'KEY STATE KIND HOLDER HOST PID HELD WAITING COMMAND WHY SINCE LEFT RENEWED ENDS TOKEN HOLDERS
			LIMIT OWNER ID STATUS BEGAN TOOK SUCCESS ENDED WHO' -P "${cur%"${cur##*,}"}" -- "${cur##*,}")
		compopt -o nospace
		;;
	--once-per)
		mapfile -t COMPREPLY < <(compgen -W 'day hour week' -- "$cur")
		;;
	--format)
		mapfile -t COMPREPLY < <(compgen -W 'table json prometheus' -- "$cur")
		;;
	--signal)
		mapfile -t COMPREPLY < <(compgen -W 'TERM INT HUP QUIT USR1 USR2 KILL' -- "$cur")
		;;
	--limit | --wait | -w | --conflict-exit-code | -E | --ttl | -t | --grace | --min-hold | --max-run | --kill-after | --once | \
		--at-offset | --cooldown | --skipped-exit-code | --command | -c | --who | --why | --status-fd | --profile | --token | \
		--for | --until | --held-over | --pid | --done-within) ;;
	*) return 1 ;;
	esac
}

_dlock_setting()
{
	if [[ $cur == @(password-file|auth-file|sentinel-password-file|cacert|cert|socket|path)=* ]]; then
		cur=${cur#*=}
		_filedir
	elif [[ $cur == acl=* ]]; then
		mapfile -t COMPREPLY < <(compgen -W 'creator open' -- "${cur#*=}")
	elif [[ $cur == dialect=* ]]; then
		mapfile -t COMPREPLY < <(compgen -W 'native string symfony redisson redisson-fenced redisson-rw redisson-semaphore redisson-fair' -- "${cur#*=}")
	elif [[ $cur == layout=* ]]; then
		mapfile -t COMPREPLY < <(compgen -W 'curator plain rw-seq kazoo menagerie recipes' -- "${cur#*=}")
	elif [[ $cur == lock=* ]]; then
		mapfile -t COMPREPLY < <(compgen -W 'flock fcntl' -- "${cur#*=}")
	elif [[ $cur == mode=* ]]; then
		mapfile -t COMPREPLY < <(compgen -W 'lease advisory row named' -- "${cur#*=}")
	elif [[ $cur == tls=* ]]; then
		mapfile -t COMPREPLY < <(compgen -W 'off encrypt verify' -- "${cur#*=}")
	elif [[ $cur == derive=* ]]; then
		mapfile -t COMPREPLY < <(compgen -W 'with_advisory_lock rails-migration django-pglock golang-migrate golang-migrate-instance flyway prisma-migrate node-pg-migrate graphile-migrate postgres-migrations pg-boss symfony django-pglocks advisory-lock distributedlock' \
			-- "${cur#*=}")
	else
		mapfile -t COMPREPLY < <(compgen -W 'acl= auth-file= cacert= cert= connect-timeout= derive= dialect= key= layout= lock= mode= name= password-file= path= prefix= sentinel-password-file= socket= tls= tls-name= wait-replicas=' \
			-- "$cur")
		compopt -o nospace
	fi
}

# Sets `first` to the index in COMP_WORDS of the command that is to be run, or
# leaves it empty while the cursor is still before it.
_dlock_find_command()
{
	local i=2 word keyed='' ended='' run=''
	local valued='^(-[sxnqvh]*([kbuOwEtc])(.*)|--(key|config|profile|backend|url|option|limit|wait|conflict-exit-code|unless-frozen|ttl|grace|signal|min-hold|max-run|kill-after|once|once-per|at-offset|cooldown|skipped-exit-code|command|who|why|status-fd|metrics-file|log))$'

	first=
	[[ ${DLOCK_KEY-} && ! ${DLOCK_KEEPER-} ]] && keyed=1
	[[ ${COMP_WORDS[1]} == run ]] && run=1 # which takes no key from behind a --
	while ((i < COMP_CWORD)); do
		word=${COMP_WORDS[i]}
		if [[ $word == [:=]* ]]; then
			((i += 2)) # readline makes three words of a=b and of a:b
		elif [[ ! $ended && $word == -- ]]; then
			ended=1 keyed=${keyed:-$run}
			((i++))
		elif [[ $ended || $word != -?* ]]; then
			[[ $keyed ]] && first=$i && return
			keyed=1 ended='' # without -k, the first word is the key
			((i++))
		elif [[ $word =~ $valued ]]; then
			[[ ${BASH_REMATCH[2]}${BASH_REMATCH[4]} == k?(ey) ]] && keyed=1
			((i++))
			[[ ${BASH_REMATCH[3]} || ${COMP_WORDS[i]} == = ]] || ((i++))
		else
			((i++))
		fi
	done
	[[ $keyed && $i -eq $COMP_CWORD && ${COMP_WORDS[i]} != [:=]* && ($ended || ${COMP_WORDS[i]} != -*) ]] && first=$i
}

_dlock()
{
	# shellcheck disable=SC2034 # filled by _init_completion
	local cur prev words cword split first='' options
	local subcommands='run status ls wait break freeze thaw forget hold release config doctor help version'

	_init_completion -s -n : || return
	if ((cword == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "$subcommands --help --version" -- "$cur")
		return
	fi
	if [[ ${words[1]} == help ]]; then
		((cword == 2)) && mapfile -t COMPREPLY < <(compgen -W "$subcommands pg-schema mysql-schema" -- "$cur")
		return
	fi
	if [[ ${words[1]} == run ]]; then
		_dlock_find_command
		if [[ $first ]]; then
			_command_offset "$first"
			return
		fi
	fi
	_dlock_options "${words[1]}"
	[[ $options ]] && ! _dlock_value "$prev" || return
	case $cur in
	-*) mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur") ;;
	*)
		[[ ${words[1]} == forget ]] && DLOCK_KEY='' _dlock_find_command # its second word is an ID
		[[ $first || ${words[1]} == @(release|config|version) ]] || _dlock_keys "${words[@]:2:cword-2}"
		;;
	esac
}

complete -F _dlock dlock
