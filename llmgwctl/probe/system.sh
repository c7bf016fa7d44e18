#!/bin/sh
# The host itself, from /proc and the login shell. Arguments: root state_dir. Starts three small programs, no more.
#
# Prints one fact a line: node, kernel, boot_id, uptime, arch, account, limit NAME SOFT HARD UNIT, scheduler, stuck,
# driver present|absent, pci_gpus N, env NAME=VALUE. A value whose name looks like a secret never leaves the host.

root=$1
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL
families='NCCL_|GLOO_|UCX_|NVSHMEM_|MC_|NIXL_|VLLM_|SGLANG_|RAY_|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER'
families="$families|NVIDIA_VISIBLE_DEVICES|TP_SOCKET_IFNAME|HOST_IP|MASTER_ADDR|MASTER_PORT|RANK|WORLD_SIZE|LOCAL_RANK"

first_line() {
    line=
    { read -r line <"$1"; } 2>/dev/null
    [ -z "$line" ] || printf '%s %s\n' "$2" "$line"
}

identity() {
    if [ -n "$root" ]; then
        first_line "$root/proc/sys/kernel/hostname" node
    else
        printf 'node %s\n' "$(uname -n)"
    fi
    first_line "$root/proc/sys/kernel/random/boot_id" boot_id
    first_line "$root/proc/uptime" uptime
    first_line "$root/proc/sys/kernel/osrelease" kernel
    printf 'arch %s\n' "$(uname -m)"
    printf 'account %s\n' "$(id -un 2>/dev/null || id -u)"
}

# This shell's own limits, which a shard that is started in the same way will have. A simulated host has its own word:
# what an account may lock on somebody's laptop says nothing of the machine that it plays.
limits() {
    table=/proc/self/limits
    if [ -n "$root" ] && [ -r "$root/proc/self/limits" ]; then table=$root/proc/self/limits; fi
    while read -r a b c soft hard unit; do
        case "$a $b $c" in
        'Max locked memory') echo "limit memlock $soft $hard $unit" ;;
        'Max open files') echo "limit nofile $soft $hard $unit" ;;
        'Max stack size') echo "limit stack $soft $hard $unit" ;;
        esac
    done <"$table"
}

# $1: what /proc/PID/stat says behind the name. In D state nobody can wake it, but a moment of that is normal, and so is a
# first call that waits for another's to set up the driver: it hangs when it began half a minute ago or more. The 20th of
# these fields is when, in hundredths of a second since the boot.
hangs() {
    up=
    { read -r up _ <"$root/proc/uptime"; } 2>/dev/null
    up=${up%%.*}
    # shellcheck disable=SC2086 # the fields are words
    set -- $1
    [ "$1" = D ] && [ $((${up:-30} - ${20:-0} / 100)) -ge 30 ]
}

# One pass over the process table without starting anything. A name says nothing of an account's rights, so it is only
# reported.
processes() {
    for directory in "$root"/proc/[0-9]*; do
        comm=
        { read -r comm <"$directory/comm"; } 2>/dev/null
        case $comm in
        slurmd | kubelet) echo "scheduler $comm" ;;
        nvidia-smi)
            stat=
            { read -r stat <"$directory/stat"; } 2>/dev/null
            if hangs "${stat##*) }"; then echo "stuck nvidia-smi ${directory##*/}"; fi
            ;;
        esac
    done
}

driver() {
    if [ -d "$root/proc/driver/nvidia" ]; then echo "driver present"; else echo "driver absent"; fi
    [ -d "$root/sys/bus/pci/devices" ] || return 0
    cards=0
    for device in "$root"/sys/bus/pci/devices/*; do
        vendor='' class=''
        { read -r vendor <"$device/vendor" && read -r class <"$device/class"; } 2>/dev/null
        case $vendor$class in 0x10de0x03*) cards=$((cards + 1)) ;; esac
    done
    echo "pci_gpus $cards"
}

environment() {
    env -0 2>/dev/null | tr '\n\000' ' \n' | grep -E "^(${families})[A-Za-z0-9_]*=" | head -n 500 | cut -c 1-4000 |
        sed -E -e 's/^([A-Za-z0-9_]*(KEY|TOKEN|SECRET|PASSW|CREDENTIAL)[A-Za-z0-9_]*)=.*/\1=(hidden)/' -e 's/^/env /'
}

identity
limits
processes
driver
environment
exit 0
