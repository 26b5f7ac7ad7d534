//! Profiles in the format of profiler.firefox.com: stacks over time, a track a thread, layers as categories.

use fxprof_processed_profile::{
    CategoryColor, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo,
    Profile as Processed, SamplingInterval, Timestamp,
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
    // Damaged time stamps may be decades apart; the format knows no time before 1970.
    let began = SystemTime::now()
        .checked_sub(time)
        .filter(|began| *began >= SystemTime::UNIX_EPOCH);
    let began = began.unwrap_or(SystemTime::UNIX_EPOCH);
    let interval = SamplingInterval::from_nanos(1_000_000_000 / u64::from(hz.max(1)));
    let mut out = Processed::new(program, began.into(), interval);
    let mut category = |name, color| CategoryPairHandle::from(out.add_category(name, color));
    let categories = [
        (CodeOrigin::Program, category("QEMU", CategoryColor::Red)),
        (
            CodeOrigin::Library,
            category("Library", CategoryColor::Yellow),
        ),
        (
            CodeOrigin::Kernel,
            category("Host kernel", CategoryColor::Orange),
        ),
        (
            CodeOrigin::Translated,
            category("Translated code", CategoryColor::Green),
        ),
        (
            CodeOrigin::GuestKernel,
            category("Guest kernel", CategoryColor::Blue),
        ),
        (
            CodeOrigin::GuestUser,
            category("Guest program", CategoryColor::LightBlue),
        ),
        (
            CodeOrigin::Unknown,
            category("Unknown", CategoryColor::Gray),
        ),
    ];
    let category_of = |origin| {
        categories
            .iter()
            .find(|(o, _)| *o == origin)
            .map_or(categories[0].1, |(_, category)| *category)
    };
    let zero = Timestamp::from_nanos_since_reference(0);
    let first = profile.samples.first().map_or(0, |sample| sample.time);
    let both = [(program, pid, Some(profile)), ("guest", 0, guest)];
    for (name, pid, profile) in both
        .into_iter()
        .filter_map(|(name, pid, profile)| Some((name, pid, profile?)))
    {
        let process = out.add_process(name, pid.unsigned_abs(), zero);
        let mut by_thread: BTreeMap<usize, Vec<&Sample>> = BTreeMap::new();
        profile
            .samples
            .iter()
            .for_each(|sample| by_thread.entry(sample.thread).or_default().push(sample));
        for (number, seen) in by_thread {
            let thread = &profile.threads[number];
            let handle =
                out.add_thread(process, thread.tid.unsigned_abs(), zero, thread.tid == pid);
            out.set_thread_name(handle, &thread.name);
            for sample in seen {
                let mut frames = Vec::new();
                for &function in &profile.stacks[sample.stack] {
                    let function = &profile.functions[function];
                    let frame = Frame::Label(out.intern_string(&function.name));
                    frames.push(FrameInfo {
                        frame,
                        category_pair: category_of(function.origin),
                        flags: FrameFlags::empty(),
                    });
                }
                let stack = out.intern_stack_frames(handle, frames.into_iter());
                let at = Timestamp::from_nanos_since_reference(sample.time.saturating_sub(first));
                out.add_sample(
                    handle,
                    at,
                    stack,
                    CpuDelta::ZERO,
                    sample.weight.try_into().unwrap_or(i32::MAX),
                );
            }
        }
    }
    serde_json::to_string(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamps_that_are_decades_apart_are_no_panic() {
        let profile = crate::fold::unfold("a;b 1", std::path::Path::new("x")).unwrap();
        let century = Duration::from_secs(100 * 366 * 86_400);
        for time in [Duration::ZERO, century, Duration::MAX] {
            let json = json(&profile, None, "program", 1, 99, time).unwrap();
            assert!(json.contains("\"startTime\":"), "{json}");
        }
    }
}
