#!/bin/sh
# Becomes the all-reduce under the Python that a program of an engine runs under, since that one has torch.
# Arguments: PROGRAM ARGUMENT...     PROGRAM is a Python script, a Python, or a name on PATH
. ./python_of.sh

fail() {
    printf '\nllmgwctl-all-reduce {"rank": -1, "failed": "import", "why": "%s"}\n' "$1"
    exit 127
}

program=$1
shift
case $program in \~/*) program=$HOME/${program#??} ;; esac
program=$(command -v "$program") || fail 'the program of the engine is not there'
python=$(python_of "$program")
[ -n "$python" ] || fail 'the program of the engine does not say which Python runs it'
exec "$python" all_reduce_run.py "$@"
