#!/usr/bin/env python3
"""Times the queries of docs/dataset.md in DuckDB on a dataset as large as many hosts make.

    bench/dataset.py [--hosts 1000] [--runs 20] [--metrics 40]

The tables have the columns of the page. A slow host, a drift and a slow QEMU are planted, and must be found.
Needs duckdb and pyarrow: scripts/setup test, then target/tools/bin/python3 bench/dataset.py. Exit 1 if a plant is missed.
"""
import argparse
import datetime
import glob
import os
import random
import re
import sys
import tempfile
import time

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../docs/dataset.md")
TYPES = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64(), "double": pa.float64(),
         "timestamp": pa.timestamp("us", tz="UTC")}
SLOW_HOST, DRIFTING_HOST, SLOW_QEMU = "host-0007", "host-0013", "9.2.0"


def schema(page, table):
    """The columns that the page gives for a table."""
    section = page.split(f"### `{table}`")[1].split("\n### ")[0]
    fields = []
    for names, kind in re.findall(r"^\| (`[^|]*) \| ([^|]*) \|", section, re.M):
        kind, nullable = kind.removesuffix(", nullable"), "nullable" in kind
        fields += [pa.field(name, TYPES[kind], nullable) for name in re.findall("`([^`]*)`", names)]
    return pa.schema(fields)


def write(folder, table, schema, date, host, run, rows):
    folder = f"{folder}/{table}/schema=1/date={date}/host={host}"
    os.makedirs(folder, exist_ok=True)
    arrays = pa.Table.from_pylist(rows, schema)
    pq.write_table(arrays, f"{folder}/{run}.parquet", compression="zstd")


def generate(folder, page, hosts, runs, metrics):
    schemas = {table: schema(page, table) for table in ("figures", "facts", "comparisons")}
    chance = random.Random(1)
    first = datetime.date(2026, 11, 1)
    for h in range(hosts):
        host, qemu = f"host-{h:04}", ["7.2.22", "8.2.10", SLOW_QEMU][h % 3]
        cpu = ["Intel Xeon Gold 6430", "AMD EPYC 7763", "AMD EPYC 9454", "Intel Xeon Platinum 8592+"][h % 4]
        for r in range(runs):
            date = first + datetime.timedelta(days=r)
            run = f"{date:%Y%m%d}T120000Z-default-{h * runs + r:012x}"
            of_run = {"run": run, "plan": "default", "study": "overhead", "settings": '{"guest.cpus":"1"}', "variant": "",
                      "machine": "kvm", "unit": "ns", "better": "lower", "round": 0, "baseline": "native", "rounds": 6,
                      "started": datetime.datetime(date.year, date.month, date.day, 12, tzinfo=datetime.timezone.utc)}
            figures, comparisons = [], []
            for m in range(metrics):
                value = 1000 * (1 + m) * (1 + 0.1 * (h % 4)) * chance.gauss(1, 0.01)
                value *= 1.3 if host == SLOW_HOST and m == 3 else 1
                value *= 1.2 if host == DRIFTING_HOST and m == 5 and r >= runs - 7 else 1
                ratio = (1.5 if qemu == SLOW_QEMU and m == 2 else 1.1) * chance.gauss(1, 0.01)
                name = {"workload": "syscalls", "metric": f"syscalls.{m:02}"}
                figures.append({**of_run, **name, "trial": m, "value": value})
                comparisons.append({**of_run, **name, "value": value, "baseline_value": value / ratio, "ratio": ratio,
                                    "low": ratio * 0.98, "high": ratio * 1.02, "coverage": 0.97, "verdict": "slower"})
            named = {"host_name": host, "host_id": f"{h:016x}", "host_cpu_model_name": cpu, "kernel_release": "6.12.0",
                     "host_cpu_microcode": "0x1", "halt_poll_ns": "200000", "transparent_hugepage": "madvise",
                     "host_memory_mib": "262144", "qemu_version": qemu, "os_description": "Debian GNU/Linux 13"}
            facts = [{"run": run, "machine": "", "variant": "", "name": n, "value": v} for n, v in named.items()]
            facts.append({"run": run, "machine": "kvm", "variant": "", "name": "qemu_version", "value": qemu})
            for table, rows in (("figures", figures), ("facts", facts), ("comparisons", comparisons)):
                write(folder, table, schemas[table], date, host, run, rows)


def timed(database, what, sql):
    begin = time.monotonic()
    rows = database.sql(sql)
    rows = rows.fetchall() if rows is not None else []
    seconds = time.monotonic() - begin
    print(f"{sql.split()[0]:<8}{what:<56}{seconds:8.2f} s")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("hosts", 1000), ("runs", 20), ("metrics", 40)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    with open(PAGE, encoding="utf-8") as file:
        page = file.read()
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.mkdir("compact")
        begin = time.monotonic()
        generate("dataset", page, args.hosts, args.runs, args.metrics)
        files = glob.glob("dataset/**/*.parquet", recursive=True)
        size = sum(os.path.getsize(file) for file in files) / 2**20
        print(f"{len(files)} files, {size:.0f} MiB, written by pyarrow in {time.monotonic() - begin:.0f} s")
        statements = []
        for heading, block in re.findall(r"^#+ ([^\n]*)\n(?:(?!^#).)*?^```sql\n(.*?)^```", page, re.M | re.S):
            if heading not in ("ClickHouse", "Spark"):  # which declare the tables in their own words
                statements += [(heading, s) for s in re.split(r";\n", block) if s.strip()]
        database = duckdb.connect()
        for where in ("dataset", "compact"):
            print(f"-- {where}/")
            answers = {}
            for heading, sql in statements:
                # The views of the copy were the last statements of the first pass.
                if where == "dataset" or sql.split()[0] in ("with", "select"):
                    answers.setdefault(heading, []).extend(timed(database, heading, sql))
            answer = {heading: str(rows) for heading, rows in answers.items()}
            plants = [("outliers", SLOW_HOST), ("drift", DRIFTING_HOST), ("QEMU version", f"'{SLOW_QEMU}'")]
            for word, plant in plants:
                missed += [f"{where}: {plant}" for heading in answer if word in heading and plant not in answer[heading]]
            versions = [row for heading in answers if "QEMU" in heading for row in answers[heading]]
            slow = [row for row in versions if row[0] == "syscalls.02" and row[2] == SLOW_QEMU]
            if not slow or slow[0][4] < 1.4:
                missed.append(f"{where}: the overhead of QEMU {SLOW_QEMU}")
        os.chdir("/")
    for plant in missed:
        print(f"missed: {plant}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
