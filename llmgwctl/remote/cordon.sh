#!/bin/sh
# A cordon on this host: a file beside the claims, of each account its own, that every account reads.
#
#   set BY AT UNTIL GPUS    payload: the reason, one line; "-" for no UNTIL (seconds since the epoch) and no GPUS
#   clear                   ours goes; prints `cleared` where there was one, and `other ACCOUNT` for each of others
. ./lib.sh

set_cordon() {
    reason=$(head -c 1000 | tr -d '\000-\037\177')
    new=$({
        printf 'reason=%s\nby=%s\nat=%s\n' "$reason" "$1" "$2"
        case $3 in -) ;; *) printf 'until=%s\n' "$3" ;; esac
        case $4 in -) ;; *) printf 'gpus=%s\n' "$4" ;; esac
    } | new_claim "$claims") || die 1 "$claims cannot be written"
    # Over a link or another's file of that name this fails, and does not follow.
    mv -T "$new" "$ours" 2>/dev/null || {
        rm -f "$new"
        die "$REFUSED" "$ours belongs to another account"
    }
}

clear_cordon() {
    if [ -e "$ours" ] && rm -f "$ours" 2>/dev/null; then echo cleared; fi
    for file in "$claims"/cordon-*; do
        [ ! -e "$file" ] || printf 'other\t%s\n' "$(stat -c %U "$file")"
    done
}

verb=$3
shift 3
open_claims 30
ours=$claims/cordon-$uid
case $verb in
    set) set_cordon "$@" ;;
    clear) clear_cordon ;;
    *) die 2 "cordon.sh: no verb $verb" ;;
esac
