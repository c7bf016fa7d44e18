# What the scripts that look after shards share. It is put in place of the line that names it before a script is sent.
# Arguments of each script: root state_dir verb ... ("root" is empty in production, a simulated host's tree else).
# shellcheck shell=sh disable=SC2034,SC2154 # what is set here is used there, and the other way round

# The account's own settings are kept: they belong to the engines, not to these scripts.
own_path=${PATH-} own_lc_all=${LC_ALL-} own_umask=$(umask)
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL
umask 077

root=$1 state_dir=$2
case $state_dir in \~/*) state_dir=$HOME/${state_dir#??} ;; esac
uid=$(id -u)

# Exit codes that the controller tells apart.
HELD=10 LEFT=11 ALIVE=12 REFUSED=13 GONE=14

die() {
    code=$1
    shift
    printf '%s\n' "$*" >&2
    exit "$code"
}

read_host() {
    read -r boot_id <"$root/proc/sys/kernel/random/boot_id" || die 1 "the boot id cannot be read"
    if [ -n "$root" ]; then read -r node <"$root/proc/sys/kernel/hostname"; else node=$(uname -n); fi
    case $node in '' | .* | *[!A-Za-z0-9._-]*) die 1 "this host's name is not one: $node" ;; esac
}

# Ours alone: nobody else owns it, may write into it, or has put a link in its place.
check_dir() {
    if [ -L "$1" ] || [ ! -d "$1" ]; then die "$REFUSED" "$1 is a symbolic link or no directory"; fi
    owner=$(stat -c %u "$1") mode=$(stat -c %a "$1")
    [ "$owner" = "$uid" ] || die "$REFUSED" "$1 belongs to another account ($(stat -c %U "$1"))"
    case $mode in *[2367]? | *[2367]) die "$REFUSED" "$1 can be written by others (mode $mode)" ;; esac
}

make_home() {
    # shellcheck disable=SC2174 # what lies above it is made under our umask, and is not ours to judge
    [ -d "$state_dir" ] || mkdir -p -m 700 "$state_dir" || die 1 "$state_dir cannot be made"
    check_dir "$state_dir"
    [ -d "$home" ] || mkdir -m 700 "$home" || die 1 "$home cannot be made"
    check_dir "$home"
}

# Whole seconds since boot: no wall clock, which may be wrong, decides about anything.
read_uptime() {
    read -r uptime _ <"$root/proc/uptime"
    uptime=${uptime%%.*}
}

# The same of the real kernel, for waiting: a simulated host's uptime may stand still.
read_clock() {
    read -r clock _ </proc/uptime
    clock=${clock%%.*}
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
    p_state=${1-} p_session=${4-} p_start=${20-}
}

# pid start: that very process runs (a zombie does not). 2: cannot be told.
alive() {
    look_at "$1" || return $?
    [ "$p_start" = "$2" ] || return 1
    case $p_state in Z | X | x) return 1 ;; esac
}

# NAME=VALUE [UID]: the pids of this account's (or that account's) processes that carry exactly this in their
# environment. Another account may write anything there, and root can see it.
carriers() {
    grep -slzxF -e "$1" /proc/[0-9]*/environ | while IFS=/ read -r _ _ pid _; do
        if belongs_to "$pid" "${2:-$uid}"; then echo "$pid"; fi
    done
}

belongs_to() {
    grep -qsE "^Uid:[[:space:]]+$2[[:space:]]" "/proc/$1/status"
}

# marker supervisor-pid: the processes of a launch, beside the supervisor's own. One that has lost its environment is
# still in the session, whose number says so for certain only while the supervisor that made it lives.
members() {
    carriers "LLMGWCTL_SHARD=$1"
    [ -n "$2" ] || return 0
    grep -slE "^[0-9]+ \(.*\) [^ ] [0-9]+ [0-9]+ $2 " /proc/[0-9]*/stat | while IFS=/ read -r _ _ pid _; do
        if [ "$pid" = "$2" ] || ! look_at "$pid" || [ "$p_session" != "$2" ] || [ "$p_state" = Z ]; then continue; fi
        grep -qszxF -e "LLMGWCTL_SHARD=$1" -e "LLMGWCTL_SUPERVISOR=$1" "/proc/$pid/environ" || echo "$pid"
    done
}

# --- the engine's own commands ----------------------------------------------------------------------------------

# In a subshell: the account's own settings, and the marker by which everything of a launch is known.
as_engine() {
    PATH=${own_path:-$PATH} LC_ALL=$own_lc_all LLMGWCTL_SHARD=$marker
    [ -n "$LC_ALL" ] || unset LC_ALL
    unset LLMGWCTL_SUPERVISOR
    # Python's setproctitle, which engines use, overwrites the environment that /proc shows unless this is set.
    SPT_NOENV=1
    export LLMGWCTL_SHARD SPT_NOENV
    [ -z "$root" ] || export LLMGWCTL_ROOT="$root" # where a simulated host's /sys is
    umask "$own_umask"
    shell='sh' # an engine's `source` file is often written for bash
    if [ -s source ] && command -v bash >/dev/null; then shell=bash; fi
}

# directory: takes away what outlives processes (a container, a folder). It may fail, and may be run again.
run_afters() {
    for after in "$1"/cmd.*/after; do
        [ -s "$after" ] || continue
        index=${after%/after}
        (cd "$1" && as_engine && exec timeout -k 5 60 "$shell" ./command.sh "${index##*.}" after) \
            </dev/null >>"$1/supervisor.log" 2>&1 9>&- 7>&- || echo "after command ${index##*.}: exit code $?" >>"$1/supervisor.log"
    done
}

# --- claims: machine-local, common to all accounts, gone at reboot ----------------------------------------------

# Whoever made the directory may change whatever lies in it, and every account may put anything there: a name there is
# never written through, nor followed, nor waited for.
claims_first=$root/run/lock/llmgwctl claims_second=$root/dev/shm/llmgwctl

# What is there already wins, so that root and others, who may create in different places, agree. It wins also where it
# is of no use: passing it over would claim a GPU twice, beside those who used it before it was spoilt.
find_claims() {
    for claims in "$claims_first" "$claims_second"; do
        if [ -e "$claims" ] || [ -L "$claims" ]; then return 0; fi
    done
    return 1
}

make_claims() {
    find_claims && return 0
    for claims in "$claims_first" "$claims_second"; do
        mkdir -m 1777 "$claims" 2>/dev/null
        # Somebody may have made it since we looked: to go on to the second place then would be two locks for one GPU.
        find_claims && return 0
    done
    return 1
}

check_claims() {
    if [ -L "$1" ] || [ ! -d "$1" ]; then die "$REFUSED" "$1 is a symbolic link or no directory"; fi
    tries=0
    until case $(stat -c %a "$1") in 1777 | 3777) true ;; *) false ;; esac do
        # mkdir sets the sticky bit a moment after it has made the directory
        [ "$tries" -lt 10 ] || die "$REFUSED" "$1 is not mode 1777: whoever may write there could take or hide others' claims"
        tries=$((tries + 1))
        sleep 0.1
    done
    [ -w "$1" ] || die "$REFUSED" "$1 cannot be written"
}

# seconds: how long the locks may be waited for. Every place that is there is locked, the first one first, and then they
# are looked for again. Two that make different places at the same moment, because one of them may not write where the
# other does, then have a lock in common: whichever looks later sees both.
open_claims() {
    make_claims || die 1 "no place for claims: neither $root/run/lock nor $root/dev/shm can be written"
    read_clock
    lock_s=$1 lock_until=$((clock + $1)) rounds=0 locked=''
    while found=$(places) && [ "$found" != "$locked" ]; do
        [ "$rounds" -lt 5 ] || die "$REFUSED" "$claims_first and $claims_second come and go"
        rounds=$((rounds + 1))
        unlock_claims
        for place in "$claims_first" "$claims_second"; do
            if [ -e "$place" ] || [ -L "$place" ]; then check_claims "$place" && lock_place "$place"; fi
        done
        locked=$found
    done
    find_claims || die 1 "$claims_first and $claims_second are gone"
}

places() {
    for place in "$claims_first" "$claims_second"; do
        if [ -e "$place" ] || [ -L "$place" ]; then printf '%s\n' "$place"; fi
    done
}

unlock_claims() {
    exec 9<&- 7<&-
}

lock_place() {
    lock=$1/claims.lock
    [ -e "$lock" ] || (umask 022 && set -C && : >"$lock") 2>/dev/null
    is_plain "$lock" || die "$REFUSED" "$lock is no plain file"
    # Opened for reading: with fs.protected_regular another account's file cannot be opened with O_CREAT here.
    if [ "$1" = "$claims_first" ]; then exec 9<"$lock" && number=9; else exec 7<"$lock" && number=7; fi
    read_clock
    wait_s=$((lock_until - clock))
    if [ "$wait_s" -lt 1 ]; then wait_s=1; fi
    flock -w "$wait_s" "$number" || die 1 "$lock was not free for $lock_s s: held by $(lock_holders "$lock")"
}

# Of a process of another account only root sees what it has open, but the kernel's list of locks names it to all,
# unless the one that asked for the lock has handed it on and is gone (as `flock` is, which our own runs call).
lock_holders() {
    device=$(stat -c %d "$1") said=''
    file=$(printf '%02x:%02x:%s 0 EOF' $((device >> 8 & 0xfff)) $((device & 0xff | device >> 12 & 0xfff00)) "$(stat -c %i "$1")")
    holders=$(grep -ls "^lock:.* FLOCK .* $file\$" /proc/[0-9]*/fdinfo/* | cut -d / -f 3 | sort -nu)
    [ -n "$holders" ] || holders=$(sed -n "s/^[0-9]*: FLOCK .* \([0-9]*\) $file\$/\1/p" /proc/locks 2>/dev/null)
    for pid in $holders; do
        name=$(tr -d '\000-\037\177' 2>/dev/null <"/proc/$pid/comm") || continue # it is gone
        said="${said:+$said, }pid $pid ($name) of $(stat -c %U "/proc/$pid")"
    done
    printf '%s\n' "${said:-"another account's process, which root can name: fuser -v $1"}"
}

is_plain() {
    [ -f "$1" ] && [ ! -L "$1" ]
}

# directory: makes a file there with what comes on standard input, and prints its name. Made exclusively under a name
# that nobody can guess, and written through the descriptor that made it.
new_claim() {
    fresh=$(mktemp -u "$1/.new.XXXXXXXXXXXX") || return 1
    (umask 022 && set -C && cat >"$fresh") 2>/dev/null && printf '%s\n' "$fresh"
}

# file line: adds to a claim of ours. What was opened is looked at before a byte is written: it may not be what it was.
add_line() {
    is_plain "$1" || return 1
    (
        exec 8>>"$1" || exit 1
        [ -f /proc/self/fd/8 ] && [ "$(stat -L -c %u.%h /proc/self/fd/8)" = "$uid.1" ] &&
            [ "$(readlink /proc/self/fd/8)" = "$(readlink -f "${1%/*}")/${1##*/}" ] && printf '%s\n' "$2" >&8
    ) 2>/dev/null
}

# The lines of a claim and nothing else that may stand under its name by now.
claim_text() {
    is_plain "$1" && timeout 5 head -c 8192 "$1" 2>/dev/null | tr -d '\000' | grep -aE "^($claim_words)=[^[:cntrl:]]{0,256}\$"
}
claim_words='replica|rank|launch|operator|workstation|created_at|boot_id|uptime_s|ended_s|stopping|proc'

# Sets c_* from a claim file; fails for whatever is not a whole one. Bounded: the file may be a stranger's.
read_claim() {
    c_replica='' c_rank='' c_launch='' c_operator='' c_workstation='' c_created='' c_boot='' c_uptime=0 c_ended=0 c_procs='' c_stopping=''
    c_owner=$(stat -c %U "$1" 2>/dev/null) c_uid=$(stat -c %u "$1" 2>/dev/null)
    is_plain "$1" && [ -r "$1" ] || return 1
    while IFS= read -r line; do
        value=${line#*=}
        case $line in
            replica=*) c_replica=$value ;;
            rank=*) c_rank=$value ;;
            launch=*) c_launch=$value ;;
            operator=*) c_operator=$value ;;
            workstation=*) c_workstation=$value ;;
            created_at=*) c_created=$value ;;
            boot_id=*) c_boot=$value ;;
            uptime_s=*) c_uptime=$value ;;
            ended_s=*) c_ended=$value ;;
            stopping=*) c_stopping=$value ;;
            proc=*) c_procs="$c_procs $value" ;;
        esac
    done <<END
$(claim_text "$1")
END
    for number in "$c_uptime" "$c_ended"; do
        case $number in '' | *[!0-9]* | 0?* | ????????????*) return 1 ;; esac
    done
    [ -n "$c_replica" ] && [ -n "$c_launch" ] && [ -n "$c_boot" ]
}

# Whether a process of the claim just read lives; also 0 when that cannot be told, since a GPU is never taken on doubt.
claim_lives() {
    for proc in $c_procs; do
        case $proc in *[!0-9:]* | :* | *: | *:*:*) return 0 ;; esac
        alive "${proc%%:*}" "${proc#*:}"
        [ $? = 1 ] || return 0
    done
    [ "$c_uid" = "$uid" ] || [ "$uid" = 0 ] || return 1
    [ -n "$(carriers "LLMGWCTL_SHARD=$c_replica.r$c_rank.$c_launch" "$c_uid")" ]
}

# Whether the claim just read no longer binds: another boot, or ten minutes without a process.
claim_stale() {
    [ "$c_boot" = "$boot_id" ] || return 0
    if [ "$c_ended" -gt "$c_uptime" ]; then c_uptime=$c_ended; fi
    [ $((uptime - c_uptime)) -ge 600 ] || return 1
    ! claim_lives
}

# Whether the claim just read is of this launch, by this account.
of_launch() {
    [ "$c_launch" = "$launch" ] && [ "$c_uid" = "$uid" ]
}

# Prints the claim files of this launch; those of others, and of other launches, are left out.
launch_claims() {
    for place in "$claims_first" "$claims_second"; do
        for file in "$place"/gpu-* "$place"/slot-*; do
            # shellcheck disable=SC3067 # dash, bash and busybox all have it, and there may be thousands of files
            [ -O "$file" ] && read_claim "$file" && of_launch && [ "$c_replica.$c_rank" = "$replica.$rank" ] &&
                printf '%s\n' "$file"
        done
    done
}

drop_claims() {
    launch_claims | while IFS= read -r file; do
        rm -f "$file" && file=${file##*/} && printf 'released\t%s\n' "${file%%~*}"
    done
    for file in "$claims_first"/.new.* "$claims_second"/.new.*; do # left by a run that was killed: we hold the lock, so it is nobody's
        [ ! -e "$file" ] || rm -f "$file" 2>/dev/null
    done
}
