#!/bin/sh
# IMEX's service, files and channel devices. Arguments: root state_dir. Nothing is started, changed or connected to.
#
# Prints one fact a line:
#   unit KEY=VALUE                     of systemctl show nvidia-imex (not at all where systemd is not)
#   config present|absent|unreadable
#   set KEY=VALUE                      of config.cfg, the keys that matter
#   nodes present|absent|unreadable PATH
#   node LINE                          a line of the node list
#   resolved NAME ADDRESS...           what a name in it is on this host
#   major N                            of the channels, in /proc/devices
#   channel NUMBER MAJOR yes|no        a device, and whether this account may write to it

root=$1
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL
max_nodes=1024
max_names=128

# Under a root prefix only programs from beneath it count: this machine's own systemd knows nothing of that host.
have() {
    found=$(command -v "$1") || return 1
    case $found in "$root"/*) return 0 ;; *) return 1 ;; esac
}

state_of() {
    if [ ! -e "$1" ]; then
        echo absent
    elif [ -f "$1" ] && [ -r "$1" ]; then
        echo present
    else
        echo unreadable
    fi
}

unit() {
    have systemctl || return 0
    timeout 10 systemctl show -p LoadState -p ActiveState -p UnitFileState nvidia-imex.service 2>/dev/null |
        head -n 10 | sed 's/^/unit /'
}

# Sets node_file on the way.
config() {
    node_file=/etc/nvidia-imex/nodes_config.cfg
    file=$root/etc/nvidia-imex/config.cfg
    state=$(state_of "$file")
    echo "config $state"
    [ "$state" = present ] || return 0
    settings=$(head -c 65536 "$file" | tr -d '\r' |
        sed -nE 's/^[[:space:]]*(IMEX_CMD_ENABLED|IMEX_NODE_CONFIG_FILE)[[:space:]]*=[[:space:]]*([^#]*[^#[:space:]]).*$/set \1=\2/p')
    [ -z "$settings" ] || printf '%s\n' "$settings"
    named=$(printf '%s\n' "$settings" | sed -n 's/^set IMEX_NODE_CONFIG_FILE=//p' | tail -n 1)
    [ -z "$named" ] || node_file=$named
}

nodes() {
    state=$(state_of "$root$node_file")
    printf 'nodes %s %s\n' "$state" "$node_file"
    [ "$state" = present ] || return 0
    lines=$(head -c 65536 "$root$node_file" | tr -d '\r' |
        sed -e 's/#.*//' -e 's/^[[:space:]]*//' -e 's/[[:space:]]*$//' -e '/^$/d' | head -n "$max_nodes")
    [ -n "$lines" ] || return 0
    printf '%s\n' "$lines" | sed 's/^/node /'
    resolve "$lines"
}

# Names side by side: a dead name server costs its timeout once, not once a name.
resolve() {
    names=$(printf '%s\n' "$1" | grep '^[A-Za-z0-9_.-]*[A-Za-z_-][A-Za-z0-9_.-]*$' | sort -u | head -n "$max_names")
    for name in $names; do
        address_of "$name" &
    done
    wait
}

address_of() {
    if have getent; then
        found=$(timeout 5 getent ahosts "$1" 2>/dev/null | sed 's/[[:space:]].*//' | sort -u | tr '\n' ' ')
    else
        found=$(sed -n "s/#.*//;s/\$/ /;/[[:space:]]$1[[:space:]]/s/[[:space:]].*//p" "$root/etc/hosts" 2>/dev/null |
            sort -u | tr '\n' ' ')
    fi
    echo "resolved $1 $found"
}

# A device node tells its major; under a root prefix, where nobody can make one, a plain file that says "MAJOR MINOR".
channels() {
    while read -r number name; do
        [ "$name" != nvidia-caps-imex-channels ] || echo "major $number"
    done <"$root/proc/devices"
    set -- "$root"/dev/nvidia-caps-imex-channels/channel*
    [ -e "$1" ] || return 0
    stat -c '%F|%t|%n' "$@" 2>/dev/null | while IFS='|' read -r kind hex path; do
        major=
        case $kind in
        character*) major=$((0x$hex)) ;;
        regular*) [ -n "$root" ] && read -r major _ <"$path" ;;
        esac
        may=no
        [ ! -w "$path" ] || may=yes
        [ -z "$major" ] || echo "channel ${path##*/channel} $major $may"
    done
}

unit
config
nodes
channels 2>/dev/null
exit 0
