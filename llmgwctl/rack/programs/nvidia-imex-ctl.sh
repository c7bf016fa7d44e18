#!/bin/sh
# nvidia-imex-ctl of a simulated tray: what was rendered for it, with the real program's exit codes.
here=${0%/*}/../share/llmgw-rack/nvidia-imex-ctl
config=${0%/*}/../../etc/nvidia-imex/config.cfg

if ! [ -r "$config" ]; then
    echo 'Unable to open configuration file at /etc/nvidia-imex/config.cfg' >&2
    exit 1
fi
asked=N
for word; do
    case $word in
        -q) asked=q ;;
        -N | -n) ;;
        -j) [ "$asked" = q ] || asked=N-j ;;
        -H) [ "$asked" = N ] && asked=N-H ;;
        *)
            echo "ERROR: Unknown command line flag '${word#-}'" >&2
            exit 1
            ;;
    esac
done
cat "$here/$asked.out"
[ -s "$here/$asked.err" ] && cat "$here/$asked.err" >&2
read -r code <"$here/$asked.rc"
exit "$code"
