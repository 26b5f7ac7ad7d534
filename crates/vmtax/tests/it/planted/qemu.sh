# QEMU with the delay that a variant's `x-planted=` names, a property of the disk that no QEMU has.
case "$*" in *-initrd*) ;; *) exec "$QEMU" "$@" ;; esac
PLANTED=
for word; do
    shift
    case $word in *,x-planted=*) PLANTED=${word##*,x-planted=} word=${word%,x-planted=*} ;; esac
    set -- "$@" "$word"
done
case $PLANTED in
guest-*)
    before=
    for word; do
        shift
        case $before in
        -initrd)
            # The kernel unpacks one archive after another.
            cat "$ARCHIVE" "$word" >"$ARCHIVE.initramfs"
            word=$ARCHIVE.initramfs
            ;;
        -append) word="$word rdinit=/planted PLANTED=$PLANTED PLANTED_DISK=$DISK" ;;
        esac
        before=$word
        set -- "$@" "$word"
    done
    ;;
?*) export PLANTED HOG LD_PRELOAD="$SHIM" ;;
esac
exec "$QEMU" "$@"
