#!/bin/sh
# nvidia-fabricmanager: its unit, its configuration, its version, and the NVSwitches that PCI shows.
# Arguments: root state_dir. Nothing is started, changed or connected to.
#
# Prints one fact a line: uptime SECONDS, unit KEY=VALUE, config present|absent|unreadable, set KEY=VALUE, version TEXT,
# switches N, nvlsm yes|no, ib_umad yes|no.

root=$1
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL

# Under a root prefix only programs from beneath it count: this machine's own systemd knows nothing of that host.
have() {
    found=$(command -v "$1") || return 1
    case $found in "$root"/*) return 0 ;; *) return 1 ;; esac
}

unit() {
    have systemctl || return 0
    timeout -k 1 5 systemctl show -p LoadState -p ActiveState -p SubState -p UnitFileState -p Result \
        -p StateChangeTimestampMonotonic nvidia-fabricmanager.service 2>/dev/null | head -n 10 | sed 's/^/unit /'
}

config() {
    file=$root/usr/share/nvidia/nvswitch/fabricmanager.cfg
    if [ ! -e "$file" ]; then
        echo 'config absent'
    elif [ ! -f "$file" ] || [ ! -r "$file" ]; then
        echo 'config unreadable'
    else
        echo 'config present'
        head -c 65536 "$file" | tr -d '\r' |
            sed -nE 's/^[[:space:]]*(FABRIC_MODE|FM_STAY_RESIDENT_ON_FAILURES)[[:space:]]*=[[:space:]]*([^#[:space:]]*).*/set \1=\2/p'
    fi
}

version() {
    have nv-fabricmanager || return 0
    said=$(timeout -k 1 5 nv-fabricmanager --version 2>/dev/null | head -n 1 | cut -c 1-200)
    echo "version $said"
}

switches() {
    [ -d "$root/sys/bus/pci/devices" ] || return 0
    count=0
    for device in "$root"/sys/bus/pci/devices/*; do
        vendor='' class=''
        { read -r vendor <"$device/vendor" && read -r class <"$device/class"; } 2>/dev/null
        case $vendor$class in 0x10de0x0680*) count=$((count + 1)) ;; esac
    done
    echo "switches $count"
}

# NAME PATH
there() {
    if [ -e "$root$2" ]; then echo "$1 yes"; else echo "$1 no"; fi
}

{ read -r uptime _ <"$root/proc/uptime" && echo "uptime $uptime"; } 2>/dev/null
unit
config
version
switches
there nvlsm /opt/nvidia/nvlsm/sbin/nvlsm
there ib_umad /sys/module/ib_umad
exit 0
