# fish completion for dlock: never starts dlock and never asks a server.

# Prints the words of the command that is to be run, up to the cursor's; fails
# while the cursor is still before it.
function __dlock_command
    set -l words (commandline -opc) (commandline -ct)
    set -l keyed
    set -l ended
    set -q DLOCK_KEY; and not set -q DLOCK_KEEPER; and set keyed 1
    test "$words[2]" = run; or return 1
    set -e words[1..2]
    while set -q words[1]
        set -l word $words[1]
        if test -z "$ended"; and test "$word" = --
            test (count $words) -eq 1; and return 1
            set ended 1
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
            if string match -qr -- '^(-[sxnqvh]*[kbuOwEtc]|--(key|backend|url|option|limit|wait|conflict-exit-code|ttl|grace|signal|min-hold|max-run|once|cooldown|skipped-exit-code|command|who|why|status-fd))$' $word
                set -e words[1]
            end
        end
        set -e words[1]
    end
    return 1
end

complete -c dlock -f
complete -c dlock -n __fish_use_subcommand -a run -d 'Run a command under a lock'
complete -c dlock -n __fish_use_subcommand -a help -d 'Explain dlock or a subcommand'
complete -c dlock -n __fish_use_subcommand -a version -d 'Tell the version'
complete -c dlock -n '__fish_seen_subcommand_from help' -a 'run help version pg-schema'

complete -c dlock -n __dlock_command -a '(complete -C (string join " " -- (__dlock_command)))'

set -l run '__fish_seen_subcommand_from run; and not __dlock_command >/dev/null'
complete -c dlock -n $run -s k -l key -x -d 'Name of the lock'
complete -c dlock -n $run -s b -l backend -x -a 'file redis zk pg' -d 'Where locks are kept'
complete -c dlock -n $run -s u -l url -x -a 'file:/// redis:// redis+unix:/// redlock:// zk:// zks:// postgresql://' -d 'Which server or directory'
complete -c dlock -n $run -s O -l option -x -a 'acl=creator acl=open auth-file= connect-timeout= derive= key= mode=lease mode=advisory mode=row password-file= path= tls-files=' -d 'A setting of the backend'
complete -c dlock -n $run -s s -l shared -d 'Take it as a reader, beside other readers'
complete -c dlock -n $run -s x -l exclusive -d 'Take it alone'
complete -c dlock -n $run -l limit -x -d 'Take it beside up to N - 1 others'
complete -c dlock -n $run -s n -l nonblock -d 'Do not wait for the lock'
complete -c dlock -n $run -s w -l wait -x -d 'Wait at most so long'
complete -c dlock -n $run -s E -l conflict-exit-code -x -d 'Status when the lock was not to be had'
complete -c dlock -n $run -s t -l ttl -x -d 'The lease, renewed at a third'
complete -c dlock -n $run -l grace -x -d 'From --signal to KILL'
complete -c dlock -n $run -l signal -x -a 'TERM INT HUP QUIT USR1 USR2 KILL' -d 'Asks the command to stop'
complete -c dlock -n $run -l min-hold -x -d 'Keep the lock at least so long'
complete -c dlock -n $run -l max-run -x -d 'Stop the command after so long'
complete -c dlock -n $run -l wait-tree -d 'Release only when every descendant has ended'
complete -c dlock -n $run -l once -x -d 'Skip it if a run with this ID ended with 0'
complete -c dlock -n $run -l cooldown -x -d 'Skip it if a run that ended with 0 began less than so long ago'
complete -c dlock -n $run -l skipped-exit-code -x -d 'Status of a skipped run'
complete -c dlock -n $run -s c -l command -x -d 'Run a string with sh -c'
complete -c dlock -n $run -l who -x -d 'Who holds it, shown to others'
complete -c dlock -n $run -l why -x -d 'What for, shown to others'
complete -c dlock -n $run -l status-fd -x -d 'Write every event to a descriptor'
complete -c dlock -n $run -s q -l quiet -d 'Say nothing about waiting or a busy lock'
complete -c dlock -n $run -s v -l verbose -d 'Tell what happens, call by call'
complete -c dlock -n $run -s h -l help -d 'Explain the options'
