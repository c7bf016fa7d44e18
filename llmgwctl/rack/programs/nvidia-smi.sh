#!/bin/sh
# nvidia-smi of a simulated host: what was rendered for it, with the real program's exit codes.
here=${0%/*}/../share/llmgw-rack/nvidia-smi

answer() {
    cat "$here/$1.out"
    [ -s "$here/$1.err" ] && cat "$here/$1.err" >&2
    read -r code <"$here/$1.rc"
    exit "$code"
}

query() {
    awk -v fields="$fields" -v format="$format" -f "$here/../query.awk" "$here/$1.tsv" || exit
    answer csv
}

read -r how seconds <"$here/behaviour"
case $how in
    hang) exec sleep 86400 ;;
    slow) sleep "$seconds" ;;
esac

fields='' format=''
for word; do
    case $word in
        --query-gpu=* | --query-compute-apps=*) fields=${word#*=} ;;
        --format=*) format=${word#*=} ;;
    esac
done

case "$*" in
    *--query-gpu=*) query gpus ;;
    *--query-compute-apps=*) query apps ;;
    -q | --query) answer q ;;
    'topo -m' | 'topo --matrix') answer topo-m ;;
    'nvlink -s' | 'nvlink --status') answer nvlink-s ;;
    -L | --list-gpus) answer L ;;
    --version) answer version ;;
    '') answer table ;;
esac
echo "nvidia-smi of a simulated host does not know: $*" >&2
exit 2
