//! Files of `vmtax agent observe`, whose guest may be hostile, added to the recording of its VM.

use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_import::AddedGuest;
use vmtax_model::testing::{host, vm_trace};
use vmtax_model::{
    DeviceClass, GuestDisk, KvmClass, Missing, ObservedDisk, ObservedGuest, ObservedVm, Plan,
    SCHEMA, Study, VmFacts, VmIdentity, VmStudy, files,
};
use vmtax_recording::{Recording, Writer};
use vmtax_wire::{encode, piece};

fn facts() -> ObservedGuest {
    let disk = ObservedDisk {
        name: "vda".to_owned(),
        serial: String::new(),
        address: "0000:00:04.0".to_owned(),
        regions: vec![(0xfebd_1000, 4096)],
        disk: GuestDisk {
            device: 254 << 20,
            interrupts: vec![28],
        },
    };
    let missing = vec![Missing {
        what: "w".to_owned(),
        why: "y".to_owned(),
        fix: String::new(),
    }];
    ObservedGuest {
        schema: SCHEMA,
        kernel: "6.1".to_owned(),
        cpus: 1,
        begin: 5,
        end: 9,
        disks: vec![disk],
        full: false,
        missing,
    }
}

fn file(pieces: &[(&str, &[u8])], facts: &ObservedGuest) -> Vec<u8> {
    let mut bytes: Vec<u8> = pieces
        .iter()
        .flat_map(|(name, bytes)| piece(name, bytes).unwrap())
        .collect();
    bytes.extend(encode(facts).unwrap());
    bytes
}

fn sound() -> Vec<u8> {
    file(
        &[
            ("header_page", b"page"),
            ("free.cpu0.raw", b"abc"),
            ("free.cpu0.raw", b"def"),
        ],
        &facts(),
    )
}

struct Run(tempfile::TempDir);

fn observed(device: DeviceClass) -> ObservedVm {
    ObservedVm {
        process: VmIdentity {
            pid: 1,
            started: None,
            name: None,
        },
        time_ms: 1,
        guest_vmtax: None,
        no_probes: false,
        device,
        level: ObservedVm::ALL_LEVELS,
    }
}

impl Run {
    /// Makes a recording of this study.
    fn record(study: Study) -> Run {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan {
            study,
            ..Plan::new("vm-layers-1", 1, Vec::new(), Vec::new())
        };
        let writer = Writer::create_at(
            &folder.path().join("run"),
            &plan,
            &host(KvmClass::Absent),
            &[],
            "1",
        )
        .unwrap();
        let trace = vm_trace(VmFacts::unknown(1), 9);
        let mut trial = writer.trial_files(0).unwrap();
        trial
            .append(files::VM_TRACE, &serde_json::to_vec(&trace).unwrap())
            .unwrap();
        writer.finish().unwrap();
        Run(folder)
    }

    fn vm() -> Run {
        Run::record(Study::Vm(VmStudy::VmLayers, observed(DeviceClass::Disk)))
    }

    fn recording(&self) -> Recording {
        vmtax_recording::open(&self.0.path().join("run")).unwrap()
    }

    fn add(&self, bytes: &[u8]) -> Result<AddedGuest, String> {
        let file = self.0.path().join("guest.trace");
        fs::write(&file, bytes).unwrap();
        AddedGuest::add(&self.recording(), &file).map_err(|e| e.to_string())
    }

    fn files(&self) -> Vec<PathBuf> {
        fn below(folder: &Path, files: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                match entry.path().is_dir() {
                    true => below(&entry.path(), files),
                    false => files.push(entry.path()),
                }
            }
        }
        let mut files = Vec::new();
        below(self.0.path(), &mut files);
        files.sort();
        files
    }
}

#[test]
fn a_guests_trace_is_added_once_and_only_if_it_is_kept() {
    let run = Run::vm();
    drop(run.add(&sound()).unwrap());
    let trial = run.recording().trial_folder(0);
    assert!(!trial.join(files::GUEST).exists() && !trial.join(files::GUEST_FACTS).exists());
    run.add(&sound()).unwrap().keep();
    assert_eq!(
        fs::read(trial.join("guest-trace/free.cpu0.raw")).unwrap(),
        b"abcdef"
    );
    assert_eq!(
        run.recording()
            .artifact::<ObservedGuest>(0, files::GUEST_FACTS)
            .unwrap(),
        facts()
    );
    assert!(
        run.add(&sound())
            .unwrap_err()
            .contains("has a guest's trace")
    );
    assert!(trial.join(files::GUEST_FACTS).exists());
}

#[test]
fn what_is_no_guests_trace_is_refused_with_the_next_step() {
    let refusal_of = |bytes: &[u8]| Run::vm().add(bytes).unwrap_err();
    assert!(
        refusal_of(b"").contains("no trace of a guest")
            && refusal_of(b"other text").contains("agent observe")
    );
    assert!(refusal_of(&sound()[..sound().len() - 1]).contains("cut off"));
    let refusal_with = |change: &dyn Fn(&mut ObservedGuest)| {
        let mut facts = facts();
        change(&mut facts);
        refusal_of(&file(&[], &facts))
    };
    assert!(refusal_with(&|facts| facts.begin = 10).contains("before it begins"));
    assert!(refusal_with(&|facts| facts.schema = SCHEMA + 1).contains("newer vmtax"));
    assert!(
        refusal_with(&|facts| facts.disks = vec![facts.disks[0].clone(); 65]).contains("65 disks")
    );
    assert!(refusal_with(&|facts| facts.kernel = "x".repeat(2000)).contains("2000 bytes"));
    let mut other = sound();
    other[4] = 9;
    assert!(refusal_of(&other).contains("copy this vmtax"));
    for name in ["../vm-trace.json", "a/b/c", "a b"] {
        assert!(
            refusal_of(&file(&[(name, b"x")], &facts())).contains("plain"),
            "{name}"
        );
    }
    let packets = observed(DeviceClass::Net);
    assert!(
        Run::record(Study::Vm(VmStudy::VmLayers, packets))
            .add(&sound())
            .unwrap_err()
            .contains("leave --device net out")
    );
    assert!(
        Run::record(Study::Vm(VmStudy::VmExits, observed(DeviceClass::Disk)))
            .add(&sound())
            .unwrap_err()
            .contains("layers --vm")
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn a_changed_file_leaves_nothing_but_its_guests_folder(
        changes in proptest::collection::vec((0usize..400, any::<u8>()), 1..4),
        length in 0usize..500,
        name in "[a-z./-]{0,12}",
    ) {
        let run = Run::vm();
        let mut before = run.files();
        let mut bytes = file(&[(&name, b"x")], &facts());
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(length);
        drop(run.add(&bytes));
        before.push(run.0.path().join("guest.trace"));
        before.sort();
        prop_assert_eq!(run.files(), before);
    }
}
