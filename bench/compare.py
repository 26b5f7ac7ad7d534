#!/usr/bin/env python3
"""Tests `vmtax compare` on real guests: a guest against itself, and against one with a planted slowdown.

    bench/compare.py [--vmtax FILE] [--only aa-micro,aa-tcg,power,minute] [--comparisons N] [--powers N]

aa-micro, aa-tcg: N comparisons (100) of a guest with itself; at most 10 may say that a metric differs, where a correct test
at 5 % says so in more in under 2 % of such series. power: a delay of 3 % of a request is planted behind QEMU, by a library
that has each of its reads wait, with QEMU on one of the host's CPUs alone (where its threads wake each other across
CPUs, a read takes a fifth more or less from boot to boot); a comparison of eight rounds finds it, or foretells how
many rounds tell 3 %, and another of so many has to find it, in 80 of 100. minute: 30 % planted, to be found within a minute. Exits 0 when all holds, 1 when not, 2 when something is missing.
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

# A read of QEMU's thread pool, followed by a wait that keeps its CPU.
PLANT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void wait_ns(void) {
    static long long ns = -1;
    if (ns < 0) ns = atoll(getenv("PLANTED_NS") ? getenv("PLANTED_NS") : "0");
    long long end = now() + ns;
    while (ns && now() < end) {}
}
ssize_t preadv(int fd, const struct iovec *v, int n, off_t at) {
    static ssize_t (*real)(int, const struct iovec *, int, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "preadv");
    ssize_t got = real(fd, v, n, at);
    wait_ns();
    return got;
}
ssize_t preadv64(int fd, const struct iovec *v, int n, off_t at) { return preadv(fd, v, n, at); }
ssize_t pread64(int fd, void *b, size_t n, off_t at) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) real = dlsym(RTLD_NEXT, "pread64");
    ssize_t got = real(fd, b, n, at);
    wait_ns();
    return got;
}
"""
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


def planted(folder, qemu, ns):
    """A QEMU each of whose reads takes so much longer, on one CPU."""
    cpu = max(os.sched_getaffinity(0))
    library = Path(folder) / "plant.so"
    if not library.exists():
        source = Path(folder) / "plant.c"
        source.write_text(PLANT)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    script = Path(folder) / f"qemu-{ns}"
    script.write_text(f'#!/bin/sh\nPLANTED_NS={ns} LD_PRELOAD={library} exec taskset -c {cpu} {qemu} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


def told(what, hits, of):
    """Hours pass: what was seen so far, every ten comparisons."""
    if of % 10 == 0:
        print(f"  {what}: {hits} of {of} so far", file=sys.stderr, flush=True)


def against_itself(name, vmtax, folder, count, words):
    begun = time.monotonic()
    wrong, rounds = 0, []
    for seed in range(count):
        findings = compared(vmtax, folder, ["name=a", "name=b", "--seed", str(seed), *words])
        wrong += differs(findings)
        rounds.append(findings["rounds"])
        told(name, wrong, seed + 1)
    limit = count // 10
    ok = wrong <= limit
    metrics = len(rows(findings))
    print(f"{name:24} {wrong:8} {'<= ' + str(limit):12} {'ok' if ok else 'MISSED':7} of {count} comparisons of {metrics} metrics reported to differ; "
          f"{min(rounds)} to {max(rounds)} rounds, {time.monotonic() - begun:.0f} s", flush=True)
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(__file__).resolve().parent.parent
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    parser.add_argument("--vmtax", default=str(target / "x86_64-unknown-linux-gnu/release/vmtax"))
    parser.add_argument("--only", default="aa-micro,aa-tcg,power,minute")
    parser.add_argument("--comparisons", type=int, default=100)
    parser.add_argument("--powers", type=int, default=100)
    args = parser.parse_args()
    only = args.only.split(",")
    qemu = shutil.which("qemu-system-x86_64")
    if not Path(args.vmtax).exists() or not qemu:
        print("bench: no vmtax or no QEMU: run `make build`", file=sys.stderr)
        return 2
    micro = "micro-kvm" if os.access("/dev/kvm", os.W_OK) else "micro-tcg"
    fine = True
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-") as folder:
        if "aa-micro" in only:
            words = ["--machine", micro, "--rounds", "15", *COMMON, *READS]
            fine &= against_itself(f"itself, {micro}", args.vmtax, folder, args.comparisons, words)
        if "aa-tcg" in only:
            words = ["--machine", "tcg", "--rounds", "8", *COMMON, "--", "cpu", "cpu.time=0.1", "syscalls", "syscalls.only=getpid,pipe",
                     "syscalls.time=0.05", "disk", "disk.count=200", "disk.time=0"]
            fine &= against_itself("itself, tcg", args.vmtax, folder, args.comparisons, words)
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
