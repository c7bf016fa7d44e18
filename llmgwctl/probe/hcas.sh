#!/bin/sh
# RDMA adapters from sysfs. Arguments: root state_dir rights. Nothing is sent and no counter is read; `rights` "sudo"
# allows `sudo -n` for the one file that is root's alone.
#
# Prints one fact a line; what follows `hca` belongs to it, what follows `port` to that port:
#   hca NAME · is KEY VALUE (node_guid, sys_image_guid, hca_type, fw_ver, board_id, numa_node, pci) ·
#   netdev NAME [bond] [bridge] · virtual yes · vpd switch-management|other|unreadable
#   port NUMBER · has KEY VALUE (state, phys_state, rate, link_layer, lid, sm_lid) · gid INDEX GID NETDEV|- TYPE ·
#   pkey VALUE
# A port has 256 places for GIDs, nearly all zero: they are passed over in one go, and files are read without forks.

root=$1 rights=${3-}
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL
max_hcas=512
no_gid='0000:0000:0000:0000:0000:0000:0000:0000'

# Sets `line`; empty slots of gid_attrs fail with EINVAL when they are read.
line_of() {
    line=
    { read -r line <"$1"; } 2>/dev/null
}

say() {
    line_of "$3"
    [ -z "$line" ] || printf '%s %s %s\n' "$1" "$2" "$line"
}

hca() {
    printf 'hca %s\n' "${1##*/}"
    for key in node_guid sys_image_guid hca_type fw_ver board_id; do say is "$key" "$1/$key"; done
    device=$(cd -P "$1/device" 2>/dev/null && pwd -P)
    [ -z "$device" ] || of_device "$device"
    for port in "$1"/ports/*; do
        [ ! -d "$port" ] || one_port "$port"
    done
}

of_device() {
    printf 'is pci %s\n' "${1##*/}"
    say is numa_node "$1/numa_node"
    [ ! -e "$1/physfn" ] || echo 'virtual yes'
    for net in "$1"/net/*; do
        [ ! -e "$net" ] || netdev "${net##*/}"
    done
    vpd "$1/vpd"
}

# A bond's member carries `master`, and so does a port of a bridge; Open vSwitch's bridge has no `bridge` directory.
netdev() {
    kind=''
    home=$root/sys/class/net/$1
    for bond in "$home/bonding" "$home/master/bonding"; do
        [ ! -d "$bond" ] || kind=' bond'
    done
    master=
    [ ! -e "$home/master" ] || master=$(cd -P "$home/master" 2>/dev/null && pwd -P)
    if [ -d "$home/master/bridge" ]; then
        kind="$kind bridge"
    else
        case ${master##*/} in ovs-*) kind="$kind bridge" ;; esac
    fi
    echo "netdev $1$kind"
}

# Vital product data tells the functions that manage NVSwitches from those that carry data; mostly for root alone.
vpd() {
    if [ -r "$1" ]; then
        words=$(timeout 5 head -c 4096 "$1" 2>/dev/null | tr -cd '[:print:]')
    elif [ "$rights" = sudo ] && [ -e "$1" ]; then
        words=$(timeout 5 sudo -n head -c 4096 "$1" 2>/dev/null | tr -cd '[:print:]')
        [ -n "$words" ] || rights='' # it was refused, and will be
    else
        words=
    fi
    case $words in
        '') echo 'vpd unreadable' ;;
        *SW_MNG*) echo 'vpd switch-management' ;;
        *) echo 'vpd other' ;;
    esac
}

one_port() {
    printf 'port %s\n' "${1##*/}"
    for key in state phys_state rate link_layer lid sm_lid; do say has "$key" "$1/$key"; done
    grep -Hv "^$no_gid\$" "$1"/gids/* 2>/dev/null | while IFS=: read -r path gid; do
        index=${path##*/}
        line_of "$1/gid_attrs/ndevs/$index"
        ndev=$line
        line_of "$1/gid_attrs/types/$index"
        printf 'gid %s %s %s %s\n' "$index" "$gid" "${ndev:--}" "$line"
    done
    grep -hv '^0x0000$' "$1"/pkeys/* 2>/dev/null | head -n 128 | sed 's/^/pkey /'
}

if [ ! -d "$root/sys/class/infiniband" ]; then
    echo none
    exit 0
fi
count=0
for home in "$root"/sys/class/infiniband/*; do
    [ -d "$home" ] || continue
    count=$((count + 1))
    [ "$count" -le "$max_hcas" ] || break
    hca "$home"
done
echo end
