#!/usr/bin/env python3
"""Plants one bad setting at a time in guests that vmtax boots, and lets `vmtax tune` find it: its remedy has to be kept, beside
candidates that are controls. Writes the table of docs/tuning.md from what was measured.

    bench/tuning_proofs.py [--kernel VMLINUX] [--only NAME,…] [--state FILE] [--again] [--list]

Goes on where it stopped: what stands in the state file is not measured again, except with --again. --kernel: the Linux guest for KVM (a
PVH vmlinux); without it proofs on KVM are left out. Exits 0 when all was measured, 1 when not, 2 when something is
missing; a remedy that is not kept is said in the table. As root.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "campaigns"))
from campaign import guest

TARGET = os.environ.get("CARGO_TARGET_DIR", "target")
VMTAX = os.environ.get("VMTAX", os.path.abspath(f"{TARGET}/x86_64-unknown-linux-gnu/release/vmtax"))
PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "tuning.md")
# The tables of the page, each between two such lines.
CODE_STATE = "guest-antipatterns"
TABLES = ("proofs", "code")
# Candidates beside the remedy, where a boot takes a second or two.
CONTROLS = 1
TIMEOUT_S = 1500
# A machine that boots in a third of the time; the clock of the ACPI PM timer is of q35.
MICROVM = ["--machine-type", "microvm,pcie=on,rtc=on,acpi=on", "--memory", "512M"]
Q35 = ["--memory", "512M"]
# Settings of the host are asked for.
HOST = ["--allow", "restart,guest-reboot,host"]


def by(metric):
    return [*MICROVM, "--metric", metric]


# A file is written, forgotten by the page cache, and read in small pieces.
READ_BACK = "dd|if=/dev/zero|of=file|bs=1M|count=64|conv=fsync;echo|3|>/proc/sys/vm/drop_caches;dd|if=file|of=/dev/null|bs=4k"


# Name, machine, what is planted, the workload (| for a blank in a word), the remedy's candidate, further options.
PROOFS = [
    ("io-limit", "micro-tcg", ["throttling.iops-total=400"], "disk count=200 time=0", "without throttling.iops-total", []),
    ("bandwidth-limit", "kvm", ["throttling.bps-total=4000000"], "disk bs=64K", "without throttling.bps-total", MICROVM),
    ("write-through", "kvm", ["cache=writethrough"], "disk rw=randwrite", "cache=writeback", MICROVM),
    ("ioeventfd", "kvm", ["ioeventfd=off"], "disk rw=randread depth=32", "ioeventfd=on", MICROVM),
    ("acpi-pm-clock", "kvm", ["kernel-arg.clocksource=acpi_pm"], "syscalls only=clock_gettime_vdso", "without kernel-arg.clocksource=acpi_pm", Q35),
    ("slirp", "kvm", ["backend=user"], "net-stream", "backend=tap", MICROVM),
    ("checksum-offload", "kvm", ["backend=tap", "csum=off"], "net-stream", "csum=on", MICROVM),
    ("segmentation-offload", "kvm", ["backend=tap", "host_tso4=off"], "net-stream", "host_tso4=on", MICROVM),
    ("guest-segmentation-offload", "kvm", ["backend=tap", "guest_tso4=off"], "net-stream direction=receive", "guest_tso4=on", MICROVM),
    ("interrupt-line", "kvm", ["vectors=0"], "disk rw=randread", "without vectors=0", MICROVM),
    ("small-queue", "kvm", ["cache=none", "queue-size=4"], "disk rw=randread depth=32", "queue-size=256", MICROVM),
    ("few-requests", "kvm", ["cache=none", "block-queue.nr_requests=4"], "disk rw=randread depth=32", "without block-queue.nr_requests=4", MICROVM),
    ("no-read-ahead", "kvm", ["block-queue.read_ahead_kb=0"], f"exec sh -c {READ_BACK}", "without block-queue.read_ahead_kb=0", MICROVM),
    ("9p-msize", "kvm", ["share=9p", "share.cache=loose", "share.msize=8192"], "tree", "share.msize=512000", by("tree.large-cold")),
    ("9p-cache", "kvm", ["share=9p"], "tree", "share.cache=loose", by("tree.small-warm")),
    ("9p-to-disk", "kvm", ["share=9p"], "tree", "share=disk", by("tree.small-cold")),
    ("9p-to-virtiofs", "kvm", ["share=9p"], "tree", "share=virtiofs,share.cache=always", by("tree.small-warm")),
    ("flushes", "kvm", [], "exec dd if=/dev/zero of=file bs=4k count=1000 oflag=dsync", "cache=unsafe", [*MICROVM, "--unsafe"]),
    ("serial-console", "kvm", [], "exec sh -c seq|1000>/dev/console", "kernel-arg.console=hvc0", MICROVM),
    ("traced-guest", "kvm", ["kernel-arg.trace_event=raw_syscalls"], "syscalls only=getpid", "without kernel-arg.trace_event=raw_syscalls", MICROVM),
    ("traced-qemu", "kvm", ["qemu-args=-trace * -D /dev/null"], "disk rw=randread", "without qemu-args=-trace * -D /dev/null", by("disk.latency-p50")),
    ("tx-timer", "kvm", ["backend=tap", "tx=timer"], "net-rr", "tx=bh", by("net-rr.latency-p50")),
    ("directsync", "kvm", ["cache=directsync"], "disk rw=randwrite", "cache=writeback", by("disk.latency-p50")),
    ("virtiofs-cache", "kvm", ["share=virtiofs", "share.cache=none"], "tree", "share=virtiofs,share.cache=always", by("tree.walk")),
    ("no-huge-pages", "kvm", ["host.thp=never"], "memory block-size=64M access-mode=rnd", "without host.thp=never", [*MICROVM, *HOST]),
    ("9p-fid-list", "kvm", ["share=9p", "share.cache=loose", "qemu=5.2"], "open-fids count=6000 samples=500", "qemu=7.2.22", by("open-fids.open_close")),
    ("logged-blocks", "tcg", ["qemu-args=-d exec -D /dev/null"], "cpu", "without qemu-args=-d exec -D /dev/null", []),
    ("single-step", "tcg", ["qemu-args=-singlestep"], "cpu", "without qemu-args=-singlestep", []),
    ("tcg-one-thread", "tcg", ["accel.thread=single"], "cpu threads=2", "without accel.thread=single", ["--cpus", "2"]),
    ("tcg-clock", "tcg", ["kernel-arg.clocksource=hpet"], "syscalls only=clock_gettime_vdso", "without kernel-arg.clocksource=hpet", []),
    ("tcg-small-tb-cache", "tcg", ["accel.tb-size=1"], "syscalls only=fork", "without accel.tb-size=1", []),
    ("tcg-cpu-model", "tcg", [], "cpu", "cpu-model=qemu64", []),
    ("unused-devices", "kvm", ["disks=100"], "disk rw=randread", "without disks=100", [*Q35, "--metric", "disk.latency-p50"]),
    ("mmio-notify", "kvm", [], "disk rw=randread depth=32", "modern-pio-notify=on", MICROVM),
    ("event-idx", "kvm", ["event_idx=off"], "disk rw=randread depth=32", "event_idx=on", MICROVM),
    ("net-ioeventfd", "kvm", ["backend=tap", "ioeventfd=off"], "net-stream", "ioeventfd=on", MICROVM),
    ("small-l2-cache", "kvm", ["cache=none", "format=qcow2", "image.size=64G", "l2-cache-size=64K"], "disk rw=randread", "l2-cache-size=8388608", by("disk.latency-p50")),
    ("9p-mapped-attributes", "kvm", ["share=9p", "share.security-model=mapped-xattr"], "names", "without share.security-model=mapped-xattr", by("names.stat")),
]


# What a guest's own code does, the remedy, what is published.
KEVLAR = "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar)"
CODE = {
    "uart-polling": ("reads the UART's status before each byte", "write without asking, or `console=hvc0`", f"{KEVLAR}: a part of getpid, 13,000 → 200 ns"),
    "cursor-moves": ("moves the VGA's cursor with each character", "move it once a line, or `-vga none`", f"{KEVLAR}: 320 VM exits for a line of 80 characters"),
    "fast-tick": ("lets the timer tick at 1000 Hz", "100 Hz", f"{KEVLAR}: no figure of its own"),
    "eoi-by-memory": ("ends interrupts by MMIO", "x2APIC, or PV EOI", "Linux commit ae7a2a3fb6f8: half of an interrupt's VM exits"),
    "pm-timer-clock": ("reads the clock from the PM timer", "the TSC", "Linux commit ad3610919e6f: an exit to QEMU of 5,800 cycles a reading"),
    "hpet-clock": ("reads the clock from the HPET", "the TSC", "Linux commit ad3610919e6f: an exit to QEMU of 5,800 cycles a reading"),
    "clock-division": ("divides ticks by 64 bits", "multiply and shift", f"{KEVLAR}: no figure of its own"),
    "trace-line": ("prints a trace line in an interrupt", "no trace line", f"{KEVLAR}: no figure of its own"),
    "lock-saves-interrupts": ("saves interrupts around each lock", "a plain lock", f"{KEVLAR}: no figure of its own"),
    "two-copies": ("copies 16 bytes in two calls", "one call", f"{KEVLAR}: no figure of its own"),
}


def run(words, timeout=TIMEOUT_S, cwd=None):
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, cwd=cwd)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
    return done.stdout


MARK = "[[tune-guest.candidate]]\n"


def split(plan):
    """The plan up to its candidates, these, and what follows them."""
    head, *parts = plan.split(MARK)
    last, tail = parts[-1], ""
    rest = re.search(r"^\[\[?(?!tune-guest\.)", last, re.M)
    if rest:
        parts[-1], tail = last[: rest.start()], last[rest.start():]
    return head, parts, tail


def name_of(candidate):
    return re.search(r'^name = "(.*)"$', candidate, re.M).group(1)


def only(plan, names):
    """The plan with these candidates alone."""
    head, parts, tail = split(plan)
    return head + "".join(MARK + part for part in parts if name_of(part) in names) + tail


def chosen(plan, remedy, controls_at_most):
    """The plan with the remedy and the first controls alone, and whether the remedy is a candidate."""
    _, parts, _ = split(plan)
    own = lambda part: set(re.findall(r'^"?([\w.-]+)"? = ', part.split(".set]\n")[1], re.M))
    remedies = [part for part in parts if name_of(part) == remedy]
    # No other value of the remedy's own settings.
    keys = own(remedies[0]) if remedies else set()
    controls = [part for part in parts if name_of(part) != remedy and not own(part) & keys and not name_of(part).startswith("qemu=")]
    return only(plan, [name_of(part) for part in remedies + controls[:controls_at_most]]), bool(remedies)


def prove(proof, kernel, folder):
    """What is measured of one planted setting."""
    name, machine, planted, workload, remedy, options = proof
    words = [VMTAX, "tune", "--machine", machine] + (guest(kernel) if machine == "kvm" else [])
    for setting in planted:
        words += ["--from", setting]
    # A boot under TCG takes up to 40 s on a busy host.
    words += ["--slice", "0.4", "--duration", "20m" if machine == "tcg" else "10m"] + options
    plan = run(words + ["--dry-run", "--"] + [word.replace("|", " ") for word in workload.split()])
    if workload.startswith("open-fids"):
        # Names that the guest need not make.
        plan = re.sub(r"^files = .*\nbytes = .*", f"files = 6000\nbytes = {6000 * 2048}", plan, flags=re.M)
    is_quick = machine != "tcg" and not workload.startswith(("exec", "tree", "open-fids", "names"))
    plan, is_tried = chosen(plan, remedy, CONTROLS if is_quick else 0)
    if not is_tried:
        raise RuntimeError(f"{remedy} is not tried")
    path, out = os.path.join(folder, f"{name}.toml"), os.path.join(folder, name)
    with open(path, "w") as file:
        file.write(plan)
    shutil.rmtree(out, ignore_errors=True)
    found = json.loads(run([VMTAX, "run", "--json", "-q", "--output", out, path]))["findings"]
    rows = {row["name"]: row for row in found["candidates"]}
    kept = [row["name"] for row in found["candidates"] if row["verdict"] == "keep"]
    row = rows[remedy]
    own = row["confirmation"] or row["screening"]
    shutil.rmtree(out, ignore_errors=True)
    return {
        "planted": planted, "machine": machine, "workload": workload, "remedy": remedy, "kept": kept, "verdict": row["verdict"],
        "is_confirmed": bool(row["confirmation"]), "ratio": own and own["ratio"], "why": row["why"],
        "metric": found["metric"], "before": found["before"], "after": found["after"], "source": row["source"],
        "seconds": found["seconds"], "boots": found["boots"], "date": time.strftime("%Y-%m-%d"),
    }


def figure(value, metric):
    """A figure with its unit."""
    if value is None:
        return "?"
    if metric.startswith(("syscalls.", "open-fids.", "names.")) or "latency" in metric:
        for unit, size in (("ms", 1e6), ("µs", 1e3), ("ns", 1)):
            if value >= size or unit == "ns":
                return f"{value / size:.4g} {unit}"
    if metric == "exec.wall":
        return f"{value:.3g} s"
    unit = " MiB/s" if any(word in metric for word in ("throughput", "bandwidth", "large", "mmap", "bonnie.")) else "/s"
    return (f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + unit


def row(name, found):
    planted = ", ".join(f"`{word}`" for word in found["planted"]) or "nothing"
    machine = {"kvm": "KVM", "tcg": "TCG", "micro-tcg": "micro-guest, TCG", "micro-kvm": "micro-guest, KVM"}[found["machine"]]
    workload = found["workload"].replace("|", " ")
    head = f"| {planted} | {machine}, `{workload}` | `{found['remedy']}` |"
    if found["verdict"] != "keep":
        ratio = found["ratio"]
        seen = f": ×{ratio['median']:.2f}" if ratio else ""
        why = f" ({found['why'].rstrip('.')})" if found["why"] else ""
        return f"{head} {found['verdict']}{seen}{why} | | {found['source']} |"
    ratio = found["ratio"]
    low, high = (100 * (1 - ratio["interval"][end]) for end in ("high", "low"))
    also = [f"`{other}`" for other in found["kept"] if other != found["remedy"]]
    also = " (beside " + ", ".join(also) + ")" if also else ""
    gain = f"{100 * (1 - ratio['median']):.1f} % ({low:.1f} to {high:.1f} %){also}"
    moved = f"{figure(found['before'], found['metric'])} → {figure(found['after'], found['metric'])}"
    return f"{head} {gain} | {moved} | {found['source']} |"


def code(folder):
    """What the fixes of the antipatterns give in the micro-guest, by KVM."""
    out = os.path.join(folder, "code")
    words = ["run", "guest-antipatterns", "--machine", "micro-kvm", "--rounds", "8", "--json", "-q", "--output", out]
    found = json.loads(run([VMTAX] + words))["findings"]["machines"][0]["rows"]
    shutil.rmtree(out, ignore_errors=True)
    return found


def code_row(found):
    does, remedy, source = CODE.get(found["antipattern"], (found["antipattern"], "", "no published figure"))
    before, after = (found[end]["ns"]["median"] for end in ("before", "after"))
    moved = f"{figure(before, 'latency')} → {figure(after, 'latency')}"
    ratio = found["ratio"]
    low, high = (ratio["interval"][end] for end in ("low", "high"))
    times = lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    gain = f"×{times(ratio['median'])} ({times(low)} to {times(high)})"
    if found["emulated"]:
        gain = "not comparable: one of the two runs at CPL 0, which this KVM emulates"
    elif low <= 1:
        gain = f"inconclusive: {gain}"
    return f"| {does} | {remedy} | {gain} | {moved} | {source} |"


def write(state):
    """The tables of the page."""
    with open(PAGE, encoding="utf-8") as file:
        text = file.read()
    order = [proof[0] for proof in PROOFS if proof[0] in state]
    proofs = ["| planted | guest, workload | remedy | gain (95 % CI) | figure | published |", "|---|---|---|---|---|---|"]
    proofs += [row(name, state[name]) for name in order if state[name]["verdict"] == "keep"]
    proofs += [row(name, state[name]) for name in order if state[name]["verdict"] != "keep"]
    of_code = ["| the guest | remedy | time with it ÷ without (95 % CI) | figure | published |", "|---|---|---|---|---|"]
    of_code += [code_row(found) for found in state.get(CODE_STATE, [])]
    for name, lines in zip(TABLES, (proofs, of_code)):
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        text = text.split(begin)[0] + begin + "\n" + "\n".join(lines) + "\n" + end + text.split(end)[1]
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default=os.environ.get("VMTAX_TEST_KVM_GUEST"), type=os.path.abspath)
    parser.add_argument("--only", default="", help="proofs, separated by commas")
    parser.add_argument("--state", default="/var/tmp/vmtax-tuning-proofs.json", help="what was measured already")
    parser.add_argument("--again", action="store_true", help="measure also what the state has")
    parser.add_argument("--list", action="store_true", help="print the proofs, measure nothing")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))
    proofs = [proof for proof in PROOFS if not only or proof[0] in only]
    if arguments.list:
        for name, machine, planted, workload, remedy, _ in proofs:
            print(f"{name:18} {machine:9} {' '.join(planted) or 'nothing':34} {workload:36} {remedy}")
        return 0
    missing = [name for name in ("qemu-system-x86_64", VMTAX) if not shutil.which(name)] + ["root"] * (os.geteuid() != 0)
    if missing:
        print("bench: missing: " + ", ".join(missing), file=sys.stderr)
        return 2
    state = {}
    if os.path.exists(arguments.state):
        with open(arguments.state, encoding="utf-8") as file:
            state = json.load(file)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-", dir="/var/tmp") as folder:
        if (CODE_STATE not in state or arguments.again) and not only:
            try:
                state[CODE_STATE] = code(folder)
            except (RuntimeError, subprocess.TimeoutExpired) as why:
                print(f"{CODE_STATE:18} not measured: {why}", flush=True)
                wrong += 1
        for proof in proofs:
            name = proof[0]
            if (name in state and not arguments.again) or (proof[1] == "kvm" and not arguments.kernel):
                continue
            try:
                state[name] = prove(proof, arguments.kernel, folder)
            except (RuntimeError, subprocess.TimeoutExpired) as why:
                print(f"{name:18} not measured: {why}", flush=True)
                wrong += 1
                continue
            with open(arguments.state + ".new", "w", encoding="utf-8") as file:
                json.dump(state, file, indent=1)
            os.replace(arguments.state + ".new", arguments.state)
            write(state)
            found = state[name]
            print(f"{name:18} {found['verdict']:12} {found['boots']} boots, {found['seconds']:.0f} s: {row(name, found)}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
