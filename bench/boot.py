#!/usr/bin/env python3
"""Compares how soon a TCG guest is of use: vmtax's from starting QEMU to the agent's first message, virtme-ng's from
starting it to its first command, with the same kernel, processors and memory.

    bench/boot.py --vmtax FILE [--virtme-run FILE] [--rounds N]

Each round runs both once, in alternating order; the ratio is the median over rounds. Exits 0 when it is within its
limit, 1 when not, 2 when something is missing.
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

LIMIT = 0.7
PATIENCE = 120


def kernel(vmtax):
    facts = json.loads(subprocess.check_output([vmtax, "doctor", "--json"]))
    usable = [k for k in facts["kernels"] if k["modules"]]
    if not usable:
        sys.exit("bench: no guest kernel with modules here: `vmtax get kernel` fetches one")
    return usable[0]


def with_dependencies(found, folder):
    """virtme-ng wants modules.dep, which an unpacked package lacks: the same tree, linked, with one."""
    release = found["release"]
    shutil.copytree(found["modules"], f"{folder}/lib/modules/{release}", copy_function=os.link, symlinks=True)
    os.makedirs(f"{folder}/boot")
    os.link(found["image"], f"{folder}/boot/vmlinuz-{release}")
    subprocess.check_call(["depmod", "-b", folder, release])
    return f"{folder}/boot/vmlinuz-{release}"


def vmtax_boot(vmtax, found, folder):
    runs = tempfile.mkdtemp(dir=folder)
    # Its own message is awaited; the workload behind it is the smallest there is.
    subprocess.run([vmtax, "run", "syscalls", "syscalls.only=getpid", "syscalls.time=0.01", "--machines", "tcg",
                    "--rounds", "1", "--cpus", "1", "--memory", "1024", "--kernel", found["image"], "--modules",
                    found["modules"], "--runs", runs], check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE)
    (run,) = os.listdir(runs)
    with open(f"{runs}/{run}/turns/0000-tcg/turn.json") as file:
        return json.load(file)["boot_s"]


def virtme_boot(virtme_run, image, folder):
    shared = tempfile.mkdtemp(dir=folder)
    sign = f"{shared}/ready"
    began = time.monotonic()
    guest = subprocess.Popen([virtme_run, "--kimg", image, "--mods=auto", "--disable-kvm", "--cpus", "1", "--memory",
                              "1G", f"--rwdir={shared}", "--script-sh", f"touch {sign}"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not os.path.exists(sign):
            if guest.poll() is not None and not os.path.exists(sign):
                sys.exit("bench: virtme-run ended without running its command")
            if time.monotonic() - began > PATIENCE:
                sys.exit(f"bench: virtme-run ran no command within {PATIENCE} s")
            time.sleep(0.005)
        took = time.monotonic() - began
        guest.wait(timeout=PATIENCE)
        return took
    finally:
        guest.kill()
        guest.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vmtax", required=True, help="the vmtax to measure")
    parser.add_argument("--virtme-run", default="virtme-run", help="virtme-ng's virtme-run")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    for tool in (arguments.virtme_run, "depmod"):
        if not shutil.which(tool):
            print(f"bench: {tool} is not here: `scripts/setup bench` installs it", file=sys.stderr)
            return 2
    found = kernel(arguments.vmtax)
    # Beside the kernel, so that links reach.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(found["image"])) as folder:
        image = with_dependencies(found, folder)
        ours, theirs = [], []
        for number in range(arguments.rounds):
            sides = [lambda: ours.append(vmtax_boot(arguments.vmtax, found, folder)),
                     lambda: theirs.append(virtme_boot(arguments.virtme_run, image, folder))]
            for side in sides if number % 2 == 0 else reversed(sides):
                side()
    ratio = statistics.median(a / b for a, b in zip(ours, theirs))
    verdict = "ok" if ratio <= LIMIT else "MISSED"
    print(f"boot        vmtax {statistics.median(ours):.2f} s   virtme-ng {statistics.median(theirs):.2f} s   "
          f"ratio {ratio:.3f} (limit {LIMIT})   n {len(ours)}   {verdict}")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
