#!/usr/bin/env python3
"""Holds what `vmtax layers --vm` says of the requests of a running guest against limits: requests joined, the median beside the
guest's own, and how long it takes from the command to the first table beyond the time of tracing.

    bench/vm_layers.py [--vmtax FILE] [--machine MACHINE] [-- OPTIONS of the guest for `vmtax run`]

The guest is one of `vmtax run`, which to `layers --vm` is a VM like any other. Exits 0 when every figure is within its limit, 1
when one is not, 2 when something is missing. As root.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from layers import line

TRACED_S = 4


def started(vmtax, scratch, machine, options, depth):
    """The guest while its workload runs; its report comes with its end."""
    words = ["disk", "rw=randread", f"iodepth={depth}", "count=0", "time=16", "--rounds=1", f"--machine={machine}"]
    command = [vmtax, "run", *words, *options, "--json", f"--dir={scratch}/guest-{depth}"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def qemu_of(run):
    """The QEMU that a `vmtax run` started, when its workload is under way."""
    timeout = time.monotonic() + 120
    while time.monotonic() < timeout and run.poll() is None:
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat") as stat, open(f"/proc/{name}/cmdline", "rb") as cmdline:
                    fields, words = stat.read().rsplit(")", 1)[1].split(), cmdline.read().split(b"\0")
            except OSError:
                continue
            is_guest = b"qemu-system" in os.path.basename(words[0]) and b"-kernel" in words
            if is_guest and is_below(int(fields[1]), run.pid):
                time.sleep(6)  # boot
                return int(name)
        time.sleep(0.1)
    sys.exit(f"bench: no guest booted:\n{run.communicate()[1]}")


def is_below(process, ancestor):
    while process > 1 and process != ancestor:
        with open(f"/proc/{process}/stat") as stat:
            process = int(stat.read().rsplit(")", 1)[1].split()[1])
    return process == ancestor


def judge(vmtax, scratch, machine, options, depth, fewest_joined):
    run = started(vmtax, scratch, machine, options, depth)
    pid, begun = qemu_of(run), time.monotonic()
    command = [vmtax, "layers", "--vm", str(pid), "--duration", f"{TRACED_S}s", "--json", f"--dir={scratch}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    beyond = time.monotonic() - begun - TRACED_S
    output, errors = run.communicate(timeout=600)
    if done.returncode or run.returncode:
        sys.exit(f"bench: {' '.join(command)} failed:\n{done.stderr}\n{errors}")
    reads = next(r for r in json.loads(done.stdout)["findings"]["requests"] if r["kind"] == "read")
    trial = next(t for t in json.loads(output)["trials"] if t["machine"] == machine)
    guest = trial["result"]["operations"][0]["summary"]["p50_ns"]
    joined, gavg = reads["followed"] / reads["requests"], reads["gavg"]["p50_ns"]
    what = f"{machine}, depth {depth}"
    yield line(f"{what}: joined", joined, f">= {fewest_joined}", joined >= fewest_joined, f"of {reads['requests']} reads")
    yield line(f"{what}: GAVG/guest, p50", gavg / guest, "printed", True,
               f"{gavg / 1000:.1f} us on the host, {guest / 1000:.1f} us by the guest's stamps")
    yield line(f"{what}: to the table, s", beyond, "<= 3", beyond <= 3, f"beyond the {TRACED_S} s of tracing")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    parser.add_argument("--vmtax", default=f"{target}/x86_64-unknown-linux-gnu/release/vmtax", type=os.path.abspath)
    parser.add_argument("--machine", default="tcg")
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    missing = [] if os.access(arguments.vmtax, os.X_OK) else [f"{arguments.vmtax} (make build)"]
    if not shutil.which("qemu-system-x86_64"):
        missing.append("qemu-system-x86_64 (apt-get install qemu-system-x86)")
    if os.geteuid():
        missing.append("root (tracing)")
    if missing:
        print("bench: missing: " + "; ".join(missing), file=sys.stderr)
        return 2
    results = []
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-") as scratch:
        for depth, fewest in ((1, 0.99), (32, 0.98)):
            results += judge(arguments.vmtax, scratch, arguments.machine, arguments.options, depth, fewest)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
