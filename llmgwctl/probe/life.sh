# What runs here because of us: the claims of all accounts, the shards of this one, and whether their processes live.
# Arguments: root state_dir. What files hold is indented by two blanks, so that none can imitate what this script says.
# shellcheck shell=sh
export LC_ALL=C
root=$1 state_dir=$2
case $state_dir in \~/*) state_dir=$HOME/${state_dir#??} ;; esac

read_host() {
    read -r boot_id <"$root/proc/sys/kernel/random/boot_id" || exit 1
    read -r uptime _ <"$root/proc/uptime" || exit 1
    if [ -n "$root" ]; then read -r node <"$root/proc/sys/kernel/hostname"; else node=$(uname -n); fi
}

# Sets p_state, p_session and p_start of a process; 1: there is none, 2: it is there and not shown to this account.
look_at() {
    p_state='' p_session='' p_start=''
    if ! read -r line 2>/dev/null <"/proc/$1/stat"; then
        # hidepid: other accounts' processes are invisible, and then absence says nothing.
        [ ! -d "/proc/$1" ] && [ -d /proc/1 ] && return 1
        return 2
    fi
    # shellcheck disable=SC2086 # the fields after the name, which may itself hold blanks and brackets
    set -- ${line##*) }
    # shellcheck disable=SC2034 # the same lines stand in remote/lib.sh
    p_state=${1-} p_session=${4-} p_start=${20-}
}

# pid start: that very process runs (a zombie does not). 2: cannot be told.
alive() {
    look_at "$1" || return $?
    [ "$p_start" = "$2" ] || return 1
    case $p_state in Z | X | x) return 1 ;; esac
}

life_of() {
    case $1:$2 in *[!0-9:]* | :* | *:) echo unknown && return ;; esac
    alive "$1" "$2"
    case $? in 0) echo alive ;; 1) echo dead ;; *) echo unknown ;; esac
}

# Bounded, and without anything that could look like another line of ours.
show() {
    start_of "$1" "$2" | tr -d '\000\r' | sed 's/^/  /'
    echo
}

# A file may be a pipe by now, and of any size.
start_of() {
    timeout 5 head -c "$2" "$1" 2>/dev/null
}

# A name in a directory where everybody may write can hold anything, line breaks too.
odd_name() {
    case ${1##*/} in *[!A-Za-z0-9._~-]*) echo "unreadable ${1%/*}: an entry whose name is none of ours" ;; *) return 1 ;; esac
}

plain() {
    [ -f "$1" ] && [ ! -L "$1" ] && [ -r "$1" ]
}

claim() {
    odd_name "$1" && return
    if ! plain "$1"; then
        echo "blocked ${1##*/} owner=$(stat -c %U "$1")"
        return
    fi
    echo "claim ${1##*/} owner=$(stat -c %U "$1")"
    show "$1" 8192
    start_of "$1" 8192 | sed -n 's/^proc=\([0-9]\{1,9\}\):\([0-9]\{1,18\}\)$/\1 \2/p' | head -n 64 | while read -r pid begun; do
        echo "process $pid $(life_of "$pid" "$begun")"
    done
}

shard() {
    odd_name "$1" && return
    if [ -L "$1" ] || [ ! -d "$1" ] || ! plain "$1/spec.json"; then
        echo "unreadable $1"
        return
    fi
    echo "shard $1 boot=$(head -c 64 "$1/boot" 2>/dev/null | tr -dc 'a-z0-9-')"
    show "$1/spec.json" 262144
    while read -r index title pid begun; do
        case $index in
            supervisor)
                echo "supervisor $title $(life_of "$title" "$pid")"
                echo "begun $pid"
                ;;
            *) echo "main $index $title $pid $(life_of "$pid" "$begun")" ;;
        esac
    done 2>/dev/null <"$1/pids"
    for command in "$1"/cmd.*; do
        plain "$command/name" || continue
        code=$(sed -n 's/^code=//p' "$command/exit" 2>/dev/null | head -n 1)
        printf 'command %s %s %s\n' "${command##*.}" "$(head -c 64 "$command/name" | tr -dc 'A-Za-z0-9._-')" "$code"
    done
    for file in exit ready; do
        plain "$1/$file" || continue
        echo "$file"
        show "$1/$file" 65536
    done
    [ ! -e "$1/stopping" ] || echo stopping
    echo "log $(cat "$1"/cmd.*/log "$1"/cmd.*/log.[1-9]* 2>/dev/null | wc -c)"
}

# A host, or GPUs of it, that an operator of any account keeps out.
cordon() {
    odd_name "$1" && return
    plain "$1" || return
    echo "cordon ${1##*/} owner=$(stat -c %U "$1")"
    show "$1" 4096
}

# What we have left here about other hosts and other times: its age is by this boot's uptime.
note() {
    odd_name "$1" && return
    plain "$1" || return
    IFS=' ' read -r boot since <"$1"
    echo "note ${1##*/} $(printf %s "$boot" | tr -dc 'a-z0-9-') $(printf %s "$since" | tr -dc '0-9.')"
    sed 1d "$1" 2>/dev/null | head -c 16384 | tr -d '\000\r' | sed 's/^/  /'
    echo
}

# whose what file...: 256 of them at most, and it is said where there are more.
each() {
    whose=$1 what=$2 count=0
    shift 2
    for entry; do
        if [ ! -e "$entry" ] && [ ! -L "$entry" ]; then continue; fi
        # shellcheck disable=SC3067 # dash, bash and busybox all have it, and there may be thousands of files
        case $whose in
            own) [ -O "$entry" ] || continue ;;
            others) [ ! -O "$entry" ] || continue ;;
        esac
        count=$((count + 1))
        [ "$count" -le 256 ] || break
        case $what in
            claim) claim "$entry" ;;
            cordon) cordon "$entry" ;;
            note) note "$entry" ;;
            shard) shard "$entry" ;;
        esac
    done
    [ "$count" -le 256 ] || echo "more $what ${entry%/*}"
}

# By its real user. Without a program of its own for each: there may be as many as another account likes.
ours() {
    while read -r key real _; do
        [ "$key" != Uid: ] || break
    done 2>/dev/null <"/proc/$1/status" && [ "$real" = "$uid" ]
}

# what pid marker: simulated hosts share one process table, and there a process also says of which of them it is.
bears() {
    [ -z "$root" ] || grep -qszxF -e "LLMGWCTL_ROOT=$root" "/proc/$2/environ" || return 0
    echo "$1 $2 $3"
}

read_host
uid=$(id -u)
echo "boot_id $boot_id"
echo "uptime_s $uptime"
echo "node $node"
echo "account $(id -un)"
# Processes begin by the real kernel's clock, in its ticks.
read -r clock _ </proc/uptime && echo "clock $clock"
echo "ticks $(getconf CLK_TCK 2>/dev/null || echo 100)"
# Every process that carries a marker of ours, whether anything else here tells of it or not. Another account may write
# anything there, and root can see it: so many of each are told, and none of ours is lost among those of others.
grep -sHzE '^LLMGWCTL_SHARD=[A-Za-z0-9._-]+$' /proc/[0-9]*/environ | tr '\000' '\n' |
    sed -n 's|^/proc/\([0-9]*\)/environ:LLMGWCTL_SHARD=|\1 |p' | {
    carriers=0 bearers=0
    while read -r pid marker; do
        if ours "$pid"; then
            carriers=$((carriers + 1))
            [ "$carriers" -gt 1024 ] || bears carrier "$pid" "$marker"
        else
            bearers=$((bearers + 1))
            [ "$bearers" -gt 1024 ] || bears bearer "$pid" "$marker"
        fi
    done
}
for directory in "$root/run/lock/llmgwctl" "$root/dev/shm/llmgwctl"; do
    # Our own first: however many another account puts there, ours are told.
    each own claim "$directory"/gpu-* "$directory"/slot-*
    each others claim "$directory"/gpu-* "$directory"/slot-*
    each all cordon "$directory"/cordon-*
done
each all note "$state_dir/$node/notes"/*
each all shard "$state_dir/$node"/*.r[0-9]* "$state_dir/$node"/.new.*
exit 0
