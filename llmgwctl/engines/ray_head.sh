#!/bin/sh
# Becomes the head of a Ray cluster. Its client server, which nobody here uses, cannot be switched off: where it can run,
# it takes port 10001 of the host unless it is given one, and where it cannot, Ray refuses to be given one.
# Arguments: RAY PORT ARGUMENT...
. ./python_of.sh

ray=$(command -v "$1") || {
    echo "llmgwctl: no program $1: vLLM has not brought Ray with it since 0.18, pip install ray" >&2
    exit 127
}
port=$2
shift 2
if "$(python_of "$ray")" -c 'import grpc' 2>/dev/null; then set -- "$@" "--ray-client-server-port=$port"; fi
exec "$ray" start "$@"
