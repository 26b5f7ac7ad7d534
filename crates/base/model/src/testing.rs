//! Helpers for the tests of every crate: a host, trials and results that are made up, and the note of a test that it
//! could not be made. The program uses none of it.

use crate::{
    CpuFacts, HostFacts, HostIdentity, KernelIdentity, KvmClass, KvmFacts, Machine, Outcome,
    Probes, SCHEMA, Timer, TimerSource, TrialRecord, TrialResult, VmFacts, VmTrace, WorkloadSpec,
};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Writes a file below a folder, with the folders above it.
///
/// # Errors
/// A file or folder that cannot be made.
pub fn put(folder: &Path, file: &str, text: &str) -> std::io::Result<()> {
    let path = folder.join(file);
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::write(path, text)
}

/// A host with KVM of this class, on which nothing else was found.
pub fn host(class: KvmClass) -> HostFacts {
    HostFacts {
        schema: SCHEMA,
        identity: HostIdentity::default(),
        kernel: "6.1".to_owned(),
        distribution: "test".to_owned(),
        cpu: CpuFacts {
            model: "test".to_owned(),
            microcode: None,
            online: 4,
            threads_per_core: 1,
            virtualisation: None,
            hypervisor: None,
            invariant_tsc: true,
            clocksource: "tsc".to_owned(),
            governor: None,
            steal: 0.0,
        },
        memory_mib: 4096,
        transparent_hugepage: None,
        halt_poll_ns: None,
        settings: Default::default(),
        kvm: KvmFacts {
            class,
            evidence: "8e8/s".to_owned(),
        },
        qemu: Vec::new(),
        kernels: Vec::new(),
        checks: Vec::new(),
    }
}

/// A result with no figures, timed by the TSC on Linux 6.1, in 1 s.
pub fn result(workload: WorkloadSpec) -> TrialResult {
    let timer = Timer {
        source: TimerSource::Tsc,
        mhz: 1000.0,
        error: 0.0,
        pair_ns: 20.0,
        reason: None,
    };
    let kernel = KernelIdentity {
        system: "Linux".to_owned(),
        release: "6.1".to_owned(),
        version: "#1".to_owned(),
    };
    TrialResult {
        total_s: 1.0,
        ..TrialResult::new(workload, timer, kernel)
    }
}

/// A trial of the first round, not observed, that was interrupted.
pub fn trial(machine: Machine, workload: WorkloadSpec) -> TrialRecord {
    TrialRecord {
        schema: SCHEMA,
        number: 0,
        round: 0,
        machine,
        variant: String::new(),
        step: None,
        turn: None,
        probes: Probes::None,
        workload,
        started: "2026-11-20T12:00:00Z".to_owned(),
        wall_s: 1.0,
        outcome: Outcome::Interrupted,
        share: None,
        cpu_seconds: None,
        control_s: None,
        pinned: None,
        execution: None,
        warnings: Vec::new(),
    }
}

/// A trial with that result.
pub fn done(machine: Machine, result: TrialResult) -> TrialRecord {
    TrialRecord {
        outcome: Outcome::Done {
            result: Box::new(result.clone()),
        },
        ..trial(machine, result.workload)
    }
}

/// A Linux guest for a KVM that runs guest code at full speed in user mode alone: the kernel that `VMTAX_TEST_KVM_GUEST`
/// names, an ELF file with PVH entry whose drivers are built in and which stays in user mode.
pub struct KvmGuest {
    /// File of the kernel.
    pub kernel: PathBuf,
}

impl KvmGuest {
    /// Returns the guest whose kernel the variable names; where it is not set, `None`, and the test is listed as not
    /// made.
    pub fn given() -> Option<KvmGuest> {
        let kernel = std::env::var_os("VMTAX_TEST_KVM_GUEST").map(PathBuf::from);
        if kernel.is_none() {
            skipped("VMTAX_TEST_KVM_GUEST names no Linux kernel that is made for this host's KVM");
        }
        kernel.map(|kernel| KvmGuest { kernel })
    }

    /// As for QEMU's `-cpu`: without what a kernel in user mode cannot use.
    pub const CPU_MODEL: &str = "host,-arch-capabilities,-smap,-smep,-umip,-pcid,-invpcid,-x2apic,-tsc-deadline,-xsaves,-pku,-la57";
    /// As for QEMU's `-bios`: boots an ELF kernel, five times as fast as SeaBIOS here.
    pub const FIRMWARE: &str = "qboot.rom";

    /// Kernel command-line arguments; `mhz` is the rate of the host's time stamp counter.
    pub fn kernel_args(mhz: f64) -> Vec<String> {
        let early = format!("tsc_early_khz={}", (mhz * 1000.0).round());
        let others = "tsc=reliable hpet=disable mitigations=off reboot=k".split(' ');
        [early]
            .into_iter()
            .chain(others.map(str::to_owned))
            .collect()
    }
}

/// Tells a test that it runs again in namespaces of its own, and hands it something over.
const AGAIN: &str = "VMTAX_TEST_AGAIN";

/// The path that was handed over to a test that runs again by [`again_in_pid_namespace`].
pub fn handed_over() -> Option<std::ffi::OsString> {
    std::env::var_os(AGAIN)
}

/// Runs the test that calls it once more, alone, in a PID namespace of its own, and fails where it fails there. The test
/// is listed as skipped where this host lets no user make one.
///
/// # Errors
/// Where this program cannot be found or started again.
pub fn again_in_pid_namespace(handed_over: &Path) -> std::io::Result<()> {
    let unshare = |program: &Path| {
        let mut command = Command::new("unshare");
        command
            .args("--user --map-root-user --pid --mount-proc --fork".split(' '))
            .arg(program);
        command
    };
    let tried = unshare(Path::new("true")).status();
    if !tried.is_ok_and(|status| status.success()) {
        skipped("this host lets no user make a PID namespace");
        return Ok(());
    }
    let thread = std::thread::current();
    let mut again = unshare(&std::env::current_exe()?);
    let output = again
        .args(["--exact", thread.name().unwrap_or_default()])
        .env(AGAIN, handed_over)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
    Ok(())
}

/// Says that this test was not made, and why. It is seen although the test passes, and `make test` lists all of them.
pub fn skipped(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    // Not by a macro: what those print of a test that passes is not shown.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(list) = std::env::var_os("VMTAX_SKIPPED") {
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).append(true).open(list);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

/// The accelerators of QEMUs that are tested: both, KVM only where this user may use it.
pub fn accelerators() -> Vec<&'static str> {
    match std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
    {
        Ok(_) => vec!["kvm", "tcg"],
        Err(e) => {
            skipped(&format!("KVM: /dev/kvm: {e}"));
            vec!["tcg"]
        }
    }
}

/// Answers a runner that asks a program without a test harness for its tests: it is one, of this name. Tells whether it asked.
pub fn listed(test: &str) -> bool {
    let asked = |what: &str| std::env::args().any(|argument| argument == what);
    if asked("--list") && !asked("--ignored") {
        println!("{test}: test");
    }
    asked("--list")
}

/// A Python that has these modules, separated by commas: `VMTAX_TEST_PYTHON`, that of `scripts/setup test`, or the system's.
/// Where there is none the test is reported as skipped.
pub fn python_with(modules: &str) -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools/bin/python3");
    let all = [
        std::env::var_os("VMTAX_TEST_PYTHON").map(PathBuf::from),
        Some(installed),
        Some("python3".into()),
    ];
    let has = |python: &PathBuf| {
        Command::new(python)
            .args(["-c", &format!("import {modules}")])
            .output()
            .is_ok_and(|o| o.status.success())
    };
    let python = all.into_iter().flatten().find(has);
    if python.is_none() {
        skipped(&format!(
            "no Python with {modules}: run scripts/setup test, or set VMTAX_TEST_PYTHON to one that has them"
        ));
    }
    python
}

/// A process that is killed with the value.
pub struct Ends(pub Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The trace of a VM without any event, from tick 0 to this one.
pub fn vm_trace(vm: VmFacts, end: u64) -> VmTrace {
    VmTrace {
        schema: SCHEMA,
        tsc_mhz: 1000.0,
        end,
        vm,
        ..VmTrace::default()
    }
}
