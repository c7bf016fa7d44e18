#!/bin/sh
# The version of the python3 that PATH finds, which runs sim_server.py, as a line "python3 VERSION".

command -v python3 >/dev/null || {
    echo 'no program python3' >&2
    exit 127
}
exec python3 -c 'import sys; print("python3 %d.%d.%d" % sys.version_info[:3])'
