//! Profiles in the format of profiler.firefox.com: stacks over time, a track a thread, layers as categories.

use fxprof_processed_profile::{
    CategoryColor, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo,
    Profile as Processed, SamplingInterval, ThreadHandle, Timestamp,
};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use vmtax_model::samples::{CodeOrigin, Profile, Sample};

/// The profile as JSON, with its guest's of the same time where there is one. `time` is how long was sampled.
pub fn json(
    profile: &Profile,
    guest: Option<&Profile>,
    program: &str,
    pid: i32,
    hz: u32,
    time: Duration,
) -> serde_json::Result<String> {
    let interval = SamplingInterval::from_nanos(1_000_000_000 / u64::from(hz.max(1)));
    let mut out = Processed::new(program, began(time).into(), interval);
    let categories = categories(&mut out);
    let mut tracks = Tracks {
        out,
        categories,
        first: profile.samples.first().map_or(0, |sample| sample.time),
    };
    tracks.add_process(program, pid, profile);
    if let Some(guest) = guest {
        tracks.add_process("guest", 0, guest);
    }
    serde_json::to_string(&tracks.out)
}

/// Returns the time when sampling began, which ends now.
fn began(time: Duration) -> SystemTime {
    // Damaged time stamps may be decades apart; the format knows no time before 1970.
    let began = SystemTime::now()
        .checked_sub(time)
        .filter(|began| *began >= SystemTime::UNIX_EPOCH);
    began.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Category of each origin of code.
type Categories = [(CodeOrigin, CategoryPairHandle); 7];

/// Adds a category for each origin of code.
fn categories(out: &mut Processed) -> Categories {
    let all = [
        (CodeOrigin::Program, "QEMU", CategoryColor::Red),
        (CodeOrigin::Library, "Library", CategoryColor::Yellow),
        (CodeOrigin::Kernel, "Host kernel", CategoryColor::Orange),
        (
            CodeOrigin::Translated,
            "Translated code",
            CategoryColor::Green,
        ),
        (CodeOrigin::GuestKernel, "Guest kernel", CategoryColor::Blue),
        (
            CodeOrigin::GuestUser,
            "Guest program",
            CategoryColor::LightBlue,
        ),
        (CodeOrigin::Unknown, "Unknown", CategoryColor::Gray),
    ];
    all.map(|(origin, name, color)| (origin, out.add_category(name, color).into()))
}

/// A profile in the format, to which processes are added.
struct Tracks {
    out: Processed,
    categories: Categories,
    /// Time of the first sample, ns.
    first: u64,
}

impl Tracks {
    /// Adds a process with a track for each of its threads.
    fn add_process(&mut self, name: &str, pid: i32, profile: &Profile) {
        let zero = Timestamp::from_nanos_since_reference(0);
        let process = self.out.add_process(name, pid.unsigned_abs(), zero);
        let mut by_thread: BTreeMap<usize, Vec<&Sample>> = BTreeMap::new();
        for sample in &profile.samples {
            by_thread.entry(sample.thread).or_default().push(sample);
        }
        for (number, seen) in by_thread {
            let thread = &profile.threads[number];
            let (tid, is_main) = (thread.tid.unsigned_abs(), thread.tid == pid);
            let handle = self.out.add_thread(process, tid, zero, is_main);
            self.out.set_thread_name(handle, &thread.name);
            for sample in seen {
                self.add_sample(handle, profile, sample);
            }
        }
    }

    /// Adds a sample to a thread's track.
    fn add_sample(&mut self, thread: ThreadHandle, profile: &Profile, sample: &Sample) {
        let mut frames = Vec::new();
        for &function in &profile.stacks[sample.stack] {
            let function = &profile.functions[function];
            let frame = Frame::Label(self.out.intern_string(&function.name));
            frames.push(FrameInfo {
                frame,
                category_pair: self.category(function.origin),
                flags: FrameFlags::empty(),
            });
        }
        let stack = self.out.intern_stack_frames(thread, frames.into_iter());
        let at = Timestamp::from_nanos_since_reference(sample.time.saturating_sub(self.first));
        let weight = i32::try_from(sample.weight).unwrap_or(i32::MAX);
        self.out
            .add_sample(thread, at, stack, CpuDelta::ZERO, weight);
    }

    /// Returns the category of code.
    fn category(&self, origin: CodeOrigin) -> CategoryPairHandle {
        self.categories
            .iter()
            .find(|(o, _)| *o == origin)
            .map_or(self.categories[0].1, |(_, category)| *category)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamps_that_are_decades_apart_are_no_panic() {
        let profile = crate::flame::unfold("a;b 1", std::path::Path::new("x")).unwrap();
        let century = Duration::from_secs(100 * 366 * 86_400);
        for time in [Duration::ZERO, century, Duration::MAX] {
            let json = json(&profile, None, "program", 1, 99, time).unwrap();
            assert!(json.contains("\"startTime\":"), "{json}");
        }
    }
}
