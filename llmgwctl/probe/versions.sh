#!/bin/sh
# What is installed and loaded: driver, CUDA, kernel, IMEX, container runtimes. Arguments: root state_dir.
#
# Prints one fact a line: loaded LINE (of /proc/driver/nvidia/version), on_disk VERSION, library FILE, kernel RELEASE,
# os NAME, imex TEXT, cuda FOLDER VERSION, runtime NAME TEXT, module NAME VERSION|-, reboot PACKAGES.

root=$1
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL

# Under a root prefix only programs from beneath it count.
have() {
    found=$(command -v "$1") || return 1
    case $found in "$root"/*) return 0 ;; *) return 1 ;; esac
}

line_of() {
    line=
    { read -r line <"$1"; } 2>/dev/null
}

# NAME WORDS...: the first line that a program says of itself, within a limit.
says() {
    kind=$1
    shift
    have "$1" || return 0
    said=$(timeout -k 1 4 "$@" </dev/null 2>/dev/null | grep -m 1 '[0-9]' | cut -c 1-200)
    echo "$kind $said"
}

driver() {
    line_of "$root/proc/driver/nvidia/version"
    [ -z "$line" ] || echo "loaded $line"
    says on_disk modinfo -F version nvidia
    for file in "$root"/usr/lib/*/libnvidia-ml.so.[1-9][0-9]* "$root"/usr/lib64/libnvidia-ml.so.[1-9][0-9]* \
        "$root"/usr/lib/libnvidia-ml.so.[1-9][0-9]*; do
        [ ! -e "$file" ] || echo "library ${file##*/}"
    done
}

cuda() {
    for directory in "$root"/usr/local/cuda*; do
        [ ! -L "$directory" ] || continue
        [ -r "$directory/version.json" ] || continue
        version=$(head -c 4096 "$directory/version.json" | tr -d '\n' |
            sed -nE 's/.*"cuda" *: *\{[^}]*"version" *: *"([0-9.]+)".*/\1/p')
        echo "cuda ${directory##*/} ${version:--}"
    done
}

modules() {
    for name in nvidia nvidia_uvm nvidia_peermem gdrdrv mlx5_core ib_core ib_umad rdma_cm; do
        [ -d "$root/sys/module/$name" ] || continue
        line_of "$root/sys/module/$name/version"
        echo "module $name ${line:--}"
    done
}

# Debian and its kin leave word of an update that needs a reboot; others leave none, which says nothing.
reboot() {
    [ -e "$root/run/reboot-required" ] || return 0
    echo "reboot $(head -c 2000 "$root/run/reboot-required.pkgs" 2>/dev/null | sort -u | tr '\n' ' ')"
}

driver
line_of "$root/proc/sys/kernel/osrelease"
echo "kernel $line"
sed -n 's/^PRETTY_NAME="\{0,1\}\([^"]*\)"\{0,1\}$/os \1/p' "$root/etc/os-release" 2>/dev/null | head -n 1
says imex nvidia-imex --version
cuda
for program in docker podman nerdctl containerd runc apptainer singularity nvidia-ctk nvidia-container-cli; do
    says "runtime $program" "$program" --version
done
says 'runtime enroot' enroot version
modules
reboot
exit 0
