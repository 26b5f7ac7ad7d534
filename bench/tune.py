#!/usr/bin/env python3
"""Plants settings that cost a VM time in VMs that others started, one after the other, and lets vmtax tune them: the planted one has
to be kept, and after `vmtax undo` it is as it was. Then it tunes VMs without one, of which none may keep a change.

    bench/tune.py [--kernel VMLINUX] [--only NAME,…] [--healthy N]

Exits 0 when all is so, 1 otherwise, 2 when something is missing. As root. campaigns/vm_kills.py kills tunings.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import diagnose as planted
from diagnose import Bench, reading

TARGET = os.environ.get("CARGO_TARGET_DIR", "target")
VMTAX = os.environ.get("VMTAX", os.path.abspath(f"{TARGET}/x86_64-unknown-linux-gnu/release/vmtax"))


def affinity(bench, pid):
    # Threads of the pool come and go.
    return {tuple(sorted(os.sched_getaffinity(int(tid)))) for tid in os.listdir(f"/proc/{pid}/task")}


def quota_of(bench, pid):
    return planted.read(f"/sys/fs/cgroup/cpu/vmtax-bench-{os.getpid()}-0/cpu.cfs_quota_us")


def limits(bench, pid):
    return [disk["inserted"]["iops"] for disk in bench.monitor("query-block") if "inserted" in disk]


def group(bench):
    path = bench.path("grouped.raw")
    with open(path, "wb") as file:
        file.write(b"\7" * (64 << 20))
    return bench.bios(reading(0x81, 14), "-object", "throttle-group,id=forgotten,x-iops-total=50",
                      "-blockdev", f"driver=raw,node-name=image,file.driver=file,file.filename={path}",
                      "-blockdev", "driver=throttle,throttle-group=forgotten,file=image,node-name=limited",
                      "-device", "virtio-blk-pci,drive=limited,id=disk-d")


def group_limits(bench, pid):
    return bench.monitor("qom-get", path="/objects/forgotten", property="limits")


def low_weight(bench):
    procs = bench.group("cpu", {"cpu.shares": "64"})
    pid = bench.bios(planted.SPINNING)
    planted.write(procs, pid)
    for cpu in bench.cpus:
        bench.hog(cpu)
        bench.hog(cpu)
    return pid


def weight_of(bench, pid):
    return planted.read(f"/sys/fs/cgroup/cpu/vmtax-bench-{os.getpid()}-0/cpu.shares")


def sleeping_iothread(bench):
    drive, file, device, options = bench.disk("d", ",cache=none,aio=native")
    return bench.bios(planted.reading(0x81, 14), "-object", "iothread,id=io0,poll-max-ns=0", drive, file, device, f"{options},iothread=io0")


def polling(bench, pid):
    return bench.monitor("qom-get", path="/objects/io0", property="poll-max-ns")


# What is planted, the rule whose change has to be kept, what it is.
SETTINGS = [
    ("io-limit", planted.limit, "vm-io-limit", limits),
    ("throttle-group", group, "vm-io-limit", group_limits),
    ("small-l2-cache", planted.small_cache, "vm-qcow2-l2-cache", lambda *_: None),
    ("cpu-quota", planted.quota, "vm-throttled", quota_of),
    ("low-weight", low_weight, "vm-low-weight", weight_of),
    ("sleeping-iothread", sleeping_iothread, "vm-iothread-sleeps", polling),
    ("pinned-to-a-hog", planted.cpu_hog, "vm-run-queue-wait", affinity),
]


def tune(pid, scratch, name):
    """The findings of a tuning and its recording."""
    out = os.path.join(scratch, f"tuned-{name}")
    shutil.rmtree(out, ignore_errors=True)
    words = [VMTAX, "tune", "--vm", str(pid), "--apply", "--allow", "live,host", "--json", "-q", "--dir", os.path.join(scratch, "runs"), "--output", out]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise planted.NotPlanted(done.stderr.strip())
    return json.loads(done.stdout)["findings"], out


def gain(found):
    """ "98.0 % (92.1 to 99.9 %), 46 ms -> 881 us" of what is kept. """
    ratio = found["total"]["ratio"]
    low, high = (100 * (1 - ratio["interval"][end]) for end in ("high", "low"))
    row = next((row for row in found["moved"] if row["name"] == found["metric"]), None)
    moved = f", {row['before']:.4g} -> {row['after']:.4g} {row['unit']}" if row else ""
    return f"{100 * (1 - ratio['median']):.1f} % ({low:.1f} to {high:.1f} %){moved}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default=os.environ.get("VMTAX_TEST_KVM_GUEST"), type=os.path.abspath)
    parser.add_argument("--only", default="", help="settings, separated by commas")
    parser.add_argument("--healthy", default=10, type=int, help="VMs without a planted setting")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))
    missing = [name for name in ("qemu-system-x86_64", "taskset", "cc", VMTAX) if not shutil.which(name)] + ["root"] * (os.geteuid() != 0)
    if missing:
        print("bench: missing: " + ", ".join(missing), file=sys.stderr)
        return 2
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-", dir="/var/tmp") as scratch:
        guest = os.path.join(scratch, "guest")
        subprocess.run(["cc", "-O1", "-static", "-o", guest, f"{planted.HERE}/diagnose_guest.c"], check=True)
        with open(os.path.join(scratch, "guest.cpio"), "wb") as file:
            file.write(planted.archive(guest))
        os.chmod(scratch, 0o755)
        for name, plant, rule, setting in SETTINGS:
            if only and name not in only:
                continue
            with contextlib.ExitStack() as stack:
                bench = Bench(scratch, arguments.kernel, stack)
                try:
                    pid = plant(bench)
                    time.sleep(5)
                    before = setting(bench, pid)
                    found, out = tune(pid, scratch, name)
                except planted.NotPlanted as why:
                    print(f"{name:16} not planted: {why}", flush=True)
                    continue
                rows = {row["rule"]: row["verdict"] for row in found["candidates"]}
                subprocess.run([VMTAX, "undo", out], capture_output=True, check=False)
                is_kept, is_restored = rows.get(rule) == "keep", setting(bench, pid) == before
                said = gain(found) if is_kept else json.dumps(rows)
                print(f"{name:16} {'kept' if is_kept else 'MISSED':7} {'restored' if is_restored else 'NOT RESTORED'}: {said} in {found['seconds']:.0f} s", flush=True)
                wrong += not (is_kept and is_restored)
        for number in range(arguments.healthy):
            with contextlib.ExitStack() as stack:
                name, pid = planted.healthy(Bench(scratch, arguments.kernel, stack), number)
                time.sleep(5)
                found, _ = tune(pid, scratch, "healthy")
            kept = [row["rule"] for row in found["candidates"] if row["verdict"] == "keep"]
            wrong += bool(kept)
            print(f"healthy {number + 1:3} {name}: {', '.join(kept) or 'nothing kept'} of {len(found['candidates'])}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
