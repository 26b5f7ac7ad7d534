#!/usr/bin/env python3
"""Measures `vmtax profile` beside perf.

    bench/profile.py [--vmtax FILE] [--rounds N] [--seconds N] [--only guest|import|agree|cost|calls]

- guest: how many stacks of a busy TCG guest's QEMU unwind, and how long a look by the clock stops a thread.
- import: from a recording of `perf record --call-graph dwarf` of such a QEMU to a flame graph, against `perf script |
  stackcollapse-perf.pl | flamegraph.pl`, or inferno's programs for the latter two (`cargo install inferno`), whichever is
  in PATH; and the memory that takes, against the size of the recording.
- agree: a program with twelve functions, sampled by both at the same time: the ten largest shares have intervals that meet.
- cost: a program whose own speed is known: how often a thread goes round a loop with calls. It runs twice at the same time on
  one CPU, and one of both is looked at: what else slows that CPU slows both. Each round does so under vmtax and
  under perf, at 99 and at 999 Hz, in an order that turns; under perf without stacks, which is what the interrupts alone cost;
  and under nothing, which is what is left of chance.
- calls: what counting a guest's system calls adds to each, against `perf trace -s` in such a guest.

Exits 0 when every figure is within its limit, 1 when one is not, 2 when something is missing. As root.
"""

import argparse
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

# Goes round below twenty frames, and tells now and then how often it did.
SOURCE = """
#include <stdio.h>
#include <time.h>
static volatile unsigned long sink, rounds;
static __attribute__((noinline)) unsigned long inner(unsigned long n)
{
    for (int i = 0; i < 100; i++)
        sink = sink * 3 + n;
    return sink;
}
static __attribute__((noinline)) unsigned long deep(int depth, unsigned long n)
{
    volatile char room[200];
    room[n & 127] = 1;
    return (depth ? deep(depth - 1, n) : inner(n)) + room[n & 127];
}
int main(void)
{
    for (;;) {
        sink += deep(20, rounds++);
        if ((rounds & 0xffff) == 0) {
            struct timespec t, own;
            clock_gettime(CLOCK_MONOTONIC, &t);
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
            printf("%lu %ld.%09ld %ld.%09ld\\n", rounds, t.tv_sec, t.tv_nsec, own.tv_sec, own.tv_nsec);
            fflush(stdout);
        }
    }
}
"""


def speed(log, begin, end):
    """Rounds of the program for each second that it has a CPU, between two moments: others on this machine take time,
    the interrupts that sample it slow it down."""
    with open(log) as lines:
        points = [(int(n), float(t), float(own)) for n, t, own in (line.split() for line in lines if line.endswith("\n"))]
    points = [(n, own) for n, t, own in points if begin <= t <= end]
    return (points[-1][0] - points[0][0]) / (points[-1][1] - points[0][1])


def line(name, value, limit, holds, note):
    print(f"{name:34} {value:9.4f}   {limit:11} {'ok' if holds else 'MISSED':7} {note}", flush=True)
    return holds


def under(command, logs, seconds):
    """How much slower the first program is than the second while `command` looks at it; None: while nothing does."""
    looking = command and subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.7)
    begin = time.clock_gettime(time.CLOCK_MONOTONIC)
    time.sleep(seconds)
    end = time.clock_gettime(time.CLOCK_MONOTONIC)
    if looking:
        if looking.poll() is not None:
            sys.exit(f"bench: {shlex.join(command)} ended at once, with status {looking.returncode}")
        looking.send_signal(signal.SIGINT)
        looking.wait(timeout=60)
    looked_at, beside = (speed(log, begin, end) for log in logs)
    return beside / looked_at - 1


def costs(arguments, scratch):
    source, program, *logs = (os.path.join(scratch, name) for name in ("work.c", "work", "work.log", "beside.log"))
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["cc", "-O2", "-fomit-frame-pointer", "-o", program, source], check=True)
    running = []
    try:
        for log in logs:
            with open(log, "w") as out:
                running.append(subprocess.Popen([program], stdout=out))
            os.sched_setaffinity(running[-1].pid, {max(os.sched_getaffinity(0))})
        yield from costs_of(running[0], logs, arguments, scratch)
    finally:
        for process in running:
            process.kill()
            process.wait()


def costs_of(work, logs, arguments, scratch):
    ways = {"nothing": None}
    for hz in (99, 999):
        perf = ["perf", "record", "-q", "-F", str(hz), "-p", str(work.pid), "-o", os.path.join(scratch, "perf.data")]
        ways[f"interrupts {hz}"] = perf
        ways[f"perf {hz}"] = perf + ["--call-graph", "dwarf"]
        ways[f"vmtax {hz}"] = [arguments.vmtax, "profile", "--duration", "3600", "--hz", str(hz), "--wall-hz", "0",
                               "--pid", str(work.pid), "--output"]
    found = {name: [] for name in ways}
    names = list(ways)
    for number in range(arguments.rounds):
        for name in names[number % len(names):] + names[:number % len(names)]:
            command = ways[name]
            if command and command[0] == arguments.vmtax:
                command = command + [os.path.join(scratch, f"out-{number}-{name.replace(' ', '-')}")]
            found[name].append(under(command, logs, arguments.seconds))
    slower = {name: statistics.median(values) for name, values in found.items()}
    for name, values in found.items():
        print(f"  {name}: {' '.join(f'{100 * value:.2f}' for value in values)} % slower", flush=True)
    yield line("cost at 99 Hz", slower["vmtax 99"], "<= 0.01", slower["vmtax 99"] <= 0.01,
               f"perf record --call-graph dwarf: {slower['perf 99']:.4f}")
    limit = slower["perf 999"] / 2
    yield line("cost at 999 Hz", slower["vmtax 999"], f"<= {limit:.4f}", slower["vmtax 999"] <= limit,
               f"half of what perf record --call-graph dwarf costs, {slower['perf 999']:.4f}; "
               f"the interrupts alone: {slower['interrupts 999']:.4f}")


def guest(arguments, scratch):
    out = os.path.join(scratch, "guest")
    command = [arguments.vmtax, "profile", "--machine", "tcg", "--hz", "499", "--json", "--output", out, "--dir",
               os.path.join(scratch, "runs"), "--", "disk", "time=8"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"bench: {' '.join(command)} failed:\n{done.stderr}")
    found = json.loads(done.stdout)
    unwound, pauses = found["unwound"], found["wall"]["pauses"]
    yield line("unwound outside translated code", unwound["share"], ">= 0.95", unwound["share"] >= 0.95,
               f"of {found['user_samples']} samples")
    past = found["translated_unwound"]
    yield line("unwound past translated code", past["share"], "printed", True,
               f"of {found['translated_samples']} samples")
    p50 = pauses["p50_ns"] / 1000
    yield line("stop for a sample, us", p50, "<= 200", p50 <= 200,
               f"median of {pauses['count']}; 99th percentile {pauses['p99_ns'] / 1000:.0f}, {pauses['unstopped']} without")


def timed(command, **streams):
    """Seconds of a pipeline of commands, and the last one's largest resident memory, bytes."""
    begin = time.monotonic()
    running, stdin = [], subprocess.DEVNULL
    for number, words in enumerate(command):
        last = number == len(command) - 1
        process = subprocess.Popen(words, stdin=stdin, stdout=streams["stdout"] if last else subprocess.PIPE,
                                   stderr=subprocess.DEVNULL)
        stdin = process.stdout
        running.append(process)
    for process in running[:-1]:
        process.stdout.close()
    _, status, usage = os.wait4(running[-1].pid, 0)
    running[-1].returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - begin
    for process in running[:-1]:
        process.wait()
    if any(process.returncode for process in running):
        sys.exit(f"bench: {' | '.join(map(shlex.join, command))} failed")
    return seconds, usage.ru_maxrss * 1024


def imports(arguments, scratch):
    data = os.path.join(scratch, "perf.data")
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "999", "--call-graph", "dwarf", "-o", data, arguments.vmtax,
              "run", "--machine", "tcg", "--rounds", "1", "--dir", os.path.join(scratch, "runs"), "disk", "disk.time=20"]
    subprocess.run(record, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    size = os.path.getsize(data)
    peer = [shutil.which("stackcollapse-perf.pl"), shutil.which("flamegraph.pl")]
    if not all(peer):
        peer = [shutil.which("inferno-collapse-perf"), shutil.which("inferno-flamegraph")]
    own, theirs, memory = [], [], 0
    for number in range(3):
        out = os.path.join(scratch, f"import-{number}")
        with open(os.path.join(scratch, f"import-{number}.json"), "w") as file:
            seconds, peak = timed([[arguments.vmtax, "profile", "import", data, "--json", "--output", out]], stdout=file)
        own.append(seconds)
        memory = max(memory, peak)
        with open(os.path.join(scratch, f"import-{number}.json")) as file:
            found = json.load(file)
        script = ["perf", "script", "-i", data, "--pid", str(found["pid"])]
        with open(os.path.join(scratch, "theirs.svg"), "w") as file:
            theirs.append(timed([script, [peer[0]], [peer[1]]], stdout=file)[0])
    ratio = statistics.median(theirs) / statistics.median(own)
    yield line("perf.data to flame graph, times", ratio, ">= 10", ratio >= 10,
               f"{statistics.median(own):.2f} s against {statistics.median(theirs):.2f} s with {os.path.basename(peer[0])}; "
               f"{found['samples']} samples, {size / 1e6:.0f} MB")
    yield line("memory over the recording's size", memory / size, "< 2", memory / size < 2, f"{memory / 1e6:.0f} MB")


def functions(count):
    """A program whose functions take shares of 1, 2, 3 … parts."""
    text = "static volatile unsigned long sink;\n"
    text += "#define BURN(n) static __attribute__((noinline)) void burn##n(void) " \
            "{ for (int i = 0; i < n * 1000; i++) sink = sink * 3 + n; }\n"
    numbers = range(1, count + 1)
    return text + "".join(f"BURN({n})\n" for n in numbers) + "int main(void) { for (;;) {" + \
        "".join(f"burn{n}();" for n in numbers) + "} }\n"


def wilson(part, of):
    """The share's interval at 95 %."""
    z, p = 1.96, part / of
    middle, half = (p + z * z / 2 / of), z * (p * (1 - p) / of + z * z / 4 / of / of) ** 0.5
    return (middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of)


def agreement(arguments, scratch):
    source, program, data = (os.path.join(scratch, name) for name in ("many.c", "many", "many.data"))
    with open(source, "w") as file:
        file.write(functions(12))
    subprocess.run(["cc", "-O1", "-o", program, source], check=True)
    work = subprocess.Popen([program])
    try:
        perf = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "-g", "-o", data, "-p", str(work.pid)])
        words = ["profile", "--pid", str(work.pid), "--hz", "499", "--duration", "8", "--wall-hz", "0", "--json"]
        done = subprocess.run([arguments.vmtax, *words, "--output", os.path.join(scratch, "many-out")], stdout=subprocess.PIPE, check=True)
        perf.send_signal(signal.SIGINT)
        perf.wait(timeout=60)
    finally:
        work.kill()
        work.wait()
    script = subprocess.run(["perf", "script", "-i", data, "-F", "ip,sym"], stdout=subprocess.PIPE, text=True, check=True)
    leaves = [sample.split()[1] for sample in script.stdout.split("\n\n") if sample.strip()]
    met, worst = 0, 0
    for function in json.loads(done.stdout)["functions"][:10]:
        own = function["self"]
        low, high = wilson(leaves.count(function["name"]), len(leaves))
        met += own["low"] <= high and low <= own["high"]
        worst = max(worst, abs(own["share"] - leaves.count(function["name"]) / len(leaves)))
    yield line("ten functions that agree with perf", met, "10", met == 10, f"{len(leaves)} samples of perf; shares differ by {worst:.4f} at most")


CALLS = """
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
for turn in 1 2 3 4 5; do
    {vmtax} agent run syscalls only=getpid time=0.1 --json
    perf trace -s -o /tmp/trace {vmtax} agent run syscalls only=getpid time=0.1 --json
done
"""


def calls(arguments, scratch):
    """What counting adds to each call: of vmtax as it measures itself, of perf trace -s by the same workload."""
    ours, theirs = [], []
    for number in range(arguments.rounds):
        out, runs = (os.path.join(scratch, f"{name}-{number}") for name in ("calls", "runs"))
        words = ["profile", "--machine", "tcg", "--syscalls", "--json", "--output", out, "--dir", runs, "--", "cpu", "time=0.1"]
        done = subprocess.run([arguments.vmtax, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        ours.append(json.loads(done.stdout)["guest"]["calls"]["added_ns"])
        words = ["exec", "--machine", "tcg", "--rounds", "1", "--dir", runs, "--", "sh", "-c", CALLS.format(vmtax=shlex.quote(arguments.vmtax))]
        done = subprocess.run([arguments.vmtax, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        ns = [next(m["value"] for m in found["measures"] if m["metric"] == "syscalls.getpid") for found in documents(done.stdout)]
        theirs.append(min(ns[1::2]) - min(ns[0::2]))
    ratio = statistics.median(a / b for a, b in zip(ours, theirs))
    yield line("counting a call / perf trace -s", ratio, "<= 0.5", ratio <= 0.5,
               f"medians {statistics.median(ours):.0f}, {statistics.median(theirs):.0f} ns, {len(ours)} guests each")


def documents(text):
    """The JSON documents in a text, one behind the other."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        document, at = decoder.raw_decode(text, at)
        yield document


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    parser.add_argument("--vmtax", default=f"{target}/x86_64-unknown-linux-gnu/release/vmtax", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--only", choices=["guest", "import", "agree", "cost", "calls"])
    arguments = parser.parse_args()
    missing = [] if os.access(arguments.vmtax, os.X_OK) else [f"{arguments.vmtax} (make build)"]
    missing += [f"{name} (apt-get install {package})" for name, package in
                (("qemu-system-x86_64", "qemu-system-x86"), ("perf", "linux-perf"), ("cc", "gcc")) if not shutil.which(name)]
    collapses = shutil.which("stackcollapse-perf.pl") or shutil.which("inferno-collapse-perf")
    if arguments.only == "import" and not collapses:
        missing.append("inferno-collapse-perf (cargo install inferno)")
    if os.geteuid():
        missing.append("root (sampling the kernel)")
    if missing:
        print("bench: missing: " + "; ".join(missing), file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-") as scratch:
        parts = {"guest": guest, "import": imports, "agree": agreement, "cost": costs, "calls": calls}
        if not collapses:
            print("import is left out: no inferno-collapse-perf (cargo install inferno)", flush=True)
            del parts["import"]
        results = [r for name, part in parts.items() if arguments.only in (None, name) for r in part(arguments, scratch)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
