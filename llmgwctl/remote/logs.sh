#!/bin/sh
# What the commands of a shard have printed. Before each command's text stands a line `NONCE NAME BYTES`, where NONCE is
# the caller's and BYTES is all that the command has printed and we have kept.
#
#   tail REPLICA RANK LAUNCH NONCE MAX_BYTES [SINCE_S]  the newest MAX_BYTES of each command, and of the supervisor;
#       before them a part `clock`: what this host's clock said SINCE_S ago
#   after REPLICA RANK LAUNCH NONCE MAX_BYTES [NAME BYTES]...    what has come since the command had printed BYTES
#   lines REPLICA RANK LAUNCH NONCE PATTERN...   lines that hold one of the fixed strings, 2000 at most for each command
. ./lib.sh

parts() {
    cat "$1/log" "$1/log.old" "$1/log.new" 2>/dev/null
}

title() {
    printf '\n%s %s %s\n' "$nonce" "$1" "$2"
}

# shellcheck disable=SC2317,SC2329 # called by each
# Reads the parts of the command whose title has just been said; when the newest part made way for another, what was
# seen has moved to the front by the size of a part.
newer() {
    max=$1 from=0
    shift
    while [ $# -ge 2 ]; do
        if [ "$1" = "$name" ]; then from=$2; fi
        shift 2
    done
    case $from in '' | *[!0-9]* | ????????????????*) from=0 ;; esac
    [ "$from" -le "$bytes" ] || from=$((from - part))
    [ "$from" -ge 0 ] || from=0
    tail -c "+$((from + 1))" | head -c "$max"
}

each() {
    read -r part <"$dir/log_bytes"
    for command in "$dir"/cmd.*; do
        [ -f "$command/name" ] || continue
        read -r name <"$command/name"
        bytes=$(parts "$command" | wc -c)
        title "$name" "$bytes"
        parts "$command" | "$@"
    done
}

read_host
verb=$3 replica=$4 rank=$5 launch=$6 nonce=$7
shift 7
case $replica/$rank/$launch in */*/*/* | .* | *[!A-Za-z0-9./_-]*) die 2 "no shard: $replica $rank $launch" ;; esac
dir=$state_dir/$node/$replica.r$rank
found=''
[ ! -f "$dir/marker" ] || read -r found <"$dir/marker"
[ "$found" = "$replica.r$rank.$launch" ] || die "$GONE" "there is no shard $replica.r$rank.$launch on $node"
case $verb in
    tail)
        title clock 0
        date -d "@$(($(date +%s) - ${2:-0}))" '+%m-%d %H:%M:%S'
        each tail -c "$1"
        title supervisor "$(wc -c <"$dir/supervisor.log")"
        tail -c "$1" "$dir/supervisor.log"
        ;;
    after)
        each newer "$@"
        ;;
    lines)
        patterns=''
        for word; do
            patterns="$patterns$word
"
        done
        each grep -aF -m 2000 -e "${patterns%?}"
        ;;
    *) die 2 "logs.sh: no verb $verb" ;;
esac
exit 0
