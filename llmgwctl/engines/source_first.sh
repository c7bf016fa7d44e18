# shellcheck shell=sh
# Stands before a version script where a build has a file to source. The file may want its own way with the shell, and
# its words are no answer. Arguments: FILE ARGUMENT...
engine_file=$1
shift
case $engine_file in \~/*) engine_file=$HOME/${engine_file#??} ;; esac
# shellcheck disable=SC1090 # it is on the host
. "$engine_file" >/dev/null
set +eu
