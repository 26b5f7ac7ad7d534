"""Runs a daemon of libvirt until one of both is terminated, and reaps what it leaves.

libvirt asks a QEMU for its features that detaches itself, kills it, and waits until there is no such process. Where process 1
reaps late, as in containers, that takes 15 s for each: here such a process becomes this one's child.
"""

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
prctl = ctypes.CDLL(None).prctl
prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
daemon = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
signal.signal(signal.SIGTERM, lambda *_: daemon.terminate())
while os.wait()[0] != daemon.pid:
    pass
