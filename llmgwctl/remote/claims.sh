#!/bin/sh
# Claims on GPUs and slots: taken exclusively, all of one request or none, and given back only when nothing runs.
#
#   claim REPLICA RANK LAUNCH OPERATOR WORKSTATION CREATED_AT KEY...
#       prints `claimed KEY` and `took-over KEY REPLICA RANK OPERATOR WORKSTATION ACCOUNT CREATED_AT` (tabs between);
#       where a key is held, takes none, prints `held KEY ...` likewise, and exits 10
#   release REPLICA RANK LAUNCH
#       prints `released KEY`; exits 12 while a process of the launch lives
. ./lib.sh

# Says who has a key when it is not free; a claim of this very launch (a repeated call) is free.
holder() {
    for file in "$claims_first/$1" "$claims_first/$1~"* "$claims_second/$1" "$claims_second/$1~"*; do
        if [ ! -e "$file" ] && [ ! -L "$file" ]; then continue; fi
        if ! read_claim "$file"; then
            c_rank='' c_operator='' c_workstation='' c_created='' # of what is no whole claim nothing is believed
            report held "$1" "$file"
            return 0
        fi
        of_launch && continue
        if ! claim_stale; then
            report held "$1" "$c_replica"
            return 0
        fi
    done
    return 1
}

report() {
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$c_rank" "$c_operator" "$c_workstation" "$c_owner" "$c_created"
}

# A stale claim of another account cannot be removed from a sticky directory: ours then stands beside it.
take() {
    for file in "$claims/$1" "$claims/$1~"*; do
        if [ ! -e "$file" ] && [ ! -L "$file" ]; then continue; fi
        read_claim "$file"
        of_launch && return 0
        rm -f "$file" 2>/dev/null
        report took-over "$1" "$c_replica"
    done
    new=$(write | new_claim "$claims") || return 1
    # A link is exclusive and shows the whole content at once.
    ln -T "$new" "$claims/$1" 2>/dev/null || ln -T "$new" "$claims/$1~$launch" || return 1
    rm -f "$new"
    printf 'claimed\t%s\n' "$1"
}

claim() {
    replica=$1 rank=$2 launch=$3 operator=$4 workstation=$5 created=$6
    shift 6
    held=''
    for key; do
        case $key in
            *[!A-Za-z0-9._-]*) die 2 "no key: $key" ;;
            gpu-?* | slot-?*) ;;
            *) die 2 "no key: $key" ;;
        esac
        holder "$key" && held=1
    done
    [ -z "$held" ] || exit "$HELD"
    new=''
    for key; do
        take "$key" || give_up
    done
}

write() {
    printf 'replica=%s\nrank=%s\nlaunch=%s\noperator=%s\nworkstation=%s\ncreated_at=%s\n' \
        "$replica" "$rank" "$launch" "$operator" "$workstation" "$created"
    printf 'boot_id=%s\nuptime_s=%s\n' "$boot_id" "$uptime"
}

give_up() {
    [ -z "$new" ] || rm -f "$new"
    drop_claims >/dev/null
    die 1 "a claim could not be written to $claims"
}

release() {
    replica=$1 rank=$2 launch=$3
    [ -z "$(carriers "LLMGWCTL_SHARD=$replica.r$rank.$launch")" ] || die "$ALIVE" "processes of $replica.r$rank still run"
    drop_claims
}

read_host
read_uptime
verb=$3
shift 3
case $verb in
    claim | release)
        open_claims 30
        "$verb" "$@"
        ;;
    *) die 2 "claims.sh: no verb $verb" ;;
esac
