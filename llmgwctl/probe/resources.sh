#!/bin/sh
# Limits of this account, memory, and kernel settings that matter to NCCL and to ports. Arguments: root state_dir.
#
# Prints one fact a line: limit NAME|SOFT|HARD, memory KEY KB, setting NAME VALUE.

root=$1
LC_ALL=C
export LC_ALL

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

limits
memory
setting numa_balancing /proc/sys/kernel/numa_balancing
setting dmesg_restrict /proc/sys/kernel/dmesg_restrict
setting ip_local_port_range /proc/sys/net/ipv4/ip_local_port_range
setting ip_local_reserved_ports /proc/sys/net/ipv4/ip_local_reserved_ports
setting governor /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
setting transparent_hugepage /sys/kernel/mm/transparent_hugepage/enabled
exit 0
