#!/usr/bin/env python3
"""Compares what `vmtax layers --device net` says of its own work with limits (round trips joined, time unexplained, clocks, what the
probes cost beside the untraced control of the same rounds), and the network's workloads beside the tools that they follow.

    bench/network.py [--kernel VMLINUX] [--vmtax FILE] [--rounds N] [--count N] [--only layers,native]

VMLINUX is a guest as for bench/diagnose.py; without one the guest is the host's default. Natively vmtax and the tool (sockperf,
iperf3) run in turns, each over a veth pair between two network namespaces; a line's ratio is that of the medians over the rounds.
Exits 0 when every figure is within its limit, 1 when one is not, 2 when something is missing. As root.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from layers import judge, line, rounds

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "campaigns"))
import campaign

# Other load on the machine disturbs both sides less.
FIRST = ["nice", "--adjustment=-20"]
SECONDS = 2
BYTES = 64
LIMIT = 0.05


def reported(vmtax, scratch, *words):
    command = [*FIRST, vmtax, *words, "--json", f"--dir={scratch}"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        sys.exit(f"bench: {' '.join(map(str, command))} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def followed(arguments, scratch):
    """What `layers --device net` says of a guest's round trips."""
    options = ["--machine=kvm", *campaign.guest(arguments.kernel)] if arguments.kernel else []
    for connections, fewest, unexplained, observed in ((1, 0.999, 0.02, 1.08), (32, 0.99, None, None)):
        for protocol in ("udp", "tcp"):
            report = reported(arguments.vmtax, scratch, "layers", "--device=net", f"protocol={protocol}",
                              f"connections={connections}", f"count={arguments.count}", f"--rounds={arguments.rounds}",
                              *options)
            for column in report["findings"]["columns"]:
                if not column["machine"].startswith("micro"):
                    yield from judge(f"{protocol}, {connections}", column, fewest, unexplained, observed)


@contextlib.contextmanager
def namespaces():
    """Two network namespaces with a veth pair between them: their names, and the server's address."""
    names = [f"vmtaxbench{side}{os.getpid()}" for side in "cs"]

    def ip(*words):
        subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL)

    try:
        for name in names:
            ip("netns", "add", name)
        ends = [f"vb{side}{os.getpid()}" for side in "cs"]
        ip("link", "add", ends[0], "netns", names[0], "type", "veth", "peer", "name", ends[1], "netns", names[1])
        for number, (name, end) in enumerate(zip(names, ends), 1):
            ip("-n", name, "addr", "add", f"10.214.0.{number}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
        yield names, "10.214.0.2"
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def served(server, client, within):
    """The client's output while its server runs, each in its namespace; the client on one CPU, as a native trial's is."""
    (of_client, of_server), one = within, str(max(os.sched_getaffinity(0)))
    run = subprocess.Popen([*FIRST, "ip", "netns", "exec", of_server, *server], stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        command = [*FIRST, "ip", "netns", "exec", of_client, "taskset", "--cpu-list", one, *client]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if done.returncode:
            sys.exit(f"bench: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout
    finally:
        run.terminate()
        run.wait()


def sockperf(protocol, within, address):
    """The median round trip, ns. sockperf prints half of each, in us."""
    tcp = ["--tcp"] if protocol == "tcp" else []
    where = ["--ip", address, "--port", "11111", *tcp]
    client = ["sockperf", "ping-pong", *where, "--msg-size", str(BYTES), "--time", str(SECONDS)]
    text = served(["sockperf", "server", *where], client, within)
    return 2000 * float(re.search(r"percentile 50\.000\s*=\s*([\d.]+)", text).group(1))


def iperf3(direction, within, address):
    """MiB/s that arrived."""
    reverse = ["--reverse"] if direction == "receive" else []
    text = served(["iperf3", "--server", "--one-off"], ["iperf3", "--client", address, "--time", str(SECONDS), "--json", *reverse], within)
    return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 8 / (1 << 20)


def vmtaxs(arguments, scratch, metric, *workload):
    report = reported(arguments.vmtax, scratch, "run", *workload, f"time={SECONDS}", "--machine=native", "--rounds=1")
    measures = next(trial for trial in report["trials"] if trial["machine"] == "native")["result"]["measures"]
    return next(measure["value"] for measure in measures if measure["metric"] == metric)


def native(arguments, scratch):
    """vmtax's figures beside the tools', natively, in turns."""
    tests = [(f"net-rr {protocol} / sockperf", "net-rr.latency-p50", ["net-rr", f"protocol={protocol}", f"size={BYTES}"],
              lambda *at, protocol=protocol: sockperf(protocol, *at)) for protocol in ("udp", "tcp")]
    tests += [(f"net-stream {direction} / iperf3", "net-stream.throughput", ["net-stream", f"direction={direction}"],
               lambda *at, direction=direction: iperf3(direction, *at)) for direction in ("send", "receive")]
    for name, metric, workload, theirs in tests:
        pairs = []
        with namespaces() as at:
            for number in range(arguments.rounds):
                sides = [lambda: vmtaxs(arguments, scratch, metric, *workload), lambda: theirs(*at)]
                figures = [side() for side in (sides if number % 2 else sides[::-1])]
                pairs.append(figures if number % 2 else figures[::-1])
        ours, others = ([pair[side] for pair in pairs] for side in (0, 1))
        a, b = statistics.median(ours), statistics.median(others)
        yield line(name, a / b, f"1 +- {LIMIT}", abs(a / b - 1) <= LIMIT,
                   f"medians {a:.2f}, {b:.2f}; {min(ours):.2f}-{max(ours):.2f}, {min(others):.2f}-{max(others):.2f}; n = {len(pairs)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    parser.add_argument("--vmtax", default=f"{target}/x86_64-unknown-linux-gnu/release/vmtax", type=os.path.abspath)
    parser.add_argument("--kernel", default=os.environ.get("VMTAX_TEST_KVM_GUEST"), type=os.path.abspath)
    parser.add_argument("--rounds", type=rounds, default=12)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", default="layers,native", help="parts, comma separated")
    arguments = parser.parse_args()
    tools = {"ip": "iproute2", "taskset": "util-linux", "qemu-system-x86_64": "qemu-system-x86"}
    only = arguments.only.split(",")
    tools |= {"sockperf": "sockperf", "iperf3": "iperf3"} if "native" in only else {}
    missing = [f"{tool} (apt-get install {package})" for tool, package in tools.items() if not shutil.which(tool)]
    missing += [] if os.access(arguments.vmtax, os.X_OK) else [f"{arguments.vmtax} (make build)"]
    missing += ["root (tracing, network namespaces)"] if os.geteuid() else []
    if missing:
        print("bench: missing: " + "; ".join(missing), file=sys.stderr)
        return 2
    parts = {"layers": followed, "native": native}
    results = []
    with tempfile.TemporaryDirectory(prefix="vmtax-bench-") as scratch:
        for part in only:
            results += parts[part](arguments, scratch)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
