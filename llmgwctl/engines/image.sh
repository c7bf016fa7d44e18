#!/bin/sh
# What a host has of a container image. Arguments: docker|podman|enroot IMAGE
#
# Prints: runtime missing, or image missing, or digest TEXT, and a line env NAME=VALUE for each NCCL_ variable of its own.

runtime=$1 image=$2
command -v "$runtime" >/dev/null || {
    echo 'runtime missing'
    exit 0
}
if [ "$runtime" = enroot ]; then
    case $image in
        /*) size=$(stat -L -c %s "$image" 2>/dev/null) && echo "digest $size bytes" || echo 'image missing' ;;
        *) enroot list 2>/dev/null | grep -qxF -- "$image" && echo "digest $image" || echo 'image missing' ;;
    esac
    exit 0
fi
# What cannot be asked (no right to the daemon) is no missing image.
"$runtime" image ls -q >/dev/null || exit 1
format='{{range .RepoDigests}}{{println .}}{{else}}{{println .Id}}{{end}}'
found=$("$runtime" image inspect --format "$format" "$image" 2>/dev/null | sed '/^$/d' | sort | tr '\n' ' ')
if [ -z "$found" ]; then
    echo 'image missing'
    exit 0
fi
echo "digest ${found% }"
"$runtime" image inspect --format '{{range .Config.Env}}{{println .}}{{end}}' "$image" | sed -n 's/^\(NCCL_[A-Z0-9_]*=\)/env \1/p'
