#!/bin/sh
# Notes that we leave on a host about other hosts and other times: which replica was seen where, how often a start failed.
#
#   put NAME     payload: the text; before it a line with this boot's id and uptime, by which its age is known
#   drop NAME... what is not there is no error
. ./lib.sh

checked() {
    case $1 in '' | .* | *[!A-Za-z0-9._-]*) die 2 "no name of a note: $1" ;; esac
}

put() {
    checked "$1"
    make_home
    [ -d "$notes" ] || mkdir -m 700 "$notes" || die 1 "$notes cannot be made"
    check_dir "$notes"
    new=$notes/.new.$$
    if { printf '%s %s\n' "$boot_id" "$uptime" && head -c 16384; } >"$new" && mv "$new" "$notes/$1"; then return 0; fi
    rm -f "$new"
    die 1 "$notes cannot be written"
}

drop() {
    [ -e "$notes" ] || return 0
    check_dir "$notes"
    for name; do
        checked "$name"
        rm -f "$notes/$name"
    done
}

read_host
read_uptime
home=$state_dir/$node
notes=$home/notes
verb=$3
shift 3
case $verb in
    put | drop) "$verb" "$@" ;;
    *) die 2 "notes.sh: no verb $verb" ;;
esac
