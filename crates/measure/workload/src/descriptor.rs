//! Descriptions of workloads, available without running them.

use crate::options::{self, OptionInfo, Options, Value};
use crate::{Clock, WorkloadError};
use vmtax_model::{
    Fairness, Kept, KernelIdentity, Latency, Measure, Metric, Operation, Places, TrialResult,
    Unanswered, Unsupported, WorkloadName, WorkloadSpec,
};

/// A workload with its options parsed; the options' struct itself. What it does not say, it does not need.
pub(crate) trait Workload: Options {
    /// Checks the options together: refuses a combination that is not allowed, and sets the options that others turn
    /// off.
    fn reconcile(&mut self) -> Result<(), WorkloadError> {
        Ok(())
    }

    /// Returns the files and the memory that the workload needs, in a shared tree that has `tree_files` files.
    fn room(&self, _tree_files: u64) -> Room {
        Room::default()
    }

    /// Returns the number of measurements that follow each other, each for the time that the options give.
    fn parts(&self) -> usize {
        1
    }

    /// Runs it once, from a defined state, and waits for its end.
    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError>;
}

/// Files and memory that a workload uses while it runs, so that they can be provided or refused beforehand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// Bytes of files in [`Places::files`].
    pub files_bytes: u64,
    /// Bytes that it writes in the shared tree at most.
    pub share_bytes: u64,
    /// Files that it makes in the shared tree at most.
    pub share_files: u64,
    /// Names that the share's server knows when calls are timed.
    pub known_names: u64,
    /// Files that it holds open.
    pub held_files: u64,
    /// Bytes of memory that these take in the kernel on which it runs.
    pub held_bytes: u64,
}

/// Size of a measurement: rounds and workload sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// Under 3 minutes on 2 cores: enough rounds for an interval, reduced workload sizes.
    Quick,
    /// Under 12 minutes.
    #[default]
    Default,
    /// The parameters of the published sysbench report that this tool's five tests come from.
    Full,
}

impl Preset {
    /// The rounds it makes.
    pub const fn rounds(self) -> u32 {
        match self {
            Preset::Quick | Preset::Full => 6,
            Preset::Default => 8,
        }
    }
}

type Settings = &'static [(&'static str, &'static str)];

/// Declares a workload: a struct named like it, with a typed field for each option, and its [`Descriptor`] `WORKLOAD`.
macro_rules! workload {
    (
        $name:ident: $about:literal $(, quick $quick:tt, default $default:tt, full $full:tt)?;
        $($field:ident: $type:ty = $option:expr;)*
    ) => {
        #[derive(Debug, Clone, PartialEq)]
        struct $name { $($field: $type,)* }

        impl $name {
            const OPTIONS: &'static [$crate::options::OptionInfo] = &[$($option),*];
        }

        impl $crate::options::Options for $name {
            #[allow(unused_mut, unused_variables, reason = "a workload may have no options")]
            fn from_values(values: Vec<$crate::options::Value>) -> Option<Self> {
                let mut values = values.into_iter();
                Some($name { $($field: $crate::options::OptionValue::from_value(values.next()?)?,)* })
            }
            fn values(&self) -> Vec<$crate::options::Value> {
                vec![$($crate::options::OptionValue::value(&self.$field)),*]
            }
        }

        pub(crate) static WORKLOAD: $crate::descriptor::Descriptor = $crate::descriptor::Descriptor {
            name: vmtax_model::WorkloadName::$name,
            about: $about,
            options: $name::OPTIONS,
            presets: [
                $($crate::descriptor::Presets { quick: &$quick, default: &$default, full: &$full },)?
                $crate::descriptor::Presets { quick: &[], default: &[], full: &[] },
            ][0],
            parse: $crate::descriptor::work::<$name>,
        };
    };
}
pub(crate) use workload;

/// Settings of each preset, in addition to those of the published report ([`WorkloadName::reference`]).
#[derive(Clone, Copy)]
pub(crate) struct Presets {
    pub quick: Settings,
    pub default: Settings,
    pub full: Settings,
}

type Parse = fn(WorkloadName, Vec<Value>) -> Result<Box<dyn Workload>, WorkloadError>;

/// A workload as it is declared.
pub struct Descriptor {
    /// Name of the workload.
    pub name: WorkloadName,
    /// Description of what the workload measures, one line.
    pub about: &'static str,
    /// Options of the workload, in the order in which help lists them.
    pub options: &'static [OptionInfo],
    pub(crate) presets: Presets,
    /// [`work`] of the options' struct.
    pub(crate) parse: Parse,
}

impl Descriptor {
    /// The workload as a preset runs it: the published report's shape (threads, locks, block sizes) everywhere; quick
    /// and default make times and the slowest totals smaller.
    pub fn preset(&self, preset: Preset) -> WorkloadSpec {
        let more = match preset {
            Preset::Quick => self.presets.quick,
            Preset::Default => self.presets.default,
            Preset::Full => self.presets.full,
        };
        let settings = self.name.reference().iter().chain(more);
        settings.fold(WorkloadSpec::new(self.name), |spec, (option, value)| {
            spec.with(option, value)
        })
    }
}

/// The options' struct, as [`Descriptor::parse`] wants it.
pub(crate) fn work<W: Workload + 'static>(
    name: WorkloadName,
    values: Vec<Value>,
) -> Result<Box<dyn Workload>, WorkloadError> {
    typed::<W>(name, values).map(|work| Box::new(work) as Box<dyn Workload>)
}

fn typed<W: Workload>(name: WorkloadName, values: Vec<Value>) -> Result<W, WorkloadError> {
    let mut work = W::from_values(values).ok_or(WorkloadError::Declaration(name))?;
    work.reconcile()?;
    Ok(work)
}

/// The typed options of a spec of this workload.
pub(crate) fn options_of<W: Workload>(
    spec: &WorkloadSpec,
    known: &[OptionInfo],
) -> Result<W, WorkloadError> {
    typed(spec.name, options::parse(spec, known)?)
}

/// A workload whose options were parsed and go together.
pub struct Checked {
    descriptor: &'static Descriptor,
    work: Box<dyn Workload>,
}

impl Checked {
    pub(crate) fn new(
        spec: &WorkloadSpec,
        descriptor: &'static Descriptor,
    ) -> Result<Checked, WorkloadError> {
        let values = options::parse(spec, descriptor.options)?;
        Ok(Checked {
            descriptor,
            work: (descriptor.parse)(spec.name, values)?,
        })
    }

    /// Returns the workload's name.
    pub fn name(&self) -> WorkloadName {
        self.descriptor.name
    }

    /// The spec as it takes effect: every option, values in canonical spelling (`65536` becomes `64K`). Checked again
    /// it stays as it is.
    pub fn spec(&self) -> WorkloadSpec {
        options::spec(
            self.descriptor.name,
            self.descriptor.options,
            &self.work.values(),
        )
    }

    /// Returns the files and the memory that the workload needs, in a shared tree that has `tree_files` files.
    pub fn room(&self, tree_files: u64) -> Room {
        self.work.room(tree_files)
    }

    pub(crate) fn parts(&self) -> usize {
        self.work.parts()
    }

    /// Runs it once, from a defined state, and waits for its end. Calibrates the clock first (40 ms).
    ///
    /// # Errors
    /// A place that is missing, too small or refuses; threads or memory that the system will not give. What `syscalls`
    /// finds missing in the kernel is no error: it is in [`TrialResult::unsupported`].
    pub fn run(&self, places: &Places) -> Result<TrialResult, WorkloadError> {
        let clock = Clock::calibrate();
        Ok(self.work.run(&clock, places)?.result(self.spec(), &clock))
    }
}

/// Results of a workload; [`Yield::result`] adds who, where and how timed.
#[derive(Default)]
pub(crate) struct Yield {
    pub measures: Vec<Measure>,
    pub operations: Vec<Operation>,
    pub unsupported: Vec<Unsupported>,
    pub kept: Vec<Kept>,
    pub notes: Vec<String>,
    pub unanswered: Option<Unanswered>,
    pub fairness: Option<Fairness>,
    /// Wall time of the measured part, seconds.
    pub total_s: f64,
    /// Output of the program that made the requests.
    pub output: Option<String>,
}

impl Yield {
    /// Results of a measured part that took so many nanoseconds.
    pub fn of_ns(ns: u64) -> Yield {
        Yield {
            total_s: ns as f64 / 1e9,
            ..Yield::default()
        }
    }

    pub fn measure(&mut self, metric: Metric, value: f64) {
        self.measures.push(Measure { metric, value });
    }

    pub fn operation(&mut self, name: &str, latency: Latency) {
        self.operations.push(Operation {
            name: name.to_owned(),
            latency,
        });
    }

    /// Adds the spec as it took effect, the clock that timed it and the kernel that ran it.
    pub fn result(self, spec: WorkloadSpec, clock: &Clock) -> TrialResult {
        TrialResult {
            measures: self.measures,
            operations: self.operations,
            unsupported: self.unsupported,
            kept: self.kept,
            notes: self.notes,
            unanswered: self.unanswered,
            fairness: self.fairness,
            total_s: self.total_s,
            output: self.output,
            ..TrialResult::new(spec, clock.about().clone(), kernel_identity())
        }
    }
}

fn kernel_identity() -> KernelIdentity {
    let name = rustix::system::uname();
    let text = |field: &std::ffi::CStr| field.to_string_lossy().into_owned();
    KernelIdentity {
        system: text(name.sysname()),
        release: text(name.release()),
        version: text(name.version()),
    }
}
