"""What the campaigns share: a state that a campaign goes on from, guests for this host, what a run of vmtax left."""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

TRACEFS = Path("/sys/kernel/tracing")
# Environment variable that marks the processes of one run; QEMU and servers inherit it.
MARK = "VMTAX_CAMPAIGN"
PANIC = re.compile(r"panicked at|memory allocation of \d+ bytes failed|fatal runtime error", re.I)


class State:
    """A file with a JSON object a line: the settings, with a seed, then one for each finished piece of the campaign."""

    def __init__(self, path, settings):
        self.path, self.done = Path(path), []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("}")]  # the last may be cut
        if records:
            self.settings, self.done = records[0], records[1:]
            differing = {key for key, value in settings.items() if value is not None and self.settings[key] != value}
            if differing:
                sys.exit(f"{self.path} has other settings ({', '.join(sorted(differing))}): name another --state, or remove it")
            self.path.write_text("".join(json.dumps(record) + "\n" for record in records))
        else:
            if settings["seed"] is None:
                settings["seed"] = random.randrange(1_000_000)
            self.settings = settings
            self.write(settings)

    def add(self, record):
        self.done.append(record)
        self.write(record)

    def write(self, record):
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def interruptible(work):
    """Does this work, and ends what it started when a person or a signal stops it; gives whether it came to its end."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work()
        return True
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return False
    finally:
        for run in Run.started:
            run.kill_all()


def drawn(seed, number):
    """The random numbers of one piece, the same whenever it is repeated."""
    return random.Random(f"{seed}/{number}")


def parts(name, known):
    """The parts that an option names, or all."""
    chosen = name.split(",") if name else list(known)
    unknown = [part for part in chosen if part not in known]
    if unknown:
        sys.exit(f"no such command: {', '.join(unknown)}; there are {', '.join(known)}")
    return chosen


def tcg():
    return ["--machine=tcg"]


def kvm():
    """Options of the Linux guest for this host's KVM that VMTAX_TEST_KVM_GUEST names; None where it names none."""
    kernel = os.environ.get("VMTAX_TEST_KVM_GUEST")
    return ["--machine=kvm", *guest(kernel)] if kernel else None


def guest(kernel):
    """Options of a Linux guest at native speed on a KVM that runs guest code in user mode alone."""
    # As crates/base/model/src/testing.rs has them.
    model = "host,-arch-capabilities,-smap,-smep,-umip,-pcid,-invpcid,-x2apic,-tsc-deadline,-xsaves,-pku,-la57"
    arguments = [f"tsc_early_khz={tsc_khz()}", "tsc=reliable", "hpet=disable", "mitigations=off", "reboot=k"]
    return [f"--kernel={kernel}", "--firmware=qboot.rom", f"--cpu-model={model}", *(f"--kernel-arg={argument}" for argument in arguments)]


def tsc_khz():
    """The host's TSC frequency: VMTAX_TSC_KHZ, as its kernel printed it, or about that of a CPU."""
    printed = subprocess.run(["dmesg"], capture_output=True, text=True).stdout
    found = re.search(r"tsc: (?:Refined TSC clocksource calibration|Detected) ?:? ?([\d.]+) MHz", printed)
    found = found or re.search(r"cpu MHz\s*: ([\d.]+)", Path("/proc/cpuinfo").read_text())
    return os.environ.get("VMTAX_TSC_KHZ") or f"{float(found[1]) * 1000:.0f}"


class Process:
    def __init__(self, pid):
        self.pid = pid
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        self.state, self.parent, self.start = fields[0], int(fields[1]), fields[19]

    @property
    def arguments(self):
        try:
            return Path(f"/proc/{self.pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            return [""]

    def __str__(self):
        return f"{self.pid} {' '.join(self.arguments)[:120]}"

    def is_alive(self):
        try:
            now = Process(self.pid)
        except (OSError, IndexError):
            return False
        return now.start == self.start and now.state not in "ZX"

    def role(self):
        program, first = Path(self.arguments[0]).name, (self.arguments[1:] or [""])[0]
        if first in ("watchdog", "agent"):
            return first
        if program.startswith("qemu-system"):
            return "qemu"
        if program in ("virtiofsd", "ganesha.nfsd", "rpcbind") or first == "jail":
            return "server"
        return "other"


class Run:
    """One vmtax in a folder of its own, and all that it starts."""

    started = []  # the one that is under way

    def __init__(self, folder, mark):
        self.folder, self.mark = Path(folder), f"{MARK}={mark}".encode()
        self.environment = os.environ | {MARK: mark, "TMPDIR": f"{folder}/tmp"}
        self.known, self.pids, self.child = {}, set(), None
        self.others = set()  # processes that are none of this run, with their start
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)

    def start(self, command):
        self.out, self.err = self.folder / "stdout", self.folder / "stderr"
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.child = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                          stdout=out, stderr=err)
        self.pids.add(self.child.pid)
        Run.started = [self]

    def wait(self, seconds):
        """The exit status, negative for a signal; None when it did not end in time."""
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def again(self, command):
        """Another vmtax in the same folder, whose processes count as this run's: its exit status and both outputs."""
        other = Run(self.folder, self.environment[MARK])
        other.start(command)
        status = other.wait(120)
        self.pids |= other.pids
        if status is None:
            other.kill_all()
        return status, readable(other.out), readable(other.err)

    def put_away(self, failures, kept):
        """Removes its folder; one with failures is kept under this name."""
        if failures:
            shutil.rmtree(kept, ignore_errors=True)
            self.folder.rename(kept)
        else:
            shutil.rmtree(self.folder)

    def processes(self):
        """Those alive now: marked, here by arguments or working folder, or once the child of such a one."""
        own = os.getpid()
        everyone = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != own:
                try:
                    everyone[int(name)] = Process(int(name))
                except (OSError, IndexError):
                    pass
        here = str(self.folder)
        for process in everyone.values():
            if process.pid in self.known and self.known[process.pid].start == process.start:
                continue
            if (process.pid, process.start) in self.others:
                continue
            try:
                marked = (any(here in argument for argument in process.arguments)
                          or self.mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
                          or os.readlink(f"/proc/{process.pid}/cwd").startswith(here))
            except OSError:
                marked = False
            if marked or process.parent in self.known or (self.child and process.pid == self.child.pid):
                self.known[process.pid] = process
                self.pids.add(process.pid)
            else:
                self.others.add((process.pid, process.start))
        return [process for pid, process in everyone.items()
                if pid in self.known and self.known[pid].start == process.start and process.state not in "ZX"]

    def gone_after(self, bound):
        """Seconds until no process is left, at most about the bound; and who is left then."""
        begin = time.monotonic()
        while (left := self.processes()) and time.monotonic() - begin < bound:
            time.sleep(0.02)
        return time.monotonic() - begin, left

    def kill_all(self):
        for process in self.processes():
            if process.is_alive():
                try:
                    os.kill(process.pid, signal.SIGKILL)
                except OSError:
                    pass

    def left(self):
        """What it left on the host, processes aside; nothing that belongs to a vmtax still alive."""
        here, found = str(self.folder), {}

        def add(what, names):
            names = [str(name) for name in names]
            if names:
                found[what] = names

        ours = re.compile(rf"vmtax[-_]({'|'.join(map(str, self.pids)) or '0'})[-_]")
        add("mounts", [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if here in line])
        instances = TRACEFS / "instances"
        add("tracefs instances", [path for path in sorted(instances.glob("vmtax-*")) if ours.search(path.name)])
        for name in ("uprobe_events", "kprobe_events"):
            try:
                add(name, [line for line in (TRACEFS / name).read_text().splitlines() if ours.search(line)])
            except OSError:
                pass
        add("control groups", [path for path in groups() if ours.search(path.name)])
        backing = Path("/sys/block").glob("*/loop/backing_file")
        add("loop devices", [path for path in backing if here in readable(path)])
        runs = self.folder / "runs"
        add("scratch", [path for path in runs.glob("*/scratch*")] + [path for path in runs.rglob("*.part") if ".history" not in path.parts])
        add("temporary files", (self.folder / "tmp").iterdir())
        return found


def readable(path):
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def groups():
    for parent, folders, _ in os.walk("/sys/fs/cgroup"):
        yield from (Path(parent, folder) for folder in folders if folder.startswith("vmtax-"))


def network():
    """Network devices and namespaces with names: vmtax makes none, so none may come."""
    return {*os.listdir("/sys/class/net"), *(f"netns {name}" for name in names("/run/netns"))}


def names(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def crashed(status, said):
    """Why this end is none that a program plans; None if it is."""
    if status is None:
        return "did not end in time"
    if status < 0:
        return f"ended by signal {-status}"
    if status in (101, 134, 139) or PANIC.search(said):
        return f"status {status}: {said.strip()[-300:]}"
    return None


def needed(vmtax, programs):
    """What is missing here, with how to get it."""
    missing = [] if os.access(vmtax, os.X_OK) else [f"{vmtax} (make build)"]
    missing += [f"{name} (apt-get install {package})" for name, package in programs if not shutil.which(name)]
    if os.geteuid():
        missing.append("root (tracing, mounts, control groups)")
    return missing


def options(description, commands, state):
    """The options that all campaigns have; the state is by default in this folder of target/."""
    built = f"{os.environ.get('CARGO_TARGET_DIR', 'target')}/x86_64-unknown-linux-gnu/release/vmtax"
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vmtax", default=built, type=os.path.abspath)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--commands", help="comma separated, " + ", ".join(commands))
    parser.add_argument("--state", default=f"target/{state}", type=os.path.abspath)
    return parser
