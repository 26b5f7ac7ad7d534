#!/usr/bin/env python3
"""Makes one system call of vmtax fail, once, and looks how that ends: each call of its main thread after its start, with
the errors that this call can give. It may end well or with an error: without a panic or abort, before its timeouts, with a
message that has a remedy; and it leaves nothing after the next start.

    campaigns/faults.py [--vmtax FILE] [--faults N] [--seed N] [--commands LIST] [--state DIR]

strace injects the errors. Not among the calls: those of the C library's start; brk, mprotect and anonymous mmap, since a
Rust program ends when its allocator has no memory; and reads of 8 bytes from a socket, by which
Rust's library waits until a child has begun: Linux does not let them fail, and the library then waits for the child's end. The campaign goes on where it stopped: DIR/faults.jsonl has a line for
each fault; the order follows from the seed, and takes each kind of call in turn. Exits 0 when all faults passed, 1 when one
failed, 2 when something is missing. As root.
"""

import collections
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import campaign

DATA = Path(__file__).resolve().parent.parent / "crates/base/trace/tests/data/perf/perf.data"
TIMEOUT_S = 60
# The first system call of `main`, past those of the C library and of Rust's start.
MAIN = "rt_sigaction(SIGXFSZ"

ERRORS = {
    "openat openat2 open": "EMFILE EIO ENOMEM EINTR",
    "read pread64 readv": "EIO EINTR",
    "write pwrite64 writev ftruncate fallocate copy_file_range sendfile": "ENOSPC EIO",
    "mkdir mkdirat rename renameat renameat2 link linkat symlink symlinkat": "ENOSPC EIO",
    "unlink unlinkat rmdir fsync fdatasync": "EIO",
    # Of a file, also EIO; of a folder Rust takes no other one.
    "close": "EINTR",
    "getdents64 fstat newfstatat statx statfs fstatfs readlink readlinkat access faccessat faccessat2": "EIO ENOMEM",
    "chmod fchmod fchmodat chown fchown fchownat utimensat setxattr flistxattr": "EIO EPERM",
    "clone clone3 fork vfork": "EAGAIN ENOMEM",
    "pipe pipe2 dup dup2 dup3 eventfd2 epoll_create1 memfd_create socket socketpair pidfd_open": "EMFILE ENOMEM",
    "accept4 bind connect listen sendto sendmsg recvfrom recvmsg setsockopt getsockopt": "ENOMEM",
    "fcntl": "EMFILE",
    "poll ppoll epoll_wait epoll_ctl": "EINTR ENOMEM",
    "flock": "EINTR ENOLCK",
    "ioctl": "EIO ENOMEM",
    "wait4 waitid nanosleep clock_nanosleep": "EINTR",
    "perf_event_open bpf": "EMFILE ENOMEM",
    "mmap": "ENOMEM",
    "sched_setaffinity sched_setattr setpriority prlimit64 setrlimit mount umount2 unshare prctl": "EPERM",
}
ERRORS = {call: errors.split() for calls, errors in ERRORS.items() for call in calls.split()}
# Success; a check that failed; a check that could not judge.
GOOD = (0, 1, 3)
# What tells a person what to do.
REMEDY = re.compile(r"\b(use|try|run|see|check|choose|free|allow|raise|name|give|record|make|install|reduce|end|remove|read|"
                    r"repeat|delete|set|add|update|stop|close|wait|move)\b", re.I)
# Calls that are left out, as the docstring says.
NO_FAULT = re.compile(r"(?:\[pid \d+\] )?(?:mmap\(.*MAP_ANONYMOUS|recvfrom\(\d+, .*, 8, 0, NULL, NULL\))")
CALL = re.compile(r"(?:\[pid \d+\] )?(\w+)\(")


def commands(base):
    """Name to arguments. Recordings lie in base/runs, and are copied for each fault."""
    native = ["--machine=native", "--rounds=1", f"--timeout={TIMEOUT_S}s", "cpu", "cpu.time=0.02", "cpu.max-prime=100"]
    micro = ["--machine=micro-tcg", "--rounds=1", f"--timeout={TIMEOUT_S}s", f"--boot-timeout={TIMEOUT_S}s"]
    return {
        "run-native": ["run", *native],
        "run-micro": ["run", *micro, "exits", "count=50"],
        "layers-micro": ["layers", *micro, "count=20"],
        "report": ["report", "runs/micro", "--details"],
        "report-html": ["report", "runs/layers", "--output=page.html"],
        "list": ["list"],
        "history": ["history"],
        "import": ["profile", "import", str(DATA)],
        "doctor": ["doctor"],
        "export": ["export", "runs/layers", "--perfetto=trace.pftrace", "--parquet=requests.parquet"],
        "export-dataset": ["export", "runs/native", "--dataset=dataset"],
        "check": ["compare", "--check=runs/native", "runs/native"],
        "check-again": ["compare", "--check=runs/native"],
    }


class Campaign:
    def __init__(self, arguments, state):
        self.vmtax, self.folder, self.state = arguments.vmtax, Path(arguments.state), state
        self.base = self.folder / "base"
        self.known, self.unhurt = commands(self.base), {}

    def record(self, names):
        """The recordings that these commands read."""
        self.base.mkdir(parents=True, exist_ok=True)
        words = {word for name in names for word in self.known[name]}
        for of, output in [("run-micro", "runs/micro"), ("layers-micro", "runs/layers"), ("run-native", "runs/native")]:
            # The list and the history have the native one.
            if (self.base / output / "report.html").exists() or (output not in " ".join(words) and of != "run-native"):
                continue
            shutil.rmtree(self.base / output, ignore_errors=True)
            command = [self.vmtax, *self.known[of], f"--output={output}"]
            done = subprocess.run(command, cwd=self.base, capture_output=True, text=True, timeout=300)
            if done.returncode:
                sys.exit(f"faults: {' '.join(command)} failed:\n{done.stderr}")

    def run(self, name, number, options, seconds):
        """A command under strace, in a copy of the recordings; gives the run, its exit status and strace's lines."""
        folder = self.folder / f"fault-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.base, folder)
        run = campaign.Run(folder, f"{os.getpid()}-{number}")
        run.start(["strace", "-qq", "-a1", "-e", "signal=none", *options, "-o", f"{folder}/strace", self.vmtax, *self.known[name]])
        status = run.wait(seconds)
        if status is None:
            run.kill_all()
        trace = folder / "strace"
        return run, status, trace.read_text(errors="replace").splitlines() if trace.exists() else []

    def points(self, name, random):
        """The faults of a command in random order: call, which of these calls, error."""
        begin = time.monotonic()
        run, status, lines = self.run(name, f"none-{name}", [], 300)
        self.unhurt[name] = time.monotonic() - begin
        if status not in GOOD:
            sys.exit(f"faults: {name} fails without a fault (status {status}): {run.err.read_text()[-2000:]}")
        shutil.rmtree(run.folder)
        counts, points, started = collections.Counter(), collections.defaultdict(list), False
        for line in lines:
            match = CALL.match(line)
            if not match:
                continue
            call = match.group(1)
            counts[call] += 1
            started |= line.startswith(MAIN)
            if started and call in ERRORS and not NO_FAULT.match(line):
                points[call].append(counts[call])
        result = {call: [(call, number, random.choice(ERRORS[call])) for number in numbers] for call, numbers in points.items()}
        for of in result.values():
            random.shuffle(of)
        return result

    def plan(self, names):
        """All faults in their order: each command and kind of call in turn."""
        queues = []
        for name in names:
            random = campaign.drawn(self.state.settings["seed"], name)
            queues += [[(name, *point) for point in of] for of in self.points(name, random).values()]
        campaign.drawn(self.state.settings["seed"], "order").shuffle(queues)
        while queues:
            yield from (queue.pop() for queue in queues)
            queues = [queue for queue in queues if queue]

    def one(self, number, fault):
        name, call, index, error = fault
        options = ["-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={index}"]
        limit = 3 * TIMEOUT_S + 10 * self.unhurt[name]
        run, status, lines = self.run(name, number, options, limit)
        record = {"number": number, "command": name, "call": call, "index": index, "error": error, "status": status}
        injected = [line for line in lines if "(INJECTED)" in line]
        if not injected or NO_FAULT.match(injected[0]):
            run.kill_all()
            shutil.rmtree(run.folder)
            return record | {"reached": False}
        said = run.err.read_text(errors="replace")
        failures = []
        if why := campaign.crashed(status, said):
            failures.append(why)
        elif status not in GOOD:
            message = said[said.find("Error: ") + 7:] if "Error: " in said else ""
            if not REMEDY.search(re.sub(r"/\S+", "", message)):
                failures.append(f"no remedy: {said.strip()[-400:]}")
        _, processes = run.gone_after(10)
        failures += [f"there is still {process}" for process in processes]
        run.kill_all()
        if name in ("run-native", "run-micro", "layers-micro", "check-again"):
            again, _, error = run.again([self.vmtax, *self.known["run-native"]])
            if again != 0:
                failures.append(f"the next start failed: {error[-300:]}")
        failures += [f"left: {what} {names}" for what, names in run.left().items()]
        run.put_away(failures, self.folder / f"failed-{number}")
        return record | {"reached": True, "injected": injected[0][:200], "said": said.strip()[-300:], "failures": failures}


def summary(done, seed):
    reached = [record for record in done if record["reached"]]
    print(f"{'command':14}{'faults':>8}{'calls':>7}{'no error':>10}{'error':>7}{'failed':>8}")
    for name in sorted({record["command"] for record in reached}) + ["all"]:
        of = [record for record in reached if name in (record["command"], "all")]
        print(f"{name:14}{len(of):8}{len({record['call'] for record in of}):7}"
              f"{sum(record['status'] in GOOD for record in of):10}"
              f"{sum(record['status'] not in GOOD for record in of):7}{sum(bool(r['failures']) for r in of):8}")
    print(f"{len(reached)} faults, seed {seed}; {len(done) - len(reached)} calls were not made in their run.")
    failed = [record for record in reached if record["failures"]]
    for record in failed:
        print(f"FAILED fault {record['number']} of seed {seed}: {record['command']}, {record['injected']}")
        for failure in record["failures"]:
            print(f"  {failure}")
    return failed


def main():
    parser = campaign.options(__doc__, commands(Path()), "faults")
    parser.add_argument("--faults", type=int, help="default: all there are")
    arguments = parser.parse_args()
    if missing := campaign.needed(arguments.vmtax, [("qemu-system-x86_64", "qemu-system-x86"), ("strace", "strace")]):
        print("faults: missing: " + "; ".join(missing), file=sys.stderr)
        return 2
    state = campaign.State(f"{arguments.state}/faults.jsonl", {"seed": arguments.seed, "commands": arguments.commands or ""})
    work = Campaign(arguments, state)
    chosen = campaign.parts(arguments.commands, work.known)
    work.record(chosen)

    def faults():
        done = {(record["command"], record["call"], record["index"]) for record in state.done}
        count = sum(record["reached"] for record in state.done)
        for fault in work.plan(chosen):
            if arguments.faults is not None and count >= arguments.faults:
                break
            if fault[:3] in done:
                continue
            record = work.one(len(state.done), fault)
            state.add(record)
            count += record["reached"]
            if record.get("failures"):
                print(f"fault {record['number']}: {record['command']}, {record['injected']}: {record['failures'][0]}",
                      file=sys.stderr, flush=True)

    campaign.interruptible(faults)
    return 1 if summary(state.done, state.settings["seed"]) else 0


if __name__ == "__main__":
    sys.exit(main())
