#!/bin/sh
# What the commands of a shard have printed. Before each command's text stands a line `NONCE NAME BYTES [MISSED]`, where
# NONCE is the caller's and BYTES counts from the first byte that the command has printed to the last one of the text;
# of the newest part of a log, to what there is.
#
#   tail REPLICA RANK LAUNCH NONCE MAX_BYTES [SINCE_S]  the newest MAX_BYTES of each command, and of the supervisor;
#       before them a part `clock`: what this host's clock said SINCE_S ago
#   after REPLICA RANK LAUNCH NONCE MAX_BYTES [NAME BYTES]...    what comes after BYTES, MAX_BYTES at most for each
#       command; MISSED: as many bytes after BYTES are not kept any more
#   lines REPLICA RANK LAUNCH NONCE PATTERN...   lines that hold one of the fixed strings, 2000 at most for each command
. ./lib.sh

# Part 0 is the file `log`, part N `log.N`; each has $part bytes but the newest, and some in the middle are not kept.
# kept: NUMBER:SIZE of each; newest: where the newest one begins; end: where it ends now.
look() {
    kept='' newest=0 end=0
    for number in 0 $(printf '%s\n' "$1"/log.* | sed -n 's/.*\/log\.\([1-9][0-9]\{0,8\}\)$/\1/p' | sort -n); do
        size=$(wc -c 2>/dev/null <"$(file "$1" "$number")") || continue
        kept="$kept $number:$((size))" newest=$((number * part)) end=$((number * part + size))
    done
}

file() {
    if [ "$2" = 0 ]; then echo "$1/log"; else echo "$1/log.$2"; fi
}

# shellcheck disable=SC2317,SC2329 # called by those that each calls
# Up to what look has seen: what has come since is of the next answer.
parts() {
    for one in $kept; do head -c "${one#*:}" "$(file "$1" "${one%:*}")"; done
}

title() {
    printf '\n%s %s %s\n' "$nonce" "$1" "$2${3:+ $3}"
}

# shellcheck disable=SC2317,SC2329 # called by each
newest() {
    title "$name" "$end"
    parts "$command" | tail -c "$1"
}

# shellcheck disable=SC2317,SC2329 # called by each
matching() {
    title "$name" "$end"
    parts "$command" | grep -aF -m 2000 -e "$1"
}

# shellcheck disable=SC2317,SC2329 # called by each
# A newest part that was begun anew, on a disk that was full, is shorter than what was seen of it.
newer() {
    left=$1 at=0 missed=0 wanted=''
    shift
    while [ $# -ge 2 ]; do
        if [ "$1" = "$name" ]; then at=$2; fi
        shift 2
    done
    case $at in '' | *[!0-9]* | 0?* | ????????????????*) at=0 ;; esac
    [ "$at" -le "$end" ] || at=$newest
    for one in $kept; do
        begin=$((${one%:*} * part)) stop=$((${one%:*} * part + ${one#*:}))
        if [ "$stop" -le "$at" ] || [ "$left" -le 0 ]; then continue; fi
        if [ "$at" -lt "$begin" ]; then missed=$((missed + begin - at)) at=$begin; fi
        size=$((stop - at))
        [ "$size" -le "$left" ] || size=$left
        wanted="$wanted ${one%:*}:$((at - begin + 1)):$size" at=$((at + size)) left=$((left - size))
    done
    title "$name" "$at" "${missed#0}"
    for one in $wanted; do
        number=${one%%:*} size=${one##*:} one=${one%:*}
        tail -c "+${one#*:}" "$(file "$command" "$number")" | head -c "$size"
    done
}

each() {
    read -r part <"$dir/log_bytes"
    for command in "$dir"/cmd.*; do
        [ -f "$command/name" ] || continue
        read -r name <"$command/name"
        look "$command"
        "$@"
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
        each newest "$1"
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
        each matching "${patterns%?}"
        ;;
    *) die 2 "logs.sh: no verb $verb" ;;
esac
exit 0
