#!/bin/sh
# Runs the commands of one shard, watches every one of them, and ends all when any of them ends, whatever its code.
#
# Arguments: root state_dir directory. Started by shard.sh in a session of its own; the directory holds spec.json, env,
# unset, source, claims, grace, log_bytes, cmd.N/{name,argv,env,wait,after} and command.sh; it gets `pids`, `exit` and logs.
. ./lib.sh

# One text, read whole before anything runs: the file may be gone by then.
main() {
    cd "$1" || exit 1
    read -r marker <./marker
    read -r grace <./grace
    read -r log_bytes <./log_bytes
    read_host
    keep_claims_copy
    record supervisor $$
    set_limits
    trap 'told=1' TERM HUP INT
    running='' next=0 told='' rounds=0
    watch
}

# A process by pid and start time, here and in the claims, where other accounts can see that it lives.
record() {
    look_at "$2"
    while IFS= read -r file; do add_line "$file" "proc=$2:$p_start"; done <claims
    case $1 in
        supervisor) echo "supervisor $2 $p_start" >>pids ;;
        *) echo "$1 $(cat "cmd.$1/name") $2 $p_start" >>pids ;;
    esac
}

# Some systems empty /dev/shm of an account's files when its last login ends.
keep_claims_copy() {
    while IFS= read -r file; do claim_text "$file" >"claim.${file##*/}"; done <claims
}

restore_claims() {
    while IFS= read -r file; do
        if [ -e "$file" ] || [ -L "$file" ]; then continue; fi
        [ -d "${file%/*}" ] || mkdir -m 1777 "${file%/*}"
        new=$(again | new_claim "${file%/*}") || continue
        ln -T "$new" "$file"
        rm -f "$new"
    done <claims
}

again() {
    cat "claim.${file##*/}"
    sed 's/^.* \([0-9]*\) \([0-9]*\)$/proc=\1:\2/' pids
}

# shellcheck disable=SC3045 # dash, bash and busybox all have these
set_limits() {
    ulimit -S -n "$(ulimit -H -n)"
    ulimit -S -l "$(ulimit -H -l)"
    ulimit -S -s 8192 || ulimit -S -s "$(ulimit -H -s)" # NCCL before 2.30 overruns a thread's unlimited stack
}

# --- the loop ---------------------------------------------------------------------------------------------------

# Ends by itself: at the first end of a command, when told to, or when the directory is taken away.
watch() {
    while :; do
        look_at_commands
        if [ -e stopping ]; then
            # Whoever stops it does so in order; what is left of it is found by our session while we are here.
            [ -n "$running$(members "$marker" $$)" ] || break
        elif [ -n "$ended" ] || [ -n "$told" ] || [ ! -e spec.json ]; then
            end_all
            break
        else
            start_next
        fi
        nap
    done
    note_end
}

look_at_commands() {
    ended='' still=''
    for entry in $running; do
        index=${entry%%:*} pid=${entry#*:} begun=${entry##*:}
        pid=${pid%:*}
        if alive "$pid" "$begun"; then
            still="$still $entry"
        else
            wait "$pid"
            note_exit "$index" $?
            ended=$index
        fi
    done
    running=$still
}

# `clock` is to be compared with this host's own clock alone; `at` is for people.
end_record() {
    read -r now _ </proc/uptime
    printf 'name=%s\ncode=%s\nat=%s\nclock=%s\n' "$1" "$2" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$now"
}

# The first end is what went wrong with the shard; the ends of the others follow from it.
note_exit() {
    read -r title <"cmd.$1/name"
    end_record "$title" "$2" >.exit
    cp .exit "cmd.$1/exit"
    if [ -e ./exit ] || [ -e stopping ]; then rm -f .exit; else mv .exit ./exit; fi
    echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $title ended with code $2"
}

start_next() {
    [ -d "cmd.$next" ] || return 0
    if [ -e "cmd.$next/wait" ] && [ ! -e "go.$next" ]; then return 0; fi
    start_command "$next"
    next=$((next + 1))
}

nap() {
    rounds=$((rounds + 1))
    if [ "$rounds" -lt 1000 ]; then pause=0.25; else pause=1; fi
    [ $((rounds % 12)) -ne 0 ] || restore_claims
    sleep $pause & # waited for, so that a signal is heard at once
    wait $!
}

# --- a command and its log --------------------------------------------------------------------------------------

# Both ends are open before either side runs, so that neither can block in open; the name is then gone.
start_command() {
    pipe=cmd.$1/pipe
    if ! mkfifo "$pipe"; then
        note_exit "$1" 126
        told=1
        return
    fi
    # shellcheck disable=SC2094 # three ends of one pipe
    exec 4<>"$pipe" 5<"$pipe" 6>"$pipe"
    rm -f "$pipe"
    # By exec: a shell keeps copies of what it redirects for a function, and its own copy would hold the pipe open.
    (exec <&5 4>&- 5<&- 6>&- && keep_log "cmd.$1/log") &
    (exec </dev/null >&6 2>&1 4>&- 5<&- 6>&- && run_command "$1") &
    pid=$!
    exec 4>&- 5<&- 6>&-
    record "$1" "$pid"
    running="$running $1:$pid:$p_start"
}

run_command() {
    as_engine
    exec "$shell" ./command.sh "$1" argv
}

# The first part stays, of the rest the two newest (log.1, log.2 and so on); with a full disk the engine runs on and its
# words are lost.
keep_log() {
    unbuffered=''
    if command -v stdbuf >/dev/null; then unbuffered='stdbuf -o0'; fi
    part=$1 number=0
    while :; do
        # shellcheck disable=SC2086 # two words, or none
        if $unbuffered head -c "$log_bytes" >"$part"; then
            [ "$(wc -c <"$part")" -ge "$log_bytes" ] || return 0 # the last writer has closed it
            number=$((number + 1))
            [ "$number" -lt 3 ] || rm -f "$1.$((number - 2))"
        else
            timeout 10 cat >/dev/null
            [ $? = 124 ] || return 0
            [ "$number" -gt 0 ] || number=1
        fi
        part=$1.$number
    done
}

# --- the end ----------------------------------------------------------------------------------------------------

end_all() {
    trap '' TERM HUP INT
    [ -e ./exit ] || { end_record supervisor 143 >.exit && mv .exit ./exit; }
    for entry in $running; do
        pid=${entry#*:}
        if alive "${pid%:*}" "${entry##*:}"; then kill "${pid%:*}"; fi
    done
    read_clock
    deadline=$((clock + grace)) tries=0
    while rest=$(members "$marker" $$) && [ -n "$rest" ] && [ "$tries" -lt 50 ]; do
        sleep 0.25
        read_clock
        if [ "$clock" -ge "$deadline" ]; then
            # shellcheck disable=SC2086 # a list of pids
            kill -s KILL $rest
            tries=$((tries + 1))
        fi
    done
    look_at_commands
    run_afters "$PWD"
}

# From here on the claims grow stale.
note_end() {
    read_uptime
    while IFS= read -r file; do
        add_line "$file" "ended_s=$uptime"
    done <claims
    wait # for the logs
}

main "$3"
exit
