//! Data that every report takes from findings and recordings.

pub mod layers;
pub mod verdict;
pub mod vm;

use crate::engine::{
    Block, Cell, Filled, Origin, Section, Table, Tone, advice_text, remedy_text, words,
};
use crate::number::counted;
use crate::text::{Joined, distinct, only_if, when};
use std::path::Path;
use vmtax_findings::{Comparison, Findings, MachineColumn, OverheadRow, Verdict};
use vmtax_model::{
    Check, Guest, HostFacts, KernelFacts, KernelIdentity, Machine, Metric, Missing, Outcome,
    PinnedCpus, Plan, Readiness, SourceOfKernel, TrialRecord, Warning, WorkloadName, shell_line,
};
use vmtax_recording::Recording;

/// Answer of each report about a host without VMs.
pub const NO_VM: &str = "No VM runs on this host, or none that this user can see.";

/// Rows that each have a metric, workload by workload.
pub fn by_workload<R>(rows: &[R], metric: impl Fn(&R) -> Metric) -> Vec<(WorkloadName, Vec<&R>)> {
    let of_workload = |workload: WorkloadName| {
        let of_it = rows.iter().filter(|row| metric(row).workload() == workload);
        (workload, of_it.collect::<Vec<_>>())
    };
    let all = WorkloadName::ALL.iter().copied().map(of_workload);
    all.filter(|(_, rows)| !rows.is_empty()).collect()
}

/// Every machine of the findings, native first.
pub fn machines(findings: &Findings) -> Vec<Machine> {
    let all = findings.rows.iter().flat_map(|row| &row.machines);
    let has = |machine: &Machine| all.clone().any(|column| column.machine == *machine);
    Machine::ALL.iter().copied().filter(has).collect()
}

/// The machines that have an overhead column.
pub fn guests(findings: &Findings) -> Vec<Machine> {
    let machines = machines(findings).into_iter();
    machines.filter(|machine| machine.is_guest()).collect()
}

/// Returns true if guests were measured beside native.
pub fn is_compared(findings: &Findings) -> bool {
    machines(findings).contains(&Machine::NATIVE) && !guests(findings).is_empty()
}

/// A machine's column of a row.
pub fn column(row: &OverheadRow, machine: Machine) -> Option<&MachineColumn> {
    row.machines.iter().find(|c| c.machine == machine)
}

/// Every overhead of a machine.
pub fn overheads(findings: &Findings, machine: Machine) -> Vec<(Metric, &Comparison)> {
    let rows = findings.rows.iter();
    rows.filter_map(|row| Some((row.metric, column(row, machine)?.overhead.as_ref()?)))
        .collect()
}

/// A machine's overheads in short.
pub struct Summary<'a> {
    /// The metric that costs least.
    pub least: (Metric, &'a Comparison),
    /// The metric that costs most.
    pub worst: (Metric, &'a Comparison),
    /// Number of metrics compared.
    pub metrics: usize,
    /// Number of metrics for which the machine is slower or uses more.
    pub costs: usize,
    /// Number of metrics for which the machine is faster or uses less.
    pub gains: usize,
    /// Number of metrics that are inconclusive.
    pub undecided: usize,
}

/// A machine's overheads in short; `None` when it has none.
pub fn summary(findings: &Findings, machine: Machine) -> Option<Summary<'_>> {
    let overheads = overheads(findings, machine);
    let by_median = |a: &&(Metric, &Comparison), b: &&(Metric, &Comparison)| {
        a.1.ratio.median.total_cmp(&b.1.ratio.median)
    };
    let having = |v: Verdict| overheads.iter().filter(|(_, t)| t.verdict == v).count();
    Some(Summary {
        least: *overheads.iter().min_by(by_median)?,
        worst: findings.largest_overhead(machine)?,
        metrics: overheads.len(),
        costs: having(Verdict::Slower),
        gains: having(Verdict::Faster),
        undecided: having(Verdict::Inconclusive),
    })
}

/// Returns true if any figure has an interval.
pub fn has_intervals(findings: &Findings) -> bool {
    let mut columns = findings.rows.iter().flat_map(|r| &r.machines);
    columns.any(|c| c.overhead.is_some_and(|cost| cost.ratio.interval.is_some()))
}

/// Why a column has no figure.
pub fn absence(column: &MachineColumn) -> String {
    match &column.unsupported {
        Some(reason) => format!("unsupported ({reason})"),
        None => "no trial gave a value".to_owned(),
    }
}

/// Returns the number of rounds behind the figures, of those planned; marked as preliminary below the fewest for an
/// interval.
pub fn rounds(done: u32, planned: u32) -> String {
    let planned_rounds = counted(planned.into(), "round");
    let done_of = only_if(done != planned, format!("{done} of "));
    let few = only_if(done < vmtax_model::FEWEST_ROUNDS, " (preliminary)");
    format!("n = {done_of}{planned_rounds}{few}")
}

/// The command that makes a recording again with the fewest rounds that give an interval.
pub fn with_more_rounds(recording: &Recording) -> Option<String> {
    with_rounds(recording, vmtax_model::FEWEST_ROUNDS)
}

/// The next command where so few rounds are complete that figures have no interval.
pub fn next_if_few(recording: &Recording, rounds: u32) -> Vec<String> {
    let few = rounds < vmtax_model::FEWEST_ROUNDS;
    let more = few.then(|| with_more_rounds(recording)).flatten();
    more.into_iter().collect()
}

/// The command that makes a recording again with so many rounds.
pub fn with_rounds(recording: &Recording, rounds: u32) -> Option<String> {
    let command = command_again(recording);
    as_line(&with_option(
        &command,
        "--rounds",
        Some(&rounds.to_string()),
    ))
}

/// The command that checks the host, for what failed on it.
pub const CHECK_HOST: &str = "vmtax doctor";

/// The machines of a recording without those on which every trial failed.
pub fn working_machines(recording: &Recording) -> Vec<Machine> {
    let is_failed = |trial: &&TrialRecord| matches!(trial.outcome, Outcome::Failed { .. });
    let has_failed = |machine: &Machine| {
        let mut trials = recording.trials.iter().filter(|t| t.machine == *machine);
        let failed = trials.clone().filter(is_failed).count();
        failed > 0 && trials.all(|trial| is_failed(&trial))
    };
    let machines = recording.plan.machines.iter().copied();
    machines.filter(|machine| !has_failed(machine)).collect()
}

/// Returns true if guests were to be measured, and every trial of each of them failed.
pub fn has_no_working_guest(recording: &Recording) -> bool {
    let is_guest = |machine: &Machine| machine.is_guest();
    let working = working_machines(recording);
    recording.plan.machines.iter().any(is_guest) && !working.iter().any(is_guest)
}

/// The command that made a recording, on the machines that did not fail.
pub fn command_again(recording: &Recording) -> Vec<String> {
    let command = &recording.manifest.command;
    let working = working_machines(recording);
    if working.is_empty() || working == recording.plan.machines {
        return command.clone();
    }
    let names = working.iter().map(|machine| machine.as_str()).joined(",");
    with_option(command, "--machine", Some(&names))
}

/// The folder of a recording: it is no longer empty.
const OUTPUT: [&str; 2] = ["-o", "--output"];

/// A study's command line with an option, or another value of it, into a new recording.
pub fn with_option(command: &[String], option: &str, value: Option<&str>) -> Vec<String> {
    let [program, study, rest @ ..] = command else {
        return command.to_vec();
    };
    let own = rest.iter().position(|word| word == "--");
    let own = own.unwrap_or(rest.len());
    let mut words = vec![program.clone(), study.clone(), option.to_owned()];
    words.extend(value.map(str::to_owned));
    let mut options = rest[..own].iter();
    while let Some(word) = options.next() {
        match word.split_once('=') {
            _ if word == option && value.is_none() => {}
            _ if word == option || OUTPUT.contains(&word.as_str()) => drop(options.next()),
            Some((name, _)) if name == option || OUTPUT.contains(&name) => {}
            _ => words.push(word.clone()),
        }
    }
    words.extend_from_slice(&rest[own..]);
    words
}

/// A study's command line as a person types it; `None` for a recording without one.
pub fn as_line(command: &[String]) -> Option<String> {
    let [_, rest @ ..] = command else { return None };
    (!rest.is_empty()).then(|| shell_line(&[&["vmtax".to_owned()], rest].concat()))
}

/// Returns the number of rounds behind the figures.
pub fn rounds_text(findings: &Findings) -> String {
    rounds(findings.rounds_complete, findings.rounds_planned)
}

/// Returns the meaning of each warning, with its remedy.
pub fn in_words(warnings: &[Warning]) -> Vec<String> {
    let about = vmtax_rules::about(warnings);
    about.iter().map(advice_text).collect()
}

/// Returns the missing data with its place (" (kvm)"), the reason, and the remedy.
pub fn not_observed(missing: &Missing, place: &str) -> String {
    let fix = only_if(!missing.fix.is_empty(), format!(" → {}", missing.fix));
    let why = missing.why.trim_end_matches('.');
    format!("{}{place}: {why}.{fix}", missing.what)
}

/// Returns warnings for the reader: the findings' warnings, and the parts of the recording that are cut off or
/// damaged.
pub fn warnings(recording: &Recording, warnings: &[Warning]) -> Vec<String> {
    let mut all = in_words(warnings);
    if recording.manifest.ended.is_none() {
        all.push("The run was cut off: these are the trials it had finished.".to_owned());
    }
    let damaged = recording.damaged.iter();
    all.extend(damaged.map(|one| format!("A trial cannot be read and does not count: {one}")));
    all
}

/// The command that renders a recording again.
pub fn report_command(recording: &Recording) -> String {
    let folder = recording.folder.to_string_lossy().into_owned();
    shell_line(&["vmtax".to_owned(), "report".to_owned(), folder])
}

/// Returns the origin of a recording, and the command that renders it again.
pub fn origin(recording: &Recording) -> Origin {
    let manifest = &recording.manifest;
    Origin {
        vmtax: manifest.vmtax.clone(),
        started: manifest.started.clone(),
        command: report_command(recording),
    }
}

/// "nightly", when the run began, and the number of rounds.
pub fn run(recording: &Recording, rounds: String) -> Vec<String> {
    vec![recording.plan.name.clone(), began(recording), rounds]
}

/// When a recording began, for people.
pub fn began(recording: &Recording) -> String {
    when(&recording.manifest.started)
}

/// The host in short, and what guests ran on it: which kernel and which QEMU and why these, on which of its CPUs.
pub fn host(recording: &Recording) -> Vec<String> {
    let host = &recording.host;
    let of_guests = [
        guest_kernels(recording),
        qemus(recording),
        pinned(recording),
    ];
    let of_host = [host.cpu.model.clone(), system(host)];
    of_host
        .into_iter()
        .chain(of_guests.into_iter().flatten())
        .collect()
}

/// "native, kvm (machine type q35) with 2 vCPUs, 1024 MiB".
pub fn guests_in_short(plan: &Plan) -> String {
    let (machines, guest) = (plan.machines.iter(), &plan.guest);
    let mut guests = machines.clone().filter(|machine| machine.is_guest());
    let has_kernel = guests.any(|machine| machine.has_kernel());
    let machine_type = guest.machine_type.as_deref().unwrap_or(Guest::MACHINE_TYPE);
    let machine_type = only_if(
        has_kernel && !varies(plan, "machine-type"),
        format!(" (machine type {machine_type})"),
    );
    let machines = machines.map(|machine| machine.as_str()).joined(", ");
    let (cpus, mib) = (counted(guest.cpus.into(), "vCPU"), guest.memory_mib);
    format!("{machines}{machine_type} with {cpus}, {mib} MiB")
}

/// Returns true if a variant of the plan sets this option.
fn varies(plan: &Plan, option: &str) -> bool {
    plan.variants
        .iter()
        .any(|variant| variant.get(option).is_some())
}

/// "guest kernel 6.1.0-56-amd64 (from the cache)".
fn guest_kernels(recording: &Recording) -> Option<String> {
    let plan = &recording.plan;
    let named = plan.guest.kernel.is_some() || varies(plan, "kernel");
    let why = |kernel: &KernelFacts| match kernel.source {
        SourceOfKernel::Running => "the host's own",
        SourceOfKernel::Given => "from --kernel",
        SourceOfKernel::Cache if named => "named",
        SourceOfKernel::Cache => "from the cache",
    };
    let kernels = recording.manifest.kernels.iter();
    let kernels = kernels.map(|kernel| format!("{} ({})", kernel.release, why(kernel)));
    let kernels = distinct(kernels);
    let s = only_if(kernels.len() > 1, "s");
    (!kernels.is_empty()).then(|| format!("guest kernel{s} {}", kernels.join(", ")))
}

/// "QEMU 7.2.22 (installed)". The one that the plan names, or the best installed one, is the first of the host's.
fn qemus(recording: &Recording) -> Option<String> {
    let (plan, host) = (&recording.plan, &recording.host);
    let usual = host.qemu.first().map_or("", |qemu| &qemu.version);
    let named = |path: &Path| {
        let known = host.qemu.iter().find(|qemu| qemu.path == path);
        let known = known.map(|qemu| qemu.version.clone());
        format!(
            "{} (named)",
            known.unwrap_or_else(|| path.display().to_string())
        )
    };
    let guests = plan.machines.iter().filter(|machine| machine.is_guest());
    let variants = plan.variants.iter();
    let variants = variants.filter(|variant| guests.clone().any(|guest| variant.is_on(*guest)));
    let qemus = variants.map(|variant| match (variant.qemu(), &plan.guest.qemu) {
        (Some(own), _) => named(own),
        (None, Some(_)) => format!("{usual} (named)"),
        (None, None) => format!("{usual} (installed)"),
    });
    let qemus = distinct(qemus);
    (!qemus.is_empty() && !host.qemu.is_empty()).then(|| format!("QEMU {}", qemus.join(", ")))
}

/// "vCPUs pinned to host CPU 1, QEMU's other threads to 0".
fn pinned(recording: &Recording) -> Option<String> {
    let guests = recording
        .trials
        .iter()
        .filter(|trial| trial.machine.is_guest());
    let mut all: Vec<&PinnedCpus> = guests.filter_map(|trial| trial.pinned.as_ref()).collect();
    all.dedup();
    let list = |cpus: &[u32]| cpus.iter().map(u32::to_string).joined(", ");
    Some(match all.first()? {
        _ if all.iter().any(|other| *other != all[0]) => {
            "threads pinned differently (see each trial)".to_owned()
        }
        PinnedCpus { vcpus, others } if vcpus == others => {
            format!("all of QEMU pinned to host CPU {}", list(vcpus))
        }
        PinnedCpus { vcpus, others } => {
            let (vcpus, others) = (list(vcpus), list(others));
            format!("vCPUs pinned to host CPU {vcpus}, QEMU's other threads to {others}")
        }
    })
}

/// Returns the facts about the measurement: checks, kernels, QEMUs, the plan, the commands. `kernels`: each machine's
/// kernel.
pub fn facts(
    recording: &Recording,
    kernels: &[(Machine, KernelIdentity)],
) -> Vec<Section<'static>> {
    let facts = host_facts(&recording.host).chain(kernels.iter().map(|(machine, k)| {
        let kernel = format!("{} {} {}", k.system, k.release, k.version);
        (format!("Kernel of {machine}"), kernel)
    }));
    let mut made = vec![
        Block::Text("Recorded with".to_owned()),
        Block::Lines(shell_line(&recording.manifest.command)),
        Block::Text("Recreate this report".to_owned()),
        Block::Lines(report_command(recording)),
    ];
    if let Ok(plan) = recording.plan.to_toml() {
        made.push(Block::folded(
            "Plan (input of `vmtax run`)",
            [Block::Lines(plan)],
        ));
    }
    let (facts, checks) = (Block::Facts(facts.collect()), recorded_checks(recording));
    vec![
        Section::detail("Host", [facts, checks.into()]),
        Section::detail("How this was recorded", made),
    ]
}

/// Returns the facts about a host, a name and a value each.
fn host_facts(host: &HostFacts) -> impl Iterator<Item = (String, String)> + '_ {
    let cpu = &host.cpu;
    let governor = cpu.governor.as_ref();
    let governor = governor.map_or(String::new(), |name| format!(", governor {name}"));
    let cpus = format!(
        "{}, {} online, {} per core{governor}",
        cpu.model, cpu.online, cpu.threads_per_core
    );
    let outer = cpu.hypervisor.as_ref();
    let outer = outer.map_or(String::new(), |outer| {
        format!("; the host is itself a guest of {outer}")
    });
    let virtualization = cpu.virtualisation.as_deref();
    let virtualization = virtualization.unwrap_or("no VT-x or AMD-V");
    let not = only_if(!cpu.invariant_tsc, "not ");
    let facts = [
        ("CPU", cpus),
        ("Virtualization", format!("{virtualization}{outer}")),
        ("Clock", format!("{}, TSC {not}invariant", cpu.clocksource)),
        ("Memory", format!("{} MiB", host.memory_mib)),
        ("System", system(host)),
    ];
    let qemus = host.qemu.iter().map(|qemu| {
        let path = qemu.path.to_string_lossy();
        ("QEMU", format!("{} `{path}`", qemu.version))
    });
    let all = facts.into_iter().chain(qemus);
    all.map(|(name, value)| (name.to_owned(), value))
}

/// "Debian GNU/Linux 12, Linux 6.1.0"; the kernel alone where no os-release names the distribution.
pub fn system(host: &HostFacts) -> String {
    let distribution = match &*host.distribution {
        "" | "unknown" => String::new(),
        name => format!("{name}, "),
    };
    format!("{distribution}Linux {}", host.kernel)
}

/// Makes the table of the checks that were made with a recording.
fn recorded_checks(recording: &Recording) -> Table {
    let note = "Checks of the host when the recording was made, as `vmtax doctor` makes them.";
    let why = |check: &&Check| {
        let fixes = check.remedies.iter().map(remedy_text);
        fixes.fold(check.why.clone(), |why, fix| why + "\n" + &fix)
    };
    let head = words("why it matters, what fixes it").broken(24, 12);
    let table = checks(&recording.host.checks).column(head, why).done();
    table.notes(vec![note.to_owned()])
}

/// Makes a table with the result of each check.
pub fn checks(checks: &[Check]) -> Filled<&Check> {
    Table::of("Checks of the host", checks)
        .column(words("check").broken(16, 8), |check| check.subject.as_str())
        .column(words("state"), |check| {
            Cell::from(state_word(check.state)).tone(match check.state {
                Readiness::Ok => Tone::Good,
                Readiness::Limited => Tone::Warn,
                Readiness::Missing => Tone::Bad,
            })
        })
        .column(words("found").broken(24, 12), |check| check.found.as_str())
}

/// Returns the word for the state of a check.
pub fn state_word(state: Readiness) -> &'static str {
    match state {
        Readiness::Ok => "ok",
        Readiness::Limited => "limited",
        Readiness::Missing => "missing",
    }
}

#[cfg(test)]
mod tests {
    use super::{as_line, with_option};

    #[test]
    fn an_option_is_set_before_the_workloads_and_once() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let command = words(
            "/usr/bin/vmtax compare --rounds=6 -o a --budget 60s aio=threads --output=b -- exec x --rounds 3 -o c",
        );
        let line = as_line(&with_option(
            &with_option(&command, "--rounds", Some("16")),
            "--budget",
            Some("2m"),
        ));
        assert_eq!(
            line.unwrap(),
            "vmtax compare --budget 2m --rounds 16 aio=threads -- exec x --rounds 3 -o c"
        );
        assert_eq!(
            as_line(&with_option(&words("vmtax"), "--rounds", Some("6"))),
            None
        );
        let layers = with_option(
            &words("vmtax exec --memory 2G --layers -- x --layers"),
            "--layers",
            None,
        );
        assert_eq!(
            as_line(&layers).unwrap(),
            "vmtax exec --layers --memory 2G -- x --layers"
        );
    }
}
