#!/usr/bin/env python3
"""Compares vmtax's workloads with the tools they follow, natively, side by side: sysbench, fio, and bare RDTSCP.

    bench/native.py [--vmtax FILE] [--cost FILE] [--disk FILE] [--rounds N] [--time S] [--only NAME,...]

Each round runs both tools once, in alternating order, with the same amount of work; a line's ratio is the median over
rounds of vmtax's figure over the tool's own. Many short rounds, since a busy machine changes its speed from second to
second. Both run on the same CPUs: single-threaded tests on one. Exits 0 when every ratio is within its limit, 1
when one is not, 2 when something is missing.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

MOST = 4
TOOLS = {"sysbench": "sysbench", "fio": "fio", "taskset": "util-linux"}
# Seconds of a run of many threads.
PHASES_S = 3


class Comparison:
    """One test: how each side is run, and how far the ratio of their figures may be from 1.

    Both sides do the same amount of work, about `--time` seconds of it; how much that is, a run of `probe` says.
    """

    def __init__(self, name, limit, metric, cpus, ours, reference, figure, probe=None):
        self.name, self.limit, self.metric, self.cpus = name, limit, metric, cpus
        self.ours, self.reference, self.figure, self.probe = ours, reference, figure, probe


def sysbench(test, threads, *options):
    return ["sysbench", test, f"--threads={threads}", "--time=0", *options, "run"]


def found(pattern, text):
    match = re.search(pattern, text)
    if not match:
        sys.exit(f"bench: the tool's output has no {pattern!r}:\n{text}")
    return float(match.group(1))


def events_per_second(text):
    return found(r"total number of events:\s+(\d+)", text) / found(r"total time:\s+([\d.]+)s", text)


def total_time(text):
    return found(r"total time:\s+([\d.]+)s", text)


def clat_median(text):
    return float(json.loads(text)["jobs"][0]["read"]["clat_ns"]["percentile"]["50.000000"])


def counted(name, limit, workload, metric, threads, cpus):
    """A test that does a number of events."""
    options = [workload, f"threads={threads}"]
    return Comparison(name, limit, metric, cpus,
                      lambda n: [*options, f"events={n}", "time=0"],
                      lambda n: sysbench(workload, threads, f"--events={n}"),
                      events_per_second, [*options, "time=0.2"])


def memory(operation, block, cpus):
    options = ["memory", f"oper={operation}", f"block-size={block}"]
    return Comparison(f"memory-{operation}-{block}", 0.03, "memory.bandwidth", cpus,
                      lambda n: [*options, f"total-size={n}M", "time=0"],
                      lambda n: sysbench("memory", 1, f"--memory-oper={operation}", f"--memory-block-size={block}",
                                         f"--memory-total-size={n}M"),
                      lambda text: found(r"\(([\d.]+) MiB/sec\)", text), [*options, "total-size=100T", "time=0.2"])


def comparisons(arguments, disk):
    one, every = [max(os.sched_getaffinity(0))], sorted(os.sched_getaffinity(0))
    tests = [counted("cpu", 0.03, "cpu", "cpu.events", 1, one)]
    tests += [memory(operation, block, one) for operation in ("write", "read") for block in ("64K", "256K", "1M")]
    tests.append(counted("threads-1", 0.10, "threads", "threads.events", 1, one))
    # Eight threads on few CPUs run in phases: which of them share a lock changes slowly. Long runs even it out.
    tests.append(Comparison("threads-8", 0.10, "threads.events", every,
                            lambda _: ["threads", "threads=8", f"time={PHASES_S}"],
                            lambda _: ["sysbench", "threads", "--threads=8", f"--time={PHASES_S}", "run"],
                            events_per_second))
    for threads, cpus in ((1, one), (4, every)):
        tests.append(Comparison(f"mutex-{threads}", 0.10, "mutex.time", cpus,
                                lambda _, threads=threads: ["mutex", f"threads={threads}"],
                                lambda _, threads=threads: sysbench("mutex", threads), total_time))
    fio = ["fio", "--name=disk", "--ioengine=psync", "--direct=1", "--rw=read", "--bs=4k", "--iodepth=1",
           "--readonly", "--time_based", f"--runtime={round(arguments.time * 1000)}ms", f"--filename={disk}",
           "--output-format=json"]
    tests.append(Comparison("disk", 0.03, "disk.latency-p50", every,
                            lambda _: ["disk", f"time={arguments.time}", "--disk", disk], lambda _: fio,
                            clat_median))
    return tests


def output(command, cpus):
    pinned = ["taskset", "--cpu-list", ",".join(map(str, cpus)), *command]
    if os.geteuid() == 0:
        # Other load on the machine disturbs both sides less.
        pinned = ["nice", "--adjustment=-20", *pinned]
    done = subprocess.run(pinned, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"bench: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def compare(test, arguments):
    """The two sides' figures, round by round."""

    def measured(options):
        measures = json.loads(output([arguments.vmtax, "agent", "run", *options, "--json"], test.cpus))["measures"]
        return next(m["value"] for m in measures if m["metric"] == test.metric)

    work = max(1, round(measured(test.probe) * arguments.time)) if test.probe else 0

    def ours():
        return measured(test.ours(work))

    def theirs():
        return test.figure(output(test.reference(work), test.cpus))

    pairs = []
    while len(pairs) < arguments.rounds or (len(pairs) < MOST * arguments.rounds and undecided(pairs, test.limit)):
        if len(pairs) % 2:
            b, a = theirs(), ours()
        else:
            a, b = ours(), theirs()
        pairs.append((a, b))
    return pairs


def interval(pairs):
    """A 95 % interval of the median ratio, from order statistics: nothing is assumed of the noise."""
    ratios = sorted(a / b for a, b in pairs)
    low = max(0, int((len(ratios) - 1.96 * len(ratios) ** 0.5) / 2))
    return ratios[low], ratios[-1 - low]


def undecided(pairs, limit):
    """Whether the limit lies inside the interval: then more rounds are made, whichever side the median is on."""
    low, high = interval(pairs)
    return low < 1 - limit < high or low < 1 + limit < high


def line(name, ratio, allowed, ok, note):
    print(f"{name:20} {ratio:8.3f}   {allowed:14} {'ok' if ok else 'MISSED':7} {note}", flush=True)
    return ok


def costs(program):
    """The histogram update against 10 ns, the timer pair against two RDTSCP: the best of several runs."""
    best = {}
    for _ in range(5):
        for row in output([program], [max(os.sched_getaffinity(0))]).splitlines():
            name, value = row.split()
            best[name] = min(float(value), best.get(name, float("inf")))
    update, pair, bare = best["histogram_update"], best["timer_pair"], best["rdtscp"]
    return [line("histogram update", update / 10, "<= 1", update <= 10, f"{update:.1f} ns of 10"),
            line("timer pair", pair / (2 * bare), "<= 1", pair <= 2 * bare, f"{pair:.1f} ns, one RDTSCP {bare:.1f} ns")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target") + "/x86_64-unknown-linux-gnu/release"
    parser.add_argument("--vmtax", default=f"{target}/vmtax", help="the release binary")
    parser.add_argument("--cost", default=f"{target}/examples/cost", help="crates/measure/workload/examples/cost, built")
    parser.add_argument("--disk", help="block device or file for the workload disk; a new file of 256 MiB when not given")
    parser.add_argument("--rounds", type=int, default=21,
                        help="rounds at least; up to 4 times as many while a limit is within the interval")
    parser.add_argument("--time", type=float, default=0.25, help="seconds of a run, about")
    parser.add_argument("--only", help="tests whose names start with one of these, comma separated")
    arguments = parser.parse_args()
    missing = [f"{tool} (apt-get install {package})" for tool, package in TOOLS.items() if not shutil.which(tool)]
    missing += [f"{path} (cargo build --release --bins --examples)" for path in (arguments.vmtax, arguments.cost)
                if not os.access(path, os.X_OK)]
    if arguments.rounds < 7:
        missing.append("rounds: give --rounds 7 or more")
    if missing:
        print("bench: missing: " + "; ".join(missing), file=sys.stderr)
        return 2

    with tempfile.TemporaryDirectory(dir=os.getcwd(), prefix="bench-") as scratch:
        disk = arguments.disk or os.path.join(scratch, "disk")
        if not arguments.disk:
            with open(disk, "wb") as file:
                for _ in range(256):
                    file.write(os.urandom(1 << 20))
                os.fsync(file.fileno())
        load = os.getloadavg()[0]
        if load > 0.5:
            print(f"bench: the machine is busy (load {load:.1f}): intervals will be wide", file=sys.stderr)
        print(f"{'test':20} {'ratio':>8}   {'limit':14} {'':7} 95 % interval, rounds; medians: vmtax, reference")
        results = []
        wanted = arguments.only.split(",") if arguments.only else None
        for test in comparisons(arguments, disk):
            if wanted and not any(test.name.startswith(w) for w in wanted):
                continue
            pairs = compare(test, arguments)
            ratio = statistics.median(a / b for a, b in pairs)
            low, high = interval(pairs)
            note = (f"{low:.3f} to {high:.3f}, n = {len(pairs)}; {statistics.median(a for a, _ in pairs):.6g}, "
                    f"{statistics.median(b for _, b in pairs):.6g}")
            results.append(line(test.name, ratio, f"1 +- {test.limit:.2f}", abs(ratio - 1) <= test.limit, note))
        if not wanted or "cost" in wanted:
            results += costs(arguments.cost)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
