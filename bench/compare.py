#!/usr/bin/env python3
"""Tests `vmtax compare` on real guests: a guest against itself, and against one with a planted slowdown.

    bench/compare.py [--vmtax FILE] [--only aa-micro,aa-tcg,aa-tcg-one-boot,aa-kvm,aa-kvm-one-boot,power,minute,boots]
                     [--comparisons N] [--more N] [--powers N] [--boots N]

aa-…: N comparisons (100) of a guest with itself; at most 10 may say that a metric differs, where a correct test
at 5 % says so in more in under 2 % of such series. With Linux guests each run adds --more (10) to those in
target/bench-compare until there are N. kvm is the guest of VMTAX_TEST_KVM_GUEST; its lines are left out without it. power: a delay of 3 % of a request is planted behind QEMU, by a library
that has each of its reads wait, with QEMU on one of the host's CPUs alone (where its threads wake each other across
CPUs, a read takes a fifth more or less from boot to boot); a comparison of eight rounds finds it, or foretells how
many rounds tell 3 %, and another of so many has to find it, in 80 of 100. minute: 30 % planted, to be found within a minute. boots: 3 % and 10 % planted
in the reads of one variant of the workload, on the Linux guest of that kernel: rounds and minutes in one boot a round, and with fresh boots. Exits 0 when all holds, 1 when not, 2 when something is missing.
"""

import argparse
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "campaigns"))
import campaign

# Reads of QEMU's thread pool, each followed by a wait.
PLANT = ROOT / "crates/vmtax/tests/it/planted/read_delay.c"
READS = ["--", "disk", "disk.count=200", "disk.time=0"]
COMMON = ["--set", "aio=threads", "--repeats", "1", "--budget", "2h", "--min-effect", "3%"]


def compared(vmtax, folder, words):
    """The findings of a comparison."""
    runs = Path(folder) / "runs"
    done = subprocess.run([vmtax, "compare", "--json", "--dir", str(runs), *words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=7200)
    if done.returncode:
        sys.exit(f"bench: vmtax compare {' '.join(words)} failed:\n{done.stderr}")
    shutil.rmtree(runs)
    return json.loads(done.stdout)["findings"]


def rows(findings):
    return findings["against"][0]["rows"]


def differs(findings):
    return any(row["verdict"] in ("faster", "slower") for row in rows(findings))


def median_row(findings):
    return next(row for row in rows(findings) if row["metric"] == "disk.latency-p50")


def planted(folder, qemu, ns, more=""):
    """A QEMU each of whose reads takes so much longer, on one CPU; `more`: other settings, with where it runs."""
    library = Path(folder) / "plant.so"
    if not library.exists():
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, PLANT], check=True)
    script = Path(folder) / f"qemu-{ns}"
    more = more or f"exec taskset -c {max(os.sched_getaffinity(0))}"
    script.write_text(f'#!/bin/sh\nexport PLANTED_NS={ns} LD_PRELOAD={library}\n{more} {qemu} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def told(what, hits, of):
    """Hours pass: what was seen so far, every ten comparisons."""
    if of % 10 == 0:
        print(f"  {what}: {hits} of {of} so far", file=sys.stderr, flush=True)


def against_itself(name, vmtax, folder, count, words, more=None):
    """`count` comparisons; with `more` so many beyond those of earlier runs, until there are `count`."""
    begun = time.monotonic()
    state = campaign.State(ROOT / f"target/bench-compare/{name.replace(', ', '-').replace(' ', '-')}.jsonl", {"seed": 0}) if more else None
    done = state.done if state else []
    for seed in range(len(done), min(count, len(done) + (more or count))):
        findings = compared(vmtax, folder, ["name=a", "name=b", "--seed", str(seed), *words])
        record = {"differs": differs(findings), "rounds": findings["rounds"], "metrics": len(rows(findings))}
        if state:
            state.add(record)
        else:
            done.append(record)
        told(name, sum(record["differs"] for record in done), seed + 1)
    wrong, rounds = sum(record["differs"] for record in done), [record["rounds"] for record in done]
    limit = count // 10
    ok = wrong <= limit
    print(f"{name:24} {wrong:8} {'<= ' + str(limit):12} {'ok' if ok else 'MISSED':7} of {len(done)} of {count} comparisons of {done[-1]['metrics']} metrics reported to differ; "
          f"{min(rounds)} to {max(rounds)} rounds, {time.monotonic() - begun:.0f} s", flush=True)
    return ok


def in_boots(vmtax, folder, qemu, kvm, count):
    """What it takes to find a delay in one variant of the workload, in one boot a round and with fresh boots."""
    guest = [*kvm, "--set", "aio=threads", "--budget", "2h", "--min-effect", "1%"]
    reads = ["--", "disk", "disk.count=300", "disk.time=0"]
    usual = compared(vmtax, folder, ["bs=4K", "bs=4608", "--rounds", "8", *guest, *reads])
    took = median_row(usual)["base"]["median"]
    print(f"{'without a plant':24} {median_row(usual)['ratio']['median']:8.3f} {'':12} {'':7} 4608 bytes over 4096, of {took / 1000:.1f} us", flush=True)
    for share in (0.03, 0.1):
        delayed = planted(folder, qemu, round(took * share), "export PLANTED_BYTES=4608; exec")
        for name, how in (("one boot", "--one-boot"), ("fresh boots", "--fresh-boots")):
            found, rounds, minutes = 0, [], []
            for seed in range(count):
                begun = time.monotonic()
                findings = compared(vmtax, folder, ["bs=4K", "bs=4608", how, "--qemu", delayed, "--rounds", "40", "--seed", str(seed), *guest, *reads])
                minutes.append((time.monotonic() - begun) / 60)
                rounds.append(findings["rounds"])
                found += median_row(findings)["verdict"] == "slower"
            rounds.sort(), minutes.sort()
            middle = count // 2
            print(f"{f'{share * 100:.0f} % planted, {name}':24} {found:8} {'':12} {'':7} of {count} found; {rounds[0]} to {rounds[-1]} rounds, median {rounds[middle]}, "
                  f"{minutes[middle]:.1f} minutes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--vmtax", default=str(target / "x86_64-unknown-linux-gnu/release/vmtax"))
    parser.add_argument("--only", default="aa-micro,aa-tcg,aa-tcg-one-boot,aa-kvm,aa-kvm-one-boot,power,minute,boots")
    parser.add_argument("--comparisons", type=int, default=100)
    parser.add_argument("--more", type=int, default=10)
    parser.add_argument("--powers", type=int, default=100)
    parser.add_argument("--boots", type=int, default=5)
    args = parser.parse_args()
    only = args.only.split(",")
    qemu = shutil.which("qemu-system-x86_64")
    if not Path(args.vmtax).exists() or not qemu:
        print("bench: no vmtax or no QEMU: run `make build`", file=sys.stderr)
        return 2
    micro = "micro-kvm" if os.access("/dev/kvm", os.W_OK) else "micro-tcg"
    fine = True
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-") as folder:
        os.chmod(folder, 0o755)  # QEMU, which loads the planted library, is another user
        if "aa-micro" in only:
            words = ["--machine", micro, "--rounds", "15", *COMMON, *READS]
            fine &= against_itself(f"itself, {micro}", args.vmtax, folder, args.comparisons, words)
        calls = ["cpu", "cpu.time=0.1", "syscalls", "syscalls.only=getpid,pipe", "syscalls.time=0.05", "disk", "disk.count=200", "disk.time=0"]
        kvm = campaign.kvm()
        for machine, guest in (("tcg", campaign.tcg()), ("kvm", kvm)):
            for boots, how in (("", []), (", one boot", ["--one-boot"])):
                if guest and f"aa-{machine}{'-one-boot' if how else ''}" in only:
                    words = [*guest, "--rounds", "8", *how, *COMMON, "--", *calls]
                    fine &= against_itself(f"itself, {machine}{boots}", args.vmtax, folder, args.comparisons, words, args.more)
        if "boots" in only and kvm:
            in_boots(args.vmtax, folder, qemu, kvm, args.boots)
        if "power" in only or "minute" in only:
            plain = planted(folder, qemu, 0)
            usual = compared(args.vmtax, folder, [f"name=a,qemu={plain}", f"name=b,qemu={plain}", "--machine", micro,
                                                  "--rounds", "15", *COMMON, *READS])
            took = median_row(usual)["base"]["median"]

            def sides(share):
                return [f"name=plain,qemu={plain}", f"name=planted,qemu={planted(folder, qemu, round(took * share))}", "--machine", micro]
        if "power" in only:
            found, estimated = 0, []
            for seed in range(args.powers):
                row = median_row(compared(args.vmtax, folder, [*sides(0.03), "--rounds", "8", "--seed", str(seed), *COMMON, *READS]))
                rounds = row["rounds_needed"]
                if rounds is not None:
                    row = median_row(compared(args.vmtax, folder, [*sides(0.03), "--rounds", str(max(rounds, 8)), "--seed",
                                                                   str(1000 + seed), *COMMON, *READS]))
                estimated.append(rounds or 8)
                found += row["verdict"] == "slower"
                told("3 % planted", found, seed + 1)
            ok = found >= 0.8 * args.powers
            estimated.sort()
            fine &= ok
            print(f"{'3 % planted':24} {found:8} {'>= ' + str(round(0.8 * args.powers)):12} {'ok' if ok else 'MISSED':7} of {args.powers} found in "
                  f"the estimated number of rounds, {estimated[0]} to {estimated[-1]}, median {estimated[len(estimated) // 2]}", flush=True)
        if "minute" in only:
            found, slowest = 0, 0.0
            for seed in range(10):
                begun = time.monotonic()
                findings = compared(args.vmtax, folder, [*sides(0.3), "--seed", str(seed), "--set", "aio=threads", "--repeats",
                                                             "1", "--budget", "1m", *READS])
                slowest = max(slowest, time.monotonic() - begun)
                found += median_row(findings)["verdict"] == "slower"
            ok = found == 10 and slowest <= 60
            fine &= ok
            print(f"{'30 % planted':24} {found:8} {'>= 10':12} {'ok' if ok else 'MISSED':7} of 10 found within a minute, the slowest in {slowest:.0f} s", flush=True)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
