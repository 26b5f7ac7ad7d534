"""Answers the queries of the documentation in one engine: those of the pages as they stand, of Polars and pandas beside
the page's own the same in their words. Prints the rows by folder and heading as JSON.

    engines.py ENGINE FOLDER[,FOLDER...] PAGE...
"""
import datetime
import json
import re
import sys

OUTLIERS = "Which hosts are outliers among those with the same CPU?"
DRIFT = "Which figures drift?"
QEMU = "What does each QEMU version cost?"
FACT = "Which fact explains outliers, metric by metric?"
QUERIES = (OUTLIERS, DRIFT, QEMU, FACT)
NO_FACTS = ("host_id", "host_name", "host_cpu_model_name", "study")


def blocks(pages):
    """Heading, language and text of each block of code."""
    heading, language, code = "", None, []
    for line in (line for page in pages for line in open(page, encoding="utf-8")):
        if language is not None:
            if line.startswith("```"):
                yield heading, language, "".join(code)
                language = None
            else:
                code.append(line)
        elif line.startswith("```"):
            language, code = line[3:].strip(), []
        elif line.startswith("#"):
            heading = line.strip("# \n")


def statements(page, heading):
    """The SQL below a heading."""
    all = [text for title, language, text in page if title == heading and language == "sql"]
    assert all, heading
    return [statement for text in all for statement in re.split(r";\n", text) if statement.strip()]


def in_sql(page, engine, folder, run):
    """All queries through `run`, which returns the rows of a statement."""
    if (engine, folder) == ("DuckDB", "compact"):
        # The copy is made, and its views end the statements.
        rows = [run(statement) for statement in statements(page, "Compaction")]
        count = rows[-1][0][0]
    else:
        for statement in statements(page, engine):
            run(statement.replace("dataset/", f"{folder}/"))
        count = run("select count(*) from figures")[0][0]
    return {heading: run(statements(page, heading)[0]) for heading in QUERIES} | {"figures": count}


def duckdb(page, folders):
    import duckdb
    database = duckdb.connect()

    def run(statement):
        rows = database.sql(statement)
        return [list(row) for row in rows.fetchall()] if rows is not None else []
    return {folder: in_sql(page, "DuckDB", folder, run) for folder in folders}


def clickhouse(page, folders):
    from chdb.session import Session
    with Session() as session:
        def run(statement):
            text = str(session.query(statement, "JSONCompact"))
            return json.loads(text)["data"] if text.strip() else []
        return {folder: in_sql(page, "ClickHouse", folder, run) for folder in folders}


def spark(page, folders):
    from pyspark.sql import SparkSession
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1", "spark.log.level": "ERROR", "spark.sql.files.openCostInBytes": "131072",
                # The data is small: most of the time went into compiling, in the JVM and to it. So rows are read, not column batches.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                # Not a task for each folder.
                "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000"}
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()

    def run(statement):
        rows = [list(row) for row in session.sql(statement).collect()]
        if created := re.match("create or replace temporary view ([a-z]+) ", statement):
            # Each file is opened once, and not for each query.
            session.catalog.cacheTable(created[1])
        return rows
    try:
        return {folder: in_sql(page, "Spark", folder, run) for folder in folders}
    finally:
        session.stop()


def of_page(page, word, folder):
    """The variables of the page's Python that has this word, reading this folder."""
    [code] = [text for _, language, text in page if language == "python" and f"import {word}" in text]
    if folder == "compact":
        # There the host is a column of the file.
        code = code.replace(', "host": polars.String', "").replace(', ("host", pyarrow.string())', "")
    variables = {}
    exec(code.replace("dataset/", f"{folder}/"), variables)
    return variables


def polars(page, folders):
    import polars as pl
    from polars import col

    def answers(folder):
        page_s = of_page(page, "polars", folder)
        figures, facts = page_s["figures"], page_s["facts"]
        options = page_s["options"]
        comparisons = pl.scan_parquet(f"{folder}/comparisons/**/*.parquet", **options)
        of_host = facts.filter(col("machine") == "")
        fact = lambda name, column: of_host.filter(col("name") == name).select("run", col("value").alias(column))
        day = figures.select(col("date").max()).collect().item()
        late = col("date") > day - datetime.timedelta(7)
        drift = (
            figures.join(fact("kernel_release", "kernel"), on="run").join(fact("host_cpu_microcode", "microcode"), on="run")
            .group_by("host", "workload", "settings", "metric", "machine", "variant", "size")
            .agg(ratio=col("value").filter(late).median() / col("value").filter(~late).median(),
                 **{f"{name}_{when}": col(name).filter(rows).max()
                    for name in ("kernel", "microcode") for when, rows in (("before", ~late), ("after", late))})
            .filter((col("ratio") - 1).abs() > 0.05).sort(col("ratio").round(3).log().abs(), "host", "machine", descending=[True, False, False])
            .select("host", "metric", "machine", "ratio", "kernel_before", "kernel_after", "microcode_before", "microcode_after")
        )
        versions = facts.filter(col("name") == "qemu_version").select("run", "machine", "variant", qemu="value")
        qemu = (
            comparisons.filter(col("baseline") == "native").join(versions, on=["run", "machine", "variant"])
            .group_by("metric", "machine", "qemu")
            .agg(col("host").n_unique().alias("hosts"), col("ratio").median().alias("overhead"), col("ratio").min().alias("least"),
                 col("ratio").max().alias("most"), (col("verdict") == "slower").sum().alias("slower"))
            .sort("metric", "machine", "qemu")
        )
        alike = ["cpu", "metric", "machine", "settings", "fact"]
        named = of_host.filter(~col("name").is_in(NO_FACTS)).select("run", fact="name", fact_value="value")
        effect = (
            figures.join(fact("host_cpu_model_name", "cpu"), on="run").join(named, on="run")
            .group_by(*alike, "fact_value", "host").agg(figure=col("value").median())
            .with_columns(share=col("figure") / col("figure").median().over(alike))
            .group_by("metric", "machine", "fact", "fact_value").agg(hosts=pl.len(), ratio=col("share").median())
            .filter((col("ratio") - 1).abs() > 0.02)
            .sort((col("ratio").round(3) - 1).abs().round(6), "fact", "fact_value", "metric", "machine", descending=[True] + 4 * [False])
        )
        tables = {OUTLIERS: page_s["outliers"].lazy(), DRIFT: drift, QEMU: qemu, FACT: effect}
        rows = {heading: [list(row) for row in table.limit(20).collect().rows()] for heading, table in tables.items()}
        return rows | {"figures": figures.select(pl.len()).collect().item()}
    return {folder: answers(folder) for folder in folders}


def pandas(page, folders):
    import pandas as pd

    def answers(folder):
        page_s = of_page(page, "pandas", folder)
        facts, hive = page_s["facts"], page_s["hive"]
        figures = pd.read_parquet(f"{folder}/figures", partitioning=hive)
        comparisons = pd.read_parquet(f"{folder}/comparisons", partitioning=hive)
        for frame in (figures, facts, comparisons):
            # A column of the path is a category.
            frame["host"] = frame["host"].astype(str)
        of_host = facts[facts.machine == ""]
        fact = lambda name, column: of_host[of_host.name == name][["run", "value"]].rename(columns={"value": column})
        aged = figures.merge(fact("kernel_release", "kernel"), on="run").merge(fact("host_cpu_microcode", "microcode"), on="run")
        age = pd.to_datetime(aged.date.astype(str))
        is_late = age > age.max() - pd.Timedelta(days=7)
        series = ["host", "workload", "settings", "metric", "machine", "variant", "size"]
        parts = [frame.groupby(series, dropna=False).agg(value=("value", "median"), kernel=("kernel", "max"), microcode=("microcode", "max"))
                 for frame in (aged[~is_late], aged[is_late])]
        drift = parts[0].merge(parts[1], left_index=True, right_index=True, suffixes=("_before", "_after")).reset_index()
        drift["ratio"] = drift.value_after / drift.value_before
        drift = drift[(drift.ratio - 1).abs() > 0.05]
        drift["far"] = [max(ratio, 1 / ratio) for ratio in drift.ratio.round(3)]
        drift = drift.sort_values(["far", "host", "machine"], ascending=[False, True, True])
        drift = drift[["host", "metric", "machine", "ratio", "kernel_before", "kernel_after", "microcode_before", "microcode_after"]]
        versions = facts[facts.name == "qemu_version"][["run", "machine", "variant", "value"]].rename(columns={"value": "qemu"})
        costs = comparisons[comparisons.baseline == "native"].merge(versions, on=["run", "machine", "variant"])
        costs["is_slower"] = costs.verdict == "slower"
        costs = costs.groupby(["metric", "machine", "qemu"]).agg(hosts=("host", "nunique"), overhead=("ratio", "median"),
            least=("ratio", "min"), most=("ratio", "max"), slower=("is_slower", "sum")).reset_index()
        alike = ["cpu", "metric", "machine", "settings", "fact"]
        named = of_host[~of_host.name.isin(NO_FACTS)][["run", "name", "value"]].rename(columns={"name": "fact", "value": "fact_value"})
        each = figures.merge(fact("host_cpu_model_name", "cpu"), on="run").merge(named, on="run")
        each = each.groupby([*alike, "fact_value", "host"]).value.median().reset_index(name="figure")
        each["share"] = each.figure / each.groupby(alike).figure.transform("median")
        effect = each.groupby(["metric", "machine", "fact", "fact_value"]).share.agg(hosts="size", ratio="median").reset_index()
        effect = effect[(effect.ratio - 1).abs() > 0.02]
        effect["far"] = (effect.ratio.round(3) - 1).abs().round(6)
        effect = effect.sort_values(["far", "fact", "fact_value", "metric", "machine"], ascending=[False] + 4 * [True]).drop(columns="far")
        outliers = page_s["outliers"][["host", "cpu", "metric", "machine", "ratio", "deviation"]]
        tables = {OUTLIERS: outliers, DRIFT: drift, QEMU: costs, FACT: effect}
        return {heading: table.head(20).values.tolist() for heading, table in tables.items()} | {"figures": len(figures)}
    return {folder: answers(folder) for folder in folders}


ENGINES = {"duckdb": duckdb, "chdb": clickhouse, "pyspark": spark, "polars": polars, "pandas": pandas}
pages = list(blocks(sys.argv[3:]))
print(json.dumps(ENGINES[sys.argv[1]](pages, sys.argv[2].split(",")), default=float))
