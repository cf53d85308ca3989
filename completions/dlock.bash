# bash completion for dlock                                -*- shell-script -*-
#
# The options stand here, so that completing a word never starts dlock and
# never asks a server.  tests compare them with `dlock help --raw`.

# Sets `first` to the index in COMP_WORDS of the command that is to be run, or
# leaves it empty while the cursor is still before it.
_dlock_find_command()
{
	local i=2 word keyed='' ended=''
	local valued='^(-[sxnqvh]*([kbuOwEtc])(.*)|--(key|backend|url|option|limit|wait|conflict-exit-code|ttl|grace|signal|min-hold|max-run|once|cooldown|skipped-exit-code|command|who|why|status-fd))$'

	first=
	[[ ${DLOCK_KEY-} && ! ${DLOCK_KEEPER-} ]] && keyed=1
	while ((i < COMP_CWORD)); do
		word=${COMP_WORDS[i]}
		if [[ $word == [:=]* ]]; then
			((i += 2)) # readline makes three words of a=b and of a:b
		elif [[ ! $ended && $word == -- ]]; then
			ended=1
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
	local cur prev words cword split first

	_init_completion -s -n : || return
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W 'run help version --help --version' -- "$cur")
		return
	fi
	if [[ ${COMP_WORDS[1]} == help ]]; then
		mapfile -t COMPREPLY < <(compgen -W 'run help version pg-schema' -- "$cur")
		return
	fi
	[[ ${COMP_WORDS[1]} == run ]] || return
	_dlock_find_command
	if [[ $first ]]; then
		_command_offset "$first"
		return
	fi
	case $prev in
	--backend | -b)
		mapfile -t COMPREPLY < <(compgen -W 'file redis zk pg' -- "$cur")
		;;
	--url | -u)
		mapfile -t COMPREPLY < <(compgen -W 'file:/// redis:// redis+unix:/// redlock:// zk:// zks:// postgresql://' -- "$cur")
		compopt -o nospace
		__ltrim_colon_completions "$cur"
		;;
	--option | -O)
		if [[ $cur == @(password|auth)-file=* ]]; then
			cur=${cur#*=}
			_filedir
		elif [[ $cur == acl=* ]]; then
			mapfile -t COMPREPLY < <(compgen -W 'creator open' -- "${cur#*=}")
		elif [[ $cur == mode=* ]]; then
			mapfile -t COMPREPLY < <(compgen -W 'lease advisory row' -- "${cur#*=}")
		elif [[ $cur == derive=* ]]; then
			mapfile -t COMPREPLY < <(compgen -W 'with_advisory_lock rails-migration django-pglock golang-migrate flyway' \
				-- "${cur#*=}")
		else
			mapfile -t COMPREPLY < <(compgen -W 'acl= auth-file= connect-timeout= derive= key= mode= password-file= path= tls-files=' \
				-- "$cur")
			compopt -o nospace
		fi
		;;
	--signal)
		mapfile -t COMPREPLY < <(compgen -W 'TERM INT HUP QUIT USR1 USR2 KILL' -- "$cur")
		;;
	--key | -k | --limit | --wait | -w | --conflict-exit-code | -E | --ttl | -t | --grace | --min-hold | --max-run | --once | \
		--cooldown | --skipped-exit-code | --command | -c | --who | --why | --status-fd) ;;
	*)
		[[ $cur == -* ]] && mapfile -t COMPREPLY < <(compgen -W '--key --backend --url --option --shared --exclusive --limit
			--nonblock --wait --conflict-exit-code --ttl --grace --signal --min-hold --max-run --wait-tree --once
			--cooldown --skipped-exit-code --command --who --why --status-fd --quiet --verbose --help' -- "$cur")
		;;
	esac
}

complete -F _dlock dlock
