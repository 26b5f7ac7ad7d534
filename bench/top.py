#!/usr/bin/env python3
"""Holds what `vmtax top` costs against limits: the part of a CPU and the memory that level 0 takes for 10 and for 200 paused VMs, and
how much slower a guest reads its disk while it is observed at levels 0, 1 and 2.

    bench/top.py [--kernel VMLINUX] [--vmtax FILE] [--rounds N] [--vms N,…]

The guest (VMLINUX as for bench/diagnose.py) reads without a pause; in each round its rate is measured once at each level and once
alone, in random order. Its cost is the median of the rounds' ratios; of its 95 % CI (sign test) the better end has to be within the
limit. Exits 0 when every figure is within its limit, 1 when one is not, 2 when something is missing. As root.
"""

import argparse
import contextlib
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from diagnose import HERE, Bench, archive

WINDOW_S = 4
LIMITS = {0: 1.0, 1: 3.0, 2: None}  # % of the guest's own rate


def line(name, value, unit, limit, note):
    holds = limit is None or value <= limit
    print(f"{name:32} {value:8.2f} {unit:4} {'printed' if limit is None else f'<= {limit:g}':10} {'ok' if holds else 'MISSED':7} {note}",
          flush=True)
    return holds


def own_cost(vmtax, count):
    """Level 0 for this many VMs."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            qemu = subprocess.Popen(["qemu-system-x86_64", "-S", "-accel", "tcg", "-machine", "none", "-m", "1", "-display", "none",
                                     "-nodefaults"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(lambda qemu=qemu: (qemu.kill(), qemu.wait()))
        time.sleep(2 + count / 20)
        # From its own lines; the largest memory is read before it ends.
        top = subprocess.Popen([vmtax, "top", "--json", "--interval", "2", "--samples", "8"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True)
        shares, seen, peak = [], 0, 0
        for text in top.stdout:
            sample = json.loads(text)
            shares.append(100 * sample["own_cpu"])
            seen = len(sample["vms"])
            with contextlib.suppress(OSError), open(f"/proc/{top.pid}/status") as status:
                peak = max([peak] + [int(row.split()[1]) for row in status if row.startswith("VmHWM")])
        top.wait()
    spread = f"{seen} VMs, {len(shares)} intervals, {min(shares):.2f} to {max(shares):.2f}"
    return [line(f"level 0, {count} VMs", statistics.median(shares), "%", 1 if count <= 10 else 5, spread),
            line(f"level 0, {count} VMs: memory", peak / 1024, "MiB", 40, "VmHWM")]


def reads(bench):
    return sum(disk["stats"]["rd_operations"] for disk in bench.monitor("query-blockstats"))


def rate(bench, vmtax, pid, level):
    """The guest's reads a second over one window, observed at this level or alone."""
    with contextlib.ExitStack() as stack:
        if level is not None:
            duration = ["--duration", str(WINDOW_S + 4)] if level == 2 else ["--interval", "2"]
            top = subprocess.Popen([vmtax, "top", str(pid), "--json", "--level", str(level), *duration], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(lambda: (top.terminate(), top.wait()))
        time.sleep(2)
        begun, before = time.monotonic(), reads(bench)
        time.sleep(WINDOW_S)
        after, ended = reads(bench), time.monotonic()
        if level is not None and top.poll() is not None:
            sys.exit(f"bench: vmtax top --level {level} ended")
        return (after - before) / (ended - begun)


def interval(values):
    """Two of the sorted values, the sign test's interval of the median with at least 95 %."""
    values, n = sorted(values), len(values)
    k = max((k for k in range(n // 2) if 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n <= 0.05), default=0)
    return values[k], values[n - 1 - k]


def guest_cost(vmtax, scratch, kernel, rounds):
    guest = os.path.join(scratch, "guest")
    subprocess.run(["cc", "-O1", "-static", "-o", guest, f"{HERE}/diagnose_guest.c"], check=True)
    with open(os.path.join(scratch, "guest.cpio"), "wb") as file:
        file.write(archive(guest))
    slower = {level: [] for level in LIMITS}
    draw = random.Random(1125)
    with contextlib.ExitStack() as stack:
        bench = Bench(scratch, kernel, stack)
        pid = bench.linux("read", *bench.disk("d", ",cache=none"))
        # All on one CPU: which of two wakes which changes the rate by a fifth from one second to the next.
        subprocess.run(["taskset", "-a", "-p", "-c", str(bench.cpus[0]), str(pid)], check=True, capture_output=True)
        time.sleep(3)
        for _ in range(rounds):
            order = [None, *LIMITS]
            draw.shuffle(order)
            rates = {level: rate(bench, vmtax, pid, level) for level in order}
            for level, values in slower.items():
                values.append(100 * (rates[None] / rates[level] - 1))
    for level, limit in LIMITS.items():
        low, high = interval(slower[level])
        note = f"median {statistics.median(slower[level]):+.2f} %, 95 % CI {low:+.2f} to {high:+.2f}, {rounds} rounds"
        yield line(f"level {level}: the guest is slower", low, "%", limit, note)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    parser.add_argument("--vmtax", default=f"{target}/x86_64-unknown-linux-gnu/release/vmtax", type=os.path.abspath)
    parser.add_argument("--kernel", default=os.environ.get("VMTAX_TEST_KVM_GUEST"), type=os.path.abspath)
    parser.add_argument("--rounds", default=21, type=int)
    parser.add_argument("--vms", default="10,200")
    arguments = parser.parse_args()
    missing = [name for name in ("qemu-system-x86_64", "cc", "taskset", arguments.vmtax) if not shutil.which(name)] + ["root"] * (os.geteuid() != 0)
    if missing:
        print("bench: missing: " + ", ".join(missing), file=sys.stderr)
        return 2
    results = [result for count in arguments.vms.split(",") for result in own_cost(arguments.vmtax, int(count))]
    if arguments.kernel:
        with tempfile.TemporaryDirectory(prefix="vmtax-bench-", dir="/var/tmp") as scratch:
            results += guest_cost(arguments.vmtax, scratch, arguments.kernel, arguments.rounds)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
