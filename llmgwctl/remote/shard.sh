#!/bin/sh
# One shard on this host: its directory, its supervisor, and how it ends.
#
#   start REPLICA RANK LAUNCH KEY...     payload: `file NAME NBYTES` + the bytes ..., then `end`; prints `started PID`
#   go REPLICA RANK LAUNCH INDEX         the waits of that command are over
#   status REPLICA RANK LAUNCH WAIT_S    answers at once when something ended, else after WAIT_S
#   ready REPLICA RANK LAUNCH            payload: what is known of the replica that serves (JSON)
#   stop REPLICA RANK LAUNCH SIGNAL GRACE_S    prints `left PID NAME` and exits 11 when something would not die
#   clean REPLICA RANK LAUNCH            directory and claims, when nothing of the launch lives
# Processes are known by pid, start time and boot id, and by the marker of the launch in their environment.
. ./lib.sh

SCHEMA='"schema":"llmgwctl.shard/v1"'

find_shard() {
    replica=$1 rank=$2 launch=$3
    case $replica in '' | .* | *[!A-Za-z0-9._-]*) die 2 "no replica name: $replica" ;; esac
    case $rank in '' | *[!0-9]*) die 2 "no rank: $rank" ;; esac
    case $launch in '' | *[!A-Za-z0-9-]*) die 2 "no launch id: $launch" ;; esac
    name=$replica.r$rank marker=$replica.r$rank.$launch home=$state_dir/$node
    dir=$home/$name
    if [ -e "$home" ] || [ -L "$home" ]; then check_dir "$home"; fi
    if [ -e "$dir" ] || [ -L "$dir" ]; then check_dir "$dir"; fi
}

# The directory of this very launch, or nothing.
need_shard() {
    find_shard "$@"
    is_launch || die "$GONE" "there is no shard $marker on $node"
    known_schema "$dir"
}

is_launch() {
    [ -f "$dir/marker" ] && read -r there <"$dir/marker" && [ "$there" = "$marker" ]
}

# A newer llmgwctl wrote it: what its files mean is not known here.
known_schema() {
    [ ! -f "$1/spec.json" ] || grep -qF "$SCHEMA" "$1/spec.json" || die "$REFUSED" "$1 is of a newer llmgwctl: left alone"
}

same_boot() {
    [ -f "$dir/boot" ] && read -r there <"$dir/boot" && [ "$there" = "$boot_id" ]
}

# --- start ------------------------------------------------------------------------------------------------------

start() {
    find_shard "$@"
    shift 3
    open_claims 30
    make_home
    new=$home/.new.$marker
    rm -rf "$new"
    mkdir -m 700 "$new" || die 1 "$new cannot be made"
    our_claims "$@" >"$new/claims" || abandon "$GONE" "$(cat "$new/claims")"
    unpack || abandon 1 "the files of the shard did not arrive whole, or cannot be written to $new"
    if ! echo "$marker" >"$new/marker" || ! echo "$boot_id" >"$new/boot"; then abandon 1 "$new cannot be written"; fi
    make_room
    mv "$new" "$dir" || abandon 1 "$dir cannot be made"
    supervise
}

abandon() {
    code=$1
    rm -rf "$new"
    die "$code" "$2"
}

# Between the claim and now it may have grown stale and been taken over: then nothing starts.
our_claims() {
    for key; do
        ours=''
        for file in "$claims_first/$key" "$claims_first/$key~"* "$claims_second/$key" "$claims_second/$key~"*; do
            if [ ! -e "$file" ] || ! read_claim "$file"; then continue; fi
            if of_launch; then
                [ -z "$c_stopping" ] || { echo "$name is being stopped" && return 1; }
                ours=$file
            elif ! claim_stale; then
                echo "the claim on $key was taken over by $c_replica ($c_owner)"
                return 1
            fi
        done
        [ -n "$ours" ] || { echo "the claim on $key is gone" && return 1; }
        printf '%s\n' "$ours"
    done
}

# `read` takes no byte too much from a pipe, nor does `head -c`; without `end` the sender died midway.
unpack() {
    while read -r word path bytes; do
        [ "$word" = end ] && return 0
        case $path in /* | *..* | *[!A-Za-z0-9._/-]*) return 1 ;; */*) mkdir -p "$new/${path%/*}" || return 1 ;; esac
        head -c "$bytes" >"$new/$path" || return 1
        [ "$(wc -c <"$new/$path")" -eq "$bytes" ] || return 1
    done
    return 1
}

# An earlier launch of that name makes way when nothing of it lives.
make_room() {
    [ -d "$dir" ] || return 0
    known_schema "$dir"
    found=
    [ ! -f "$dir/marker" ] || read -r found <"$dir/marker"
    if same_boot && [ -n "$(carriers "LLMGWCTL_SHARD=$found")$(carriers "LLMGWCTL_SUPERVISOR=$found")" ]; then
        abandon "$ALIVE" "$found still runs on $node"
    fi
    rm -rf "$dir"
}

# Its own session, none of our descriptors, the account's own settings: it outlives the login and holds nothing of it.
supervise() {
    (
        exec </dev/null >>"$dir/supervisor.log" 2>&1 9>&- 7>&-
        PATH=${own_path:-$PATH} LC_ALL=$own_lc_all LLMGWCTL_SUPERVISOR=$marker
        [ -n "$LC_ALL" ] || unset LC_ALL
        export LLMGWCTL_SUPERVISOR
        umask "$own_umask"
        exec setsid sh "$dir/supervisor.sh" "$root" "$state_dir" "$dir"
    ) &
    tries=0
    until grep -qs '^supervisor ' "$dir/pids"; do # written by the supervisor itself, should we be killed right here
        tries=$((tries + 1))
        [ $tries -lt 100 ] || die 1 "the supervisor did not start: $(tail -n 3 "$dir/supervisor.log" 2>&1)"
        sleep 0.1
    done
    sed -n 's/^supervisor \([0-9]*\) .*/started\t\1/p' "$dir/pids"
}

# --- while it runs ----------------------------------------------------------------------------------------------

go() {
    need_shard "$@"
    case $4 in '' | *[!0-9]*) die 2 "no command index: $4" ;; esac
    : >"$dir/go.$4"
}

# Sets `keeper`, the supervisor's pid, when that very process lives. In the directory of another launch of that name,
# which is there by now, is another's: what is in its session is none of ours.
find_keeper() {
    keeper=''
    is_launch && same_boot && [ -f "$dir/pids" ] || return 0
    while read -r index pid begun _; do
        if [ "$index" = supervisor ] && alive "$pid" "$begun"; then keeper=$pid; fi
    done <"$dir/pids"
}

status() {
    need_shard "$@"
    left=$(($4 * 4))
    find_keeper
    while [ "$left" -gt 0 ] && [ -n "$keeper" ] && [ ! -e "$dir/exit" ] && [ ! -e "$dir/stopping" ]; do
        sleep 0.25
        left=$((left - 1))
        find_keeper
    done
    echo "supervisor ${keeper:-gone}"
    read -r now _ </proc/uptime && echo "clock $now"
    for flag in stopping ready; do [ ! -e "$dir/$flag" ] || echo "$flag"; done
    sed 's/^/exit /' "$dir/exit" 2>/dev/null
    sed 's/^/pid /' "$dir/pids" 2>/dev/null
    return 0
}

ready() {
    need_shard "$@"
    head -c 65536 >"$dir/.ready" && mv "$dir/.ready" "$dir/ready"
}

# --- the end ----------------------------------------------------------------------------------------------------

# It goes on when the connection is lost: what was asked for once is done.
stop() {
    find_shard "$@"
    signal=$4 grace=$5 keeper=''
    trap '' PIPE HUP
    mark_claims
    read_clock
    deadline=$((clock + grace))
    if is_launch; then
        known_schema "$dir"
        same_boot || { echo another-boot && return 0; }
        : >"$dir/stopping" # the supervisor then lets us end them in order; a full disk only costs that order
        find_keeper
        ask_mains
    else
        # shellcheck disable=SC2046 # a list of pids
        kill -s "$signal" $(carriers "LLMGWCTL_SHARD=$marker") 2>/dev/null
    fi
    while [ -n "$(members "$marker" "$keeper")" ] && before_deadline; do sleep 0.2; done
    kill_rest
    end_keeper
    if is_launch; then run_afters "$dir"; fi
}

# Bounded: the claims lie where another account can hold the lock, or put something there that blocks whoever opens it,
# and what runs is ended all the same.
mark_claims() {
    why=$( (no_more_starts) 2>&1 & bounded $!) || tell_blocked
}

tell_blocked() {
    printf 'blocked\t%s\n' "$(printf %s "${why:-what lies beside the claims blocks whoever opens it}" | tr '\000-\037' ' ')"
}

# Where the lock cannot be had, what is ours is given back without it.
lock_for_clean() {
    find_claims || return 0
    if why=$( (open_claims 5) 2>&1 & bounded $!); then open_claims 5; else tell_blocked; fi
}

# pid: waits for a child of ours, 15 seconds at most.
bounded() {
    look_at "$1"
    begun=$p_start tries=0
    while alive "$1" "$begun" && [ "$tries" -lt 150 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [ "$tries" -lt 150 ] || kill -s KILL "$1"
    wait "$1"
}

# A start that is under way ends first; one that comes later finds its claims marked.
no_more_starts() {
    find_claims || return 0
    open_claims 5
    launch_claims | while IFS= read -r file; do add_line "$file" "stopping=1"; done
    unlock_claims
}

# The process that the engine names, last command first, each given time before the next is told.
ask_mains() {
    sort -rn "$dir/pids" 2>/dev/null | while read -r index title pid begun; do
        if [ "$index" = supervisor ] || ! alive "$pid" "$begun"; then continue; fi
        kill -s "$signal" "$pid" 2>/dev/null && printf 'asked\t%s\t%s\n' "$title" "$pid"
        while alive "$pid" "$begun" && before_deadline; do sleep 0.2; done
    done
}

before_deadline() {
    read_clock
    [ "$clock" -lt "$deadline" ]
}

# Until nothing was found twice: a process may be born behind the place where the search just is.
kill_rest() {
    none=0 tries=0
    while [ "$none" -lt 2 ] && [ "$tries" -lt 50 ]; do
        find_keeper
        rest=$(members "$marker" "$keeper")
        if [ -z "$rest" ]; then
            none=$((none + 1))
        else
            none=0 tries=$((tries + 1))
            # One by one: among them may be one that is gone by now.
            for pid in $rest; do kill -s KILL "$pid" 2>/dev/null && printf 'killed\t%s\n' "$pid"; done
            sleep 0.2
        fi
    done
    [ "$none" -ge 2 ] || report_left
}

# The supervisor goes by itself once its commands are gone, and then knows how each ended; it gets a moment for that.
end_keeper() {
    tries=0
    while rest=$(carriers "LLMGWCTL_SUPERVISOR=$marker") && [ -n "$rest" ]; do
        tries=$((tries + 1))
        [ "$tries" -le 50 ] || report_left
        # shellcheck disable=SC2086 # a list of pids
        [ "$tries" -le 10 ] || kill -s KILL $rest 2>/dev/null
        sleep 0.2
    done
}

report_left() {
    for pid in $(members "$marker" "$keeper") $(carriers "LLMGWCTL_SUPERVISOR=$marker"); do
        look_at "$pid"
        printf 'left\t%s\t%s\t%s\n' "$pid" "$p_state" "$(tr -d '\000-\037' <"/proc/$pid/comm" 2>/dev/null)"
    done
    exit "$LEFT"
}

# Nor does it end where it is when nobody hears it: a claim that is left without its directory looks like a start.
clean() {
    find_shard "$@"
    trap '' PIPE HUP
    if is_launch; then known_schema "$dir"; fi
    lock_for_clean
    keeper=''
    find_keeper
    if [ -n "$(members "$marker" "$keeper")$(carriers "LLMGWCTL_SUPERVISOR=$marker")" ]; then
        die "$ALIVE" "processes of $marker still run"
    fi
    if is_launch; then
        same_boot || run_afters "$dir"
        rm -rf "$dir" || die 1 "$dir cannot be removed"
    fi
    rm -rf "$home/.new.$marker"
    if find_claims; then drop_claims; fi
}

read_host
read_uptime
verb=$3
shift 3
case $verb in
    start | go | status | ready | stop | clean) "$verb" "$@" ;;
    *) die 2 "shard.sh: no verb $verb" ;;
esac
