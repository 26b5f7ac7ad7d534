#!/usr/bin/env python3
"""Lets `vmtax tune` start from a disk path that is set up as badly as it can be, then measures every combination of the same changes,
and says how near the tuning came to the best of them, with how many boots.

    bench/tune_exhaustive.py [--kernel VMLINUX] [--machine kvm|tcg] [--rounds N] [--keep DIR]

Asked: the tuned configuration within 10 % of the best one, in a quarter of the search's boots at most; the first kept change within three
minutes. The search measures each combination in N interleaved rounds. Its boots are counted as those of 8 rounds, as many as a tuning
takes at least before it decides, however few N are. The best by these rounds was chosen by them; so it, what tune handed over and
the start are measured anew beside each other, and those rounds give the ratio. Exits 0 when all three hold, 1 when not, 2 when something
is missing.
"""

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

from tuning_proofs import MICROVM, VMTAX, guest, only, run

# What is planted, the changes that both may use.
PLANTED = ["cache=writethrough", "aio=threads", "ioeventfd=off", "queue-size=4", "event_idx=off"]
CHANGES = ["cache=writeback", "cache=none", "aio=native", "aio=io_uring", "ioeventfd=on", "ioeventfd=on,iothread=on", "queue-size=256", "event_idx=on"]
WORKLOAD = ["disk", "rw=randwrite", "depth=16"]
METRIC = "disk.iops"
# How long the workload runs in each boot, s: tune's default.
BLOCK_S = "1"
# Rounds that a search takes at least.
SEARCH_ROUNDS = 8
# What is asked for.
WITHIN, PART_OF_BOOTS, FIRST_S = 1.10, 0.25, 180


def settings(plan, configuration):
    """What a configuration sets, over the planted start; `None` where two of its changes contradict each other."""
    own = {}
    for change in configuration:
        for key, value in change["set"].items():
            if own.setdefault(key, value) != value:
                return None
    return {**plan["variant"][0]["set"], **own}


def configurations(plan):
    """All that the changes can be combined to, each once, with its settings."""
    changes = plan["tune-guest"]["candidate"]
    subsets = itertools.chain.from_iterable(itertools.combinations(changes, size) for size in range(len(changes) + 1))
    found = {}
    for subset in subsets:
        combined = settings(plan, subset)
        if combined is not None:
            found.setdefault(tuple(sorted(combined.items())), " + ".join(change["name"] for change in subset) or "start")
    return {name: dict(combined) for combined, name in found.items()}


def measure(options, all_of_them, rounds, out):
    """The request rate of each configuration in each of the interleaved rounds."""
    variants = [f"name=c{number}," + ",".join(f"{key}={value}" for key, value in set_.items()) for number, set_ in enumerate(all_of_them.values())]
    words = [VMTAX, "compare", *options, "--rounds", str(rounds), "--repeats", "1", "--budget", "4h", "--output", out, "-q", "--json"]
    work = [WORKLOAD[0], "time=" + BLOCK_S, *WORKLOAD[1:]]
    run([*words, *variants, "--", *work], 4 * 3600)
    rates = {name: [] for name in all_of_them}
    for folder in sorted(os.listdir(os.path.join(out, "trials"))):
        with open(os.path.join(out, "trials", folder, "trial.json"), encoding="utf-8") as file:
            trial = json.load(file)
        result = trial.get("result") or {}
        name = list(all_of_them)[int(trial["variant"][1:])]
        rates[name] += [one["value"] for one in result.get("measures", []) if one["metric"] == METRIC]
    return rates


def tune(plan, folder):
    """The findings of a tuning, and when its first change was confirmed, s after it began."""
    path, out = os.path.join(folder, "plan.toml"), os.path.join(folder, "tuned")
    with open(path, "w", encoding="utf-8") as file:
        file.write(plan)
    begun, first = time.monotonic(), None
    words = [VMTAX, "run", "--json", "--output", out, path]
    with open(os.path.join(folder, "findings.json"), "w+", encoding="utf-8") as answer:
        with subprocess.Popen(words, stdout=answer, stderr=subprocess.PIPE, text=True) as child:
            for line in child.stderr:
                if "confirmed:" in line and first is None:
                    first = time.monotonic() - begun
        took = time.monotonic() - begun
        if child.returncode:
            raise RuntimeError(f"the tuning ended with {child.returncode}: {line.strip()}")
        answer.seek(0)
        found = json.load(answer)["findings"]
    if first is None and found["total"]:
        first = took
    return found, first, took


def shown(value):
    return f"{value:,.0f}/s"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default=os.environ.get("VMTAX_TEST_KVM_GUEST"), type=os.path.abspath)
    parser.add_argument("--machine", default="kvm", choices=["kvm", "tcg"])
    parser.add_argument("--rounds", default=SEARCH_ROUNDS, type=int, help="rounds of the exhaustive search")
    parser.add_argument("--duration", default="15m", help="how long the tuning may measure")
    parser.add_argument("--keep", help="folder for the recordings")
    arguments = parser.parse_args()
    missing = [name for name in ("qemu-system-x86_64", VMTAX) if not shutil.which(name)]
    if arguments.machine == "kvm" and not arguments.kernel:
        missing.append("--kernel")
    if missing:
        print("bench: missing: " + ", ".join(missing), file=sys.stderr)
        return 2
    options = ["--machine", arguments.machine]
    options += [*guest(arguments.kernel), *MICROVM] if arguments.machine == "kvm" else []
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-", dir="/var/tmp") as scratch:
        folder = arguments.keep or scratch
        os.makedirs(folder, exist_ok=True)
        words = [VMTAX, "tune", *options, "--slice", BLOCK_S, "--duration", arguments.duration]
        words += [word for setting in PLANTED for word in ("--from", setting)]
        text = run([*words, "--dry-run", "--", *WORKLOAD], 60)
        text = only(text, CHANGES)
        plan = tomllib.loads(text)
        tried = [change["name"] for change in plan["tune-guest"]["candidate"]]
        everything = configurations(plan)
        print(f"start: {', '.join(PLANTED)}; {' '.join(WORKLOAD)}; changes: {', '.join(tried)}", flush=True)
        found, first, took = tune(text, folder)
        kept = [row["name"] for row in found["candidates"] if row["verdict"] == "keep"]
        print(f"tune: {found['boots']} boots in {took:.0f} s; kept {' + '.join(kept) or 'nothing'}; first kept change after "
              f"{'never' if first is None else f'{first:.0f} s'}", flush=True)
        for row in found["candidates"]:
            ratio = (row["confirmation"] or row["screening"] or {}).get("ratio")
            print(f"    {row['name']:28} {row['verdict']:12} {'' if ratio is None else '×%.2f' % ratio['median']} {row['why'] or ''}")
        begun = time.monotonic()
        rates = measure(options, everything, arguments.rounds, os.path.join(folder, "search"))
        searched = time.monotonic() - begun
        median = {name: statistics.median(of) if of else 0.0 for name, of in rates.items()}
        order = sorted(median, key=median.get, reverse=True)
        boots = sum(len(of) for of in rates.values())
        tuned = next(name for name, set_ in everything.items() if set_ == found["tuned"])
        print(f"search: {len(everything)} configurations in {arguments.rounds} rounds, {boots} boots in {searched:.0f} s; by these rounds:")
        for name in dict.fromkeys([*order[:5], tuned, "start", order[-1]]):
            print(f"    {order.index(name) + 1:3}. {shown(median[name]):>12}  {name}{' (tune)' if name == tuned else ''}", flush=True)
        again = dict.fromkeys(["start", tuned, *order[:3]])
        anew = measure(options, {name: everything[name] for name in again}, max(15, arguments.rounds), os.path.join(folder, "anew"))
        anew = {name: statistics.median(of) for name, of in anew.items()}
        best = max((name for name in anew if name in order[:3]), key=anew.get)
        for name, rate in sorted(anew.items(), key=lambda one: -one[1]):
            print(f"anew: {shown(rate):>12}  {name}{' (tune)' if name == tuned else ''}")
        search = SEARCH_ROUNDS * len(everything)
        behind, part = anew[best] / anew[tuned], found["boots"] / search
        holds = [behind <= WITHIN, part <= PART_OF_BOOTS, first is not None and first <= FIRST_S]
        print(f"tuned ÷ best: {1 / behind:.3f} (asked {1 / WITHIN:.2f} and more); boots: {found['boots']} of {search}, {part:.2f} (asked "
              f"{PART_OF_BOOTS}); first kept change: {'never' if first is None else f'{first:.0f} s'} (asked {FIRST_S} s)")
    return 0 if all(holds) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"bench: {error}")
