#!/bin/sh
# Where sshd does not forward: what the controller would have asked through the connection is asked here.
#
#   listens ADDRESS PORT         prints yes or no
#   http URL LIMIT_S             payload: a curl configuration (header, body: nothing of it on a command line);
#                                prints a line `answer`, the body and, on a line of its own, the status; exits 14
#                                where curl is missing
. ./lib.sh

# An IPv4 address as /proc/net/tcp has it on this machine.
hex() {
    set -- "$(echo "$1" | tr . ' ')"
    # shellcheck disable=SC2086 # four numbers
    set -- $1
    if [ "$(printf '\001\000' | od -An -tu2 | tr -d ' ')" = 1 ]; then set -- "$4" "$3" "$2" "$1"; fi
    printf '%02X%02X%02X%02X' "$@"
}

# State 0A is LISTEN. On IPv6 the port alone decides.
listens() {
    case $1 in
        *:*) want='[0-9A-F]*' ;;
        *[!0-9.]* | '') die 2 "no address: $1" ;;
        *) want="\\($(hex "$1")\\|00000000\\)" ;;
    esac
    port=$(printf '%04X' "$2")
    if cut -d: -f2- /proc/net/tcp | grep -q "^ $want:$port [0-9A-F]*:[0-9A-F]* 0A" ||
        { [ -r /proc/net/tcp6 ] && cut -d: -f2- /proc/net/tcp6 | grep -q "^ [0-9A-F]*:$port [0-9A-F]*:[0-9A-F]* 0A"; }; then
        echo yes
    else
        echo no
    fi
}

http() {
    command -v curl >/dev/null || die "$GONE" "curl is not on $(uname -n)"
    case $1 in http://*) ;; *) die 2 "no URL of ours: $1" ;; esac
    echo answer # before it may stand what a login shell's files print
    curl -q -sS --noproxy '*' --max-time "$2" --max-filesize 1048576 -w '\n%{http_code}\n' -K - -- "$1"
}

verb=$3
shift 3
case $verb in
    listens | http) "$verb" "$@" ;;
    *) die 2 "ask.sh: no verb $verb" ;;
esac
