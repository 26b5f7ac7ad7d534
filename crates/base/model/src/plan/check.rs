//! Checks of a plan: the conditions of every plan, then those of its study.

use super::definition::Plan;
use super::study::{
    Compare, Grows, MAX_STEPS, MIN_STEPS, ObservedVm, SizeRange, Study, WithCommand,
};
use super::variant::Variant;
use super::{PlanError, range};
use crate::{
    GuestTuneSpec, ImportedFiles, Machine, NetBackend, Probes, Setting, SettingPart, Share,
    ShareMethod, TuneSpec, WorkloadName,
};
use std::fmt::Display;

/// Traces of one VM: its host's, its own, QEMU's, and some parts of each.
const MAX_FILES: usize = 64;
/// Variants at most, where no guest is tuned.
const MAX_VARIANTS: u32 = 128;

impl Plan {
    /// Checks that the plan is valid.
    ///
    /// # Errors
    /// [`PlanError`] with the first part that is not.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.schema > crate::SCHEMA {
            return Err(PlanError::TooNew(self.schema));
        }
        let lists = [
            ("machines", self.machines.is_empty() && !self.is_attached()),
            ("workload", self.workloads.is_empty() && !self.is_attached()),
            ("variant", self.variants.is_empty()),
            ("probes", self.probes.is_empty()),
        ];
        if let Some((list, _)) = lists.into_iter().find(|(_, is_empty)| *is_empty) {
            return Err(PlanError::Empty(list));
        }
        range("rounds", self.rounds, 1, 10_000)?;
        range("timeout-s", self.timeout_s, 1, 86_400)?;
        range("probes (how many)", self.probes.len() as u32, 1, 64)?;
        let most = self
            .guest_tune()
            .map_or(MAX_VARIANTS, |_| GuestTuneSpec::MAX_VARIANTS);
        range("variant (how many)", self.variants.len() as u32, 1, most)?;
        self.check_names()?;
        self.check_machines()?;
        self.variants
            .iter()
            .try_for_each(|variant| self.check_variant(variant))?;
        let mut machines = self.machines.iter();
        if let Some(machine) = machines.find(|m| self.variants_on(**m).next().is_none()) {
            return invalid(format!(
                "every variant is for another machine than {machine}: leave {machine} or a variant's machine out"
            ));
        }
        if let Some(tree) = &self.tree {
            tree.check()?;
        }
        self.check_study()
    }

    fn check_names(&self) -> Result<(), PlanError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let is_odd = |name: &String| name.len() > 64 || !name.chars().all(is_plain);
        if self.name.is_empty() || is_odd(&self.name) {
            return invalid(format!(
                "name '{}' must be 1 to 64 letters, digits, '-' or '_': it names a directory",
                self.name.escape_default()
            ));
        }
        if self.reproduces.as_ref().is_some_and(is_odd) {
            return invalid(
                "reproduces must be the name of a published result: `vmtax reproduce list` has them",
            );
        }
        listed_once("machine", self.machines.iter())?;
        listed_once("workload", self.workloads.iter().map(|w| w.name))?;
        let names = self.variants.iter().map(|v| v.name.escape_default());
        listed_once("variant", names)
    }

    fn check_machines(&self) -> Result<(), PlanError> {
        self.guest.check()?;
        if self.guest.devices() > 0 && self.machines.iter().any(|m| !m.is_linux_guest()) {
            let what = "guest.disks and guest.memory-regions are of guests with a kernel: leave other machines out";
            return invalid(format!("{what} (--machine tcg)"));
        }
        Ok(())
    }

    fn check_variant(&self, variant: &Variant) -> Result<(), PlanError> {
        check_words(variant)?;
        self.check_machine_of(variant)?;
        variant.guest(&self.guest)?.check()?;
        check_disk_names(variant)?;
        self.check_disk(variant)?;
        self.check_network(variant)?;
        check_memory(variant)?;
        self.check_workload_options(variant)?;
        self.check_share(variant)
    }

    /// Checks that a variant's own machine is one of the plan's.
    fn check_machine_of(&self, variant: &Variant) -> Result<(), PlanError> {
        if let Some(name) = variant.get("machine") {
            let machine: Machine = name.parse().map_err(|e| variant.fault(&format!("{e}")))?;
            if !self.machines.contains(&machine) {
                let what =
                    format!("it is for {machine} alone, which is not among the plan's machines");
                return Err(variant.fault(&what));
            }
        }
        Ok(())
    }

    fn is_on_micro_guest(&self, variant: &Variant) -> bool {
        let mut machines = self.machines.iter();
        machines.any(|machine| !machine.has_kernel() && variant.is_on(*machine))
    }

    /// Checks that the disk's image and bus suit the machines and probes, and its settings the iothread.
    fn check_disk(&self, variant: &Variant) -> Result<(), PlanError> {
        let is_raw = variant.get("format").is_none_or(|format| format == "raw");
        if !is_raw && self.probes.iter().any(|probes| probes.follows_requests()) {
            return Err(
                variant.fault("requests are traced to a raw image only: omit format or the probes")
            );
        }
        let is_usual_bus = variant.get("bus").is_none_or(|bus| bus == "virtio-blk");
        if !is_usual_bus && self.is_on_micro_guest(variant) {
            return Err(variant.fault(
                "the micro-guest has a driver for virtio-blk alone: leave bus or the machine out",
            ));
        }
        let has_iothread = variant.get("iothread").is_some_and(|value| value == "on");
        if !has_iothread && variant.set.keys().any(|key| key.starts_with("iothread.")) {
            return Err(variant.fault(
                "iothread.PROPERTY is of the disk's iothread: set iothread=on, or leave it out",
            ));
        }
        Ok(())
    }

    /// Checks that the network card's backend and settings suit each other and the workloads.
    fn check_network(&self, variant: &Variant) -> Result<(), PlanError> {
        let refused = |what: &str| Err(variant.fault(what));
        let parts = [SettingPart::Backend, SettingPart::Netdev];
        let keys = variant.set.keys();
        let mut of_network = keys.filter(|key| parts.contains(&Setting::of(key).part));
        let has_network = self.workloads.iter().any(|w| w.name.needs_network());
        if let Some(key) = of_network.next().filter(|_| !has_network) {
            return refused(&format!(
                "{} is of the NIC, which no workload of the plan uses: run net-rr, net-stream or net-pps, or leave it out",
                key.escape_default()
            ));
        }
        let queues =
            NetBackend::queues(&variant.set).map_err(|error| variant.fault(&error.to_string()))?;
        if queues > 1 && !matches!(variant.backend()?, None | Some(NetBackend::Tap)) {
            return refused("netdev.queues is of a tap: set backend=tap, or leave it out");
        }
        let is_vhost_user = variant.backend()? == Some(NetBackend::VhostUser);
        let options = self.workloads.iter().map(|work| &work.options);
        let mut connections = options.filter_map(|options| options.get("connections"));
        let follows = is_vhost_user && self.probes.contains(&Probes::Network);
        if follows && connections.any(|count| count != "1") {
            return refused(
                "with vhost-user the round trips of one connection only are traced: set connections=1, or another backend",
            );
        }
        if is_vhost_user && variant.set.contains_key("memory-backend.share") {
            return refused("vhost-user shares the guest's memory: leave memory-backend.share out");
        }
        Ok(())
    }

    /// Checks that a variant's share suits the plan's tree and machines.
    fn check_share(&self, variant: &Variant) -> Result<(), PlanError> {
        let refused = |what: &str| Err(variant.fault(what));
        match (variant.share()?, &self.tree) {
            (None, _) => Ok(()),
            (Some(_), None) if self.shares_host_root() => Ok(()),
            (Some(_), None) => {
                refused("it shares a tree, but the plan has none: add a table [tree]")
            }
            (Some(_), _) if self.is_on_micro_guest(variant) => {
                refused("the micro-guest has no kernel to mount a tree: leave it or the share out")
            }
            (Some(share), Some(tree))
                if tree.path.is_some() && share.option("readonly") == Some("off") =>
            {
                refused(
                    "your own directory is only ever read: leave share.readonly=off or tree.path out",
                )
            }
            _ => Ok(()),
        }
    }

    /// The options of workloads that a variant sets; their values are checked with the workloads.
    fn check_workload_options(&self, variant: &Variant) -> Result<(), PlanError> {
        for key in variant.set.keys() {
            let Some((workload, _)) = Variant::workload_option(key) else {
                continue;
            };
            let key = key.escape_default();
            if self.comparison().is_none() || self.machines.contains(&Machine::NATIVE) {
                return Err(variant.fault(&format!(
                    "{key} is an option of a workload, which variants have in a comparison of guests alone: set it in \
                     [[workload]], or use `vmtax compare`"
                )));
            }
            if !self.runs(workload) {
                let what = format!("{key} is of {workload}, which the plan does not run: add it");
                return Err(variant.fault(&what));
            }
        }
        Ok(())
    }

    /// The combinations that each study allows.
    fn check_study(&self) -> Result<(), PlanError> {
        if self.runs(WorkloadName::Exec) && self.command().is_none() {
            return invalid("exec runs your command, and none is given: use `vmtax exec -- CMD`");
        }
        self.check_host_programs()?;
        self.check_probes()?;
        match &self.study {
            Study::Exec(_) => self.check_command(),
            Study::Compare(compare) => self.check_comparison(compare.settings),
            Study::Scale(range) => self.check_size_range(range),
            Study::Share
                if self.tree.is_none()
                    || !self.variants.iter().any(|v| v.get("share").is_some()) =>
            {
                invalid(
                    "the study 'share' shares a tree: add a table [tree], and variants that set share",
                )
            }
            Study::Exits if !self.runs(WorkloadName::Exits) => {
                invalid("the study 'exits' runs the workload exits: add it")
            }
            Study::GuestAntipatterns if !self.runs(WorkloadName::GuestAntipatterns) => invalid(
                "the study 'guest-antipatterns' runs the workload guest-antipatterns: add it",
            ),
            Study::Vm(_, vm) => self.check_observed_vm(vm),
            Study::Tune(tune) => self.check_tune(tune),
            Study::TuneGuest(tune) => self.check_guest_tune(tune),
            Study::Import(import) => self.check_import(import),
            Study::Profile(_) if self.is_attached() => {
                self.check_runs_nothing("profile.pid and profile.file name what is there already")?;
                self.check_command()
            }
            Study::Profile(_) => self.check_command(),
            _ => Ok(()),
        }
    }

    /// Checks that guests in which a program of the host runs have the host's files, and a kernel.
    fn check_host_programs(&self) -> Result<(), PlanError> {
        let mut workloads = self.workloads.iter();
        let Some(program) = workloads.find(|w| w.name.needs_host_program()) else {
            return Ok(());
        };
        let name = program.name;
        if self.machines.iter().any(|machine| !machine.has_kernel()) {
            return invalid(format!(
                "the micro-guest has no kernel to run {name}: leave it out"
            ));
        }
        let has_guests = self.machines.iter().any(|machine| machine.is_guest());
        let mut variants = self.variants.iter();
        if has_guests && variants.any(|variant| variant.get("share").is_none()) {
            return invalid(format!(
                "{name} is the host's, which guests share: set share=9p in each variant, or use `vmtax tune --{name}`"
            ));
        }
        if self.tree.is_some() || self.command().is_some() {
            return invalid(format!(
                "guests share the host's root for {name}: leave the tree, or the command, out"
            ));
        }
        Ok(())
    }

    /// Checks that the probes follow requests where the study observes any, and that the workloads make those they follow.
    fn check_probes(&self) -> Result<(), PlanError> {
        let follows_requests = self.probes.iter().any(|probes| probes.follows_requests());
        if matches!(self.study, Study::Layers) && !follows_requests {
            return invalid(
                "the study 'layers' observes requests: add \"layers\" to probes, for net-rr \"network\"",
            );
        }
        if self.runs(WorkloadName::Fio) && follows_requests {
            if self.workloads.len() > 1 {
                return invalid(
                    "fio's requests can only be traced alone: omit the other workloads",
                );
            }
            if self.probes.contains(&Probes::Calls) {
                return invalid(
                    "the probes \"calls\" count while the workload's own stamps say that it runs, and fio has none: leave them out",
                );
            }
        }
        if self.probes.contains(&Probes::Network)
            && !self.workloads.iter().all(|w| w.name == WorkloadName::NetRr)
        {
            return invalid(
                "the probes \"network\" follow round trips over the network: run net-rr alone",
            );
        }
        Ok(())
    }

    /// Checks that a plan which names something that is there already has nothing to run.
    fn check_runs_nothing(&self, why: &str) -> Result<(), PlanError> {
        match self.machines.is_empty() && self.workloads.is_empty() {
            true => Ok(()),
            false => invalid(format!("{why}: leave machines and workload empty")),
        }
    }

    /// Checks that the plan observes a VM and runs nothing itself.
    fn check_observed_vm(&self, vm: &ObservedVm) -> Result<(), PlanError> {
        self.check_runs_nothing("[vm] names a running VM")?;
        if vm.process.pid <= 0 || vm.time_ms == 0 {
            return invalid("[vm] takes a pid and a time-ms above 0");
        }
        if vm.level > ObservedVm::ALL_LEVELS {
            return invalid("[vm] takes a level from 0 to 2");
        }
        Ok(())
    }

    /// Checks that the plan tunes a running VM and runs nothing itself.
    fn check_tune(&self, tune: &TuneSpec) -> Result<(), PlanError> {
        self.check_runs_nothing("[tune] names a running VM")?;
        if tune.process.pid <= 0 || tune.time_ms == 0 || tune.block_ms == 0 {
            return invalid("[tune] takes a pid, a time-ms and a block-ms above 0");
        }
        let mut ceilings = tune.candidates.iter().map(|candidate| candidate.ceiling);
        if !ceilings.all(|ceiling| (0.0..=1.0).contains(&ceiling)) {
            return invalid(
                "[tune] takes each ceiling, the upper bound of a gain, between 0 and 1",
            );
        }
        Ok(())
    }

    /// Checks that the plan tunes one guest, by valid candidates.
    fn check_guest_tune(&self, tune: &WithCommand<Box<GuestTuneSpec>>) -> Result<(), PlanError> {
        if !matches!(self.machines[..], [machine] if machine.is_guest()) {
            return invalid("the study 'tune-guest' tunes one guest: name one guest machine");
        }
        if let Some(why) = tune.settings.fault() {
            return invalid(format!("[tune-guest]: {why}"));
        }
        self.check_command()
    }

    /// Checks that the plan imports files and runs nothing itself.
    fn check_import(&self, import: &ImportedFiles) -> Result<(), PlanError> {
        self.check_runs_nothing("[import] names traces that are there")?;
        if import.files.is_empty() || import.files.len() > MAX_FILES {
            return invalid(format!("[import] takes 1 to {MAX_FILES} files"));
        }
        Ok(())
    }

    fn runs(&self, workload: WorkloadName) -> bool {
        self.workloads.iter().any(|w| w.name == workload)
    }

    fn check_command(&self) -> Result<(), PlanError> {
        let Some(command) = self.command() else {
            return Ok(());
        };
        let compares = self.comparison().is_some() || self.guest_tune().is_some();
        let observed = match compares {
            true => self.probes.iter().any(|probes| *probes != Probes::None),
            false => !matches!(self.probes[..], [Probes::None | Probes::Inside(_)]),
        };
        if (self.variants.len() != 1 && !compares) || observed || self.tree.is_some() {
            return invalid(
                "a plan with a command has no probes of requests, no tree, and one variant unless it compares: leave these out",
            );
        }
        if !self.runs(WorkloadName::Exec) || self.workloads.len() > 1 {
            return invalid("a plan with a command has the workload exec alone: leave others out");
        }
        if self.machines.iter().any(|m| !m.has_kernel()) {
            return invalid("the micro-guest has no kernel to run a command: leave it out");
        }
        if command.layers && !self.machines.iter().any(|m| m.is_guest()) {
            return invalid(
                "layers follows a guest's requests, natively there is nothing to follow: add a guest to the machines",
            );
        }
        command.check()
    }

    fn check_comparison(&self, compare: Compare) -> Result<(), PlanError> {
        self.check_command()?;
        if !(0.001..=1.0).contains(&compare.min_effect) {
            return invalid("compare.min-effect must be a fraction from 0.001 to 1: 0.02 for 2 %");
        }
        if self.columns().len() < 2 {
            return invalid("a comparison needs a baseline and another variant: give two variants");
        }
        match self.one_boot_fault().filter(|_| compare.one_boot) {
            Some(why) => invalid(format!("{why}: leave compare.one-boot (--one-boot) out")),
            None => Ok(()),
        }
    }

    fn check_size_range(&self, range: &SizeRange) -> Result<(), PlanError> {
        match range.grows()? {
            Grows::Workload(workload, _) if !self.runs(workload) => {
                return invalid(format!(
                    "range.option is of {workload}, which the plan does not run: add it"
                ));
            }
            Grows::Cpus | Grows::Memory | Grows::Disks | Grows::MemoryRegions if range.one_boot => {
                let what =
                    "cannot grow while the guest runs: leave range.one_boot (--one-boot) out";
                return invalid(format!("{} {what}", range.option));
            }
            _ => {}
        }
        if !(MIN_STEPS..=MAX_STEPS).contains(&range.steps.len()) {
            return invalid(format!(
                "the range has {} steps: give {MIN_STEPS} to {MAX_STEPS} different sizes",
                range.steps.len()
            ));
        }
        if range.steps[0] == 0 || range.steps.windows(2).any(|pair| pair[0] >= pair[1]) {
            return invalid(
                "the range does not rise: give sizes above 0, each larger than the one before",
            );
        }
        // What no machine could be given is a mistake of the plan; what this one refuses is found out on it.
        (0..range.steps.len()).try_for_each(|step| self.at_step(step).check())
    }
}

/// Checks that a variant's name and settings are short, plain text.
fn check_words(variant: &Variant) -> Result<(), PlanError> {
    let words = variant.set.iter().flat_map(|(key, value)| [key, value]);
    let is_odd = |word: &String| word.len() > 256 || word.chars().any(char::is_control);
    if words.chain([&variant.name]).any(is_odd) {
        return invalid("a variant's name or setting is too long or not plain text");
    }
    let is_of_running_vm = |key: &&String| {
        let part = Setting::of(key).part;
        matches!(
            part,
            SettingPart::GuestFile(_) | SettingPart::GuestNumber(_)
        )
    };
    match variant.set.keys().find(is_of_running_vm) {
        Some(key) => Err(variant.fault(&format!(
            "{key} is set in the guest of a running VM alone: leave it out, or set block-queue.NAME"
        ))),
        None => Ok(()),
    }
}

/// Checks that there is such a bus, format and option of the disk's image.
fn check_disk_names(variant: &Variant) -> Result<(), PlanError> {
    for (key, known) in [
        ("bus", &Variant::BUSES[..]),
        ("format", &Variant::FORMATS[..]),
    ] {
        if let Some(value) = variant.get(key).filter(|value| !known.contains(value)) {
            return Err(variant.fault(&format!(
                "{key} is '{}': choose from {}",
                value.escape_default(),
                known.join(", ")
            )));
        }
    }
    let keys = variant.set.keys();
    let mut options = keys.filter_map(|key| key.strip_prefix("image."));
    if let Some(option) = options.find(|option| !Variant::IMAGE_OPTIONS.contains(option)) {
        return Err(variant.fault(&format!(
            "image.{} is no option of an image: choose from {}",
            option.escape_default(),
            Variant::IMAGE_OPTIONS.join(", ")
        )));
    }
    Ok(())
}

/// Checks that a share of the tree leaves the guest the memory that the variant sets.
fn check_memory(variant: &Variant) -> Result<(), PlanError> {
    let mut keys = variant.set.keys();
    let is_virtiofs = |share: Share| share.method == ShareMethod::Virtiofs;
    if keys.any(|key| key.starts_with("memory-backend."))
        && variant.share()?.is_some_and(is_virtiofs)
    {
        return Err(variant.fault(
            "virtiofs has a memory of its own for the guest: leave memory-backend.PROPERTY or the share out",
        ));
    }
    Ok(())
}

fn invalid(why: impl Into<String>) -> Result<(), PlanError> {
    Err(PlanError::Invalid(why.into()))
}

fn listed_once<T: Display>(what: &str, names: impl Iterator<Item = T>) -> Result<(), PlanError> {
    let mut names: Vec<String> = names.map(|name| name.to_string()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => invalid(format!(
            "{what} '{}' is listed twice: list it once",
            pair[0]
        )),
        None => Ok(()),
    }
}
