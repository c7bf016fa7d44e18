#!/bin/sh
# What a host has at a model's path: names and sizes, nothing of the contents. Arguments: root state_dir rights PATH.
#
# Prints: path absent|unreadable|file|folder, file SIZE NAME, indexed NAME (of the weights index), end.

root=$1
path=$4
LC_ALL=C
export LC_ALL
max_files=5000

some() {
    for file; do
        [ ! -e "$file" ] || return 0
    done
    return 1
}

# A repository has an index for each format, and often only one of the formats was brought: that one's index counts.
index() {
    if some "$root$path"/*.safetensors; then
        echo "$root$path/model.safetensors.index.json"
    elif some "$root$path"/pytorch_model*.bin || [ ! -e "$root$path/model.safetensors.index.json" ]; then
        echo "$root$path/pytorch_model.bin.index.json"
    else
        echo "$root$path/model.safetensors.index.json"
    fi
}

if [ ! -e "$root$path" ]; then
    echo 'path absent'
elif [ ! -r "$root$path" ]; then
    echo 'path unreadable'
elif [ -d "$root$path" ]; then
    echo 'path folder'
    stat -L -c 'file %s %n' "$root$path"/* 2>/dev/null | sed 's|^\(file [0-9]* \).*/|\1|' | head -n "$max_files"
    index=$(index)
    [ ! -r "$index" ] || head -c 33554432 "$index" | tr ',{' '\n' |
        sed -nE 's/.*: *"([^"/]*\.(safetensors|bin))".*/indexed \1/p' | sort -u | head -n "$max_files"
else
    echo 'path file'
    stat -L -c 'file %s %n' "$root$path" | sed 's|^\(file [0-9]* \).*/|\1|'
fi
echo end
