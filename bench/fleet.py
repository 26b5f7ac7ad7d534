#!/usr/bin/env python3
"""Plants slow hosts in datasets of many hosts and counts how often `vmtax fleet` finds them, and how long it takes.

    bench/fleet.py VMTAX [--hosts 1000] [--runs 20] [--metrics 40] [--seeds 3] [--slow 5] [--none] [--keep DIR]

Of each dataset 5 hosts are 8 % slower in every metric and alone have a microcode; a figure's noise is 5 %, hosts differ by 0.5 %.
With --none no host is slow: every one that is named is a false alarm. Needs pyarrow: scripts/setup test, then
target/tools/bin/python3 bench/fleet.py. Exit 1 if a slow host or the fact is missed, or more than 5 % of the hosts named
are wrong.
"""
import argparse
import datetime
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time

import pyarrow as pa
import pyarrow.parquet as pq

from dataset import PAGE, schema

MODELS = ["Intel Xeon Gold 6430", "AMD EPYC 7763", "AMD EPYC 9454", "Intel Xeon Platinum 8592+"]


def generate(folder, page, args, chance):
    """Writes the tables `figures` and `facts`; returns the slow hosts."""
    schemas = {table: schema(page, table) for table in ("figures", "facts")}
    slow = set() if args.none else set(chance.sample(range(args.hosts), args.slow))
    first = datetime.date(2026, 11, 1)
    for h in range(args.hosts):
        host = f"host-{h:05}"
        level = chance.gauss(1, 0.005) * (1.08 if h in slow else 1)
        facts = {"host_name": host, "host_id": f"{h:016x}", "host_cpu_model_name": MODELS[h % 4],
                 "host_cpu_microcode": "0x1" if h in slow else "0x2",
                 "kernel_release": f"6.12.{chance.randrange(5)}", "qemu_version": chance.choice(["7.2.22", "8.2.10", "9.2.0"]),
                 "halt_poll_ns": chance.choice(["0", "200000", "200000", "200000"]),
                 "transparent_hugepage": chance.choice(["always", "madvise"]),
                 "cpu_governor": chance.choice(["performance", "schedutil"]), "host_memory_mib": "262144"}
        for r in range(args.runs):
            date = first + datetime.timedelta(days=r)
            run = f"{date:%Y%m%d}T120000Z-default-{h * args.runs + r:012x}"
            columns = {name: [value] * args.metrics for name, value in (
                ("run", run), ("plan", "default"), ("study", "overhead"), ("workload", "syscalls"),
                ("settings", '{"guest.cpus":"1"}'), ("unit", "ns"), ("better", "lower"), ("machine", "kvm"), ("variant", ""),
                ("size", None), ("round", 0), ("started", None))}
            columns["metric"] = [f"syscalls.{m:02}" for m in range(args.metrics)]
            columns["trial"] = list(range(args.metrics))
            columns["value"] = [1000 * (1 + m) * (1 + 0.1 * (h % 4)) * level * chance.gauss(1, 0.05)
                                for m in range(args.metrics)]
            write_columns(folder, "figures", schemas["figures"], date, host, run, columns)
            of_run = {name: [value] * len(facts) for name, value in (("run", run), ("machine", ""), ("variant", ""))}
            of_run |= {"name": list(facts), "value": list(facts.values())}
            write_columns(folder, "facts", schemas["facts"], date, host, run, of_run)
    return {f"host-{h:05}" for h in slow}


def write_columns(folder, table, schema_of_table, date, host, run, columns):
    folder = f"{folder}/{table}/schema=1/date={date}/host={host}"
    os.makedirs(folder, exist_ok=True)
    arrays = [pa.array(columns[field.name], field.type) for field in schema_of_table]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema_of_table), f"{folder}/{run}.parquet", compression="zstd")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("vmtax")
    for name, default in (("hosts", 1000), ("runs", 20), ("metrics", 40), ("seeds", 3), ("slow", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--none", action="store_true")
    parser.add_argument("--keep", metavar="DIR", help="write the first dataset there, and end")
    args = parser.parse_args()
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    if args.keep:
        print(" ".join(sorted(generate(args.keep, page, args, random.Random(0)))))
        sys.exit(0)
    named = wrong = missed = facts = 0
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            slow = generate(folder, page, args, random.Random(seed))
            begin = time.monotonic()
            out = subprocess.run([os.path.abspath(args.vmtax), "fleet", folder, "--json"], check=True, stdout=subprocess.PIPE)
            seconds = time.monotonic() - begin
            text = subprocess.run([os.path.abspath(args.vmtax), "fleet", folder], check=True, stdout=subprocess.PIPE)
        found = json.loads(out.stdout)
        hosts = {row["host"] for row in found["hosts"] if row["verdict"] in ("slower", "faster")}
        hosts |= {found["hosts"][o["host"]]["host"] for o in found["metric_outliers"]}
        first = found["facts"][0] if found["facts"] else {"p": 1, "fact": ""}
        cause = first["fact"] if first["p"] <= 0.05 else None
        is_right = cause == (None if args.none else "host_cpu_microcode")
        named, wrong, missed, facts = named + len(hosts), wrong + len(hosts - slow), missed + len(slow - hosts), facts + is_right
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"seed {seed}: {len(hosts & slow)} of {len(slow)} slow hosts, {len(hosts - slow)} others, fact {cause}; "
              f"{seconds:.1f} s, {memory:.0f} MiB")
        if seed == 0:
            print(text.stdout.decode().split("\n\n")[0])
        sys.stdout.flush()
    print(f"{args.seeds} datasets: {named} hosts named, {wrong} of them wrong, {missed} missed, the fact right in {facts}")
    sys.exit(1 if missed or wrong > 0.05 * max(named, args.seeds) or facts < 0.95 * args.seeds else 0)


if __name__ == "__main__":
    main()
