# shellcheck shell=sh
# Put in place of the line that names it. The interpreter of a Python program, which may itself be one: the first line of
# a script says it, or the second when its path was too long for the first: '''exec' "/its/python" "$0" "$@"
python_of() {
    case ${1##*/} in python*) echo "$1" && return ;; esac
    head -c 1024 "$1" | tr -d '\000' | sed -n \
        -e '1s|^#! */usr/bin/env  *\(python[0-9.]*\).*|\1|p' \
        -e '1s|^#! *\(/[^ ]*python[0-9.]*\).*|\1|p' \
        -e "2s|^'''exec' \"\{0,1\}\(/[^\"]*python[0-9.]*\)\"\{0,1\} .*|\1|p" | head -n 1
}
