#!/bin/sh
# The first process of a host: puts its files in their real places and becomes its sshd. Arguments: directory name
# SHARED..., folders of this machine that the host sees at the same path and cannot write.
# Runs in mount, pid, uts and network namespaces of its own, so that nothing here outlives the host.
set -e
dir=$1 name=$2
shift 2
hostname "$name"
for shared; do
    mkdir -p "$dir/shared$shared"
    mount --bind "$shared" "$dir/shared$shared"
done
mkdir -p "$dir/system"
mount --bind /sys/devices/system "$dir/system"

mount -t overlay overlay -o "lowerdir=$dir/usr:/usr" /usr
mount -t overlay overlay -o "lowerdir=$dir/etc:/etc" /etc
[ ! -d "$dir/tree/etc/nvidia-imex" ] || mount --bind "$dir/tree/etc/nvidia-imex" /etc/nvidia-imex
mount --bind "$dir/tree/sys" /sys
# What really computes here looks for the CPUs that it has.
for part in ${1:+cpu node}; do
    mkdir -p "/sys/devices/system/$part"
    mount --bind "$dir/system/$part" "/sys/devices/system/$part"
done
mount --bind "$dir/tree/proc/devices" /proc/devices
mount --bind "$dir/boot_id" /proc/sys/kernel/random/boot_id
# Some kernels have no /proc/driver, and nobody can make a directory there.
[ ! -d /proc/driver ] || mount --bind "$dir/tree/proc/driver" /proc/driver

mount -t tmpfs tmpfs "$dir/dev"
for device in null zero full random urandom tty; do
    touch "$dir/dev/$device"
    mount --bind "/dev/$device" "$dir/dev/$device"
done
mkdir "$dir/dev/pts" "$dir/dev/shm"
mount -t devpts devpts "$dir/dev/pts" -o newinstance,ptmxmode=0666
mount -t tmpfs tmpfs "$dir/dev/shm" -o mode=1777
ln -s pts/ptmx "$dir/dev/ptmx"
ln -s /proc/self/fd "$dir/dev/fd"
ln -s fd/0 "$dir/dev/stdin"
ln -s fd/1 "$dir/dev/stdout"
ln -s fd/2 "$dir/dev/stderr"
if [ -d "$dir/channels" ]; then
    mkdir "$dir/dev/nvidia-caps-imex-channels"
    mount --bind "$dir/channels" "$dir/dev/nvidia-caps-imex-channels"
fi
mount --rbind "$dir/dev" /dev

mount --bind "$dir/home" /home
mount --bind "$dir/root" /root
mount --bind "$dir/run" /run
mount --bind "$dir/vartmp" /var/tmp
mount --bind "$dir/tmp" /tmp
for shared; do
    mkdir -p "$shared"
    mount --bind "$dir/shared$shared" "$shared"
    mount -o remount,bind,ro "$shared"
done
cd /
exec /usr/sbin/sshd -D -e -f /etc/llmgw-e2e/sshd_config
