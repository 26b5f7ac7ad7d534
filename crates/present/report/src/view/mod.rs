//! Data that every report takes from findings and recordings.

pub mod layers;
pub mod verdict;
pub mod vm;

use crate::engine::{Block, Column, Origin, Section, Table, advice_text, remedy_text};
use crate::number::counted;
use std::path::Path;
use vmtax_model::{
    Check, Comparison, Findings, Guest, KernelFacts, KernelIdentity, Machine, MachineColumn,
    Metric, Missing, OverheadRow, PinnedCpus, Plan, SourceOfKernel, Verdict, Warning, WorkloadName,
    shell_line,
};
use vmtax_recording::Recording;

/// Rows that each have a metric, workload by workload.
pub fn by_workload<R>(rows: &[R], metric: impl Fn(&R) -> Metric) -> Vec<(WorkloadName, Vec<&R>)> {
    let rows_of_workload = |w: WorkloadName| {
        rows.iter()
            .filter(|r| metric(r).workload() == w)
            .collect::<Vec<_>>()
    };
    WorkloadName::ALL
        .iter()
        .map(|w| (*w, rows_of_workload(*w)))
        .filter(|(_, rows)| !rows.is_empty())
        .collect()
}

/// Every machine of the findings, native first.
pub fn machines(findings: &Findings) -> Vec<Machine> {
    let has = |m: Machine| {
        findings
            .rows
            .iter()
            .flat_map(|r| &r.machines)
            .any(|c| c.machine == m)
    };
    Machine::ALL.iter().copied().filter(|m| has(*m)).collect()
}

/// The machines that have an overhead column.
pub fn guests(findings: &Findings) -> Vec<Machine> {
    machines(findings)
        .into_iter()
        .filter(|m| m.is_guest())
        .collect()
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
    let overhead = |row| column(row, machine).and_then(|c: &MachineColumn| c.overhead.as_ref());
    findings
        .rows
        .iter()
        .filter_map(|row| Some((row.metric, overhead(row)?)))
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
    let (least, worst) = (
        *overheads.iter().min_by(by_median)?,
        findings.largest_overhead(machine)?,
    );
    let having = |v: Verdict| overheads.iter().filter(|(_, t)| t.verdict == v).count();
    Some(Summary {
        least,
        worst,
        metrics: overheads.len(),
        costs: having(Verdict::Slower),
        gains: having(Verdict::Faster),
        undecided: having(Verdict::Inconclusive),
    })
}

/// Returns true if any figure has an interval.
pub fn has_intervals(findings: &Findings) -> bool {
    let mut columns = findings.rows.iter().flat_map(|r| &r.machines);
    columns.any(|c| {
        c.overhead
            .as_ref()
            .is_some_and(|t| t.ratio.interval.is_some())
    })
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
    let n = if done == planned {
        format!("n = {planned_rounds}")
    } else {
        format!("n = {done} of {planned_rounds}")
    };
    if done < vmtax_model::FEWEST_ROUNDS {
        format!("{n} (preliminary)")
    } else {
        n
    }
}

/// The command that makes a recording again with the fewest rounds that give an interval.
pub fn with_more_rounds(recording: &Recording) -> Option<String> {
    with_rounds(recording, vmtax_model::FEWEST_ROUNDS)
}

/// The command that makes a recording again with so many rounds.
pub fn with_rounds(recording: &Recording, rounds: u32) -> Option<String> {
    as_line(&with_option(
        &recording.manifest.command,
        "--rounds",
        Some(&rounds.to_string()),
    ))
}

/// The folder of a recording: it is no longer empty.
const OUTPUT: [&str; 2] = ["-o", "--output"];

/// A study's command line with an option, or another value of it, into a new recording.
pub fn with_option(command: &[String], option: &str, value: Option<&str>) -> Vec<String> {
    let [program, study, rest @ ..] = command else {
        return command.to_vec();
    };
    let own = rest
        .iter()
        .position(|word| word == "--")
        .unwrap_or(rest.len());
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
    vmtax_rules::about(warnings)
        .iter()
        .map(advice_text)
        .collect()
}

/// Returns the missing data with its place (" (kvm)"), the reason, and the remedy.
pub fn not_observed(missing: &Missing, place: &str) -> String {
    let fix = if missing.fix.is_empty() {
        String::new()
    } else {
        format!(" → {}", missing.fix)
    };
    format!(
        "{}{place}: {}.{fix}",
        missing.what,
        missing.why.trim_end_matches('.')
    )
}

/// Returns warnings for the reader: the findings' warnings, and the parts of the recording that are cut off or
/// damaged.
pub fn warnings(recording: &Recording, warnings: &[Warning]) -> Vec<String> {
    let mut all = in_words(warnings);
    if recording.manifest.ended.is_none() {
        all.push("The run was cut off: these are the trials it had finished.".to_owned());
    }
    all.extend(
        recording
            .damaged
            .iter()
            .map(|d| format!("A trial cannot be read and does not count: {d}")),
    );
    all
}

/// The command that renders a recording again.
pub fn report_command(recording: &Recording) -> String {
    let folder = recording.folder.to_string_lossy().into_owned();
    vmtax_model::shell_line(&["vmtax".to_owned(), "report".to_owned(), folder])
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

/// The host in short, and what guests ran on it: which kernel and which QEMU and why these, on which of its CPUs.
pub fn host(recording: &Recording) -> Vec<String> {
    let host = &recording.host;
    let mut all = vec![
        host.cpu.model.clone(),
        format!("{}, Linux {}", host.distribution, host.kernel),
    ];
    all.extend(guest_kernels(recording));
    all.extend(qemus(recording));
    all.extend(pinned(recording));
    all
}

/// "native, kvm (machine type q35) with 2 vCPUs, 1024 MiB".
pub fn guests_in_short(plan: &Plan) -> String {
    let machines: Vec<&str> = plan
        .machines
        .iter()
        .map(|machine| machine.as_str())
        .collect();
    let has_kernel = plan
        .machines
        .iter()
        .any(|machine| machine.is_guest() && machine.has_kernel());
    let varies = plan
        .variants
        .iter()
        .any(|variant| variant.get("machine-type").is_some());
    let machine_type = plan
        .guest
        .machine_type
        .as_deref()
        .unwrap_or(Guest::MACHINE_TYPE);
    let machine_type = if has_kernel && !varies {
        format!(" (machine type {machine_type})")
    } else {
        String::new()
    };
    let cpus = counted(plan.guest.cpus.into(), "vCPU");
    format!(
        "{}{machine_type} with {cpus}, {} MiB",
        machines.join(", "),
        plan.guest.memory_mib
    )
}

/// "guest kernel 6.1.0-56-amd64 (from the cache)".
fn guest_kernels(recording: &Recording) -> Option<String> {
    let named = recording.plan.guest.kernel.is_some()
        || recording
            .plan
            .variants
            .iter()
            .any(|variant| variant.get("kernel").is_some());
    let why = |kernel: &KernelFacts| match kernel.source {
        SourceOfKernel::Running => "the host's own",
        SourceOfKernel::Given => "from --kernel",
        SourceOfKernel::Cache if named => "named",
        SourceOfKernel::Cache => "from the cache",
    };
    let mut kernels: Vec<String> = recording
        .manifest
        .kernels
        .iter()
        .map(|kernel| format!("{} ({})", kernel.release, why(kernel)))
        .collect();
    kernels.dedup();
    let word = if kernels.len() > 1 {
        "guest kernels"
    } else {
        "guest kernel"
    };
    (!kernels.is_empty()).then(|| format!("{word} {}", kernels.join(", ")))
}

/// "QEMU 7.2.22 (installed)". The one that the plan names, or the best installed one, is the first of the host's.
fn qemus(recording: &Recording) -> Option<String> {
    let (plan, host) = (&recording.plan, &recording.host);
    let usual = host
        .qemu
        .first()
        .map(|qemu| qemu.version.clone())
        .unwrap_or_default();
    let named = |path: &Path| {
        let known = host
            .qemu
            .iter()
            .find(|qemu| qemu.path == path)
            .map(|qemu| qemu.version.clone());
        format!(
            "{} (named)",
            known.unwrap_or_else(|| path.display().to_string())
        )
    };
    let guests: Vec<Machine> = plan
        .machines
        .iter()
        .copied()
        .filter(|machine| machine.is_guest())
        .collect();
    let variants = plan
        .variants
        .iter()
        .filter(|variant| guests.iter().any(|guest| variant.is_on(*guest)));
    let mut qemus: Vec<String> = variants
        .map(|variant| match (variant.qemu(), &plan.guest.qemu) {
            (Some(own), _) => named(own),
            (None, Some(_)) => format!("{usual} (named)"),
            (None, None) => format!("{usual} (installed)"),
        })
        .collect();
    qemus.dedup();
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
    let list = |cpus: &[u32]| {
        cpus.iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    Some(match all.first()? {
        _ if all.iter().any(|other| *other != all[0]) => {
            "threads pinned differently (see each trial)".to_owned()
        }
        PinnedCpus { vcpus, others } if vcpus == others => {
            format!("all of QEMU pinned to host CPU {}", list(vcpus))
        }
        PinnedCpus { vcpus, others } => {
            format!(
                "vCPUs pinned to host CPU {}, QEMU's other threads to {}",
                list(vcpus),
                list(others)
            )
        }
    })
}

/// Returns the facts about the measurement: checks, kernels, QEMUs, the plan, the commands. `kernels`: each machine's
/// kernel.
pub fn facts(
    recording: &Recording,
    kernels: &[(Machine, KernelIdentity)],
) -> Vec<Section<'static>> {
    let host = &recording.host;
    let cpu = &host.cpu;
    let governor = cpu
        .governor
        .as_ref()
        .map_or(String::new(), |g| format!(", governor {g}"));
    let outer = cpu
        .hypervisor
        .as_ref()
        .map_or(String::new(), |h| format!(", itself a guest of {h}"));
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact(
            "CPU",
            format!(
                "{}, {} online, {} per core{governor}",
                cpu.model, cpu.online, cpu.threads_per_core
            ),
        ),
        fact(
            "Virtualization",
            format!("{}{outer}", cpu.virtualisation.as_deref().unwrap_or("none")),
        ),
        fact(
            "Clock",
            format!(
                "{}, TSC {}",
                cpu.clocksource,
                if cpu.invariant_tsc {
                    "invariant"
                } else {
                    "not invariant"
                }
            ),
        ),
        fact("Memory", format!("{} MiB", host.memory_mib)),
        fact(
            "System",
            format!("{}, Linux {}", host.distribution, host.kernel),
        ),
    ];
    facts.extend(host.qemu.iter().map(|q| {
        fact(
            "QEMU",
            format!("{} `{}`", q.version, q.path.to_string_lossy()),
        )
    }));
    facts.extend(kernels.iter().map(|(machine, k)| {
        fact(
            &format!("Kernel of {machine}"),
            format!("{} {} {}", k.system, k.release, k.version),
        )
    }));
    let mut made = vec![
        Block::Text("Recorded with".to_owned()),
        Block::Lines(shell_line(&recording.manifest.command)),
        Block::Text("This report again, from the recording alone".to_owned()),
        Block::Lines(report_command(recording)),
    ];
    if let Ok(plan) = recording.plan.to_toml() {
        made.push(Block::Folded(
            "The plan, which `vmtax run` takes".to_owned(),
            vec![Block::Lines(plan)],
        ));
    }
    let checks = Block::Table(checks(recording));
    vec![
        Section::detail("Host", vec![Block::Facts(facts), checks]),
        Section::detail("How it was made", made),
    ]
}

fn checks(recording: &Recording) -> Table {
    let note =
        "Checks of the host when the recording was made, as `vmtax doctor` makes them.".to_owned();
    let why = |check: &&Check| {
        let fix: String = check
            .remedies
            .iter()
            .map(|remedy| format!("\n{}", remedy_text(remedy)))
            .collect();
        format!("{}{fix}", check.why)
    };
    crate::doctor::checks(&recording.host.checks)
        .column(
            Column::words("why it matters, what fixes it").broken(24, 12),
            why,
        )
        .done()
        .notes(vec![note])
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
