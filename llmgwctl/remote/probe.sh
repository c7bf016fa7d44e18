#!/bin/sh
# The framer: runs the sections of one host, lane beside lane, and frames their answers by byte counts.
#
# Arguments: root state_dir budget_s nonce rights packing. Standard input: for each section one line
#   NAME LANE TIMEOUT_S KIND NBYTES AFTER AFTER_SAYS UNLESS        ("-" for empty)
# and then NBYTES bytes, by KIND: `argv`, one argument a line; `script`, its text, which gets root, state_dir and rights
# ("sudo", or nothing); `args:N`, N arguments of one line each and then the text, which gets those. Standard output:
#   LLMGWCTL-BEGIN nonce
#   @ NAME RC MS OUTLEN ERRLEN STATE TRUNC NOTE...                 (then the bytes of stdout, then of stderr)
#   LLMGWCTL-END nonce TIME                                        (this host's, in seconds)
# With `gzip` as packing, and where the host has it, a line LLMGWCTL-GZIP nonce and then all of that packed.
# Nothing that a section prints can imitate a frame, hold up another lane, or keep this script from ending.

root=$1 state_dir=$2 budget=$3 nonce=$4 rights=${5:-} packing=${6:-}
max_bytes=4194304
lock_wait=4

PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL
umask 077
case $state_dir in \~/*) state_dir=$HOME/${state_dir#??} ;; esac

# Hundredths of a second since boot: no process is started to look at the clock.
clock() {
    read -r uptime _ </proc/uptime
    ticks=$((${uptime%.*} * 100 + 1${uptime#*.} - 100))
}

make_tmp() {
    for base in "${XDG_RUNTIME_DIR:-}" "$root/dev/shm" /tmp; do
        if [ -n "$base" ] && [ -d "$base" ] && [ -w "$base" ]; then
            tmp=$(mktemp -d "$base/llmgwctl-probe.XXXXXX" 2>/dev/null) && return 0
        fi
    done
    echo "llmgwctl: no place for temporary files" >&2
    return 1
}

# Lanes first, so that nothing new starts; then each `timeout`, which passes the signal on to its section.
finish() {
    trap '' TERM HUP INT PIPE
    : >"$tmp/ended"
    for pid in $lanes; do kill "$pid" 2>/dev/null; done
    for file in "$tmp"/*.pid; do
        [ -r "$file" ] && read -r pid <"$file" && kill "$pid" 2>/dev/null
    done
    rm -rf "$tmp" || rm -rf "$tmp"
    exec >/dev/null # what packs sees the end of it, and says the rest
    [ -z "$packer" ] || wait "$packer"
}

read_payload() {
    while read -r name lane limit kind nbytes after says unless; do
        head -c "$nbytes" >"$tmp/$name.body"
        [ "$(wc -c <"$tmp/$name.body")" -eq "$nbytes" ] || return 1 # the link died: half a script is not run
        printf '%s\n' "$name $lane $limit $kind $after $says $unless" >>"$tmp/plan"
        count=$((count + 1))
    done
}

has_lane() {
    grep -qs "^[^ ]* $1 " "$tmp/plan"
}

# --- what keeps nvidia-smi from being started -------------------------------------------------------------------

# Sets `hung` to the pid of an nvidia-smi in D state that began half a minute ago or more. A moment in D state is normal,
# and so is a first call that waits there for another's to set up the driver. The 19th field behind the state is when it
# began, in hundredths of a second since the boot.
find_hung() {
    up=
    { read -r up _ <"$root/proc/uptime"; } 2>/dev/null
    up=${up%%.*}
    hung=$(cd "$root/proc" && grep -hs '^[0-9]* (nvidia-smi) D ' [0-9]*/stat | while read -r pid _ _ rest; do
        # shellcheck disable=SC2086 # the fields are words
        set -- $rest
        if [ $((${up:-30} - ${19:-0} / 100)) -ge 30 ]; then echo "$pid" && break; fi
    done)
    [ -n "$hung" ] || return 1
    sleep 1
    grep -qs "^$hung (nvidia-smi) D " "$root/proc/$hung/stat"
}

# A directory that is there already wins, so that root and others, who may create in different places, agree.
find_lock() {
    for lock in "$root/run/lock/llmgwctl" "$root/dev/shm/llmgwctl"; do
        [ -d "$lock" ] && [ -w "$lock" ] && break
        lock=
    done
    if [ -z "$lock" ]; then
        for lock in "$root/run/lock/llmgwctl" "$root/dev/shm/llmgwctl"; do
            mkdir -m 1777 "$lock" 2>/dev/null && break
            [ -d "$lock" ] && [ -w "$lock" ] && break
            lock=
        done
    fi
    lock=$lock/probe.lock
    [ -e "$lock" ] || (umask 0 && set -C && : >"$lock") 2>/dev/null
    # Every account can put something else there: a pipe would block whoever opens it.
    # shellcheck disable=SC2016 # the shell that is started has its own $1
    [ -f "$lock" ] && [ ! -L "$lock" ] && timeout 5 sh -c ': <"$1"' sh "$lock"
}

# The lock is held by descriptor 7, which every section of the lane inherits: one that hangs for good keeps it.
gpu_hindrance() {
    if find_hung; then
        hindrance="nvidia-smi (pid $hung) hangs in D state"
    elif ! find_lock; then
        hindrance="no place for the lock that keeps two probes apart"
    else
        exec 7<"$lock"
        flock -w "$lock_wait" 7 || hindrance="another probe is at work"
    fi
}

# --- one section ------------------------------------------------------------------------------------------------

# RC MS STATE NOTE: all that is known of a section beside what it printed.
note() {
    printf '%s\n' "$2 $3 $4 $5" >"$tmp/$1.state"
}

printable() {
    head -c 80 | tr -c '[:alnum:] ._:/-' ' '
}

# Sets `answer`: what a section said, on stderr where stdout has nothing, and with which exit code.
answer_of() {
    read -r rc _ <"$tmp/$1.state"
    answer="$1 gave no answer"
    [ "$rc" != - ] || return 0
    stream=out
    [ -s "$tmp/$1.out" ] || stream=err
    words=$(printable <"$tmp/$1.$stream")
    words=${words%"${words##*[! ]}"} # blanks that a command substitution leaves
    answer="$1 said: $words"
    [ -n "$words" ] || answer="$1 said nothing"
    case $rc:$words in 0:?*) ;; *) answer="$answer (exit code $rc)" ;; esac
}

# Sets `needless` when the sections that were named say that there is nothing to ask.
consider() {
    needless=
    if [ "$1" != - ] && [ "$(head -c 200 "$tmp/$1.out")" != "$2" ]; then
        answer_of "$1"
        needless=$answer
    elif [ "$3" != - ] && [ -s "$tmp/$3.out" ] && read -r rc _ <"$tmp/$3.state" && [ "$rc" = 0 ]; then
        needless="$3 has answered"
    fi
}

# In the background. `exec` and no redirection of the call: some shells keep what they redirect open for later, and
# sshd would not see our output end for as long as a hung section lives.
launch() {
    exec </dev/null >"$tmp/$name.out" 2>"$tmp/$name.err"
    ulimit -f $((max_bytes / 512))
    set --
    case $kind in
        argv) while IFS= read -r argument; do set -- "$@" "$argument"; done <"$tmp/$name.body" ;;
        script) set -- sh -c "$(cat "$tmp/$name.body")" "$name" "$root" "$state_dir" "$rights" ;;
        args:*)
            while [ $# -lt "${kind#args:}" ] && IFS= read -r argument; do set -- "$@" "$argument"; done <"$tmp/$name.body"
            set -- sh -c "$(tail -n "+$(($# + 1))" "$tmp/$name.body")" "$name" "$@"
            ;;
    esac
    timeout -k 5 "$limit" "$@" 8>&- 9>&- &
    echo $! >"$tmp/$name.pid"
    # Whoever ends it all has looked for that file by now, or is told to here.
    if [ -e "$tmp/ended" ] || [ ! -d "$tmp" ]; then kill $!; fi
    wait $! 2>/dev/null
    echo $? >&8
}

# The exit code comes through a pipe that is waited for with a limit: a child in D state cannot be waited for.
run() {
    mkfifo "$tmp/$name.done"
    exec 8<>"$tmp/$name.done"
    launch &
    rc=$(timeout $((limit + 7)) head -n 1 <&8)
    rm -f "$tmp/$name.pid"
    clock
    why=-
    [ -n "$rc" ] || why="it did not end within its limit and could not be killed"
    note "$name" "${rc:--}" $(((ticks - began) * 10)) ran "$why"
    [ "$lane" = gpu ] || return 0
    case $rc in
        '') hindrance="$name hangs" ;;
        124 | 137) hindrance="$name gave no answer, and a GPU that is slow to answer is not asked again" ;;
    esac
}

section() {
    clock
    began=$ticks
    left=$((budget - (began - start) / 100))
    [ "$limit" -le "$left" ] || limit=$left
    : >"$tmp/$name.out"
    : >"$tmp/$name.err"
    consider "$after" "$says" "$unless"
    if [ -n "$hindrance" ]; then
        note "$name" - 0 skipped "$hindrance"
    elif [ -n "$needless" ]; then
        note "$name" - 0 unneeded "$needless"
    elif [ "$limit" -lt 1 ]; then
        note "$name" - 0 skipped "the time for this host was used up"
    else
        run
    fi
}

# --- lanes ------------------------------------------------------------------------------------------------------

run_lane() {
    exec </dev/null >/dev/null 2>&1
    hindrance=
    if [ "$1" = gpu ]; then gpu_hindrance; fi
    while read -r name lane limit kind after says unless; do
        [ "$lane" = "$1" ] || continue
        [ -d "$tmp" ] || exit
        section
        echo "$lane $name" >&9
    done <"$tmp/plan"
}

start_lane() {
    has_lane "$1" || return 0
    run_lane "$1" &
    lanes="$lanes $!"
}

size() {
    bytes=$(($(wc -c <"$1")))
    if [ "$bytes" -ge "$max_bytes" ]; then bytes=$max_bytes truncated=1; fi
}

emit() {
    truncated=0
    read -r rc ms state why <"$tmp/$1.state"
    size "$tmp/$1.err"
    err=$bytes
    size "$tmp/$1.out"
    [ "$why" != - ] || why=
    printf '@ %s %s %s %s %s %s %s %s\n' "$1" "$rc" "$ms" "$bytes" "$err" "$state" "$truncated" "$why"
    head -c "$bytes" "$tmp/$1.out"
    head -c "$err" "$tmp/$1.err"
}

# From here on standard output is a pipe into gzip, which also ends well when we are ended.
pack() {
    [ "$packing" = gzip ] && command -v gzip >/dev/null 2>&1 && mkfifo "$tmp/packed" || return 0
    printf 'LLMGWCTL-GZIP %s\n' "$nonce"
    (trap '' TERM HUP INT && exec gzip -1 -c) <"$tmp/packed" &
    packer=$!
    exec >"$tmp/packed"
}

# nvidia-smi begins only after the first look at /proc, so that it is never what hangs a host first.
main() {
    read_payload || exit 65
    mkfifo "$tmp/queue"
    exec 9<>"$tmp/queue"
    pack
    printf 'LLMGWCTL-BEGIN %s\n' "$nonce"
    start_lane sys
    start_lane imex
    waiting=1
    if ! has_lane sys; then
        waiting=
        start_lane gpu
    fi
    while [ "$count" -gt 0 ]; do
        read -r lane name <&9
        if [ -n "$waiting" ] && [ "$lane" = sys ]; then
            waiting=
            start_lane gpu
        fi
        emit "$name"
        count=$((count - 1))
    done
    printf 'LLMGWCTL-END %s %s\n' "$nonce" "$(date +%s.%N)"
}

lanes='' count=0 packer=''
clock
start=$ticks
make_tmp || exit 71
trap finish EXIT
trap 'exit 143' TERM HUP INT PIPE
main
