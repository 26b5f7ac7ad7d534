#!/usr/bin/env python3
"""Compares vmtax's `bonnie` with Bonnie++ itself, natively, in the same folder.

    bench/bonnie.py [--vmtax FILE] [--folder DIR] [--rounds N] [--only NAME,...]

The two are run in turns, which one first alternating; a ratio is the median over rounds of vmtax's rate over
Bonnie++'s. Each operation is given as much work as lasts half a second, since below that Bonnie++ prints no rate; the
files on which they work lie in memory unless a folder is given, so that a disk's moods are not compared. Exits 0 when
every ratio is within 10 %, 1 when one is not, 2 when something is missing.
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

LIMIT = 0.10
MOST = 2
# The fields of Bonnie++'s line of results that hold our metrics, counted from 0.
FIELDS = {"write": 11, "rewrite": 13, "read": 17, "seeks": 19, "create-seq": 26, "stat-seq": 28, "delete-seq": 30,
          "create-random": 32, "stat-random": 34, "delete-random": 36}


def output(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"bench: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def theirs(folder, part):
    """Rates by operation: MiB/s for what moves a file's blocks, else operations a second."""
    size, seeks, files = part
    user = ["-u", "root"] if os.geteuid() == 0 else []
    command = ["bonnie++", "-f", "-q", "-r", "0", "-d", folder, "-n", str(files // 1024), *user]
    command += ["-s", f"{size}:8k:{seeks}" if size else "0"]
    fields = output(command).splitlines()[-1].split(",")
    rates = {}
    for name, field in FIELDS.items():
        text = fields[field]
        if text and not re.fullmatch(r"\++", text):
            rates[name] = float(text) / (1024 if name in ("write", "rewrite", "read") else 1)
    return rates


def ours(vmtax, folder, part):
    size, seeks, files = part
    options = [f"size={size}M", f"seeks={seeks}", f"files={files}", "--share", folder, "--json"]
    result = json.loads(output([vmtax, "agent", "run", "bonnie", *options]))
    return {m["metric"].removeprefix("bonnie."): m["value"] for m in result["measures"]}


def interval(pairs):
    """A 95 % interval of the median ratio, from order statistics: nothing is assumed of the noise."""
    ratios = sorted(a / b for a, b in pairs)
    low = max(0, int((len(ratios) - 1.96 * len(ratios) ** 0.5) / 2))
    return ratios[low], ratios[-1 - low]


def undecided(pairs):
    low, high = interval(pairs)
    return low < 1 - LIMIT < high or low < 1 + LIMIT < high


def compare(arguments, folder, part, names):
    """The two sides' rates, round by round."""
    pairs = {name: [] for name in names}
    rounds = 0
    while rounds < arguments.rounds or (rounds < MOST * arguments.rounds and any(map(undecided, pairs.values()))):
        # Bonnie++ has its files in the folder's own scratch, where vmtax has them.
        sides = [lambda: ours(arguments.vmtax, folder, part), lambda: theirs(os.path.join(folder, "scratch"), part)]
        if rounds % 2:
            b, a = sides[1](), sides[0]()
        else:
            a, b = sides[0](), sides[1]()
        missing = [name for name in names if name not in b]
        if missing:
            sys.exit(f"bench: Bonnie++ gives no rate for {', '.join(missing)}: less than half a second; give a slower "
                     "folder or more work")
        for name in names:
            pairs[name].append((a[name], b[name]))
        rounds += 1
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target") + "/x86_64-unknown-linux-gnu/release"
    parser.add_argument("--vmtax", default=f"{target}/vmtax", help="the release binary")
    parser.add_argument("--folder", default="/dev/shm", help="where the files are made")
    parser.add_argument("--rounds", type=int, default=9,
                        help="rounds at least; up to twice as many while a limit is within an interval")
    parser.add_argument("--size", type=int, default=3072, help="MiB of the file")
    parser.add_argument("--seeks", type=int, default=300_000)
    parser.add_argument("--files", type=int, default=512, help="thousands (1024) of files")
    parser.add_argument("--only", help="blocks or names")
    arguments = parser.parse_args()
    missing = [] if shutil.which("bonnie++") else ["bonnie++ (apt-get install bonnie++)"]
    if not os.access(arguments.vmtax, os.X_OK):
        missing.append(f"{arguments.vmtax} (cargo build --release)")
    if arguments.rounds < 7:
        missing.append("rounds: give --rounds 7 or more")
    if missing:
        print("bench: missing: " + "; ".join(missing), file=sys.stderr)
        return 2
    names = list(FIELDS)
    parts = {"blocks": ((arguments.size, arguments.seeks, 0), names[:4]),
             "names": ((0, 0, arguments.files * 1024), names[4:])}
    print(f"{'operation':20} {'ratio':>8}   {'limit':14} {'':7} 95 % interval, rounds; medians: vmtax, Bonnie++")
    good = True
    with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-") as folder:
        os.mkdir(os.path.join(folder, "scratch"))
        for name, (part, metrics) in parts.items():
            if arguments.only and name not in arguments.only.split(","):
                continue
            for metric, pairs in compare(arguments, folder, part, metrics).items():
                ratio = statistics.median(a / b for a, b in pairs)
                low, high = interval(pairs)
                ok = abs(ratio - 1) <= LIMIT
                good &= ok
                a, b = (statistics.median(side) for side in zip(*pairs))
                print(f"{metric:20} {ratio:8.3f}   {f'1 +- {LIMIT:.2f}':14} {'ok' if ok else 'MISSED':7} {low:.3f} to "
                      f"{high:.3f}, n = {len(pairs)}; {a:.6g}, {b:.6g}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
