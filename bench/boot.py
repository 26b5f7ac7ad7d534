#!/usr/bin/env python3
"""Times what a person waits for: a guest under TCG beside virtme-ng's, `vmtax doctor`, `vmtax --help`.

    bench/boot.py [--vmtax FILE] [--vng FILE] [--rounds N]

A guest's time runs from the start of QEMU to the agent's first message, for virtme-ng to its first command; same QEMU,
kernel, CPUs and memory, in alternating order. Exits 0 when every figure is within its limit, 1 when one is not, 2
when something is missing.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CPUS, MEMORY_MIB = 1, 1024


def checked(command, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=180, **more)
    if done.returncode:
        sys.exit(f"bench: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def vmtax_boot(vmtax, kernel, scratch):
    """Seconds, as the run itself notes them."""
    checked([vmtax, "run", "cpu", "cpu.time=0.1", "--machine=tcg", "--rounds=1", f"--cpus={CPUS}",
             f"--memory={MEMORY_MIB}", f"--kernel={kernel}", f"--modules={modules(kernel)}", f"--dir={scratch}/runs"])
    (note,) = Path(scratch, "runs").glob("*/turns/*/turn.json")
    boot = json.loads(note.read_text())["boot_s"]
    shutil.rmtree(Path(scratch, "runs"))
    return boot


def vng_boot(vng, kernel, scratch):
    """Seconds from the start of QEMU, which a stand-in notes that then becomes it, until the first command has made a
    file in a shared folder: its output shows only where the kernel's own log does, which costs time."""
    shared = Path(scratch, "shared")
    shared.mkdir(exist_ok=True)
    ready, started, qemu = shared / "ready", Path(scratch, "started"), Path(scratch, "qemu-system-x86_64")
    ready.unlink(missing_ok=True)
    qemu.write_text(f"#!/bin/sh\ndate +%s.%N > {started}\nexec {shutil.which('qemu-system-x86_64')} \"$@\"\n")
    qemu.chmod(0o755)
    command = [vng, "--run", kernel, "--qemu", qemu, "--disable-kvm", f"--cpus={CPUS}", f"--memory={MEMORY_MIB}M",
               f"--rwdir={shared}", "--exec", f"touch {ready}"]
    # virtme-ng finds its own programs, and those in sbin, through PATH.
    path = f"{Path(vng).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", cwd=scratch, env=os.environ | {"PATH": path}) as guest:
        while guest.poll() is None and not ready.exists():
            time.sleep(0.005)
        now = time.time()
        said, _ = guest.communicate(timeout=60)
    if not ready.exists():
        sys.exit(f"bench: virtme-ng ran no command:\n{said}")
    return now - float(started.read_text())


def modules(kernel):
    return Path(kernel).parent.parent / "lib/modules"


def median_seconds(command, times):
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        checked(command)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def line(name, value, limit, note):
    ok = value <= limit
    print(f"{name:20} {value:8.3f}   <= {limit:<11} {'ok' if ok else 'MISSED':7} {note}", flush=True)
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    parser.add_argument("--vmtax", default=f"{target}/x86_64-unknown-linux-gnu/release/vmtax", type=os.path.abspath)
    parser.add_argument("--vng", default=shutil.which("vng") or "target/tools/bin/vng", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    missing = [f"{path} (make build, scripts/setup bench)" for path in (arguments.vmtax, arguments.vng)
               if not os.access(path, os.X_OK)]
    if not shutil.which("qemu-system-x86_64"):
        missing.append("qemu-system-x86_64 (apt-get install qemu-system-x86)")
    if missing:
        print("bench: missing: " + "; ".join(missing), file=sys.stderr)
        return 2

    vmtax = arguments.vmtax
    fetched = Path(checked([vmtax, "get", "kernel"]).split()[-1])
    pairs = []
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-") as scratch:
        # virtme-ng finds the modules beside the kernel, but writes an index there: not into the cache.
        tree = shutil.copytree(fetched.parent.parent, f"{scratch}/kernel", copy_function=os.symlink)
        kernel = f"{tree}/boot/{fetched.name}"
        for number in range(arguments.rounds):
            if number % 2:
                theirs, ours = vng_boot(arguments.vng, kernel, scratch), vmtax_boot(vmtax, kernel, scratch)
            else:
                ours, theirs = vmtax_boot(vmtax, kernel, scratch), vng_boot(arguments.vng, kernel, scratch)
            pairs.append((ours, theirs))
    ours, theirs = (statistics.median(side) for side in zip(*pairs))
    ratio = statistics.median(a / b for a, b in pairs)
    results = [
        line("boot / virtme-ng", ratio, 0.7, f"medians {ours:.2f} s, {theirs:.2f} s, {arguments.rounds} rounds"),
        line("doctor, s", median_seconds([vmtax, "doctor"], 5), 2, "median of 5"),
        line("--help, ms", 1000 * median_seconds([vmtax, "--help"], 20), 20, "median of 20, starting it included"),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
