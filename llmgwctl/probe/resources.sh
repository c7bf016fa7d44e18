#!/bin/sh
# Limits of this account, memory, kernel settings that matter to NCCL and to ports, and what the host's own name is to
# the host. Arguments: root state_dir.
#
# Prints one fact a line: limit NAME|SOFT|HARD, memory KEY KB, setting NAME VALUE, name NODE, and then
# `named ADDRESS` for each address of it, in the order in which a program gets them, or `unnamed WHY`.

root=$1
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL

# Columns of /proc/self/limits are 26 and 21 wide. The size of files is left out: the framer itself has set that one.
limits() {
    sed -nE 's/^(Max [a-z]+( [a-z-]+)*) {2,}([^ ]+) +([^ ]+).*/limit \1|\3|\4/p' /proc/self/limits | grep -v 'Max file size'
}

memory() {
    sed -nE 's/^(MemTotal|MemAvailable|HugePages_Total|HugePages_Free|Hugepagesize): +([0-9]+).*/memory \1 \2/p' \
        "$root/proc/meminfo" 2>/dev/null
}

setting() {
    value=$(head -n 1 "$root$2" 2>/dev/null) # not `read`: some shells take single bytes, which these files do not give
    [ -z "$value" ] || echo "setting $1 $value"
}

# Under a root prefix only programs from beneath it count: this machine's resolver knows nothing of that host.
have() {
    found=$(command -v "$1") || return 1
    case $found in "$root"/*) return 0 ;; *) return 1 ;; esac
}

# The one question to a name server that is asked here; a dead one costs three seconds, and is told apart from a no.
own_name() {
    name=
    if [ -n "$root" ]; then
        { read -r name <"$root/proc/sys/kernel/hostname"; } 2>/dev/null
    else
        name=$(uname -n)
    fi
    case $name in '' | *[!A-Za-z0-9._-]* | -*) return 0 ;; esac
    echo "name $name"
    if have getent; then
        answer=$(timeout 3 getent ahosts "$name" 2>/dev/null)
        code=$?
    elif [ -r "$root/etc/hosts" ]; then
        answer=$(sed -n "s/#.*//;s/\$/ /;/[[:space:]]${name}[[:space:]]/p" "$root/etc/hosts")
        code=2
    else
        return 0
    fi
    if [ -n "$answer" ]; then
        printf '%s\n' "$answer" | sed -nE 's/^([0-9A-Fa-f:.]+)[^[:space:]]*[[:space:]].*/named \1/p' | uniq | head -n 64
    elif [ "$code" -eq 2 ]; then
        echo 'unnamed not-found'
    else
        echo "unnamed no-answer"
    fi
}

limits
memory
setting numa_balancing /proc/sys/kernel/numa_balancing
setting dmesg_restrict /proc/sys/kernel/dmesg_restrict
setting ip_local_port_range /proc/sys/net/ipv4/ip_local_port_range
setting ip_local_reserved_ports /proc/sys/net/ipv4/ip_local_reserved_ports
setting governor /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
setting transparent_hugepage /sys/kernel/mm/transparent_hugepage/enabled
own_name
exit 0
