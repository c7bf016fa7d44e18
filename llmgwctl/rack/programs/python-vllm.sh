#!/bin/sh
# The Python of a simulated host's vllm: it knows what is installed, and nothing else.
if [ "$1" = -c ]; then exec cat "${0%/*}/../share/llmgw-rack/vllm-versions"; fi
echo 'vllm: a simulated host has no vLLM that could run; place a profile of engine sim' >&2
exit 1
