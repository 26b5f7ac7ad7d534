//! Jobs of fio that somebody pasted: run by the host's fio, natively and in a guest, with its own figures; what names another file,
//! device or program is refused by its name.

use crate::common::{Place, is_root, json, kernel, kvm_guest_options, number, root_methods};
use crate::fio_kinds::{clats, has_fio};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use vmtax_model::testing::KvmGuest;

/// The corpus of the fuzz target: jobs as people paste them.
fn case(name: &str) -> PathBuf {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/fio");
    let found = fs::read_dir(corpus)
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let mut found = found.filter(|path| {
        path.file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with(name)
    });
    found.next().unwrap()
}

fn job_of(plan: &str) -> String {
    let plan: toml::Table = toml::from_str(plan).unwrap();
    plan["workload"][0]["options"]["job"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn pasted_jobs_are_read_as_fio_reads_them() {
    if !has_fio() {
        return;
    }
    let place = Place::new();
    for (name, expected) in [
        (
            "fio-01",
            "--name=db --direct=1 --ioengine=libaio --rw=randread --bs=8k --iodepth=4",
        ),
        ("fio-02", "--name=a --direct=1 --rw=write --bs=4k"),
        ("fio-03", "--name=a --direct=1 --rw=randread --bs=4k"),
        (
            "fio-04",
            "--name=a --direct=1 --ioengine=libaio --rw=randread --bs=4k --iodepth=64",
        ),
        ("fio-05", "--name=a --direct=1 --rw=randread --bs=4kb"),
        (
            "fio-06",
            "--name=a --direct=1 --rw=randread --bs=4k --percentile_list=50:99:99.9 --randseed=7 --exitall",
        ),
        (
            "fio-08",
            "--name=a --direct=1 --rw=randread --bs=4k --iodepth=16 --ioengine=libaio --runtime=30 --time_based",
        ),
    ] {
        let start = place
            .vmtax("tune --machine tcg --dry-run --fio")
            .arg(case(name));
        assert_eq!(job_of(&start.succeeds().stdout), expected, "{name}");
    }
    let two = place
        .vmtax("tune --machine tcg --dry-run --section writes --fio")
        .arg(case("fio-07"));
    let plan = two.succeeds().stdout;
    assert!(
        job_of(&plan).starts_with("--name=writes ") && !plan.contains("--name=reads"),
        "{plan}"
    );
    assert!(
        plan.contains("filename=/dev/vdb: the measured disk"),
        "{plan}"
    );
    let pasted = fs::read_to_string(case("fio-08")).unwrap();
    let plan = place
        .vmtax("tune --machine tcg --dry-run --fio")
        .arg(pasted)
        .succeeds()
        .stdout;
    assert!(
        job_of(&plan).contains("--iodepth=16") && plan.contains("metric = \"fio.iops\""),
        "{plan}"
    );
    let rated = "fio --name=a --rw=randread --rate_iops=500";
    let plan = place
        .vmtax("tune --machine tcg --dry-run --fio")
        .arg(rated)
        .succeeds()
        .stdout;
    assert!(plan.contains("metric = \"fio.clat-mean\""), "{plan}");
}

#[test]
fn what_names_a_file_a_device_or_a_program_is_refused_by_its_name() {
    if !has_fio() {
        return;
    }
    let place = Place::new();
    let (canary, disk) = (
        place.put("canary", vec![1; 1 << 20]),
        place.put("disk.raw", vec![2; 1 << 20]),
    );
    let named = canary.display();
    for (option, refusal) in [
        (
            format!("exec_prerun=dd if=/dev/zero of={named}"),
            "exec_prerun=",
        ),
        (format!("exec_postrun=rm {named}"), "exec_postrun="),
        (format!("filename={named}:{named}"), "names several files"),
        (format!("read_iolog={named}"), "read_iolog="),
        (format!("write_iolog={named}"), "write_iolog="),
        (format!("replay_redirect={named}"), "replay_redirect="),
        (format!("opendir={named}"), "opendir="),
        (format!("include {named}"), "include="),
        ("ioengine=exec".to_owned(), "ioengine=exec"),
        (
            "ioengine=external:/tmp/x.so".to_owned(),
            "ioengine=external:/tmp/x.so",
        ),
        ("ioengine=filedelete".to_owned(), "ioengine=filedelete"),
        ("mem=mmap:/dev/sda".to_owned(), "mem=mmap:/dev/sda"),
        (
            "new_option_of_fio_9=1".to_owned(),
            "does not know this option",
        ),
    ] {
        let job = place.put("job.fio", format!("[a]\nrw=write\n{option}\n"));
        place.vmtax("tune --fio").arg(job).fails(&[refusal]);
    }
    // What is mapped goes to the measured disk.
    let mapped =
        format!("job=--name=a --rw=write --size=4g --unlink=1 --directory=/ --filename={named}");
    let start = || {
        place
            .vmtax("agent run fio time=0.1 --disk")
            .arg(&disk)
            .arg(&mapped)
    };
    // It writes to no disk that is not named.
    start().fails(&["rw=write would overwrite", "--destroy"]);
    start()
        .words("--destroy")
        .arg(&canary)
        .fails(&["rw=write would overwrite"]);
    // A job that reads would have fio write what a short file lacks.
    let reads = "job=--name=a --rw=read --size=1m --offset=512k";
    let short = place
        .vmtax("agent run fio time=0.1 --disk")
        .arg(&disk)
        .arg(reads);
    short.fails(&["read-only"]);
    assert_eq!(fs::read(&disk).unwrap(), vec![2; 1 << 20]);
    start().words("--destroy").arg(&disk).succeeds();
    assert_eq!(fs::read(&canary).unwrap(), vec![1; 1 << 20]);
    assert_eq!(fs::metadata(&disk).unwrap().len(), 1 << 20);
    // A plan from somebody else is checked, too.
    let hostile = "job=--name=a --rw=write --exec_prerun=id";
    place
        .vmtax("agent run fio --disk")
        .arg(&disk)
        .arg(hostile)
        .fails(&["exec_prerun=id"]);
    place
        .vmtax("tune --fio nowhere.fio")
        .fails(&["nowhere.fio", "is no file"]);
    place
        .vmtax("tune --fio")
        .arg(case("fio-01"))
        .words("-- disk")
        .fails(&["--fio names the workload"]);
    place.nothing_is_left();
}

/// The value in fio's own output, by its path.
fn of_fio(output: &Value, path: &[&str]) -> f64 {
    let value = path
        .iter()
        .fold(&output["jobs"][0], |value, key| &value[key]);
    value.as_f64().unwrap_or_else(|| panic!("{path:?}"))
}

#[test]
fn figures_are_fios_own_to_the_digit_natively_and_in_a_guest() {
    if !has_fio() {
        return;
    }
    let place = Place::new();
    let share = root_methods()[0];
    let options = "job = \"--name=a --rw=randread --bs=8k --direct=1 --ioengine=libaio --iodepth=4\"\ntime = \"0.3\"";
    let plan = format!(
        "schema = 1\nname = \"fio\"\nstudy = \"overhead\"\nrounds = 1\nseed = 1\ntimeout-s = 120\nmachines = [\"native\", \"tcg\"]\n\
         [[workload]]\nname = \"fio\"\n[workload.options]\n{options}\n\
         [[variant]]\nname = \"\"\n[variant.set]\nshare = \"{share}\"\n"
    );
    let file = place.put("plan.toml", plan);
    let start = place.vmtax("run --output out").arg(&file);
    start.start(180).outcome().exits(0);
    let mut machines = Vec::new();
    for trial in fs::read_dir(place.path("out/trials")).unwrap().flatten() {
        let read = |name| -> Value {
            serde_json::from_str(&fs::read_to_string(trial.path().join(name)).unwrap()).unwrap()
        };
        let (fio, record) = (read("fio.json"), read("trial.json"));
        machines.push(record["machine"].as_str().unwrap().to_owned());
        let measures = record["result"]["measures"].as_array().unwrap();
        let figure = |id: &str| {
            let mut all = measures.iter();
            all.find(|measure| measure["metric"] == id).unwrap()["value"]
                .as_f64()
                .unwrap()
        };
        for (id, path) in [
            ("fio.iops", &["read", "iops"][..]),
            ("fio.clat-mean", &["read", "clat_ns", "mean"]),
            (
                "fio.clat-p50",
                &["read", "clat_ns", "percentile", "50.000000"],
            ),
            (
                "fio.clat-p99",
                &["read", "clat_ns", "percentile", "99.000000"],
            ),
        ] {
            assert_eq!(figure(id), of_fio(&fio, path), "{id}");
        }
        let given = &fio["jobs"][0]["job options"];
        assert_eq!(
            (given["rw"].as_str(), given["bs"].as_str()),
            (Some("randread"), Some("8k"))
        );
        assert_eq!(
            (given["iodepth"].as_str(), given["filename"].as_str()),
            (Some("4"), Some("/disk"))
        );
    }
    machines.sort();
    assert_eq!(machines, ["native", "tcg"]);
    // A fio that fails ends the run, with its own words and status.
    let text = fs::read_to_string(&file)
        .unwrap()
        .replace("randread", "bogus");
    let bad = place.put(
        "bad.toml",
        text.replace("\"native\", \"tcg\"", "\"native\""),
    );
    let outcome = place.vmtax("run").arg(&bad).start(60).outcome().exits(1);
    outcome.says("exit status 1").says("rw=bogus");
    place.nothing_is_left();
}

/// Options that go to the measured disk, which are told, and those of logs, which change no request.
const NOT_RUN: [&str; 19] = [
    "create_on_open",
    "create_serialize",
    "description",
    "directory",
    "fallocate",
    "filename",
    "filename_format",
    "filesize",
    "log_offset",
    "log_prio",
    "nrfiles",
    "openfiles",
    "unlink",
    "verify_dump",
    "write_bw_log",
    "write_iops_log",
    "write_lat_log",
    "allow_file_create",
    "file_service_type",
];

/// The jobs of a command line of fio, each with the options for all.
fn jobs_of(line: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let (mut all, mut jobs) = (BTreeMap::new(), Vec::new());
    for word in vmtax_model::shell_words(line).unwrap() {
        let Some(option) = word.strip_prefix("--") else {
            continue;
        };
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if name == "name" {
            jobs.push((value.to_owned(), all.clone()));
        } else if !NOT_RUN.contains(&name) {
            let options = jobs.last_mut().map_or(&mut all, |(_, options)| options);
            options.insert(name.to_owned(), value.to_owned());
        }
    }
    jobs
}

/// fio's own examples, of which nothing is kept here: `VMTAX_FIO_EXAMPLES=FIO/examples`. Each is run with what fio reads in it, or is
/// refused by an option's name, or by fio itself.
#[test]
#[ignore = "needs the source of fio"]
fn by_hand_examples_of_fio_are_run_as_fio_reads_them_or_refused() {
    let folder = std::env::var_os("VMTAX_FIO_EXAMPLES").expect("VMTAX_FIO_EXAMPLES names them");
    let place = Place::new();
    let disk = place.put("disk.raw", vec![1; 256 << 20]);
    let mut counts = [0; 3];
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let file = entry.path();
        if file.extension().is_none_or(|end| end != "fio") {
            continue;
        }
        let start = place.vmtax("tune --machine tcg --dry-run --fio").arg(&file);
        let read = start.start(60).outcome();
        if !read.stdout.starts_with("schema") {
            assert!(
                read.stderr.contains("fio's "),
                "{}: {}",
                file.display(),
                read.stderr
            );
            counts[0] += 1;
            continue;
        }
        let job = job_of(&read.stdout);
        let shown = Command::new("fio")
            .arg("--showcmd")
            .arg(&file)
            .output()
            .unwrap();
        let mut expected = jobs_of(&String::from_utf8(shown.stdout).unwrap());
        let jobs = jobs_of(&job);
        if expected.len() > jobs.len() {
            // A name for all is shown as a job of its own, with what is for all.
            let (_, all) = expected.remove(0);
            for (_, options) in &mut expected {
                let own = std::mem::take(options);
                *options = all.clone().into_iter().chain(own).collect();
            }
        }
        // What fio itself does not read it will refuse.
        if shown.stderr.is_empty() {
            assert_eq!(jobs, expected, "{}", file.display());
        }
        // fio 3.33 itself does not end such a job with a time, and another begins after minutes.
        if ["offload", "startdelay"]
            .iter()
            .any(|part| job.contains(part))
        {
            continue;
        }
        let run = place.vmtax("agent run fio time=0.1 --disk").arg(&disk);
        let run = run.words("--destroy").arg(&disk).arg(format!("job={job}"));
        let ran = run.start(300).outcome();
        let has_run = ran.stderr.is_empty();
        assert!(
            has_run || ran.stderr.contains("fio ended"),
            "{}: {}",
            file.display(),
            ran.stderr
        );
        counts[1 + usize::from(has_run)] += 1;
    }
    let [refused, failed, ran] = counts;
    println!("refused {refused}, failed by fio {failed}, ran {ran}");
}

#[test]
fn layers_take_a_job_and_refuse_what_contradicts_it() {
    if !has_fio() {
        return;
    }
    let place = Place::new();
    let job = case("fio-08");
    let start =
        place.vmtax("layers --dry-run --machine tcg --vary aio=threads,native time=2 --fio");
    let plan = start.arg(&job).succeeds().stdout;
    assert!(
        job_of(&plan).contains("--iodepth=16") && plan.contains("study = \"layers\""),
        "{plan}"
    );
    // The plan is the whole run: its guests share the host's root in each variant.
    let parsed: toml::Table = toml::from_str(&plan).unwrap();
    let variants = parsed["variant"].as_array().unwrap();
    assert_eq!(variants.len(), 2);
    for variant in variants {
        assert!(variant["set"].get("share").is_some(), "{variant}");
    }
    let file = place.put("plan.toml", &plan);
    let again = place.vmtax("run --dry-run").arg(&file).succeeds().stdout;
    assert_eq!(again, plan);
    for (words, refusal) in [
        ("--device net", "--fio makes block requests"),
        ("count=9", "is not time=SECONDS"),
        ("syscalls", "is not time=SECONDS"),
        (
            "--machine micro-tcg",
            "the micro-guest has no kernel to run fio",
        ),
        ("--vm web01", "cannot be used with"),
        ("--section nowhere", "nowhere"),
    ] {
        let start = place.vmtax("layers").words(words).arg("--fio").arg(&job);
        start.fails(&[refusal]);
    }
    let both = place.vmtax("layers").arg(&file).arg("--fio").arg(&job);
    both.fails(&["the plan has its own"]);
    let with_disk = plan.replace(
        "[[workload]]",
        "[[workload]]\nname = \"disk\"\n[[workload]]",
    );
    let file = place.put("two.toml", with_disk);
    place
        .vmtax("run --dry-run")
        .arg(file)
        .fails(&["fio's requests can only be traced alone"]);
}

/// The rows, and fio's own part, are fio's mean completion latency of the traced runs; gives the part of the layers.
fn part_of_layers(place: &Place, report: &Value, machine: &str) -> f64 {
    let columns = report["findings"]["columns"].as_array().unwrap();
    let column = columns.iter().find(|c| c["machine"] == machine).unwrap();
    let (mut total, mut requests) = (0.0, 0);
    for trial in fs::read_dir(place.recording().join("trials"))
        .unwrap()
        .flatten()
    {
        let read = |name| -> Value {
            serde_json::from_str(&fs::read_to_string(trial.path().join(name)).unwrap()).unwrap()
        };
        let record = read("trial.json");
        if record["machine"] == machine && record["probes"] == "layers" {
            for of in clats(&read("fio.json")) {
                total += number(&of["mean"]) * of["N"].as_u64().unwrap() as f64;
                requests += of["N"].as_u64().unwrap();
            }
        }
    }
    let mean = total / requests as f64;
    let traced = number(&column["traced"]["mean_ns"]);
    assert!((traced - mean).abs() < 1e-6 * mean, "{traced} of {mean}");
    assert_eq!(column["fio_requests"].as_u64(), Some(requests));
    // Each request of fio's, and none of another's.
    let operations = column["matched"]["operations"].as_u64().unwrap();
    assert_eq!(operations, requests, "{}", column["matched"]);
    assert!(
        number(&column["matched"]["joined"]) >= 0.97 * requests as f64,
        "{}",
        column["matched"]
    );
    let rows = column["rows"].as_array().unwrap();
    let sum: f64 = rows.iter().map(|row| number(&row["time"]["mean_ns"])).sum();
    let own = number(&column["unexplained_ns"]);
    assert!(
        (sum + own - traced).abs() < 1e-6 * traced,
        "{sum} + {own} of {traced}"
    );
    sum / traced
}

const JOBS: [&str; 3] = [
    "fio --name=a --rw=randread --bs=4k --direct=1",
    "fio --name=a --rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=4",
    // fio reads again what it has written: these reads count, too.
    "fio --name=a --rw=randwrite --bs=4k --direct=1 --size=256k --verify=crc32c --verify_backlog=8",
];

#[test]
#[ignore = "needs root"]
fn the_layers_of_fios_requests_are_its_mean_completion_latency_under_tcg() {
    if !has_fio() {
        return;
    }
    kernel();
    let place = Place::new();
    let start = place.vmtax("layers --machine tcg --rounds 1 time=0.5 --json --dir");
    let start = start.arg(place.runs()).arg("--fio").arg(JOBS[0]);
    let report = json(&start.start(240).outcome().exits(0).stdout);
    assert!(number(&report["findings"]["host"]["p50_ns"]) > 0.0);
    let part = part_of_layers(&place, &report, "tcg");
    // TCG takes some microseconds between checkpoints where the host is busy: beside a whole suite 0.967 was seen.
    assert!((0.95..=1.03).contains(&part), "{part}");
    let text = place.vmtax("report").arg(place.recording()).succeeds();
    text.shows("fio's completion latency (clat) is")
        .shows("as in the native run")
        .shows("fio and system call");
}

#[test]
#[ignore = "needs root"]
fn the_layers_of_fios_requests_are_its_mean_completion_latency_on_kvm() {
    let Some(guest) = KvmGuest::given().filter(|_| has_fio() && is_root()) else {
        return;
    };
    for job in JOBS {
        let place = Place::new();
        let start = place.vmtax("layers --machine kvm --rounds 1 time=0.5 --json --dir");
        let start = start.arg(place.runs()).arg("--kernel").arg(&guest.kernel);
        let start = start.words(&kvm_guest_options()).arg("--fio").arg(job);
        let report = json(&start.start(120).outcome().exits(0).stdout);
        let part = part_of_layers(&place, &report, "kvm");
        assert!((0.97..=1.03).contains(&part), "{part} of {job}");
    }
}
