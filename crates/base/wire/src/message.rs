//! Messages between the controller and the agent. Also a command to be run as it is: everything that its process has
//! from the one that asks.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use vmtax_model::{
    BatchEdge, EventCost, Execution, GuestDisk, GuestNic, Inside, KernelIdentity, Missing, Probes,
    ShareMethod, TrialResult, WorkloadSpec,
};

/// From the controller to the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// Run a workload in a fresh process; answered by [`Reply::Done`] or [`Reply::Failed`], with the files of its
    /// traces and, without probes, [`Reply::Batch`] before.
    Run {
        /// Workload to run.
        workload: WorkloadSpec,
        /// Under what; with any probes the workload's own stamps are among the files.
        #[serde(default)]
        probes: Probes,
    },
    /// Start to sample the guest from its inside; answered by [`Reply::Sampling`].
    StartSampling {
        /// Settings of the observation.
        inside: Inside,
        /// The workload that measures the shortest system call, for what counting adds to one.
        shortest_call: WorkloadSpec,
    },
    /// Stop that, and send the samples; answered by [`Reply::Samples`] or [`Reply::Failed`], with the files before.
    StopSampling,
    /// Mount the shared tree at [`crate::SHARE`], in a guest alone; answered by [`Reply::Shared`] or [`Reply::Failed`].
    Share {
        /// File system to mount.
        mount: Mount,
    },
    /// Restore what the last such request changed, then set these attributes of the measured disk's request queue; in a guest
    /// alone. Answered by [`Reply::BlockQueueSet`] or [`Reply::Failed`].
    SetBlockQueue {
        /// Values by name (`/sys/block/DISK/queue/NAME`).
        attributes: BTreeMap<String, String>,
    },
    /// Make of the shared tree a root for commands, with a layer above it that takes what is written; answered by
    /// [`Reply::Rooted`] or [`Reply::Failed`].
    Root {
        /// The host's name, which the guest takes on.
        host_name: Bytes,
        /// Folders of the host's that the guest may write to, each shared by [`crate::writable_tag`].
        #[serde(default)]
        writable: Vec<Bytes>,
        /// True if the guest has QEMU's user network.
        #[serde(default)]
        network: bool,
    },
    /// Run a command, in a guest in that root; answered by [`Reply::Ran`], [`Reply::NotRun`] or [`Reply::Failed`], with pieces
    /// of its streams and [`Reply::Input`] before, and the files of its trace.
    Exec {
        /// Command to run.
        launch: Box<Launch>,
        /// Probes that observe the command.
        #[serde(default)]
        probes: Probes,
    },
    /// Send the command under way this signal.
    Signal {
        /// Number of the signal.
        signal: i32,
    },
    /// The person's terminal has another size.
    Resize {
        /// New size of the terminal.
        size: Size,
    },
    /// Nobody reads this stream of the command's any more.
    Close {
        /// Stream that nobody reads any more.
        stream: Stream,
    },
    /// Answer exchanges of stamps through the shared memory until the controller ends them; answered by
    /// [`Reply::Pinged`].
    Ping,
    /// Go on after [`Reply::Batch`].
    GoOn,
    /// End: a guest powers off, a native agent exits.
    Leave,
}

/// A file system that a guest mounts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Whose modules are loaded first.
    pub method: ShareMethod,
    /// The file system's type.
    pub kind: String,
    /// The device, tag or server's path; for a disk its serial.
    pub source: String,
    /// The options that are the file system's own.
    pub options: String,
    /// True if the file system cannot be written.
    pub read_only: bool,
    /// The address and mask that the guest's network card gets, for a share that comes over the network.
    pub network: Option<(Ipv4Addr, Ipv4Addr)>,
}

/// First message of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The agent's vmtax version.
    pub vmtax: String,
    /// The kernel it runs on.
    pub kernel: KernelIdentity,
    /// CPUs it may use.
    pub cpus: u32,
    /// Failures while setting up (a module that would not load): for people, not fatal.
    pub complaints: Vec<String>,
}

/// From the agent to the controller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "kebab-case")]
pub enum Reply {
    /// Ready for requests.
    Hello(Hello),
    /// A workload ran to its end.
    Done {
        /// Result of the workload.
        result: Box<TrialResult>,
        /// Data that is needed to read the traces; `None` where the workload was not observed.
        observed: Option<Observed>,
    },
    /// A workload that runs has reached the begin or end of a batch and waits for [`Request::GoOn`].
    Batch {
        /// Begin or end.
        edge: BatchEdge,
    },
    /// Sampling has started.
    Sampling,
    /// The samples were sent.
    Samples {
        /// Data that could not be sampled.
        missing: Vec<Missing>,
    },
    /// The shared tree is there.
    Shared {
        /// Line of the mount in `/proc/mounts`.
        mount: String,
    },
    /// The disk's request queue has these attributes.
    BlockQueueSet,
    /// The root for commands is there.
    Rooted,
    /// The command is about to begin.
    Began,
    /// The command has ended; what it left is sampled.
    Ended,
    /// The command takes more of its standard input: a piece, an empty one for the end.
    Input,
    /// The command ran.
    Ran {
        /// End of the command: its status and resources.
        execution: Execution,
        /// Figures of the command.
        result: Box<TrialResult>,
        /// Data that is needed to read the traces; `None` where the command was not observed.
        observed: Option<Observed>,
    },
    /// The command did not run, or not to its end.
    NotRun {
        /// The status that stands for why.
        status: i32,
        /// Reason that the command did not run, or not to its end.
        error: String,
    },
    /// The exchanges are over.
    Pinged,
    /// A workload could not run or broke off.
    Failed {
        /// Why, and what to do.
        error: String,
    },
}

/// Data that is needed to read the traces and that only the guest agent knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The measured disk, where the machine is a guest.
    pub disk: Option<GuestDisk>,
    /// The measured network card, likewise.
    pub nic: Option<Box<GuestNic>>,
    /// Data that could not be observed in the guest.
    pub missing: Vec<Missing>,
    /// Costs of events in the guest, by repetitions after the workload.
    #[serde(default)]
    pub costs: Vec<EventCost>,
}

impl Observed {
    fn check(&self) -> Result<(), String> {
        few("repetitions of a calibration", self.costs.len())?;
        let costs = self.costs.iter();
        let mut costs = costs.flat_map(|cost| [cost.first_ns, cost.again_ns]);
        if costs.any(|ns| !ns.is_finite()) {
            return Err("the cost of an event that is not a number".to_owned());
        }
        let of_disk = self.disk.iter().map(|disk| disk.interrupts.len());
        let of_nic = self.nic.iter().map(|nic| nic.interrupts.len());
        for count in of_disk.chain(of_nic) {
            few("interrupts", count)?;
        }
        short(self.nic.iter().map(|nic| &nic.name))?;
        check_missing(&self.missing)
    }
}

const LONGEST_NAME: usize = 1024;
/// A job of fio is an option.
const LONGEST_OPTION: usize = 64 << 10;
const MOST_ITEMS: usize = 1000;

impl Reply {
    /// Returns the reply if all in it is within bounds: an agent in a guest is not trusted.
    ///
    /// # Errors
    /// Description of what is out of bounds, for people.
    pub fn checked(mut self) -> Result<Reply, String> {
        self.texts().for_each(|text| *text = one_line(text));
        match &self {
            Reply::Hello(hello) => {
                let texts = [&hello.vmtax]
                    .into_iter()
                    .chain(kernel_texts(&hello.kernel));
                short(texts.chain(&hello.complaints))?;
                few("complaints", hello.complaints.len())?;
            }
            Reply::Done { result, observed } => {
                check_result(result)?;
                observed.as_ref().map_or(Ok(()), Observed::check)?;
            }
            Reply::Shared { mount } => short([mount])?,
            Reply::Samples { missing } => check_missing(missing)?,
            Reply::Batch { .. }
            | Reply::Sampling
            | Reply::Pinged
            | Reply::BlockQueueSet
            | Reply::Rooted
            | Reply::Began
            | Reply::Ended
            | Reply::Input => {}
            Reply::Ran {
                execution,
                result,
                observed,
            } => {
                check_result(result)?;
                observed.as_ref().map_or(Ok(()), Observed::check)?;
                let seconds = [execution.busy_s, execution.stolen_s, execution.waited_s];
                if seconds
                    .into_iter()
                    .flatten()
                    .any(|s| !s.is_finite() || s < 0.0)
                {
                    return Err("a CPU time that is not a number".to_owned());
                }
            }
            Reply::NotRun { error, .. } | Reply::Failed { error } => {
                if error.len() > 64 * 1024 {
                    return Err(format!("an error text of {} bytes", error.len()));
                }
            }
        }
        Ok(self)
    }

    /// The texts that are printed: each has one line, or a guest could print lines of its own.
    fn texts(&mut self) -> Box<dyn Iterator<Item = &mut String> + '_> {
        match self {
            Reply::Hello(hello) => Box::new(hello.complaints.iter_mut()),
            Reply::Done { result, .. } | Reply::Ran { result, .. } => {
                let kept = result.kept.iter_mut();
                let texts = result.notes.iter_mut();
                let texts = texts.chain(result.unsupported.iter_mut().map(|u| &mut u.reason));
                let texts = texts.chain(kept.flat_map(|kept| [&mut kept.what, &mut kept.detail]));
                Box::new(texts.chain(&mut result.timer.reason))
            }
            Reply::Samples { missing } => {
                let texts = missing.iter_mut();
                Box::new(texts.flat_map(|m| [&mut m.what, &mut m.why, &mut m.fix]))
            }
            Reply::NotRun { error, .. } | Reply::Failed { error } => {
                Box::new(std::iter::once(error))
            }
            // Without a text of the guest's.
            Reply::Shared { .. }
            | Reply::Batch { .. }
            | Reply::Sampling
            | Reply::Pinged
            | Reply::BlockQueueSet
            | Reply::Rooted
            | Reply::Began
            | Reply::Ended
            | Reply::Input => Box::new(std::iter::empty()),
        }
    }
}

/// The lines of a text in one.
fn one_line(text: &str) -> String {
    let breaks = [
        '\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}',
    ];
    text.split(breaks)
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

fn check_missing(missing: &[Missing]) -> Result<(), String> {
    few("missing probes", missing.len())?;
    short(missing.iter().flat_map(|m| [&m.what, &m.why, &m.fix]))
}

fn check_result(result: &TrialResult) -> Result<(), String> {
    few("measures", result.measures.len())?;
    few("operations", result.operations.len())?;
    few("unsupported metrics", result.unsupported.len())?;
    few("things kept or lost", result.kept.len())?;
    few("notes", result.notes.len())?;
    few("counts of exits", result.exits.len())?;
    let (timer, exits) = (&result.timer, &result.exits);
    let texts = exits.iter().map(|e| &e.operation);
    let texts = texts.chain(result.kept.iter().flat_map(|k| [&k.what, &k.detail]));
    let texts = texts.chain(&result.notes);
    let texts = texts.chain(result.operations.iter().map(|o| &o.name));
    let texts = texts.chain(result.unsupported.iter().map(|u| &u.reason));
    // They are what was asked for.
    let mut options = result
        .workload
        .options
        .iter()
        .flat_map(|(k, v)| [k.len(), v.len()]);
    if let Some(long) = options.find(|length| *length > LONGEST_OPTION) {
        return Err(format!(
            "an option of {long} bytes where {LONGEST_OPTION} is the limit"
        ));
    }
    short(
        texts
            .chain(kernel_texts(&result.kernel))
            .chain(&timer.reason),
    )?;
    let figures = result.measures.iter().map(|m| m.value);
    let figures = figures.chain([result.total_s, timer.mhz, timer.error, timer.pair_ns]);
    let figures = figures.chain(exits.iter().map(|e| e.each));
    let fairness = result.fairness.iter();
    let events = fairness
        .clone()
        .flat_map(|f| [f.events_mean, f.events_stddev]);
    let fairness = events.chain(fairness.flat_map(|f| [f.time_mean_s, f.time_stddev_s]));
    match figures.chain(fairness).find(|v| !v.is_finite() || *v < 0.0) {
        Some(bad) => Err(format!("a figure of {bad}")),
        None => Ok(()),
    }
}

fn kernel_texts(kernel: &KernelIdentity) -> [&String; 3] {
    [&kernel.system, &kernel.release, &kernel.version]
}

fn short<'a>(texts: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    match texts.into_iter().find(|t| t.len() > LONGEST_NAME) {
        Some(long) => Err(format!(
            "a text of {} bytes where {LONGEST_NAME} is the limit",
            long.len()
        )),
        None => Ok(()),
    }
}

fn few(what: &str, count: usize) -> Result<(), String> {
    if count > MOST_ITEMS {
        Err(format!("{count} {what} where {MOST_ITEMS} is the limit"))
    } else {
        Ok(())
    }
}

/// A text of the system, which need not be UTF-8. In JSON each byte is the character of its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bytes(pub OsString);

impl<T: AsRef<OsStr>> From<T> for Bytes {
    fn from(text: T) -> Self {
        Bytes(text.as_ref().to_owned())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let bytes = self.0.as_bytes().iter();
        s.serialize_str(&bytes.map(|b| char::from(*b)).collect::<String>())
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let bytes: Result<Vec<u8>, _> = text.chars().map(|c| u8::try_from(u32::from(c))).collect();
        bytes
            .map(|b| Bytes(OsString::from_vec(b)))
            .map_err(|_| D::Error::custom("a character that is no byte"))
    }
}

/// A command with its surroundings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Program and arguments.
    pub words: Vec<Bytes>,
    /// The working directory.
    pub directory: Bytes,
    /// Name and value of each variable.
    pub environment: Vec<(Bytes, Bytes)>,
    /// User ID of the process.
    pub user: u32,
    /// Group ID of the process.
    pub group: u32,
    /// Supplementary group IDs.
    pub groups: Vec<u32>,
    /// The bits that its files' modes do not get.
    pub umask: u32,
    /// Limits by the kernel's number for the resource: soft and hard, `u64::MAX` for none.
    pub limits: Vec<(u32, u64, u64)>,
    /// True if the command has a standard input.
    pub stdin: bool,
    /// The size of the terminal that it gets instead of three streams.
    pub terminal: Option<Size>,
    /// True if processes that the command leaves running stay, for the command that comes next.
    #[serde(default)]
    pub stays: bool,
    /// Seconds after which it is ended.
    pub timeout_s: u32,
}

/// Of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// From top to bottom.
    pub rows: u16,
    /// From left to right.
    pub columns: u16,
}

/// A stream of the command's: the name of its pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// To it; an empty piece is its end.
    Stdin,
    /// Standard output of the command.
    Stdout,
    /// Standard error of the command.
    Stderr,
}

impl Stream {
    /// The name of its pieces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Stream::Stdin => "stdin",
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// The largest piece of a stream, bytes: what a pipe holds.
pub const STREAM_PIECE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vmtax_model::*;

    fn result() -> TrialResult {
        let measures = vec![Measure {
            metric: Metric::CpuEvents,
            value: 1.0,
        }];
        TrialResult {
            measures,
            ..testing::result(WorkloadSpec::new(WorkloadName::Cpu))
        }
    }

    #[test]
    fn a_guests_error_is_one_line() {
        let error = "cannot open x\r\n\u{2028}Results: all is well\nvmtax: done".to_owned();
        let Ok(Reply::Failed { error }) = Reply::Failed { error }.checked() else {
            panic!("refused")
        };
        assert_eq!(error, "cannot open x Results: all is well vmtax: done");
    }

    #[test]
    fn impossible_figures_and_endless_texts_are_refused() {
        let check = |change: fn(&mut TrialResult)| {
            let mut r = result();
            change(&mut r);
            Reply::Done {
                result: Box::new(r),
                observed: None,
            }
            .checked()
        };
        assert!(check(|_| ()).is_ok());
        assert!(check(|r| r.measures[0].value = f64::INFINITY).is_err());
        assert!(check(|r| r.measures[0].value = -1.0).is_err());
        assert!(check(|r| r.kernel.release = "x".repeat(2000)).is_err());
        assert!(check(|r| r.measures = vec![r.measures[0]; 2000]).is_err());
        assert!(check(|r| r.notes = vec!["x".repeat(2000)]).is_err());
        let kept = |detail: &str| Kept {
            what: "mode".into(),
            keeping: Keeping::Kept,
            detail: detail.into(),
        };
        assert!(
            check_result(&TrialResult {
                kept: vec![kept("0600")],
                ..result()
            })
            .is_ok()
        );
        assert!(
            check_result(&TrialResult {
                kept: vec![kept(&"x".repeat(2000))],
                ..result()
            })
            .is_err()
        );
        assert!(
            check_result(&TrialResult {
                kept: vec![kept(""); 2000],
                ..result()
            })
            .is_err()
        );
        let exits = |each| {
            vec![OperationExits {
                operation: "x".into(),
                each,
            }]
        };
        assert!(
            check_result(&TrialResult {
                exits: exits(2.0),
                ..result()
            })
            .is_ok()
        );
        assert!(
            check_result(&TrialResult {
                exits: exits(f64::NAN),
                ..result()
            })
            .is_err()
        );
    }

    proptest! {
        #[test]
        fn any_bytes_come_through(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let text = Bytes(OsString::from_vec(bytes));
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(serde_json::from_str::<Bytes>(&json).unwrap(), text);
        }
    }

    #[test]
    fn a_character_that_is_no_byte_is_refused() {
        assert!(serde_json::from_str::<Bytes>("\"\u{20ac}\"").is_err());
    }
}
