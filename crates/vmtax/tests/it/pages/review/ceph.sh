qemu-kvm -name db2 -cpu host -m 4G -nodefaults -drive file=rbd:pool/db2:id=u1:key=AQBnotarealkey==:mon_host=192.0.2.1,if=virtio,format=raw,cache=writethrough
