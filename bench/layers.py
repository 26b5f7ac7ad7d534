#!/usr/bin/env python3
"""Holds what `vmtax layers` says of its own work against limits: requests joined, time unexplained, clocks, and what the
probes cost beside the untraced control of the same rounds.

    bench/layers.py [--vmtax FILE] [--rounds N] [--count N]

Exits 0 when every figure is within its limit, 1 when one is not, 2 when something is missing. As root.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile


def layers(vmtax, scratch, *words):
    """The columns of a run, by machine."""
    command = [vmtax, "layers", *words, "--json", f"--dir={scratch}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=1800)
    if done.returncode:
        sys.exit(f"bench: {' '.join(map(str, command))} failed:\n{done.stderr}")
    return {column["machine"]: column for column in json.loads(done.stdout)["findings"]["columns"]}


def line(name, value, limit, holds, note):
    print(f"{name:28} {value:9.4f}   {limit:11} {'ok' if holds else 'MISSED':7} {note}", flush=True)
    return holds


def rounds(text):
    """The number of rounds of an option."""
    if int(text) < 6:
        raise argparse.ArgumentTypeError("an interval takes six rounds at least")
    return int(text)


def judge(what, column, fewest_joined, most_unexplained, most_observed):
    matched, clock = column["matched"], column["clock"]
    joined = matched["joined"] / matched["operations"]
    unexplained = column["unexplained_ns"] / column["traced"]["mean_ns"]
    bound, violations = clock["bound_ns"], clock["violations"]
    observer = column["observer"]
    low, high = (observer["interval"][end] for end in ("low", "high"))
    yield line(f"{what}: joined", joined, f">= {fewest_joined}", joined >= fewest_joined,
               f"of {matched['operations']} requests")
    if most_unexplained is not None:
        yield line(f"{what}: unexplained", unexplained, f"<= {most_unexplained}", unexplained <= most_unexplained,
                   f"{column['unexplained_ns'] / 1000:.2f} us of {column['traced']['mean_ns'] / 1000:.1f}")
    yield line(f"{what}: clocks, ns", bound, "<= 500", bound <= 500, clock["source"])
    yield line(f"{what}: violations", violations, "<= 0", violations == 0, "requests against cause and effect")
    limit = "printed" if most_observed is None else f"<= {most_observed}"
    yield line(f"{what}: traced/untraced", high, limit, most_observed is None or high <= most_observed,
               f"upper end; median {observer['median']:.3f}, from {low:.3f}, {column['rounds']} rounds")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    parser.add_argument("--vmtax", default=f"{target}/x86_64-unknown-linux-gnu/release/vmtax", type=os.path.abspath)
    parser.add_argument("--rounds", type=rounds, default=12)
    parser.add_argument("--count", type=int, default=1000)
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
        alone = layers(arguments.vmtax, scratch, f"count={arguments.count}", f"--rounds={arguments.rounds}")
        for machine, column in alone.items():
            micro = machine.startswith("micro")
            results += judge(machine, column, 0.999, 0.01, None if micro else 1.05)
        deep = layers(arguments.vmtax, scratch, f"count={10 * arguments.count}", "depth=32", "mode=random", "--rounds=6")
        for machine, column in deep.items():
            results += judge(f"{machine}, depth 32", column, 0.995, None, None)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
