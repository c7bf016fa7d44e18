#!/bin/sh
# What is installed beside a Python program, as lines "NAME VERSION". Its own interpreter is asked and imports nothing.
# Arguments: PROGRAM PACKAGE...     PROGRAM is a Python script, a Python, or a name on PATH
. ./python_of.sh

program=$(command -v "$1") || {
    echo "no program $1" >&2
    exit 127
}
shift
python=$(python_of "$program")
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
