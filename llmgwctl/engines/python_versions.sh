#!/bin/sh
# What is installed beside a Python program, as lines "NAME VERSION". Its own interpreter is asked and imports nothing.
# Arguments: PROGRAM PACKAGE...     PROGRAM is a Python script, a Python, or a name on PATH

program=$(command -v "$1") || {
    echo "no program $1" >&2
    exit 127
}
shift

# The first line of a script, or the second when its path was too long for the first: '''exec' "/its/python" "$0" "$@"
interpreter() {
    case ${1##*/} in python*) echo "$1" && return ;; esac
    head -c 1024 "$1" | tr -d '\000' | sed -n \
        -e '1s|^#! */usr/bin/env  *\(python[0-9.]*\).*|\1|p' \
        -e '1s|^#! *\(/[^ ]*python[0-9.]*\).*|\1|p' \
        -e "2s|^'''exec' \"\{0,1\}\(/[^\"]*python[0-9.]*\)\"\{0,1\} .*|\1|p" | head -n 1
}

python=$(interpreter "$program")
if [ -z "$python" ]; then
    echo "$program does not say which Python runs it" >&2
    exit 1
fi
exec "$python" -c '
import importlib.metadata as metadata, platform, sys
print("python", platform.python_version())
for name in sys.argv[1:]:
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
' "$@"
