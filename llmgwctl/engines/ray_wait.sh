#!/bin/sh
# Becomes the server of a replica once its Ray cluster has all its GPUs: started earlier, it sits in a placement group
# for half an hour and says nothing.
# Arguments: RAY ADDRESS GPUS LIMIT_S PROGRAM ARGUMENT...

ray=$1 address=$2 wanted=$3 limit=$4
shift 4

now() {
    read -r up _ </proc/uptime
    up=${up%%.*}
}

# A line of `ray status` reads " 0.0/8.0 GPU".
joined() {
    timeout 60 "$ray" status --address "$address" 2>/dev/null | sed -n 's|^.*/\([0-9]*\)[0-9.]* GPU *$|\1|p' | head -n 1
}

now
end=$((up + limit)) before=-1
while :; do
    gpus=$(joined)
    case $gpus in '' | *[!0-9]*) gpus=0 ;; esac
    [ "$gpus" -lt "$wanted" ] || break
    if [ "$gpus" -ne "$before" ]; then
        echo "llmgwctl: the Ray cluster at $address has $gpus of $wanted GPUs, waiting for the rest"
        before=$gpus
    fi
    now
    if [ "$up" -ge "$end" ]; then
        echo "llmgwctl: after $limit s the Ray cluster at $address still has $gpus of $wanted GPUs" >&2
        exit 1
    fi
    sleep 1
done
exec "$@"
