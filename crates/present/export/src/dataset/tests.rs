//! Recordings with known figures, added to a dataset and read again.

use super::*;
use parquet::basic::{Compression, LogicalType, Type as Physical};
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Component;
use vmtax_model::samples::{
    Access, CodeOrigin, ExitCounts, ExitRow, Function, OnCpu, Profile, ProfileFacts, Sample,
    Thread, TracedExits,
};
use vmtax_model::testing::{host, result, trial};
use vmtax_model::{Accelerator, AddressSpace, QemuThread, Role, RoleSource, VmFacts, Vmm};
use vmtax_model::{
    CpuFacts, HostFacts, HostIdentity, KvmClass, Machine, Measure, Metric, Outcome, Plan,
    QemuFacts, TrialRecord, WorkloadName, WorkloadSpec,
};
use vmtax_recording::Manifest;

const ROUNDS: u32 = 6;

/// `cpu.events` is 100 natively and 50 in a guest, plus the round's number.
pub fn recording(host_name: &str) -> Recording {
    let workload = WorkloadSpec::new(WorkloadName::Cpu).with("time", 1);
    let machines = vec![Machine::NATIVE, Machine::TCG];
    let plan = Plan::new("quick", ROUNDS, machines.clone(), vec![workload.clone()]);
    let trials =
        (0..ROUNDS).flat_map(|round| machines.iter().map(move |machine| (round, *machine)));
    let trials = (0..).zip(trials).map(|(number, (round, machine))| {
        let mut result = result(workload.clone());
        let events = if machine == Machine::NATIVE {
            100.0
        } else {
            50.0
        };
        result.measures = vec![Measure {
            metric: Metric::CpuEvents,
            value: events + f64::from(round),
        }];
        let outcome = Outcome::Done {
            result: Box::new(result),
        };
        TrialRecord {
            number,
            round,
            outcome,
            ..trial(machine, workload.clone())
        }
    });
    let facts = host(KvmClass::Absent);
    let qemu = QemuFacts {
        path: "/usr/bin/qemu-system-x86_64".into(),
        version: "7.2.22".to_owned(),
        accelerators: vec![],
        aio: vec![],
        iothread: true,
        exported_functions: 0,
        trace_backends: vec![],
    };
    Recording {
        folder: "runs/anywhere".into(),
        manifest: Manifest {
            schema: 1,
            vmtax: "0.1.0".to_owned(),
            command: vec!["vmtax".to_owned(), "run".to_owned()],
            started: "2026-11-25T23:30:00-02:00".to_owned(),
            ended: None,
            kernels: vec![],
        },
        trials: trials.collect(),
        plan,
        host: HostFacts {
            identity: HostIdentity {
                name: Some(host_name.to_owned()),
                id: Some("0123456789abcdef".to_owned()),
            },
            cpu: CpuFacts {
                microcode: Some("0xa0011d5".to_owned()),
                ..facts.cpu.clone()
            },
            halt_poll_ns: Some(200_000),
            qemu: vec![qemu],
            ..facts
        },
        damaged: vec![],
    }
}

/// Every file of a dataset by its path in it.
pub fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(next)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path
                    .strip_prefix(folder)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

/// The rows of a table as text, by column.
fn rows(folder: &Path, table: &str) -> Vec<BTreeMap<String, String>> {
    let mut rows = Vec::new();
    for name in files(folder).keys().filter(|name| name.starts_with(table)) {
        let reader = SerializedFileReader::new(File::open(folder.join(name)).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let text = |(name, field): (&String, &parquet::record::Field)| {
                (name.clone(), field.to_string().trim_matches('"').to_owned())
            };
            rows.push(row.get_column_iter().map(text).collect());
        }
    }
    rows
}

#[test]
fn figures_facts_and_comparisons_are_those_of_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(&folder.path().join("new"), false).unwrap();
    assert_eq!(
        dataset.add(&recording("db-1")).unwrap(),
        Added {
            written: 3,
            unchanged: 0
        }
    );

    let figures = rows(&dataset.folder, "figures");
    assert_eq!(figures.len(), 12);
    let values: Vec<&str> = figures
        .iter()
        .filter(|f| f["machine"] == "tcg")
        .map(|f| f["value"].as_str())
        .collect();
    assert_eq!(values, ["50.0", "51.0", "52.0", "53.0", "54.0", "55.0"]);
    let first = &figures[0];
    let words = [
        "plan", "study", "workload", "metric", "unit", "better", "variant", "size", "round",
        "trial",
    ];
    let expected = [
        "quick",
        "overhead",
        "cpu",
        "cpu.events",
        "/s",
        "higher",
        "",
        "null",
        "0",
        "0",
    ];
    assert_eq!(words.map(|column| first[column].as_str()), expected);
    assert!(
        first["settings"].contains("guest.cpus")
            && first["started"].starts_with("2026-11-20 12:00:00"),
        "{first:?}"
    );

    let facts = rows(&dataset.folder, "facts");
    let fact = |machine: &str, name: &str| {
        let of = facts
            .iter()
            .find(|f| f["machine"] == machine && f["name"] == name);
        of.map(|fact| fact["value"].as_str())
    };
    assert_eq!(
        [fact("", "host_name"), fact("", "host_id")],
        [Some("db-1"), Some("0123456789abcdef")]
    );
    assert_eq!(
        [fact("", "host_cpu_microcode"), fact("", "halt_poll_ns")],
        [Some("0xa0011d5"), Some("200000")]
    );
    assert_eq!(
        [
            fact("tcg", "qemu_version"),
            fact("tcg", "guest_kernel_release")
        ],
        [Some("7.2.22"), Some("6.1")]
    );
    assert_eq!(
        [fact("", "cpu_governor"), fact("native", "qemu_version")],
        [None, None]
    );

    let comparisons = rows(&dataset.folder, "comparisons");
    assert_eq!(comparisons.len(), 1);
    let found = &comparisons[0];
    let words = [
        "metric",
        "machine",
        "baseline",
        "baseline_value",
        "value",
        "rounds",
        "verdict",
    ];
    assert_eq!(
        words.map(|c| found[c].as_str()),
        [
            "cpu.events",
            "tcg",
            "native",
            "102.5",
            "52.5",
            "6",
            "slower"
        ]
    );
    let ratio: f64 = found["ratio"].parse().unwrap();
    assert!(
        (1.9..2.0).contains(&ratio)
            && found["low"] < found["ratio"]
            && found["ratio"] < found["high"],
        "{found:?}"
    );
    assert!(found["coverage"].parse::<f64>().unwrap() > 0.95);
}

/// The columns that docs/dataset.md gives for a table, with their types.
fn documented(table: &str) -> Vec<(String, String)> {
    let page = include_str!("../../../../../docs/dataset.md");
    let section = page
        .split(&format!("### `{table}`"))
        .nth(1)
        .unwrap()
        .split("\n### ")
        .next()
        .unwrap();
    let cells = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split(" | ").collect::<Vec<_>>());
    let columns = cells.flat_map(|cells| {
        let kind = cells[1].to_owned();
        cells[0]
            .split('`')
            .skip(1)
            .step_by(2)
            .map(|name| (name.to_owned(), kind.clone()))
            .collect::<Vec<_>>()
    });
    columns.collect()
}

/// A recording in whose first trial, a native one, exits and stacks were observed of this VM.
fn observed(folder: &Path) -> Recording {
    let vm = VmFacts {
        pid: 40,
        name: Some("web-1".to_owned()),
        shares_name: false,
        binary: None,
        vmm: Vmm::Qemu,
        version: None,
        managed: None,
        accelerator: Some(Accelerator::Kvm),
        process_stop: None,
        state: None,
        monitor_timeout_s: None,
        kernel_failure: None,
        vcpus: 1,
        memory: 1 << 30,
        roles_from: RoleSource::Monitor,
        threads: vec![QemuThread {
            tid: 41,
            role: Role::Vcpu(0),
        }],
        disks: vec![],
        nics: vec![],
        has_vsock: false,
        cgroup: None,
        thread_groups: vec![],
        abilities: vec![],
    };
    let access = Access {
        space: AddressSpace::Port,
        address: 0x3f8,
        write: true,
    };
    let exits = |reason: &str, access, count| ExitRow {
        tid: 41,
        reason: reason.to_owned(),
        access,
        count,
        user: 1,
        timed: 1,
        ticks: 100,
    };
    let traced = TracedExits {
        threads: vm.threads.clone(),
        rows: vec![
            exits("IO_INSTRUCTION", Some(access), 7),
            exits("hlt", None, 3),
        ],
        mhz: 1000.0,
        ..TracedExits::default()
    };
    let counts = ExitCounts {
        seconds: 2.0,
        traced: Some(traced),
        ..ExitCounts::default()
    };
    let main = Function {
        name: "main".to_owned(),
        module: String::new(),
        origin: CodeOrigin::Program,
        named: true,
    };
    let profile = Profile {
        functions: vec![main],
        stacks: vec![vec![0]],
        threads: vec![Thread {
            tid: 41,
            name: "CPU 0/KVM".to_owned(),
        }],
        samples: vec![Sample {
            thread: 0,
            stack: 0,
            time: 0,
            weight: 5,
            cpu: 0,
        }],
    };
    let facts = ProfileFacts {
        pid: 40,
        vm: Some(vm),
        ..ProfileFacts::default()
    };
    let recording = Recording {
        folder: folder.to_owned(),
        ..recording("db-1")
    };
    let trial = recording.trial_folder(0);
    fs::create_dir_all(&trial).unwrap();
    fs::write(
        trial.join(vmtax_model::files::OBSERVED),
        serde_json::to_vec(&facts).unwrap(),
    )
    .unwrap();
    fs::write(
        trial.join(vmtax_model::files::EXITS),
        serde_json::to_vec(&counts).unwrap(),
    )
    .unwrap();
    let on_cpu = OnCpu {
        profile,
        ..OnCpu::default()
    };
    fs::write(
        trial.join(vmtax_model::files::ON_CPU),
        serde_json::to_vec(&on_cpu).unwrap(),
    )
    .unwrap();
    recording
}

#[test]
fn exits_and_samples_are_those_of_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(&folder.path().join("dataset"), false).unwrap();
    let mut recording = observed(&folder.path().join("recording"));
    assert_eq!(
        dataset.add(&recording).unwrap(),
        Added {
            written: 5,
            unchanged: 0
        }
    );
    let exits = rows(&dataset.folder, "exits");
    let columns = [
        "machine", "trial", "vm", "vcpu", "space", "address", "access", "device", "register",
        "count",
    ];
    let cells = |row: &BTreeMap<String, String>| columns.map(|column| row[column].clone());
    let named = [
        "native", "0", "web-1", "0", "port", "1016", "write", "serial", "data", "7",
    ];
    assert_eq!(cells(&exits[0]), named);
    assert_eq!(
        cells(&exits[1]),
        [
            "native", "0", "web-1", "0", "null", "null", "null", "", "", "3"
        ]
    );
    assert_eq!(
        [&exits[0]["total_ns"], &exits[0]["seconds"]],
        ["100.0", "2.0"]
    );
    assert_eq!(
        [&exits[0]["activity"], &exits[1]["activity"]],
        ["handled", "halted"]
    );
    let samples = rows(&dataset.folder, "samples");
    let columns = [
        "vm", "sampling", "thread", "function", "origin", "stack", "samples",
    ];
    let found = columns.map(|column| samples[0][column].as_str());
    assert_eq!(
        found,
        ["web-1", "on-cpu", "vCPU 0", "main", "program", "main", "5"]
    );

    // Of a VM that ran already there is no trial. What is damaged keeps the others in.
    recording.trials.clear();
    recording.manifest.started = "2026-11-25T10:00:00Z".to_owned();
    dataset.add(&recording).unwrap();
    assert_eq!(rows(&dataset.folder, "exits")[0]["machine"], "kvm");
    let damaged = self::observed(&folder.path().join("damaged"));
    fs::write(damaged.trial_folder(0).join(vmtax_model::files::EXITS), "{").unwrap();
    let other = Dataset::create(&folder.path().join("other"), false).unwrap();
    assert!(
        other
            .add(&damaged)
            .unwrap_err()
            .to_string()
            .contains("exits.json")
    );
    assert_eq!(rows(&other.folder, "figures").len(), 12);
}

#[test]
fn the_columns_are_those_of_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let recordings = tempfile::tempdir().unwrap();
    Dataset::create(folder.path(), false)
        .unwrap()
        .add(&observed(recordings.path()))
        .unwrap();
    let files = files(folder.path());
    assert_eq!(files.len(), 5);
    for (name, bytes) in files {
        let file = folder.path().join(&name);
        let reader = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
        let metadata = reader.metadata().file_metadata();
        let columns = metadata.schema_descr().columns().iter().map(|column| {
            let kind = match (column.physical_type(), column.logical_type_ref()) {
                (_, Some(LogicalType::String)) => "string",
                (_, Some(LogicalType::Timestamp { .. })) => "timestamp",
                (Physical::INT32, _) => "int32",
                (Physical::INT64, _) => "int64",
                (Physical::DOUBLE, _) => "double",
                other => panic!("{other:?}"),
            };
            let nullable = if column.max_def_level() > 0 {
                ", nullable"
            } else {
                ""
            };
            (column.name().to_owned(), format!("{kind}{nullable}"))
        });
        let table = name.split('/').next().unwrap();
        assert_eq!(columns.collect::<Vec<_>>(), documented(table), "{table}");
        let compression = reader.metadata().row_group(0).column(0).compression();
        assert!(
            matches!(compression, Compression::ZSTD(_)) && !bytes.is_empty(),
            "{compression:?}"
        );
    }
}

#[test]
fn a_recording_has_the_same_files_whatever_its_folder_is_called_and_adding_it_again_changes_nothing()
 {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path(), false).unwrap();
    dataset.add(&recording("db-1")).unwrap();
    let before = files(folder.path());
    let copied = Recording {
        folder: "elsewhere".into(),
        ..recording("db-1")
    };
    assert_eq!(
        dataset.add(&copied).unwrap(),
        Added {
            written: 0,
            unchanged: 3
        }
    );
    assert_eq!(files(folder.path()), before);
    // The run began on the day after, by UTC.
    let partition = "figures/schema=1/date=2026-11-26/host=db-1/20261126T013000Z-quick-";
    assert!(
        before.keys().any(|name| name.starts_with(partition)),
        "{:?}",
        before.keys()
    );

    let mut of_another_host = recording("db-1");
    of_another_host.host.identity.id = Some("fedcba9876543210".to_owned());
    assert_eq!(dataset.add(&of_another_host).unwrap().written, 3);
    assert_eq!(files(folder.path()).len(), 6);
}

#[test]
fn the_rounds_after_the_plans_have_no_figures() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(&folder.path().join("new"), false).unwrap();
    let mut recording = recording("db-1");
    let after = TrialRecord {
        number: 2 * ROUNDS,
        round: ROUNDS,
        ..recording.trials[0].clone()
    };
    recording.trials.push(after);
    dataset.add(&recording).unwrap();
    assert_eq!(rows(&dataset.folder, "figures").len(), 2 * ROUNDS as usize);
}

#[test]
fn a_hashed_host_has_its_name_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path(), true).unwrap();
    dataset.add(&recording("secret-name")).unwrap();
    assert!(
        files(folder.path())
            .keys()
            .all(|name| name.contains("/host=0123456789abcdef/"))
    );
    for table in ["figures", "facts", "comparisons"] {
        let cells = rows(folder.path(), table);
        assert!(
            cells
                .iter()
                .flat_map(BTreeMap::values)
                .all(|text| !text.contains("secret-name")),
            "{table}"
        );
    }
    let names: Vec<String> = files(folder.path()).into_keys().collect();
    let plain = tempfile::tempdir().unwrap();
    Dataset::create(plain.path(), true)
        .unwrap()
        .add(&recording("other-name"))
        .unwrap();
    assert_eq!(
        files(plain.path()).into_keys().collect::<Vec<_>>(),
        names,
        "a file's name depends on the host's"
    );
}

#[test]
fn an_older_recording_is_of_an_unknown_host() {
    let folder = tempfile::tempdir().unwrap();
    let mut older = recording("");
    older.host.identity = HostIdentity::default();
    Dataset::create(folder.path(), false)
        .unwrap()
        .add(&older)
        .unwrap();
    assert!(
        files(folder.path())
            .keys()
            .all(|name| name.contains("/host=__HIVE_DEFAULT_PARTITION__/"))
    );
}

#[test]
fn what_has_no_place_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path(), false).unwrap();
    let mut undated = recording("db-1");
    undated.manifest.started = "../../etc".to_owned();
    let error = dataset.add(&undated).unwrap_err().to_string();
    assert!(
        error.contains("runs/anywhere/run.json") && error.contains("../../etc"),
        "{error}"
    );
    let error = dataset
        .add(&recording(&"x".repeat(65)))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("runs/anywhere/host.json") && error.contains("65 bytes"),
        "{error}"
    );
    assert!(files(folder.path()).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_a_recording_says_its_files_lie_in_their_partitions(
        host in "\\PC{0,20}|[./%=]{1,20}|\\.\\.", name: String, variant: String, text: String
    ) {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("dataset");
        let mut hostile = recording(&host);
        hostile.plan.name = name.chars().take(20).collect();
        hostile.host.kernel.clone_from(&text);
        hostile.manifest.command = vec![text.clone()];
        hostile.trials.iter_mut().for_each(|trial| trial.variant.clone_from(&variant));
        let added = Dataset::create(&inside, false).unwrap().add(&hostile);
        prop_assert_eq!(added.is_ok(), host.len() <= 64);
        let all = files(folder.path());
        for file in all.keys() {
            let parts: Vec<&str> = file.split('/').collect();
            prop_assert_eq!(parts.len(), 6, "{}", file);
            prop_assert!(parts[0] == "dataset" && parts[2] == "schema=1" && parts[3] == "date=2026-11-26", "{}", file);
            prop_assert!(parts[4].starts_with("host=") && parts[5].ends_with(".parquet"), "{}", file);
            prop_assert!(file.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-%=/".contains(&b)), "{}", file);
        }
        if added.is_ok() {
            let facts = rows(&inside, "facts");
            let kernel = facts.iter().find(|fact| fact["name"] == "kernel_release").unwrap();
            prop_assert_eq!(&kernel["value"], text.trim_matches('"'));
        }
    }
}

proptest! {
    #[test]
    fn whatever_a_host_is_called_its_folder_is_one_plain_name(host: String, date: String) {
        let folder = Partition { table: "figures", date: &date, host: Some(&host) }.folder();
        let parts: Vec<_> = folder.components().collect();
        prop_assert_eq!(parts.len(), 4);
        prop_assert!(parts.iter().all(|part| matches!(part, Component::Normal(_))), "{}", folder.display());
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-%=/".contains(&b);
        prop_assert!(folder.to_str().is_some_and(|text| text.bytes().all(plain)), "{}", folder.display());
    }

    #[test]
    fn names_that_differ_have_folders_that_differ(one: String, other: String) {
        prop_assert_eq!(one == other, encode(&one) == encode(&other));
    }
}

#[test]
fn values_are_encoded_as_hive_does() {
    assert_eq!(encode("db-1.example_org"), "db-1.example_org");
    assert_eq!(encode("../a b=ü%"), "..%2Fa%20b%3D%C3%BC%25");
    let unknown = Partition {
        table: "facts",
        date: "2026-11-25",
        host: None,
    }
    .folder();
    assert_eq!(
        unknown,
        Path::new("facts/schema=1/date=2026-11-25/host=__HIVE_DEFAULT_PARTITION__")
    );
}

#[test]
fn values_of_paths_are_decoded_as_they_were_encoded() {
    assert_eq!(decode("a%20b%2Fc%3Dd%2520%C3%A9"), "a b/c=d%20é");
    assert_eq!(decode("100%"), "100%");
    assert_eq!(decode("%zz%4"), "%zz%4");
}
