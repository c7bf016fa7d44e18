#!/bin/sh
# Becomes one command of a shard, in the shard's directory: inherited variables removed, the engine's file sourced,
# the shard's environment set, then exec. Its arguments: the index of the command, and which file has its words.

command_index=$1 command_file=$2 shard_directory=$PWD
set --

# A family that ends in _ is a prefix; else it is one name.
while IFS= read -r family; do
    case $family in
        *_)
            for name in $(tr '\000' '\n' <"/proc/$$/environ" | sed -n "s/^\(${family}[A-Za-z0-9_]*\)=.*/\1/p"); do
                unset "$name"
            done
            ;;
        ?*) unset "$family" ;;
    esac
done <./unset

if [ -s source ]; then
    IFS= read -r engine_file <./source
    case $engine_file in \~/*) engine_file=$HOME/${engine_file#??} ;; esac
    # shellcheck disable=SC1090 # it is on the host
    . "$engine_file"
    set +eu
    cd "$shard_directory" || exit 1
fi

for file in env "cmd.$command_index/env"; do
    [ -e "$file" ] || continue
    while IFS= read -r line; do
        case $line in
            [A-Za-z_]*=*) export "${line?}" ;;
        esac
    done <"$file"
done

while IFS= read -r word; do set -- "$@" "$word"; done <"cmd.$command_index/$command_file"

case $1 in \~/*)
    word=$HOME/${1#??}
    shift
    set -- "$word" "$@"
    ;;
esac

# A command in the background of a shell ignores INT and QUIT, and its children with it; some engines stop by INT.
case $1 in
    *=*) exec "$@" ;;
esac
if env --default-signal=INT,QUIT true 2>/dev/null; then exec env --default-signal=INT,QUIT "$@"; fi
exec "$@"
