#!/bin/sh
# One all-reduce over all GPUs of this host with nccl-tests, where they are installed. Arguments: root state_dir rights GPUS.
# Runs within the limit of its section, as its only child, and leaves nothing.
#
# Prints: absent, or the lines of all_reduce_perf and `exit CODE`.

root=$1
gpus=$4
PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/opt/nccl-tests/build:/usr/local/nccl-tests/build:/opt/nccl_tests/build
LC_ALL=C
export PATH LC_ALL
unset CUDA_VISIBLE_DEVICES

program=$(command -v all_reduce_perf)
case $program in
    "$root"/*) ;;
    *)
        echo absent
        exit 0
        ;;
esac
"$program" -b 64M -e 512M -f 2 -g "$gpus" -n 20 -w 5 -c 1 </dev/null 2>&1 | tail -n 100
echo end
