#!/bin/sh
# The version of a llama.cpp build, as lines "NAME VERSION".
# Arguments: LLAMA-SERVER

program=$(command -v "$1") || {
    echo "no program $1" >&2
    exit 127
}
"$program" --version 2>&1 | sed -n 's/^version: /llama.cpp /p'
