#!/usr/bin/env python3
"""Compares vmtax's `bonnie` with Bonnie++ itself, in one guest under TCG, on a 9p share and on a virtio disk with ext4.

    bench/bonnie.py [--vmtax FILE] [--vng FILE] [--rounds N] [--only 9p-blocks,9p-names,disk-blocks,disk-names]
    bench/bonnie.py --here FOLDER --part SIZE,SEEKS,FILES ...

The first boots a guest through virtme-ng, which has the host's own tree: Bonnie++ comes with its libraries, and both
programs are copied into the guest's memory first. In the guest it calls the second, which has the two do the same work in
one folder in turns, which one first alternating; a ratio is the median over rounds of vmtax's rate over Bonnie++'s.
Each operation is given as much work as lasts half a second, since below that Bonnie++ prints no rate. Disk and share lie
in the host's memory, so that a disk's moods are not compared. Exits 0 when every ratio is within 10 %, 1 when one is
not, 2 when something is missing.
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
from pathlib import Path

LIMIT = 0.10
MOST = 2
# Where the host keeps what is shared, and the guest the two programs.
MEMORY = "/dev/shm"
MEMORY_MIB = 1536
# The fields of Bonnie++'s line of results that hold our metrics, counted from 0.
FIELDS = {"write": 11, "rewrite": 13, "read": 17, "seeks": 19, "create-seq": 26, "stat-seq": 28, "delete-seq": 30,
          "create-random": 32, "stat-random": 34, "delete-random": 36}
# MiB of the file, seeks in it, small files.
PARTS = {"9p-blocks": (48, 16384, 0), "9p-names": (0, 0, 2048),
         "disk-blocks": (384, 49152, 0), "disk-names": (0, 0, 73728)}


def output(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=600)
    if done.returncode:
        sys.exit(f"bench: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def theirs(command, folder, part):
    """Rates by operation: MiB/s for what moves a file's blocks, else operations a second."""
    size, seeks, files = part
    user = ["-u", "root"] if os.geteuid() == 0 else []
    command = [*command, "-f", "-q", "-r", "0", "-d", folder, "-n", str(files // 1024), *user]
    command += ["-s", f"{size}:8k:{seeks}" if size else "0"]
    fields = output(command).splitlines()[-1].split(",")
    rates = {}
    for name, field in FIELDS.items():
        text = fields[field]
        if text and not re.fullmatch(r"\++", text):
            rates[name] = float(text) / (1024 if name in ("write", "rewrite", "read") else 1)
    return rates


def ours(command, folder, part):
    size, seeks, files = part
    options = [f"size={size}M", f"seeks={seeks}", f"files={files}", "--share", folder, "--json"]
    result = json.loads(output([*command, "agent", "run", "bonnie", *options]))
    return {m["metric"].removeprefix("bonnie."): m["value"] for m in result["measures"]}


def interval(pairs):
    """A 95 % interval of the median ratio, from order statistics: nothing is assumed of the noise."""
    ratios = sorted(a / b for a, b in pairs)
    low = max(0, int((len(ratios) - 1.96 * len(ratios) ** 0.5) / 2))
    return ratios[low], ratios[-1 - low]


def undecided(pairs):
    low, high = interval(pairs)
    return low < 1 - LIMIT < high or low < 1 + LIMIT < high


def compare(sides, folder, part, at_least):
    """The two sides' rates, round by round. The first is not counted: it has the memory to itself for the first time."""
    names = [name for name in FIELDS if bool(part[2]) == ("-" in name)]
    pairs = {name: [] for name in names}
    rounds = -1
    while rounds < at_least or (rounds < MOST * at_least and any(map(undecided, pairs.values()))):
        # Bonnie++ has its files in the directory's own scratch, where vmtax has them.
        runs = [lambda: ours(sides[0], folder, part), lambda: theirs(sides[1], f"{folder}/scratch", part)]
        if rounds % 2:
            b, a = runs[1](), runs[0]()
        else:
            a, b = runs[0](), runs[1]()
        missing = [name for name in names if name not in b]
        if missing:
            sys.exit(f"bench: Bonnie++ gives no rate for {', '.join(missing)}: less than half a second; give more work")
        rounds += 1
        if rounds:
            for name in names:
                pairs[name].append((a[name], b[name]))
    return pairs


def packed(program, folder):
    """The command that runs a copy of the program with copies of its libraries, none of which a share has to give."""
    folder = Path(folder, Path(program).name)
    folder.mkdir()
    shutil.copy(program, folder)
    listed = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    libraries = re.findall(r"(/\S+) \(0x", listed)
    for library in libraries:
        shutil.copy(library, folder)
    loader = [folder / Path(name).name for name in libraries if "/ld-" in name]
    return [*(word for path in loader for word in (path, "--library-path", folder)), folder / Path(program).name]


def here(arguments):
    """Compares in a folder of this system."""
    part = tuple(int(number) for number in arguments.part.split(","))
    mount = output(["findmnt", "--noheadings", "--output", "FSTYPE,OPTIONS", "--target", arguments.here]).strip()
    print(f"{arguments.name}: {mount}")
    good = True
    with tempfile.TemporaryDirectory(dir=MEMORY) as programs:
        sides = packed(arguments.vmtax, programs), packed(shutil.which("bonnie++"), programs)
        os.mkdir(f"{arguments.here}/scratch")
        for metric, pairs in compare(sides, arguments.here, part, arguments.rounds).items():
            ratio = statistics.median(a / b for a, b in pairs)
            low, high = interval(pairs)
            ok = abs(ratio - 1) <= LIMIT
            good &= ok
            a, b = (statistics.median(side) for side in zip(*pairs))
            print(f"{metric:20} {ratio:8.3f}   {f'1 +- {LIMIT:.2f}':14} {'ok' if ok else 'MISSED':7} {low:.3f} to "
                  f"{high:.3f}, n = {len(pairs)}; {a:.6g}, {b:.6g}", flush=True)
        os.rmdir(f"{arguments.here}/scratch")
    return 0 if good else 1


def in_guest(arguments, name, kernel, scratch):
    """The same in a guest: prints what it said there, gives its status."""
    share, disk = Path(scratch, "share"), Path(scratch, "disk")
    share.mkdir()
    with open(disk, "wb") as file:
        file.truncate(1 << 30)
    output(["mkfs.ext4", "-q", "-F", disk])
    mount = f"mount --bind {share} /mnt"
    if name.startswith("disk"):
        mount = "modprobe virtio_blk; modprobe ext4; mount -t ext4 /dev/vda /mnt"
    again = [sys.executable, os.path.abspath(__file__), "--here", "/mnt", "--name", name,
             "--part", ",".join(map(str, PARTS[name])), "--rounds", str(arguments.rounds), "--vmtax", arguments.vmtax]
    said, status = share / "said", share / "status"
    script = f"{{ {mount} && {' '.join(again)}; }} > {said} 2>&1; echo $? > {status}"
    drive = f"-drive file={disk},format=raw,if=none,id=measured -device virtio-blk-pci,drive=measured"
    command = [arguments.vng, "--run", kernel, "--qemu", shutil.which("qemu-system-x86_64"), "--disable-kvm", "--force-9p",
               "--cpus=1", f"--memory={MEMORY_MIB}M", f"--rwdir={share}", f"--qemu-opts={drive}", "--exec", script]
    # virtme-ng finds its own programs, and those in sbin, through PATH.
    path = f"{Path(arguments.vng).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=3600, cwd=scratch, env=os.environ | {"PATH": path})
    if not status.exists():
        sys.exit(f"bench: virtme-ng ran no command:\n{done.stdout}")
    print(said.read_text(), end="", flush=True)
    return int(status.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target") + "/x86_64-unknown-linux-gnu/release"
    parser.add_argument("--vmtax", default=f"{target}/vmtax", help="the release binary", type=os.path.abspath)
    parser.add_argument("--vng", default=shutil.which("vng") or "target/tools/bin/vng", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=9,
                        help="rounds at least; up to twice as many while a limit is within an interval")
    parser.add_argument("--only", help=", ".join(PARTS), default=",".join(PARTS))
    parser.add_argument("--here", metavar="FOLDER", help="compare in this folder, on this system")
    parser.add_argument("--name", default="here", help="what to call it")
    parser.add_argument("--part", help="with --here: MiB of the file, seeks, files (thousands of 1024)")
    arguments = parser.parse_args()
    needed = [("bonnie++", shutil.which("bonnie++")), (arguments.vmtax, os.access(arguments.vmtax, os.X_OK)),
              ("--rounds 7 or more", arguments.rounds >= 7)]
    if not arguments.here:
        needed += [(arguments.vng, os.access(arguments.vng, os.X_OK)), ("qemu", shutil.which("qemu-system-x86_64")),
                   ("mkfs.ext4", shutil.which("mkfs.ext4", path=os.environ["PATH"] + ":/usr/sbin:/sbin"))]
    missing = [str(name) for name, there in needed if not there]
    if missing:
        print(f"bench: missing: {', '.join(missing)} (make build, scripts/setup bench)", file=sys.stderr)
        return 2
    if arguments.here:
        return here(arguments)
    fetched = Path(output([arguments.vmtax, "get", "kernel"]).split()[-1])
    print(f"{'operation':20} {'ratio':>8}   {'limit':14} {'':7} 95 % interval, rounds; medians: vmtax, Bonnie++")
    worst = 0
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-") as place:
        # virtme-ng finds the modules beside the kernel, but writes an index there: not into the cache. And not into the
        # host's memory: the guest has its own at that path.
        tree = shutil.copytree(fetched.parent.parent, f"{place}/kernel", copy_function=os.symlink)
        for name in arguments.only.split(","):
            with tempfile.TemporaryDirectory(dir=MEMORY, prefix="vmtax-bench-") as scratch:
                worst = max(worst, in_guest(arguments, name, f"{tree}/boot/{fetched.name}", scratch))
    return worst


if __name__ == "__main__":
    sys.exit(main())
