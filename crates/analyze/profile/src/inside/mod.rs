//! A guest from its inside: [`Taking`] samples it there, [`Recorded::read`] reads that on the host, and [`join`] puts
//! the guest's stacks onto the threads that ran them.

mod clock;
mod join;
mod summary;
mod take;

pub use clock::Clock;
pub use join::{Joined, join};
pub use summary::{calls, summary};
pub use take::Taking;

use crate::ProfileError;
use crate::profile::Profile;
use crate::seen::Unwound;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;
use vmtax_model::{Beat, CallCounts, InsideFacts, files};

/// A frame more than this is none: twice what stacks are unwound to.
const DEEPEST: usize = 2048;
/// A name that is longer is cut when it is sent, and is none when it is read, bytes.
const LONGEST: usize = 4096;

/// What a trial's files say of its guest's inside.
#[derive(Debug)]
pub struct Recorded {
    /// What the host noted.
    pub facts: InsideFacts,
    /// What ran; `None` where that could not be seen, or nobody wanted it.
    pub profile: Option<GuestProfile>,
    /// Its system calls, the same.
    pub calls: Option<CallCounts>,
}

impl Recorded {
    /// Reads the files in a trial's folder.
    ///
    /// # Errors
    /// [`ProfileError::Damaged`] with the file that cannot be read.
    pub fn read(folder: &Path) -> Result<Recorded, ProfileError> {
        let read = |name: &str| -> Result<Option<Vec<u8>>, ProfileError> {
            let path = folder.join(name);
            match fs::read(&path) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(e) => Err(ProfileError::Damaged { file: path, why: e.to_string() }),
            }
        };
        let damaged = |name: &str, why: String| {
            let why = format!("{why}: record it again");
            ProfileError::Damaged { file: folder.join(name), why }
        };
        let facts = read(files::INSIDE)?.unwrap_or_default();
        let facts = serde_json::from_slice(&facts).map_err(|e| damaged(files::INSIDE, e.to_string()))?;
        let profile = read(files::GUEST_PROFILE)?.map(|bytes| GuestProfile::parse(&bytes));
        let profile = profile.transpose().map_err(|why| damaged(files::GUEST_PROFILE, why))?;
        let calls = read(files::GUEST_CALLS)?.map(|bytes| serde_json::from_slice(&bytes));
        let calls = calls.transpose().map_err(|e| damaged(files::GUEST_CALLS, e.to_string()))?;
        Ok(Recorded { facts, profile, calls })
    }
}

/// What ran in a guest, as its own kernel saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestProfile {
    /// Who was seen where, by the guest's monotonic clock.
    pub profile: Profile,
    /// Samples a second of each processor that was not idle.
    pub hz: u32,
    /// `cycles`, or `cpu-clock` where the guest has no counter for them.
    pub trigger: String,
    /// How well the user's part of the stacks unwound.
    pub unwound: Unwound,
    /// Samples that there was no room for.
    pub lost: u64,
    /// The guest's clocks before and after.
    pub beats: [Beat; 2],
}

impl GuestProfile {
    /// Reads what a guest sent, which is not believed: every number in it has to make sense.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<GuestProfile, String> {
        let guest: GuestProfile = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        let Profile { functions, stacks, threads, samples } = &guest.profile;
        let [begun, ended] = guest.beats;
        if ended.ticks <= begun.ticks || ended.monotonic_ns <= begun.monotonic_ns {
            return Err("its clocks stand still".to_owned());
        }
        if functions.iter().any(|f| f.name.len() > LONGEST || f.module.len() > LONGEST)
            || threads.iter().any(|t| t.name.len() > LONGEST)
        {
            return Err("a name is too long".to_owned());
        }
        if stacks.iter().any(|stack| stack.len() > DEEPEST || stack.iter().any(|&number| number >= functions.len())) {
            return Err("a stack names a function that is not there".to_owned());
        }
        if samples.iter().any(|s| s.thread >= threads.len() || s.stack >= stacks.len() || s.weight != 1) {
            return Err("a sample names a thread or a stack that is not there".to_owned());
        }
        Ok(guest)
    }

    /// Brings what was seen onto the host's clock.
    pub fn by_host_clock(&mut self, clock: &Clock) {
        self.profile.samples.iter_mut().for_each(|sample| sample.time = clock.host(sample.time));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Function, Layer, Sample, Thread};
    use proptest::prelude::*;

    fn guest() -> GuestProfile {
        let function =
            |name: &str, layer| Function { name: name.to_owned(), module: String::new(), layer, named: true };
        let functions = vec![function("main", Layer::GuestUser), function("do_idle", Layer::GuestKernel)];
        let sample = |stack, time| Sample { thread: 0, stack, time, weight: 1, cpu: 0 };
        let profile = Profile {
            functions,
            stacks: vec![vec![0], vec![0, 1]],
            threads: vec![Thread { tid: 7, name: "work".to_owned() }],
            samples: vec![sample(0, 5), sample(1, 9)],
        };
        let beat = |ticks| Beat { ticks, monotonic_ns: ticks };
        let (trigger, unwound) = ("cpu-clock".to_owned(), Unwound::default());
        GuestProfile { profile, hz: 99, trigger, unwound, lost: 0, beats: [beat(1), beat(2)] }
    }

    #[test]
    fn it_comes_back_as_it_went_and_numbers_that_lead_nowhere_do_not() {
        let good = guest();
        let text = serde_json::to_vec(&good).unwrap();
        assert_eq!(GuestProfile::parse(&text), Ok(good.clone()));
        let breaks: [fn(&mut GuestProfile); 6] = [
            |g| g.beats[1] = g.beats[0],
            |g| g.profile.stacks[0][0] = 2,
            |g| g.profile.samples[1].stack = 2,
            |g| g.profile.samples[0].thread = 1,
            |g| g.profile.samples[0].weight = u64::MAX,
            |g| g.profile.functions[0].name = "x".repeat(LONGEST + 1),
        ];
        for (number, breaks) in breaks.iter().enumerate() {
            let mut bad = good.clone();
            breaks(&mut bad);
            let text = serde_json::to_vec(&bad).unwrap();
            assert!(GuestProfile::parse(&text).is_err(), "break {number}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_a_guest_sends_breaks_it(at in 0usize..600, byte: u8) {
            let mut text = serde_json::to_vec(&guest()).unwrap();
            let at = at % text.len();
            text[at] = byte;
            if let Ok(guest) = GuestProfile::parse(&text) {
                crate::fold::fold(&guest.profile);
                prop_assert!(guest.profile.total() <= 2);
            }
        }
    }
}
