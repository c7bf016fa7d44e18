#!/bin/sh
# ip of a simulated host: addresses, links and routes of the interfaces that were rendered for it.
here=${0%/*}/../share/llmgw-rack/ip
style='' family='' object='' rest=''
for word; do
    case $word in
        -o | -oneline | --oneline) style=.o ;;
        -j | -json | --json) style=.j ;;
        -4 | -inet) family=.4 ;;
        -6 | -inet6) family=.6 ;;
        -*) ;;
        *) if [ "$object" ]; then rest="$rest $word"; else object=$word; fi ;;
    esac
done
case $object in
    a | addr | address) answer=addr ;;
    l | link) answer=link family='' ;;
    r | ro | route) answer=route ;;
    *)
        echo "Object \"$object\" is unknown, try \"ip help\"." >&2
        exit 1
        ;;
esac
case $answer$rest in
    'route get '*)
        read -r name source <"$here/first"
        peer=${rest#* get }
        peer=${peer%% *}
        if [ "$style" = .j ]; then
            printf '[{"dst":"%s","dev":"%s","prefsrc":"%s","flags":[],"uid":0,"cache":[]}]\n' "$peer" "$name" "$source"
        else
            printf '%s dev %s src %s uid 0 \n    cache \n' "$peer" "$name" "$source"
        fi
        exit
        ;;
esac
cat "$here/$answer$family$style"
