#!/usr/bin/env python3
"""Compares vmtax's trace decoder with the tools that read the same traces: trace-cmd report and QEMU's simpletrace.py.

    bench/decode.py --simpletrace FILE [--decode FILE] [--rounds N] [--events N] [--go N] [--only NAME,...]

The traces are the recordings in crates/base/trace/tests/data, repeated. Each round runs both sides once on the same events,
in alternating order, on the same CPU, output thrown away; a ratio is the median over rounds of the tool's CPU
time over vmtax's, with a 95 % interval. The rate is that of raw pages to typed fields, per second of CPU time. The
last test decodes --go events in one go, from pipes, and holds the memory it takes against that of a hundredth as many.
Exits 0 when every limit holds, 1 when one does not, 2 when something is missing.
"""

import argparse
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../crates/base/trace/tests/data")
FIELD = "raw_syscalls.sys_enter.id"
QEMU_FIELD = "qemu.bdrv_co_preadv_part.bytes"
RATE, RATIO, MEMORY = 10e6, 20, 1.1
# trace-cmd wants one event of the function tracer to be there.
FTRACE_FORMAT = """name: none
ID: 1
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

print fmt: ""
"""


class Run:
    """A finished command: what it printed, its CPU time in seconds."""

    def __init__(self, command, keep=True):
        command = ["taskset", "--cpu-list", str(max(os.sched_getaffinity(0))), *command]
        child = subprocess.Popen(command, stdout=subprocess.PIPE if keep else subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, text=True)
        self.text = child.stdout.read() if keep else ""
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"bench: {' '.join(command)} failed ({child.returncode})")
        self.seconds = usage.ru_utime + usage.ru_stime

    def number(self, name):
        """What the example printed behind a name."""
        return int(re.search(rf"\b{name} (\d+)", self.text).group(1))

    def events(self):
        return self.number("events")


def interval(values):
    """A 95 % interval of the median, from order statistics: nothing is assumed of the noise."""
    values = sorted(values)
    low = max(0, int((len(values) - 1.96 * len(values) ** 0.5) / 2))
    return values[low], values[-1 - low]


def line(name, value, limit, ok, note):
    print(f"{name:14} {value:10}   {limit:12} {'ok' if ok else 'MISSED':7} {note}", flush=True)
    return ok


def compared(name, rounds, ours, theirs, events):
    """How much faster we are than a tool, in CPU time on the same events."""
    pairs = []
    for n in range(rounds):
        if n % 2:
            b, a = theirs(), ours()
        else:
            a, b = ours(), theirs()
        if a.events() != events:
            sys.exit(f"bench: {name}: {a.events()} events of {events} decoded")
        pairs.append((a.seconds, b.seconds))
    ratios = [b / a for a, b in pairs]
    ratio, (low, high) = statistics.median(ratios), interval(ratios)
    note = (f"{low:.1f} to {high:.1f}, n = {rounds}; {statistics.median(a for a, _ in pairs):.3f} s, "
            f"{statistics.median(b for _, b in pairs):.3f} s for {events} events")
    return line(name, f"{ratio:.1f}", f">= {RATIO}", ratio >= RATIO, note)


def rate(arguments, scratch):
    folder = os.path.join(scratch, "rate")
    Run([arguments.decode, "make", folder, str(arguments.events)])
    rates = []
    for _ in range(arguments.rounds):
        run = Run([arguments.decode, "folder", folder, FIELD])
        rates.append(run.events() / run.seconds)
    shutil.rmtree(folder)
    found, (low, high) = statistics.median(rates), interval(rates)
    note = f"{low / 1e6:.1f} to {high / 1e6:.1f} million events per second of one core, n = {arguments.rounds}"
    return line("raw pages", f"{found / 1e6:.1f} M/s", f">= {RATE / 1e6:.0f} M/s", found >= RATE, note)


def trace_cmd(arguments, scratch):
    """trace-cmd makes the file itself, from the same raw pages."""
    events = arguments.events // 10
    folder, tracing = os.path.join(scratch, "dat"), os.path.join(scratch, "tracing")
    Run([arguments.decode, "make", folder, str(events)])
    os.makedirs(f"{tracing}/events/ftrace")
    shutil.copy(f"{folder}/header_page", f"{tracing}/events/header_page")
    with open(f"{tracing}/events/header_event", "w", encoding="ascii") as file:
        file.write("# compressed entry header\n\ttype_len    :    5 bits\n\ttime_delta  :   27 bits\n"
                   "\tarray       :   32 bits\n\n\tpadding     : type == 29\n\ttime_extend : type == 30\n"
                   "\ttime_stamp : type == 31\n\tdata max type_len  == 28\n")
    for name in os.listdir(f"{folder}/formats"):
        os.makedirs(f"{tracing}/events/{name.replace('.', '/')}")
        shutil.copy(f"{folder}/formats/{name}", f"{tracing}/events/{name.replace('.', '/')}/format")
    texts = {"trace_clock": "[local] x86-tsc\n", "current_tracer": "nop\n", "printk_formats": "", "saved_cmdlines": "",
             "kallsyms": "", "events/ftrace/none/format": FTRACE_FORMAT}
    os.mkdir(f"{tracing}/events/ftrace/none")
    for name, text in texts.items():
        with open(f"{tracing}/{name}", "w", encoding="ascii") as file:
            file.write(text)
    head, dat = f"{scratch}/head.dat", f"{scratch}/trace.dat"
    Run(["trace-cmd", "restore", "-c", "-t", tracing, "-k", f"{tracing}/kallsyms", "-o", head])
    Run(["trace-cmd", "restore", "-i", head, "-o", dat, f"{folder}/made.cpu0.raw", f"{folder}/made.cpu1.raw"])
    return compared("trace-cmd", arguments.rounds, lambda: Run([arguments.decode, "dat", dat, FIELD]),
                    lambda: Run(["trace-cmd", "report", "-i", dat], keep=False), events)


def simpletrace(arguments, scratch):
    """The recorded file, its events again and again with times that go on."""
    with open(f"{DATA}/qemu/simple", "rb") as file:
        recorded = file.read()
    at, first, events = 24, None, []
    while at < len(recorded):
        if struct.unpack_from("<Q", recorded, at)[0] == 0:
            at += 20 + struct.unpack_from("<I", recorded, at + 16)[0]
            continue
        first = first or at
        time, length = struct.unpack_from("<QI", recorded, at + 16)
        events.append((recorded[at:at + 16], time, recorded[at + 24:at + 8 + length]))
        at += 8 + length
    wanted, written, shift = arguments.events // 50, 0, 0
    path = f"{scratch}/simple"
    with open(path, "wb") as file:
        file.write(recorded[:first])
        while written < wanted:
            for head, time, rest in events:
                file.write(head + struct.pack("<Q", time + shift) + rest)
            shift += events[-1][1] - events[0][1] + 1000
            written += len(events)
    declared = f"{DATA}/qemu/trace-events"
    # It wants every event that the file names; those that are not declared never occur.
    return compared("simpletrace.py", arguments.rounds,
                    lambda: Run([arguments.decode, "simple", path, QEMU_FIELD, declared]),
                    lambda: Run([sys.executable, arguments.simpletrace, declared, path], keep=False), written)


def one_go(arguments, scratch):
    """Pipes, so that the trace is never stored: it would take some GiB."""
    memory, seconds = {}, 0
    for events in (arguments.go // 100, arguments.go):
        folder = f"{scratch}/go{events}"
        os.mkdir(folder)
        for cpu in (0, 1):
            os.mkfifo(f"{folder}/made.cpu{cpu}.raw")
        # It stores the texts before it opens the pipes; the reader needs them.
        maker = subprocess.Popen([arguments.decode, "make", folder, str(events)])
        try:
            while not os.path.exists(f"{folder}/ready"):
                if maker.poll() is not None:
                    sys.exit("bench: the maker of events failed")
            run = Run([arguments.decode, "folder", folder, FIELD])
        finally:
            maker.kill()
            maker.wait()
        if run.events() != events:
            sys.exit(f"bench: {run.events()} events of {events} decoded")
        # Not what wait4 says, which begins with this program's own.
        memory[events], seconds = run.number("memory"), run.seconds
    small, large = memory.values()
    return line("in one go", f"{large / small:.3f}", f"<= {MEMORY}", large <= MEMORY * small,
                f"{arguments.go} events with {large} KiB in {seconds:.1f} s of CPU time; a hundredth with {small}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target") + "/x86_64-unknown-linux-gnu/release"
    parser.add_argument("--decode", default=f"{target}/examples/decode", help="crates/base/trace/examples/decode, built")
    parser.add_argument("--simpletrace", default="simpletrace.py", help="scripts/simpletrace.py of QEMU's source")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--events", type=int, default=10_000_000,
                        help="for the rate; a tenth for trace-cmd, a fiftieth for simpletrace.py")
    parser.add_argument("--go", type=int, default=100_000_000, help="events in one go")
    parser.add_argument("--only", help="of rate, trace-cmd, simpletrace, go: comma separated")
    arguments = parser.parse_args()
    tests = {"rate": rate, "trace-cmd": trace_cmd, "simpletrace": simpletrace, "go": one_go}
    wanted = arguments.only.split(",") if arguments.only else list(tests)
    missing = [f"a test named {name} (there are {', '.join(tests)})" for name in wanted if name not in tests]
    if not os.access(arguments.decode, os.X_OK):
        missing.append(f"{arguments.decode} (cargo build --release -p vmtax-trace --example decode)")
    missing += [f"{tool} (apt-get install {package})" for tool, package, needed in
                (("trace-cmd", "trace-cmd", "trace-cmd" in wanted), ("taskset", "util-linux", True))
                if needed and not shutil.which(tool)]
    if "simpletrace" in wanted and not os.path.isfile(arguments.simpletrace):
        missing.append("simpletrace.py (--simpletrace QEMU-SOURCE/scripts/simpletrace.py)")
    if arguments.rounds < 7:
        missing.append("rounds: give --rounds 7 or more")
    if missing:
        print("bench: missing: " + "; ".join(missing), file=sys.stderr)
        return 2

    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR"), prefix="bench-") as scratch:
        print(f"{'test':14} {'figure':>10}   {'limit':12} {'':7} 95 % interval, rounds; medians: vmtax, the tool")
        results = [tests[name](arguments, scratch) for name in wanted]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
