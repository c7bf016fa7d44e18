#!/bin/sh
# Becomes the RPC worker of llama.cpp, whatever this build calls it: ggml-rpc-server since 2026-06, rpc-server before.
# Arguments: FOLDER ARGUMENT...     FOLDER ends in "/"; empty: where PATH finds it

folder=$1
shift
for name in ggml-rpc-server rpc-server llama-rpc-server; do
    if found=$(command -v "$folder$name"); then exec "$found" "$@"; fi
done
echo "llmgwctl: no ggml-rpc-server or rpc-server in ${folder:-PATH}: build llama.cpp with -DGGML_RPC=ON" >&2
exit 127
