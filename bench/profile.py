#!/usr/bin/env python3
"""Measures `vmtax profile` on a TCG guest that is busy: what sampling costs it beside `perf record --call-graph dwarf` at
the same rate, how many stacks unwind, and how long a look by the clock stops a thread.

    bench/profile.py [--vmtax FILE] [--rounds N] [--seconds N] [--only guest|cost]

The work is a program whose own speed is known: how often a thread goes round a loop with calls. Each round measures it
alone, under vmtax and under perf, at 99 and at 999 Hz, in an order that turns. Then a guest under TCG is profiled. Exits 0
when every figure is within its limit, 1 when one is not, 2 when something is missing. As root.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

# Goes round below twenty frames, and tells now and then how often it did.
SOURCE = """
#include <stdio.h>
#include <time.h>
static volatile unsigned long sink, rounds;
static __attribute__((noinline)) unsigned long inner(unsigned long n)
{
    for (int i = 0; i < 100; i++)
        sink = sink * 3 + n;
    return sink;
}
static __attribute__((noinline)) unsigned long deep(int depth, unsigned long n)
{
    volatile char room[200];
    room[n & 127] = 1;
    return (depth ? deep(depth - 1, n) : inner(n)) + room[n & 127];
}
int main(void)
{
    for (;;) {
        sink += deep(20, rounds++);
        if ((rounds & 0xffff) == 0) {
            struct timespec t, own;
            clock_gettime(CLOCK_MONOTONIC, &t);
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
            printf("%lu %ld.%09ld %ld.%09ld\\n", rounds, t.tv_sec, t.tv_nsec, own.tv_sec, own.tv_nsec);
            fflush(stdout);
        }
    }
}
"""


def speed(log, begin, end):
    """Rounds of the program for each second that it has a processor, between two moments: others on this machine take time,
    the interrupts that sample it slow it down."""
    with open(log) as lines:
        points = [(int(n), float(t), float(own)) for n, t, own in (line.split() for line in lines if line.endswith("\n"))]
    points = [(n, own) for n, t, own in points if begin <= t <= end]
    return (points[-1][0] - points[0][0]) / (points[-1][1] - points[0][1])


def line(name, value, limit, holds, note):
    print(f"{name:34} {value:9.4f}   {limit:11} {'ok' if holds else 'MISSED':7} {note}", flush=True)
    return holds


def under(command, log, seconds):
    """The program's speed while `command` looks at it; None: while nothing does."""
    looking = command and subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.7)
    begin = time.clock_gettime(time.CLOCK_MONOTONIC)
    time.sleep(seconds)
    end = time.clock_gettime(time.CLOCK_MONOTONIC)
    if looking:
        looking.send_signal(signal.SIGINT)
        looking.wait(timeout=60)
    return speed(log, begin, end)


def costs(arguments, scratch):
    source, program, log = (os.path.join(scratch, name) for name in ("work.c", "work", "work.log"))
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["cc", "-O2", "-fomit-frame-pointer", "-o", program, source], check=True)
    with open(log, "w") as out:
        work = subprocess.Popen([program], stdout=out)
    ways = {"alone": None}
    for hz in (99, 999):
        perf = ["perf", "record", "-q", "-F", str(hz), "--call-graph", "dwarf", "-p", str(work.pid), "-o"]
        ways[f"perf {hz}"] = perf + [os.path.join(scratch, "perf.data")]
        ways[f"vmtax {hz}"] = [arguments.vmtax, "profile", "--seconds", "3600", "--hz", str(hz), "--wall-hz", "0",
                               "--pid", str(work.pid), "--out"]
    found = {name: [] for name in ways}
    try:
        names = list(ways)
        for number in range(arguments.rounds):
            for name in names[number % len(names):] + names[:number % len(names)]:
                command = ways[name]
                if command and command[0] == arguments.vmtax:
                    command = command + [os.path.join(scratch, f"out-{number}-{name.replace(' ', '-')}")]
                found[name].append(under(command, log, arguments.seconds))
    finally:
        work.kill()
        work.wait()
    slower = {}
    for name in names[1:]:
        pairs = [alone / there - 1 for alone, there in zip(found["alone"], found[name])]
        slower[name] = statistics.median(pairs)
        print(f"  {name}: {' '.join(f'{100 * p:.2f}' for p in pairs)} % slower", flush=True)
    yield line("cost at 99 Hz", slower["vmtax 99"], "<= 0.01", slower["vmtax 99"] <= 0.01,
               f"perf record --call-graph dwarf: {slower['perf 99']:.4f}")
    limit = slower["perf 999"] / 2
    yield line("cost at 999 Hz", slower["vmtax 999"], f"<= {limit:.4f}", slower["vmtax 999"] <= limit,
               f"half of what perf record --call-graph dwarf costs, {slower['perf 999']:.4f}")


def guest(arguments, scratch):
    out = os.path.join(scratch, "guest")
    command = [arguments.vmtax, "profile", "--machine", "tcg", "--hz", "499", "--json", "--out", out, "--runs",
               os.path.join(scratch, "runs"), "--", "seqread", "time=8"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"bench: {' '.join(command)} failed:\n{done.stderr}")
    found = json.loads(done.stdout)
    unwound, pauses = found["unwound"], found["wall"]["pauses"]
    yield line("unwound outside translated code", unwound["share"], ">= 0.95", unwound["share"] >= 0.95,
               f"of {found['user_samples']} samples")
    past = found["translated_unwound"]
    yield line("unwound past translated code", past["share"], "printed", True,
               f"of {found['translated_samples']} samples")
    p50 = pauses["p50_ns"] / 1000
    yield line("stop for a look, us", p50, "<= 200", p50 <= 200,
               f"median of {pauses['count']}; 99th percentile {pauses['p99_ns'] / 1000:.0f}, {pauses['unstopped']} without")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    parser.add_argument("--vmtax", default=f"{target}/x86_64-unknown-linux-gnu/release/vmtax", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--only", choices=["guest", "cost"])
    arguments = parser.parse_args()
    missing = [] if os.access(arguments.vmtax, os.X_OK) else [f"{arguments.vmtax} (make build)"]
    missing += [f"{name} (apt-get install {package})" for name, package in
                (("qemu-system-x86_64", "qemu-system-x86"), ("perf", "linux-perf"), ("cc", "gcc")) if not shutil.which(name)]
    if os.geteuid():
        missing.append("root (sampling the kernel)")
    if missing:
        print("bench: missing: " + "; ".join(missing), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-") as scratch:
        parts = {"guest": guest, "cost": costs}
        results = [r for name, part in parts.items() if arguments.only in (None, name) for r in part(arguments, scratch)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
