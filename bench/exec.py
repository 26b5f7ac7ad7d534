#!/usr/bin/env python3
"""Holds `vmtax exec` against its limits: beside virtme-ng, beside `vmtax run`, and by itself.

    bench/exec.py [--vmtax FILE] [--vng FILE] [--rounds N] [--only vng,walk,cpu,ready,start,flood]

Guests run under TCG with the same QEMU, kernel, CPUs and memory; what is compared is measured in turns. Exits 0
when every figure is within its limit, 1 when one is not, 2 when something is missing.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CPUS, MEMORY_MIB = 1, 1024
GUEST = ["--machine=tcg", "--rounds=1", f"--cpus={CPUS}", f"--memory={MEMORY_MIB}"]
FILES = 4000
FLOOD_BYTES = 1 << 30
STARTS = 20


def checked(command, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=600, **more)
    if done.returncode:
        sys.exit(f"bench: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def seconds(command, **more):
    begin = time.perf_counter()
    checked(command, **more)
    return time.perf_counter() - begin


def line(name, value, limit, note):
    ok = value <= limit
    print(f"{name:28} {value:8.3f}   <= {limit:<6} {'ok' if ok else 'MISSED':7} {note}", flush=True)
    return ok


class Bench:
    def __init__(self, arguments, scratch, kernel):
        self.vmtax, self.vng, self.rounds = arguments.vmtax, arguments.vng, arguments.rounds
        self.scratch, self.kernel = Path(scratch), kernel
        self.guest = [*GUEST, f"--kernel={kernel}", f"--modules={Path(kernel).parent.parent / 'lib/modules'}",
                      f"--dir={scratch}/runs"]

    def exec(self, *command, **more):
        return checked([self.vmtax, "exec", *self.guest, "--", *command], **more)

    def recorded(self):
        """The folder of the last recording, which is taken away after it was read; the history lies beside it."""
        (folder,) = (path for path in (self.scratch / "runs").iterdir() if path.name != ".history")
        return folder

    def forget(self):
        shutil.rmtree(self.scratch / "runs")

    def in_virtme(self, script):
        """Where no udev runs virtme-ng has no port for the exit status and ends with 255, so a file tells of success."""
        done = self.shared() / "done"
        done.unlink(missing_ok=True)
        command = [self.vng, "--run", self.kernel, "--disable-kvm", f"--cpus={CPUS}", f"--memory={MEMORY_MIB}M",
                   f"--rwdir={self.shared()}", "--exec", f"{script} && : > {done}"]
        path = f"{Path(self.vng).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
        begin = time.perf_counter()
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                             timeout=600, cwd=self.scratch, env=os.environ | {"PATH": path})
        took = time.perf_counter() - begin
        if not done.exists():
            sys.exit(f"bench: virtme-ng did not run '{script}':\n{run.stdout}{run.stderr}")
        return took

    def shared(self):
        folder = self.scratch / "shared"
        folder.mkdir(exist_ok=True)
        return folder

    def in_turns(self, ours, theirs):
        """Pairs, who is first alternating."""
        pairs = []
        for number in range(self.rounds):
            if number % 2:
                second = theirs()
                pairs.append((ours(), second))
            else:
                first = ours()
                pairs.append((first, theirs()))
        return pairs

    def against(self, name, pairs, limit):
        ours, theirs = (statistics.median(side) for side in zip(*pairs))
        ratio = statistics.median(a / b for a, b in pairs)
        return line(name, ratio, limit, f"medians {ours:.3f} s, {theirs:.3f} s, {len(pairs)} rounds")

    def beside_virtme(self):
        """The whole command line, as a person waits for it."""
        def ours():
            took = seconds([self.vmtax, "exec", *self.guest, "--", "true"])
            self.forget()
            return took
        return self.against("true / virtme-ng", self.in_turns(ours, lambda: self.in_virtme("true")), 0.7)

    def walk(self):
        """A walk alone, by the guest's clock."""
        tree = self.scratch / "tree"
        for number in range(FILES):
            folder = tree / f"{number % 40}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}").write_text("content\n")
        said = self.shared() / "said"
        walk = f"a=$(date +%s%N); find {tree} -type f -size +0 | wc -l; b=$(date +%s%N); echo $((b - a))"

        def our_walk():
            count, ns = self.exec("sh", "-c", walk).split()
            self.forget()
            assert int(count) == FILES
            return int(ns) / 1e9

        def their_walk():
            said.unlink(missing_ok=True)
            self.in_virtme(f"({walk}) > {said}")
            count, ns = said.read_text().split()
            assert int(count) == FILES
            return int(ns) / 1e9

        return self.against(f"walk of {FILES} / virtme-ng", self.in_turns(our_walk, their_walk), 0.5)

    def beside_run(self):
        """sysbench itself and our own form of it, in turns, on each machine."""
        common = ["--machine=native,tcg", "--rounds=1", *self.guest[2:], "--json"]

        def real():
            words = ["sysbench", "cpu", "--cpu-max-prime=10000", "--time=2", "run"]
            rows = json.loads(checked([self.vmtax, "exec", *common, "--", *words]))["findings"]["printed"]
            row = next(r for r in rows if (r["of"], r["name"]) == ("sysbench cpu", "events"))
            self.forget()
            return {c["machine"]: c["spread"]["median"] for c in row["machines"]}

        def own():
            words = ["cpu", "cpu.max-prime=10000", "cpu.time=2"]
            rows = json.loads(checked([self.vmtax, "run", *words, *common]))["findings"]["rows"]
            row = next(r for r in rows if r["metric"] == "cpu.events")
            self.forget()
            return {c["machine"]: c["spread"]["median"] for c in row["machines"]}

        pairs, results = self.in_turns(real, own), []
        for machine in ("native", "tcg"):
            ratio = statistics.median(a[machine] / b[machine] for a, b in pairs)
            note = f"sysbench over vmtax's cpu {ratio:.4f}, {len(pairs)} rounds"
            results.append(line(f"cpu on {machine}, % apart", 100 * abs(ratio - 1), 3, note))
        return all(results)

    def ready(self):
        """Until a command can begin, over the boot of `vmtax run`."""
        def turn():
            note = json.loads(next(self.recorded().glob("turns/*/turn.json")).read_text())
            self.forget()
            return note

        def ours():
            self.exec("true")
            return turn()["ready_s"]

        def theirs():
            checked([self.vmtax, "run", "cpu", "cpu.time=0.1", *self.guest])
            return turn()["boot_s"]

        return self.against("ready / boot of run", self.in_turns(ours, theirs), 1.2)

    def start(self):
        """A static program from the host's files against the same from the guest's memory, after the first start."""
        loop = f"for i in $(seq {STARTS}); do $p --version > /dev/null; done"
        timed = f"$p --version > /dev/null; a=$(date +%s%N); {loop}; b=$(date +%s%N); echo $((b - a))"
        script = f"p={self.vmtax}; {timed}; cp $p /dev/shm/p; p=/dev/shm/p; {timed}"
        more = []
        for _ in range(self.rounds):
            shared, own = (int(ns) / 1e6 / STARTS for ns in self.exec("sh", "-c", script).split())
            more.append(shared - own)
            self.forget()
        return line("start from the share, ms more", statistics.median(more), 50, f"median of {self.rounds}")

    def flood(self):
        """The largest memory of the controller while a gibibyte comes through, after boot; and the peak of all."""
        words = ["sh", "-c", f"head -c {FLOOD_BYTES} /dev/zero"]
        command = [self.vmtax, "exec", *self.guest, "--", *words]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as run:
            got = largest = peak = 0
            while piece := run.stdout.read(1 << 20):
                got += len(piece)
                status = dict(row.split(":", 1) for row in Path(f"/proc/{run.pid}/status").read_text().splitlines())
                largest, peak = (max(kept, int(status[name].split()[0]) / 1024) if name in status else kept
                                 for kept, name in ((largest, "VmRSS"), (peak, "VmHWM")))
            run.wait(timeout=60)
        self.forget()
        assert got == FLOOD_BYTES, got
        return line("1 GiB of output, MiB", largest, 50, f"{peak:.0f} at its peak, before")


PARTS = {"vng": Bench.beside_virtme, "walk": Bench.walk, "cpu": Bench.beside_run, "ready": Bench.ready,
         "start": Bench.start, "flood": Bench.flood}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    parser.add_argument("--vmtax", default=f"{target}/x86_64-unknown-linux-gnu/release/vmtax", type=os.path.abspath)
    parser.add_argument("--vng", default=shutil.which("vng") or "target/tools/bin/vng", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(PARTS))
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    needed = [(arguments.vmtax, "make build")] + [(arguments.vng, "scripts/setup bench")] * bool({"vng", "walk"} & {*parts})
    missing = [f"{path} ({how})" for path, how in needed if not os.access(path, os.X_OK)]
    for program, package in [("qemu-system-x86_64", "qemu-system-x86")] + [("sysbench", "sysbench")] * ("cpu" in parts):
        if not shutil.which(program):
            missing.append(f"{program} (apt-get install {package})")
    unknown = [part for part in parts if part not in PARTS]
    if missing or unknown:
        print("bench: missing: " + "; ".join(missing + unknown), file=sys.stderr)
        return 2
    fetched = Path(checked([arguments.vmtax, "get", "kernel"]).split()[-1])
    # Beside the program: over /var/tmp virtme-ng mounts a file system of its own.
    with tempfile.TemporaryDirectory(prefix="bench-", dir=Path(arguments.vmtax).parent) as scratch:
        # virtme-ng finds the modules beside the kernel, but writes an index there: not into the cache.
        tree = shutil.copytree(fetched.parent.parent, f"{scratch}/kernel", copy_function=os.symlink)
        bench = Bench(arguments, scratch, f"{tree}/boot/{fetched.name}")
        results = [PARTS[part](bench) for part in parts]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
