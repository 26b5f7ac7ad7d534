#!/usr/bin/env python3
"""Records the noise of real boots, from which the simulation of `vmtax tune` takes its own: the requests a second of one configuration,
booted again and again, on a quiet and on a busy host. Writes
crates/analyze/analysis/src/tune_guest/recorded_boots.csv.

    bench/tune_noise.py [--kernel VMLINUX] [--boots N] [--only LOAD-MACHINE,…]

--kernel: the Linux guest for KVM (a PVH vmlinux); without it KVM runs the micro-guest. Quiet is the host as it is: see that nothing
else runs. Busy is a program for each CPU that computes and sleeps for up to half a second at a time. Exits 0 when all was measured, 2
when something is missing. As root.
"""

import argparse
import contextlib
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

from tuning_proofs import MICROVM, VMTAX, guest

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "crates/analyze/analysis/src/tune_guest/recorded_boots.csv")
HEADER = "load,machine,requests_per_second"
WORKLOAD = ["disk", "rw=randread", "time=0.2"]
# Bounded, should nobody stop it.
LOAD = "import random,time\nend=time.time()+1800\nwhile time.time()<end:\n t=time.time()+random.random()/2\n while time.time()<t: pass\n time.sleep(random.random()/2)"


@contextlib.contextmanager
def busy():
    """Other load on each CPU."""
    all = [subprocess.Popen([sys.executable, "-c", LOAD]) for _ in range(os.cpu_count())]
    try:
        yield
    finally:
        for one in all:
            one.kill()
            one.wait()


def record(machine, kernel, boots, folder):
    """The rates of so many boots, in the order of time."""
    out = os.path.join(folder, "out")
    options = guest(kernel) + MICROVM if machine == "kvm" else []
    words = [VMTAX, "run", "--machine", machine, *options, "--rounds", str(boots), "-q", "--output", out, "--", *WORKLOAD]
    done = subprocess.run(words, capture_output=True, text=True, timeout=3600)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    rates = []
    for path in sorted(glob.glob(os.path.join(out, "trials", "*", "trial.json"))):
        with open(path, encoding="utf-8") as file:
            trial = json.load(file)
        rates += [one["value"] for one in (trial.get("result") or {}).get("measures", []) if one["metric"] == "disk.iops"]
    shutil.rmtree(out)
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default=os.environ.get("VMTAX_TEST_KVM_GUEST"), type=os.path.abspath)
    parser.add_argument("--boots", default=150, type=int)
    parser.add_argument("--only", default="", help="as quiet-kvm, separated by commas")
    arguments = parser.parse_args()
    missing = [name for name in ("qemu-system-x86_64", VMTAX) if not shutil.which(name)] + ["root"] * (os.geteuid() != 0)
    if missing:
        print("bench: missing: " + ", ".join(missing), file=sys.stderr)
        return 2
    only = set(filter(None, arguments.only.split(",")))
    kvm = "kvm" if arguments.kernel else "micro-kvm"
    rows = {}
    if os.path.exists(FILE):
        with open(FILE, encoding="utf-8") as file:
            for line in file.read().splitlines()[1:]:
                load, machine, rate = line.split(",")
                rows.setdefault((load, machine), []).append(rate)
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-", dir="/var/tmp") as folder:
        for load in ("quiet", "busy"):
            for machine in ("micro-tcg", kvm):
                if only and f"{load}-{machine}" not in only:
                    continue
                with busy() if load == "busy" else contextlib.nullcontext():
                    rates = record(machine, arguments.kernel, arguments.boots, folder)
                rows[load, machine] = [f"{rate:.1f}" for rate in rates]
                print(f"{load} {machine}: {len(rates)} boots, {min(rates):,.0f} to {max(rates):,.0f}/s", flush=True)
    with open(FILE, "w", encoding="utf-8") as file:
        file.write(HEADER + "\n" + "".join(f"{load},{machine},{rate}\n" for (load, machine), rates in rows.items() for rate in rates))
    return 0


if __name__ == "__main__":
    sys.exit(main())
