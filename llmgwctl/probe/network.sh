#!/bin/sh
# Interfaces, addresses and routes of the host, and the address at which this connection reached it.
# Arguments: root state_dir.
#
# Prints one fact a line: reached ADDRESS, link NAME OPERSTATE FLAGS MTU, and then either what `ip` says (addr LINE,
# route4 LINE, route6 LINE) or, where there is no `ip`, the kernel's own tables (proc TABLE LINE); then `listeners` and
# a line `listen ADDRESS:PORT` (hex, as in /proc/net/tcp) for each TCP port that something listens on.

root=$1
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL
max_lines=8192

# Under a root prefix only programs from beneath it count: this machine's own `ip` knows nothing of that host.
have() {
    found=$(command -v "$1") || return 1
    case $found in "$root"/*) return 0 ;; *) return 1 ;; esac
}

value() {
    word=
    { read -r word <"$1"; } 2>/dev/null
    printf ' %s' "${word:--}"
}

links() {
    for directory in "$root"/sys/class/net/*; do
        [ -d "$directory" ] || continue
        printf 'link %s' "${directory##*/}"
        value "$directory/operstate"
        value "$directory/flags"
        value "$directory/mtu"
        echo
    done
}

lines() {
    head -n "$max_lines" | sed "s/^/$1 /"
}

by_ip() {
    ip -o addr show 2>/dev/null | lines addr
    ip -o -4 route show table main 2>/dev/null | lines route4
    ip -o -6 route show table main 2>/dev/null | lines route6
}

by_proc() {
    for table in fib_trie if_inet6 route ipv6_route; do
        [ -r "$root/proc/net/$table" ] && lines "proc $table" <"$root/proc/net/$table"
    done
}

# A simulated host shares the ports of this machine: what listens on 127.0.0.1 here is none of that host's.
listeners() {
    foreign='^$'
    [ -z "$root" ] || foreign='^listen 0100007F:'
    for table in tcp tcp6; do
        file=$root/proc/net/$table
        [ -r "$file" ] || file=/proc/net/$table
        [ -r "$file" ] || continue
        echo listeners
        sed -nE 's/^ *[0-9]+: ([0-9A-F]+:[0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} 0A .*/listen \1/p' "$file"
    done | grep -v "$foreign" | head -n "$max_lines"
}

# client address, client port, server address, server port
reached() {
    set -f
    # shellcheck disable=SC2086 # four words
    set -- ${SSH_CONNECTION:-}
    set +f
    [ $# -lt 3 ] || printf 'reached %s\n' "$3"
}

reached
links | head -n "$max_lines"
if have ip; then by_ip; else by_proc; fi
listeners
exit 0
