#!/bin/sh
# Files from which NCCL takes settings that no environment shows. Arguments: root state_dir.
#
# Prints: file PATH present|unreadable, and for each setting of the file above it: set NAME=VALUE.

root=$1
LC_ALL=C
export LC_ALL

# PATH as it is said, FILE as it is here. A value whose name looks like a secret never leaves the host.
show() {
    [ -e "$2" ] || return 0
    if [ ! -f "$2" ] || [ ! -r "$2" ]; then
        echo "file $1 unreadable"
        return 0
    fi
    echo "file $1 present"
    head -c 65536 "$2" | tr -d '\r\000' | sed -nE -e 's/^[[:space:]]*([A-Za-z_][A-Za-z0-9_]*)[[:space:]]*=/set \1=/p' |
        sed -E 's/^(set [A-Za-z0-9_]*(KEY|TOKEN|SECRET|PASSW|CREDENTIAL)[A-Za-z0-9_]*)=.*/\1=(hidden)/' |
        cut -c 1-1000 | head -n 500
}

show /etc/nccl.conf "$root/etc/nccl.conf"
# shellcheck disable=SC2088 # as people write it
[ -z "${HOME:-}" ] || show '~/.nccl.conf' "$HOME/.nccl.conf"
[ -z "${NCCL_CONF_FILE:-}" ] || show "$NCCL_CONF_FILE" "$NCCL_CONF_FILE"
echo 'end .'
