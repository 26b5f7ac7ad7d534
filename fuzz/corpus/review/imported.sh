#!/bin/sh
# made by an importer
exec qemu-system-x86_64 -name imported -m 4G -smp 2 \
  -drive file=/srv/imported.vmdk,format=vmdk,if=ide \
  -netdev user,id=n0 -device rtl8139,netdev=n0
