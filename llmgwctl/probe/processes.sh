#!/bin/sh
# Processes of user space: pid, state, user id and name. Arguments: root state_dir.
#
# Prints one fact a line: process PID STATE COMMAND, owner PID UID, user UID NAME. Nothing of arguments or environments
# is read, so nobody's secret can be in it. Kernel threads are left out.

root=$1
PATH=${PATH:+$PATH:}/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
LC_ALL=C
export PATH LC_ALL
max_processes=8192
max_users=256

# `pid (name) S ppid ...`: the name may hold blanks and brackets. 2 is the parent of all kernel threads.
one() {
    stat=
    { read -r stat <"$1/stat"; } 2>/dev/null
    [ -n "$stat" ] || return 0
    name=${stat#*\(}
    name=${name%\)*}
    # shellcheck disable=SC2086 # the fields behind the name
    set -- "${1##*/}" ${stat##*) }
    [ "${3:-0}" != 2 ] && [ "$1" != 2 ] || return 0
    echo "$1 $2 $name"
}

all() {
    for directory in "$root"/proc/[0-9]*; do
        one "$directory"
    done | head -n "$max_processes"
}

# One `stat` for all of them: the owner of /proc/PID is the effective user of the process.
owners() {
    printf '%s\n' "$1" | while read -r pid _; do
        printf '%s\n' "$root/proc/$pid"
    done | xargs stat -c '%n %u' 2>/dev/null | sed 's|^.*/\([0-9]*\) |\1 |'
}

# Names from the file; from getent where the file lacks one, within a limit: a directory server may be dead.
user_of() {
    name=$(sed -n "s/^\([^:]*\):[^:]*:$1:.*/\1/p" "$root/etc/passwd" 2>/dev/null | head -n 1)
    [ -n "$name" ] || [ -n "$root" ] || name=$(timeout 3 getent passwd "$1" 2>/dev/null | sed 's/:.*//')
    [ -z "$name" ] || echo "user $1 $name"
}

found=$(all)
owned=$(owners "$found")
printf '%s\n' "$found" | sed 's/^/process /'
printf '%s\n' "$owned" | sed 's/^/owner /'
printf '%s\n' "$owned" | sed 's/.* //' | sort -un | head -n "$max_users" | while read -r uid; do
    [ -z "$uid" ] || user_of "$uid"
done
exit 0
