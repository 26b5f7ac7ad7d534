#!/usr/bin/env python3
"""Kills a vmtax that observes or tunes a running VM by SIGKILL, at a random moment, again and again: the VM runs on, and after
the next start of vmtax (of a tuning: after `vmtax undo`) its settings are as before and nothing is left on the host.

    campaigns/vm_kills.py [--vmtax FILE] [--kills N] [--seed N] [--commands LIST] [--state DIR]

Settings: the VM's state, I/O limits, latency histograms and trace events of QEMU, the threads' CPUs. The campaign goes on where
it stopped: DIR/vm-kills.jsonl has a line for each kill. The command and the moment of kill N follow from the seed; the moment is
uniform over the time that the command takes. Exits 0 when all kills passed, 1 when one failed, 2 when something is missing. As root.
"""

import collections
import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import campaign

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench"))
import diagnose as planted

# The arguments, VM for its process; seconds that the command takes; whether it changes settings, which `vmtax undo` restores.
COMMANDS = {
    "top": (["top", "VM", "--batch", "--level=2", "--interval=1", "--samples=3"], 4, False),
    "diagnose": (["diagnose", "VM", "-q"], 12, False),
    "layers": (["layers", "--vm=VM", "--duration=2s", "-q"], 5, False),
    "tune": (["tune", "--vm=VM", "--apply", "-q"], 25, True),
}
# Within the diagnosis of a tuning nothing is changed.
FIRST = {"tune": 8}


def settings(bench, pid):
    """What a command may change of this VM."""
    disks = bench.monitor("query-block")
    stats = bench.monitor("query-blockstats")
    events = bench.monitor("trace-event-get-state", name="*")
    return {
        "state": bench.monitor("query-status")["status"],
        "limits": [disk["inserted"]["iops"] for disk in disks if "inserted" in disk],
        "histograms": [name for disk in stats for name in disk["stats"] if name.endswith("latency_histogram")],
        "trace events": sorted(event["name"] for event in events if event["state"] == "enabled"),
        # Threads of the pool come and go.
        "affinity": sorted({tuple(sorted(os.sched_getaffinity(int(tid)))) for tid in os.listdir(f"/proc/{pid}/task")}),
    }


def one(arguments, state, bench, pid, number):
    """One kill; gives what is kept of it."""
    random = campaign.drawn(state.settings["seed"], number)
    name = random.choice(campaign.parts(arguments.commands, COMMANDS))
    words, seconds, tunes = COMMANDS[name]
    at, before = random.uniform(FIRST.get(name, 0), seconds), settings(bench, pid)
    folder = Path(bench.scratch, f"kill-{number}")
    run = campaign.Run(folder, f"{os.getpid()}-{number}")
    run.start([arguments.vmtax, *(word.replace("VM", str(pid)) for word in words)])
    ended = run.wait(at) is not None
    if not ended:
        run.child.kill()
        run.wait(10)
    record = {"number": number, "command": name, "at_s": round(at, 2), "ended": ended, "failures": []}
    failures = record["failures"]
    took, left = run.gone_after(5)
    failures += [f"after {took:.1f} s there is still {process}" for process in left]
    run.kill_all()
    again = ["undo"] if tunes else ["top", str(pid), "--batch", "--level=1", "--interval=1", "--samples=1"]
    status, _, error = run.again([arguments.vmtax, *again])
    if why := campaign.crashed(status, error):
        failures.append(f"the next start {why}")
    failures += [f"left after the next start: {what} {names}" for what, names in run.left().items()]
    after = settings(bench, pid)
    failures += [f"{what}: {before[what]} before, {after[what]} after" for what in before if before[what] != after[what]]
    shutil.rmtree(folder)
    return record


def main():
    parser = campaign.options(__doc__, COMMANDS, "chaos")
    parser.add_argument("--kills", type=int, default=200)
    arguments = parser.parse_args()
    if missing := campaign.needed(arguments.vmtax, [("qemu-system-x86_64", "qemu-system-x86")]):
        print("vm_kills: missing: " + "; ".join(missing), file=sys.stderr)
        return 2
    state = campaign.State(f"{arguments.state}/vm-kills.jsonl", {"seed": arguments.seed})

    def kills():
        with tempfile.TemporaryDirectory(prefix="vmtax-kills-", dir="/var/tmp") as scratch, contextlib.ExitStack() as stack:
            bench = planted.Bench(scratch, None, stack)
            pid = planted.limit(bench)
            time.sleep(3)
            while sum(not record["ended"] for record in state.done) < arguments.kills:
                record = one(arguments, state, bench, pid, len(state.done))
                state.add(record)
                for failure in record["failures"]:
                    print(f"kill {record['number']} of {record['command']}: {failure}", file=sys.stderr, flush=True)

    campaign.interruptible(kills)
    counts = collections.Counter(record["command"] for record in state.done if not record["ended"])
    failed = [record for record in state.done if record["failures"]]
    print(f"{counts.total()} kills ({', '.join(f'{name} {n}' for name, n in sorted(counts.items()))}), seed {state.settings['seed']}; "
          f"{len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
