#!/bin/sh
# systemctl of a simulated host: show, is-active, is-enabled and status of the units that were rendered for it.
here=${0%/*}/../share/llmgw-rack/units

unit() {
    base=${1%.service} known=1
    file=$here/${base##*/}
    [ -r "$file" ] || file=$here/none known=''
}

value() { # value KEY: from $file
    while IFS='=' read -r key rest; do
        [ "$key" = "$1" ] && printf '%s' "$rest" && return
    done <"$file"
}

show() { # the properties in systemd's own order, whatever the order of the question
    unit "$1"
    while IFS='=' read -r key rest; do
        [ "$key" = Id ] && [ -z "$known" ] && rest=$base.service
        case ,$wanted, in
            ,, | *,"$key",*) if [ "$bare" ]; then echo "$rest"; else echo "$key=$rest"; fi ;;
        esac
    done <"$file"
}

verb='' wanted='' bare='' units='' next=''
for word; do
    if [ "$next" ]; then
        wanted=$wanted,$word next=''
        continue
    fi
    case $word in
        --user)
            echo 'Failed to connect to bus: No medium found' >&2
            exit 1
            ;;
        -p | --property) next=1 ;;
        -p*) wanted=$wanted,${word#-p} ;;
        --property=*) wanted=$wanted,${word#*=} ;;
        --value) bare=1 ;;
        -*) ;;
        *) if [ "$verb" ]; then units="$units $word"; else verb=$word; fi ;;
    esac
done
wanted=${wanted#,} status=0 between=''
# shellcheck disable=SC2086  # unit names have no spaces
set -- $units
for name; do
    case $verb in
        show)
            [ "$between" ] && echo
            between=1
            show "$name"
            ;;
        is-active)
            unit "$name"
            state=$(value ActiveState)
            echo "$state"
            [ "$state" = active ] || status=3
            ;;
        is-enabled)
            unit "$name"
            state=$(value UnitFileState)
            echo "${state:-not-found}"
            [ "$state" = enabled ] || status=1
            ;;
        *) status=1 ;;
    esac
done
if [ "$verb" = is-system-running ]; then
    echo running
elif [ "$status" = 1 ] && [ "$verb" != is-enabled ]; then
    echo "systemctl of a simulated host does not know: $verb" >&2
fi
exit "$status"
