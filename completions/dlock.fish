# fish completion for dlock.  Only a key is asked for, of the server that the line
# names: for half a second at most, and silently.  All else stands here.

# Prints the words of the command that is to be run, up to the cursor's; fails
# while the cursor is still before it.  For forget, which is named, it is the ID.
function __dlock_command
    set -l words (commandline -opc) (commandline -ct)
    set -l keyed
    set -l ended
    set -q DLOCK_KEY; and not set -q DLOCK_KEEPER; and not set -q argv[1]; and set keyed 1
    set -q argv[1]; or set argv run
    test "$words[2]" = $argv[1]; or return 1
    set -e words[1..2]
    while set -q words[1]
        set -l word $words[1]
        if test -z "$ended"; and test "$word" = --
            test (count $words) -eq 1; and return 1
            set ended 1
            # The command, for run: a key stands before the --.
            test $argv[1] = run; and set keyed 1
        else if test -n "$ended"; or not string match -q -- '-*' $word
            if test -n "$keyed"
                printf '%s\n' $words
                return 0
            end
            # Without -k, the first word is the key.
            set keyed 1
            set ended
        else
            string match -qr -- '^(-[sxnqvh]*k|--key)' $word; and set keyed 1
            if string match -qr -- '^(-[sxnqvh]*[kbuOwEtc]|--(key|config|profile|backend|url|option|limit|wait|conflict-exit-code|unless-frozen|ttl|grace|signal|min-hold|max-run|kill-after|once|once-per|at-offset|cooldown|skipped-exit-code|command|who|why|status-fd|metrics-file|log))$' $word
                set -e words[1]
            end
        end
        set -e words[1]
    end
    return 1
end

# Is the subcommand one of these, and the cursor not in the command to be run?
function __dlock_knows
    set -l words (commandline -opc)
    contains -- "$words[2]" $argv; and not __dlock_command >/dev/null
end

# The keys that are in use, one a line.  `ls` writes what is not plain between
# quotes; a key with bytes that no terminal should see has another escape there,
# and is left out; so is one that begins with ~, which fish would not quote.
# Nothing of a key or of a word is ever evaluated.
function __dlock_keys
    set -l words (commandline -opc)
    set -l server
    # fish asks also where an option is being typed
    string match -qr -- '^-(?!k|-key=)' (commandline -ct); and not contains -- $words[-1] -k --key; and return
    set -e words[1..2]
    while set -q words[1]
        switch $words[1]
            case --
                break
            case -b -u -O --backend --url --option --config --profile
                set -a server $words[1] $words[2]
                set -e words[1]
            case '-b*' '-u*' '-O*' '--backend=*' '--url=*' '--option=*' '--config=*' '--profile=*'
                set -a server $words[1]
        end
        set -e words[1]
    end
    # another server than the one that is meant would be worse than none
    string match -q -- '*$*' $server; and return
    set server (string replace -r '^(--config=)?~/' "\$1$HOME/" -- $server)
    timeout 0.5 dlock ls -n -o KEY $server </dev/null 2>/dev/null | LC_ALL=C sed -nE \
        -e '/^~/d' -e "/^[^'\\\\]+[^\\\\]*\$/p" -e "/^'([^\\\\]|\\\\[\\\\'])*'\$/{s/^'(.*)'\$/\\1/;s/\\\\(.)/\\1/g;p;}"
end

complete -c dlock -f
complete -c dlock -n __fish_use_subcommand -a run -d 'Run a command under a lock'
complete -c dlock -n __fish_use_subcommand -a status -d 'Show who holds a lock, and who waits'
complete -c dlock -n __fish_use_subcommand -a ls -d 'List all locks'
complete -c dlock -n __fish_use_subcommand -a wait -d 'Wait until a lock is free, without taking it'
complete -c dlock -n __fish_use_subcommand -a break -d 'Take a lock away from its holder'
complete -c dlock -n __fish_use_subcommand -a freeze -d 'Let nobody take a lock'
complete -c dlock -n __fish_use_subcommand -a thaw -d 'End a freeze'
complete -c dlock -n __fish_use_subcommand -a forget -d 'Make a job due again'
complete -c dlock -n __fish_use_subcommand -a hold -d 'Hold a lock for a script'
complete -c dlock -n __fish_use_subcommand -a release -d 'Release what hold has taken'
complete -c dlock -n __fish_use_subcommand -a config -d 'Show every setting and where it comes from'
complete -c dlock -n __fish_use_subcommand -a doctor -d 'Tell whether this machine and a server are fit for locks'
complete -c dlock -n __fish_use_subcommand -a help -d 'Explain dlock or a subcommand'
complete -c dlock -n __fish_use_subcommand -a version -d 'Show the version'
complete -c dlock -n '__dlock_knows help' -a 'run status ls wait break freeze thaw forget hold release config doctor help version pg-schema mysql-schema'

complete -c dlock -n __dlock_command -a '(complete -C (string join " " -- (__dlock_command)))'
complete -c dlock -n '__dlock_knows run hold status ls wait break freeze thaw doctor' -a '(__dlock_keys)' -d 'Key in use'
complete -c dlock -n '__dlock_knows forget; and not __dlock_command forget >/dev/null' -a '(__dlock_keys)' -d 'Key in use'

complete -c dlock -n '__dlock_knows run hold status wait break freeze thaw forget release config doctor' -s k -l key -x -a '(__dlock_keys)' -d 'Name of the lock'
complete -c dlock -n '__dlock_knows run hold status ls wait break freeze thaw forget config doctor' -l config -r -F -d 'Read this file only, not the usual ones'
complete -c dlock -n '__dlock_knows run hold status ls wait break freeze thaw forget config doctor' -l profile -x -d 'A profile of the configuration files'
complete -c dlock -n '__dlock_knows run hold status ls wait break freeze thaw forget config doctor' -s b -l backend -x -a 'file redis zk pg mysql memcached etcd' -d 'Where locks are kept'
complete -c dlock -n '__dlock_knows run hold status ls wait break freeze thaw forget config doctor' -s u -l url -x -a 'file:/// redis:// rediss:// redis+unix:/// redis+sentinel:// rediss+sentinel:// redis+cluster:// rediss+cluster:// redlock:// redlocks:// zk:// zks:// etcd:// etcds:// postgresql:// mysql:// mariadb:// memcached://' -d 'Which server or directory'
complete -c dlock -n '__dlock_knows run hold status ls wait break freeze thaw forget config doctor' -s O -l option -x -a 'acl=creator acl=open auth-file= cacert= cert= connect-timeout= derive= dialect=native dialect=redisson dialect=redisson-fair dialect=redisson-fenced dialect=redisson-rw dialect=redisson-semaphore dialect=string dialect=symfony key= layout=curator layout=kazoo layout=menagerie layout=plain layout=recipes layout=rw-seq lock=flock lock=fcntl mode=advisory mode=lease mode=row mode=named name= password-file= path= prefix= sentinel-password-file= socket= tls=off tls=encrypt tls=verify tls-name= wait-replicas=' -d 'A setting of the backend'
complete -c dlock -n '__dlock_knows run hold config' -s s -l shared -d 'Take it as a reader, beside other readers'
complete -c dlock -n '__dlock_knows wait' -s s -l shared -d 'Until a reader could have it'
complete -c dlock -n '__dlock_knows run hold config' -s x -l exclusive -d 'Take it alone'
complete -c dlock -n '__dlock_knows wait' -s x -l exclusive -d 'Until one could have it alone'
complete -c dlock -n '__dlock_knows run hold config' -l limit -x -d 'Take it beside up to N - 1 others'
complete -c dlock -n '__dlock_knows wait' -l limit -x -d 'Until one could have it beside up to N - 1 others'
complete -c dlock -n '__dlock_knows run hold config' -s n -l nonblock -d 'Do not wait for the lock'
complete -c dlock -n '__dlock_knows wait' -s n -l nonblock -d 'Look once'
complete -c dlock -n '__dlock_knows run hold config' -s w -l wait -x -d 'Wait at most this long'
complete -c dlock -n '__dlock_knows wait' -s w -l wait -x -d 'Look for at most this long'
complete -c dlock -n '__dlock_knows break' -s w -l wait -x -d 'Wait at most this long for the holder to give it up'
complete -c dlock -n '__dlock_knows run hold config' -s E -l conflict-exit-code -x -d 'Status if the lock is not free'
complete -c dlock -n '__dlock_knows wait' -s E -l conflict-exit-code -x -d 'Status when it is not free'
complete -c dlock -n '__dlock_knows run hold config' -l unless-frozen -x -a '(__dlock_keys)' -d 'Begin only while this key is not frozen'
complete -c dlock -n '__dlock_knows status' -l unless-frozen -x -a '(__dlock_keys)' -d 'Tell whether this key is frozen'
complete -c dlock -n '__dlock_knows doctor' -l unless-frozen -x -a '(__dlock_keys)' -d 'A key that runs name with --unless-frozen'
complete -c dlock -n '__dlock_knows run hold config' -l newest -d 'Of the runs that wait with this, only the last one is to run'
complete -c dlock -n '__dlock_knows run hold config doctor' -s t -l ttl -x -d 'The lease, renewed at a third'
complete -c dlock -n '__dlock_knows run hold config' -l grace -x -d 'From --signal to KILL'
complete -c dlock -n '__dlock_knows doctor' -l grace -x -d 'From TERM to KILL'
complete -c dlock -n '__dlock_knows run config' -l signal -x -a 'TERM INT HUP QUIT USR1 USR2 KILL' -d 'Asks the command to stop'
complete -c dlock -n '__dlock_knows hold' -l signal -x -a 'TERM INT HUP QUIT USR1 USR2 KILL' -d 'Asks PID to stop, if the lock is lost'
complete -c dlock -n '__dlock_knows run config' -l min-hold -x -d 'Keep the lock at least this long'
complete -c dlock -n '__dlock_knows run config' -l max-run -x -d 'Stop the command after this long'
complete -c dlock -n '__dlock_knows run config' -l kill-after -x -d 'Kill the command this long after TERM, HUP or INT'
complete -c dlock -n '__dlock_knows run config' -l wait-tree -d 'Release only when every descendant has ended'
complete -c dlock -n '__dlock_knows run' -l with-parent -d 'End with the parent process'
complete -c dlock -n '__dlock_knows hold' -l with-parent -d 'End the waiting with the parent process'
complete -c dlock -n '__dlock_knows run config' -l once -x -d 'Skip it if a run with this ID ended with 0'
complete -c dlock -n '__dlock_knows run config' -l once-per -x -a 'day hour week' -d 'The same, the ID being the day, hour or week of the server'
complete -c dlock -n '__dlock_knows run config' -l at-offset -x -d 'When the period of --once-per begins'
complete -c dlock -n '__dlock_knows run config' -l cooldown -x -d 'Skip it if a run that ended with 0 began less than this long ago'
complete -c dlock -n '__dlock_knows run config' -l no-retry -d 'A run of the ID that ended counts, whatever its status'
complete -c dlock -n '__dlock_knows run hold config' -l remember -d 'Let status show how it ended'
complete -c dlock -n '__dlock_knows run config' -l skipped-exit-code -x -d 'Status of a skipped run'
complete -c dlock -n '__dlock_knows run' -s c -l command -x -d 'Run a string with sh -c'
complete -c dlock -n '__dlock_knows run hold break freeze thaw config' -l who -x -d 'Who it is, shown to others'
complete -c dlock -n '__dlock_knows run hold break freeze thaw config' -l why -x -d 'What for, shown to others'
complete -c dlock -n '__dlock_knows run config' -l show-arguments -d 'Show others the arguments of the command, too'
complete -c dlock -n '__dlock_knows hold' -l show-arguments -d 'Show others the arguments of the process, too'
complete -c dlock -n '__dlock_knows run config' -l metrics-file -r -F -d 'Count the run in a file for Prometheus'
complete -c dlock -n '__dlock_knows run hold break freeze thaw forget config' -l log -r -F -a 'syslog fd:' -d 'Write a line for each event to syslog, a file or a descriptor'
complete -c dlock -n '__dlock_knows run' -l status-fd -x -d 'Write every event to a descriptor'
complete -c dlock -n '__dlock_knows break' -l token -x -d 'Only the grant with this token'
complete -c dlock -n '__dlock_knows break' -l force -d 'Take it away at once; its command may still run'
complete -c dlock -n '__dlock_knows hold' -l for -x -d 'Release it after this long'
complete -c dlock -n '__dlock_knows freeze' -l for -x -d 'Thaw it after this long'
complete -c dlock -n '__dlock_knows freeze' -l until -x -d 'Thaw it then'
complete -c dlock -n '__dlock_knows hold' -l pid -x -a '(__fish_complete_pids)' -d 'Hold it until this process ends'
complete -c dlock -n '__dlock_knows hold' -l shell -d 'Print assignments for eval'
complete -c dlock -n '__dlock_knows release' -l shell -d 'Print commands for eval that take them back'
complete -c dlock -n '__dlock_knows break thaw forget' -s y -l yes -d 'Do not ask'
complete -c dlock -n '__dlock_knows status ls break freeze thaw config version doctor' -s J -l json -d 'One JSON object a line'
complete -c dlock -n '__dlock_knows ls' -s n -l noheadings -d 'Print no line of headings'
complete -c dlock -n '__dlock_knows ls' -s o -l output -x -a 'KEY STATE KIND HOLDER HOST PID HELD WAITING COMMAND WHY SINCE LEFT RENEWED ENDS TOKEN HOLDERS LIMIT OWNER ID STATUS BEGAN TOOK SUCCESS ENDED WHO' -d 'Which columns'
complete -c dlock -n '__dlock_knows ls' -l format -x -a 'table json prometheus' -d 'How it is printed'
complete -c dlock -n '__dlock_knows ls' -l held-over -x -d 'Only those held for longer'
complete -c dlock -n '__dlock_knows ls' -l jobs -d 'List what is remembered of jobs instead'
complete -c dlock -n '__dlock_knows status' -l done-within -x -d 'Ask whether a run ended with 0 so recently'
complete -c dlock -n '__dlock_knows status ls' -l watch -d 'Look again and again'
complete -c dlock -n '__dlock_knows run hold config' -s q -l quiet -d 'Say nothing about waiting or a busy lock'
complete -c dlock -n '__dlock_knows wait' -s q -l quiet -d 'Print nothing about the wait or its end'
complete -c dlock -n '__dlock_knows break freeze thaw forget release' -s q -l quiet -d 'Print only what goes wrong'
complete -c dlock -n '__dlock_knows run hold config' -s v -l verbose -d 'Report each call to the backend'
complete -c dlock -n '__dlock_knows run hold status ls wait break freeze thaw forget config release version doctor' -s h -l help -d 'Explain the options'
