#!/bin/sh
# journalctl (and dmesg) of a simulated host: its kernel log, and nothing of any unit.
here=${0%/*}/../share/llmgw-rack
case " $* " in
    *' -u '* | *' --unit'*) echo '-- No entries --' ;;
    *) cat "$here/kernel-log" ;;
esac
