"""Runs a daemon of libvirt until one of both is terminated, and reaps what it leaves.

libvirt asks a QEMU for its features that detaches itself, kills it, and waits until there is no such process. Where process 1
reaps late, as in containers, that takes 15 s for each: here such a process becomes this one's child.

libvirt keeps those features, but not where QEMU's user has no access to /dev/kvm: it would ask again, for 4 s of processor time, at
most calls. So the daemon has a /dev/kvm of its own, which every user may open.
"""

import ctypes
import os
import signal
import stat
import subprocess
import sys
import tempfile

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CLONE_NEWNS, MS_BIND, MS_REC, MS_SLAVE, MNT_DETACH = 0x20000, 1 << 12, 1 << 14, 1 << 19, 2
KVM = b"/dev/kvm"
libc = ctypes.CDLL(None, use_errno=True)


def kvm_for_all():
    """Gives this process and its children another /dev/kvm, in a mount namespace of their own."""
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None):
        return
    folder = tempfile.mkdtemp().encode()
    if not libc.mount(b"tmpfs", folder, b"tmpfs", 0, None):
        node = folder + b"/kvm"
        os.mknod(node, stat.S_IFCHR, os.stat(KVM).st_rdev)
        os.chmod(node, 0o666)
        libc.mount(node, KVM, None, MS_BIND, None)
        libc.umount2(folder, MNT_DETACH)
    os.rmdir(folder)


if os.path.exists(KVM):
    kvm_for_all()
libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
daemon = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
signal.signal(signal.SIGTERM, lambda *_: daemon.terminate())
while os.wait()[0] != daemon.pid:
    pass
