#!/bin/sh
# Lines of this boot's kernel log that name the GPU, the fabric, the adapters, or a sick kernel.
# Arguments: root state_dir rights. Reading it may need a right: `rights` "sudo" allows `sudo -n`.
#
# Prints: source journalctl|dmesg, read LINES (that it had in all), denied WHY, failed WHY, cut, and `| LINE` for each
# line. Those of the driver have a share of their own, so that a flood of others cannot push them out.

root=$1 rights=${3-}
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL
limit_s=8
share=600
driver='Xid|NVRM'
others='mlx5|[Nn][Vv][Ll]ink|nvidia|[Ff]abric|oom-kill|Out of memory|Killed process|soft lockup|hard LOCKUP'
others="$others|blocked for more than|nfs: |NFS: |I/O error|Remounting filesystem read-only|EXT4-fs error|XFS .*[Ee]rror"
others="$others|nvme.*(timeout|reset)|file-max limit|segfault at|peermem|insufficient power|High Temperature|PCIe Bus Error"

# Under a root prefix only programs from beneath it count: this machine's own log knows nothing of that host.
have() {
    found=$(command -v "$1") || return 1
    case $found in "$root"/*) return 0 ;; *) return 1 ;; esac
}

may_sudo() {
    [ "$rights" = sudo ] && [ "$(id -u)" != 0 ] && command -v sudo >/dev/null
}

# What the program complains of as `! LINE`, then the lines that matter as `| LINE`, then the number of all lines of the
# log. In this order, since the complaints are done before the log has its end: their writers hold the log's pipe too.
ask() {
    {
        { timeout -k 2 "$limit_s" "$@" 2>&1 >&3 </dev/null | head -c 4096 | tr -d '\r' | sed 's/^/! /' >&4; } 3>&1 |
            sed -nE -e "\,$driver|$others,s/^/| /p" -e '$=' | tail -n 20000 | tail -c 2000000
    } 4>&1
}

# Sets said, lines and complaint.
read_from() {
    said=$(ask "$@")
    lines=$(printf '%s\n' "$said" | tail -n 1)
    case $lines in *[!0-9]* | '') lines=0 ;; esac
    complaint=$(printf '%s\n' "$said" | sed -n 's/^! //p' | head -n 3 | tr '\n' ' ')
    matches=$(printf '%s\n' "$said" | grep '^| ')
}

denied() {
    case $1 in *[Pp]ermi* | *'not seeing messages'* | *'password is required'* | *'not allowed'*) return 0 ;; esac
    return 1
}

show() {
    echo "source $1"
    echo "read $lines"
    [ "$(printf '%s\n' "$matches" | grep -cE "$driver")" -le "$share" ] || echo 'cut '
    printf '%s\n' "$matches" | grep -E "$driver" | tail -n "$share"
    [ "$(printf '%s\n' "$matches" | grep -cvE "$driver")" -le "$share" ] || echo 'cut '
    printf '%s\n' "$matches" | grep -vE "$driver" | grep '^| ' | tail -n "$share"
    exit 0
}

# A log that tells nothing and complains of a right is not an empty log.
try() {
    program=$1
    have "$program" || return 0
    if may_sudo; then
        read_from sudo -n "$@"
        [ "$lines" -le 1 ] || show "$program"
    fi
    read_from "$@"
    if [ -n "$matches" ] || { [ "$lines" -gt 1 ] && ! denied "$complaint"; }; then show "$program"; fi
    if denied "$complaint"; then
        echo "denied $program: $complaint"
        hidden=yes
    elif [ -n "$complaint" ]; then
        echo "failed $program: $complaint"
    else
        empty=$program
    fi
}

empty='' hidden=''
# Not -q: that hides the words by which it says that it may not look.
try journalctl -k -b -o short-monotonic --no-pager
try dmesg
# A kernel that has said nothing at all is hardly to be believed, and not where somebody may not look.
if [ -n "$empty" ] && [ -z "$hidden" ]; then echo "source $empty" && echo "read $lines"; fi
exit 0
