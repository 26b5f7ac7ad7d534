#!/usr/bin/env python3
"""Gives mutated inputs to each parser of outside data, a part of each in turn, and goes on where it stopped.

    campaigns/fuzz.py [--inputs N] [--targets A,B] [--processes N]

A fault is a panic, an abort, an input that takes more than 5 s of CPU time or 1 GiB; the input is kept beside the state. Exits 0
without a fault, 1 with one, 2 when something is missing.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import time

import campaign

# What a part should take. Its number of inputs follows from the parts before.
PART_S = 20
FIRST_PART = 2000
# A process with endless input is ended by its own limit of CPU time before; at low priority a part takes long.
PART_LIMIT_S = 7200


class Campaign:
    def __init__(self, arguments, state):
        self.program, self.state, self.seed = arguments.program, state, state.settings["seed"]
        self.known = subprocess.run([self.program], capture_output=True, text=True, check=True).stdout.split()
        self.faults = f"{arguments.state}/fuzz-faults"
        os.makedirs(self.faults, exist_ok=True)

    def done(self, target):
        return [record for record in self.state.done if record["target"] == target]

    def part(self, target, begin, count, scratch):
        """One process: the record of what it did."""
        fault = f"{self.faults}/{target}-{begin}"
        command = [self.program, target, f"--seed={self.seed}", f"--from={begin}", f"--count={count}", f"--fault={fault}"]
        begun = time.monotonic()
        try:
            ran = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PART_LIMIT_S, check=False,
                                 env=os.environ | {"TMPDIR": scratch})
            status, said = ran.returncode, ran.stderr
        except subprocess.TimeoutExpired:
            status, said = None, ""
        record = {"target": target, "from": begin, "inputs": count, "seconds": round(time.monotonic() - begun, 2)}
        if status != 0:
            record["fault"] = f"status {status}: {said.strip()[-400:]}; again: {' '.join(command)}"
            # Those before it were given; where it is not known which it was, none is counted.
            number = re.search(r"input number (\d+):", said)
            record["inputs"] = int(number.group(1)) + 1 - begin if number else 0
        return record

    def is_stuck(self, target):
        """Whether its next part would end as the last did: before an input is known to be over."""
        return any("fault" in record and record["inputs"] == 0 for record in self.done(target))

    def plan(self, target, most):
        """Where the next part of a target begins, and how many inputs it has, at most so many."""
        done = self.done(target)
        begin = max((record["from"] + record["inputs"] for record in done), default=0)
        last = done[-1] if done else None
        count = round(last["inputs"] * PART_S / max(last["seconds"], 0.1)) if last else FIRST_PART
        return begin, min(max(count, 1), most)

    def run(self, chosen, inputs, processes):
        """Each target in turn, for about the same time, until there are so many inputs: the slow ones get fewer."""
        with tempfile.TemporaryDirectory(prefix="vmtax-fuzz-", dir="/dev/shm") as scratch, \
                concurrent.futures.ThreadPoolExecutor(processes) as pool:
            while (missing := inputs - sum(record["inputs"] for target in chosen for record in self.done(target))) > 0:
                going_on = [target for target in chosen if not self.is_stuck(target)]
                if not going_on:
                    break
                share = -(-missing // len(going_on))
                running = [pool.submit(self.part, target, *self.plan(target, share), scratch) for target in going_on]
                try:
                    for part in concurrent.futures.as_completed(running):
                        self.state.add(part.result())
                        if fault := part.result().get("fault"):
                            print(f"{part.result()['target']}: {fault}", file=sys.stderr, flush=True)
                except KeyboardInterrupt:
                    pool.shutdown(cancel_futures=True)
                    raise


def summary(work):
    print(f"{'target':16}{'inputs':>14}{'per s':>10}{'faults':>8}")
    faults = 0
    for target in [*work.known, "all"]:
        done = work.state.done if target == "all" else work.done(target)
        inputs, seconds = sum(record["inputs"] for record in done), sum(record["seconds"] for record in done)
        faults = sum("fault" in record for record in done)
        print(f"{target:16}{inputs:14,}{inputs / max(seconds, 0.1):10,.0f}{faults:8}")
    print(f"seed {work.seed}")
    return faults


def main():
    built = f"{os.environ.get('CARGO_TARGET_DIR', 'target')}/x86_64-unknown-linux-gnu/release/vmtax-fuzz"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=built, type=os.path.abspath)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all targets together, earlier ones included")
    parser.add_argument("--targets", help="comma separated; default: all")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--state", default="target/fuzz", type=os.path.abspath)
    arguments = parser.parse_args()
    if not os.access(arguments.program, os.X_OK):
        print(f"fuzz: missing: {arguments.program} (make fuzz builds it)", file=sys.stderr)
        return 2
    work = Campaign(arguments, campaign.State(f"{arguments.state}/fuzz.jsonl", {"seed": arguments.seed}))
    chosen = campaign.parts(arguments.targets, work.known)
    campaign.interruptible(lambda: work.run(chosen, arguments.inputs, arguments.processes))
    return 1 if summary(work) else 0


if __name__ == "__main__":
    sys.exit(main())
