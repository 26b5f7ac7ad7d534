//! Kinds of jobs of fio: of each the figures of vmtax are fio's own, natively and in a guest.

use crate::common::{Place, fast_guest, json, number, root_methods, skipped};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// True if this machine has fio.
pub fn has_fio() -> bool {
    let is_there = Command::new("fio").arg("--version").output().is_ok();
    if !is_there {
        skipped("fio is not installed");
    }
    is_there
}

/// Kinds of jobs, each with another part of what fio's output can have.
const KINDS: [(&str, &str); 16] = [
    ("numjobs", "--name=a --rw=randread --direct=1 --numjobs=2"),
    (
        "depth-256",
        "--name=a --rw=randread --direct=1 --ioengine=libaio --iodepth=256",
    ),
    (
        "mixed",
        "--name=a --rw=randrw --rwmixread=70 --direct=1 --ioengine=libaio --iodepth=4",
    ),
    (
        "fdatasync",
        "--name=a --rw=randwrite --direct=1 --fdatasync=4",
    ),
    ("rate", "--name=a --rw=read --direct=1 --rate_iops=200"),
    (
        "verify",
        "--name=a --rw=randwrite --direct=1 --size=256k --verify=crc32c",
    ),
    (
        "verify_backlog",
        "--name=a --rw=randwrite --direct=1 --size=256k --verify=crc32c --verify_backlog=8",
    ),
    (
        "bssplit",
        "--name=a --rw=randread --direct=1 --bssplit=4k/50:16k/50",
    ),
    ("bsrange", "--name=a --rw=write --direct=1 --bsrange=4k-32k"),
    ("rwmixread", "--name=a --rw=rw --direct=1 --rwmixread=25"),
    (
        "thinktime",
        "--name=a --rw=randread --direct=1 --thinktime=2ms --thinktime_blocks=4",
    ),
    (
        "zones",
        "--name=a --rw=read --direct=1 --zonemode=strided --zonesize=64k --zonerange=256k --zoneskip=64k",
    ),
    (
        "offset",
        "--name=a --rw=write --direct=1 --offset=256k --size=512k",
    ),
    (
        "stonewall",
        "--name=a --rw=read --direct=1 --name=b --stonewall --rw=randwrite --direct=1",
    ),
    (
        "group",
        "--name=a --rw=randrw --direct=1 --numjobs=3 --group_reporting",
    ),
    (
        "unified",
        "--name=a --rw=randrw --direct=1 --unified_rw_reporting=1",
    ),
];

/// The directions of fio's output that have requests.
fn directions(fio: &Value) -> Vec<&Value> {
    let jobs = fio["jobs"].as_array().unwrap().iter();
    let all = jobs.flat_map(|job| ["read", "write", "trim", "mixed"].map(|name| &job[name]));
    all.filter(|one| one["total_ios"].as_u64().is_some_and(|count| count > 0))
        .collect()
}

/// fio's own completion latencies, of each direction of each job.
pub fn clats(fio: &Value) -> Vec<Value> {
    let all = directions(fio).into_iter();
    all.map(|one| one["clat_ns"].clone())
        .filter(|clat| clat["N"].as_u64().is_some_and(|count| count > 0))
        .collect()
}

/// The latency at which fio's bins reach a part of the requests.
fn bin_at(clats: &[Value], percent: u64) -> f64 {
    let mut bins: BTreeMap<u64, u64> = BTreeMap::new();
    for clat in clats {
        for (ns, count) in clat["bins"].as_object().unwrap() {
            *bins.entry(ns.parse().unwrap()).or_default() += count.as_u64().unwrap();
        }
    }
    let all: u64 = bins.values().sum();
    let mut sum = 0;
    let reached = bins.iter().find(|(_, count)| {
        sum += **count;
        100 * sum >= percent * all
    });
    *reached.unwrap().0 as f64
}

/// Compares a result with fio's own output: where that has one figure with this one, else with what fio's add up to.
fn assert_figures_are_fios(kind: &str, result: &Value, fio: &Value) {
    let measures = result["measures"].as_array().unwrap();
    let figure = |id: &str| {
        let found = measures.iter().find(|measure| measure["metric"] == id);
        number(&found.unwrap_or_else(|| panic!("{kind}: no {id} in {result:#}"))["value"])
    };
    let (directions, clats) = (directions(fio), clats(fio));
    let of = |one: &Value, key: &str| number(&one[key]);
    let requests: f64 = directions.iter().map(|one| of(one, "total_ios")).sum();
    let seconds: f64 = directions.iter().map(|one| of(one, "runtime") / 1e3).sum();
    let iops: f64 = match kind {
        "stonewall" | "verify_backlog" => requests / seconds,
        _ => directions.iter().map(|one| of(one, "iops")).sum(),
    };
    // fio prints six decimals.
    let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-8 * b;
    assert!(
        is_near(figure("fio.iops"), iops),
        "{kind}: {} IOPS, {iops}",
        figure("fio.iops")
    );
    let counted: f64 = clats.iter().map(|clat| of(clat, "N")).sum();
    let total: f64 = clats
        .iter()
        .map(|clat| of(clat, "N") * of(clat, "mean"))
        .sum();
    let mean = total / counted;
    assert!(
        is_near(figure("fio.clat-mean"), mean),
        "{kind}: {}, {mean}",
        figure("fio.clat-mean")
    );
    for (id, percent) in [("fio.clat-p50", 50), ("fio.clat-p99", 99)] {
        assert_eq!(figure(id), bin_at(&clats, percent), "{kind}: {id}");
    }
    if let ([one], [clat]) = (&directions[..], &clats[..]) {
        let percentile = |name: &str| number(&clat["percentile"][name]);
        let own = [
            of(one, "iops"),
            of(clat, "mean"),
            percentile("50.000000"),
            percentile("99.000000"),
        ];
        let ours =
            ["iops", "clat-mean", "clat-p50", "clat-p99"].map(|id| figure(&format!("fio.{id}")));
        assert_eq!(ours, own, "{kind}");
    }
}

/// The options of fio's first job have what this kind has, so that its figures are of the kind.
fn assert_is_of_kind(kind: &str, fio: &Value) {
    let given = &fio["jobs"][0]["job options"];
    let key = match kind {
        "depth-256" => "iodepth",
        "rate" => "rate_iops",
        "mixed" => "rwmixread",
        "zones" => "zonemode",
        "stonewall" => return assert_eq!(fio["jobs"].as_array().unwrap().len(), 2),
        "group" => "group_reporting",
        "unified" => "unified_rw_reporting",
        other => other,
    };
    assert!(!given[key].is_null(), "{kind}: {given}");
}

#[test]
fn figures_of_each_kind_of_job_are_fios_own_natively() {
    if !has_fio() {
        return;
    }
    let place = Place::new();
    let disk = place.put("disk.raw", vec![1; 8 << 20]);
    for (kind, job) in KINDS {
        let run = place
            .vmtax("agent run fio time=0.3 --json --disk")
            .arg(&disk);
        let run = run.words("--destroy").arg(&disk).arg(format!("job={job}"));
        let result = json(&run.start(60).outcome().exits(0).stdout);
        let fio = json(result["output"].as_str().unwrap());
        assert_figures_are_fios(kind, &result, &fio);
        assert_is_of_kind(kind, &fio);
    }
    assert_eq!(fs::metadata(&disk).unwrap().len(), 8 << 20);
}

/// All kinds in one boot: two turns each.
#[test]
fn figures_of_each_kind_of_job_are_fios_own_in_a_guest() {
    if !has_fio() {
        return;
    }
    let place = Place::new();
    let share = root_methods()[0];
    let (machine, options) = fast_guest();
    let variants: String = KINDS
        .iter()
        .map(|(kind, job)| {
            format!("[[variant]]\nname = \"{kind}\"\nset = {{ share = \"{share}\", \"fio.job\" = \"{job}\" }}\n")
        })
        .collect();
    let dry = place
        .vmtax("run --dry-run cpu")
        .words(&options)
        .succeeds()
        .stdout;
    let dry: toml::Table = toml::from_str(&dry).unwrap();
    let guest = toml::to_string(&dry["guest"]).unwrap();
    let plan = format!(
        "schema = 1\nname = \"kinds\"\nrounds = 1\nseed = 1\ntimeout-s = 120\nmachines = [\"{machine}\"]\n\
         [guest]\n{guest}[compare]\nmin-effect = 0.02\none-boot = true\n{variants}\
         [[workload]]\nname = \"fio\"\noptions = {{ time = \"0.3\" }}\n"
    );
    let file = place.put("plan.toml", plan);
    let start = place.vmtax("run --output out").arg(&file);
    start.start(400).outcome().exits(0);
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for trial in fs::read_dir(place.path("out/trials")).unwrap().flatten() {
        let read = |name| -> Value {
            serde_json::from_str(&fs::read_to_string(trial.path().join(name)).unwrap()).unwrap()
        };
        let record = read("trial.json");
        let kind = record["variant"].as_str().unwrap();
        assert_eq!(record["machine"], machine);
        let fio = read("fio.json");
        assert_figures_are_fios(kind, &record["result"], &fio);
        assert_is_of_kind(kind, &fio);
        *counts.entry(kind.to_owned()).or_default() += 1;
    }
    let expected = KINDS.map(|(kind, _)| (kind.to_owned(), 2));
    assert_eq!(counts, BTreeMap::from(expected));
    place.nothing_is_left();
}
