#!/bin/sh
# NUMA nodes, and the node of each NVIDIA display card, from sysfs. Arguments: root state_dir.
#
# Prints one fact a line: node NUMBER MEMORY_KB|- CPULIST (nothing where it has none), pci ADDRESS NODE.

root=$1
LC_ALL=C
export LC_ALL
max_nodes=1024

line_of() {
    line=
    { read -r line <"$1"; } 2>/dev/null
}

memory_of() {
    memory=-
    while read -r _ _ key amount _; do
        [ "$key" != MemTotal: ] || memory=$amount
    done <"$1"
}

count=0
for directory in "$root"/sys/devices/system/node/node[0-9]*; do
    [ -d "$directory" ] || continue
    count=$((count + 1))
    [ "$count" -le "$max_nodes" ] || break
    memory=-
    [ ! -r "$directory/meminfo" ] || memory_of "$directory/meminfo"
    line=$(head -n 1 "$directory/cpulist" 2>/dev/null) # some shells read by single bytes, which this file does not give
    echo "node ${directory##*/node} $memory $line"
done
for directory in "$root"/sys/bus/pci/devices/*; do
    line_of "$directory/vendor"
    [ "$line" = 0x10de ] || continue
    line_of "$directory/class"
    case $line in 0x03*) ;; *) continue ;; esac
    line_of "$directory/numa_node"
    echo "pci ${directory##*/} $line"
done
exit 0
