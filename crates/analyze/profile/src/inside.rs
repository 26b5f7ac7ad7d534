//! A guest from its inside: [`parse`] reads what its agent sampled there, and [`join`] puts the guest's stacks onto the
//! threads that ran them, on the host's clock.

use crate::summary::{functions, share, threads};
use std::collections::HashMap;
use vmtax_clock::{ClockError, ClockMap, Evidence, GuestTicks};
use vmtax_findings::{GuestCall, GuestFindings, JoinFindings};
use vmtax_model::samples::{CodeOrigin, Function, GuestProfile, Profile, Sample};
use vmtax_model::{CallCounts, ClockReading, InsideFacts, QemuThread, Role};
use vmtax_trace::system_call_name;

/// Reads a guest's data, which is not trusted: every number in it has to make sense.
///
/// # Errors
/// Description of what is wrong with the data.
pub fn parse(bytes: &[u8]) -> Result<GuestProfile, String> {
    let guest: GuestProfile = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    guest.check().map(|()| guest)
}

/// Brings what was seen onto the host's clock.
pub fn by_host_clock(guest: &mut GuestProfile, clock: &GuestClock) {
    guest
        .profile
        .samples
        .iter_mut()
        .for_each(|sample| sample.time = clock.host(sample.time));
}

/// The way of a stamp: the guest's clock, its ticks, the host's ticks, the host's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestClock {
    guest: [ClockReading; 2],
    map: ClockMap,
    host: [ClockReading; 2],
}

impl GuestClock {
    /// By what both sides noted.
    ///
    /// # Errors
    /// [`ClockError`] when nothing says how their ticks compare.
    pub fn new(guest: [ClockReading; 2], facts: &InsideFacts) -> Result<GuestClock, ClockError> {
        let map = Evidence::new(&facts.pings, facts.kvm_offset).map()?;
        Ok(GuestClock {
            guest,
            map,
            host: facts.beats,
        })
    }

    /// The host's time of the guest's, ns.
    pub fn host(&self, guest_ns: u64) -> u64 {
        let [from, to] = self.guest.map(|beat| Point {
            x: beat.monotonic_ns,
            y: beat.ticks,
        });
        let ticks = self.map.host(GuestTicks(along(from, to, guest_ns))).0;
        let [from, to] = self.host.map(|beat| Point {
            x: beat.ticks,
            y: beat.monotonic_ns,
        });
        along(from, to, ticks)
    }
}

struct Point {
    x: u64,
    y: u64,
}

/// Where `x` is on the line through two points.
fn along(from: Point, to: Point, x: u64) -> u64 {
    let [(x0, y0), (x1, y1)] = [from, to].map(|point| (i128::from(point.x), i128::from(point.y)));
    let (x, run) = (i128::from(x), x1 - x0);
    let rise = if run == 0 {
        0
    } else {
        (x - x0).saturating_mul(y1 - y0).saturating_div(run)
    };
    u64::try_from(y0.saturating_add(rise).max(0)).unwrap_or(u64::MAX)
}

/// Returns the findings from the guest's samples.
pub fn summary(guest: &GuestProfile, joined: Option<&Joined>) -> GuestFindings {
    let [begin, end] = guest.beats.map(|beat| beat.monotonic_ns);
    let seconds = end.saturating_sub(begin) as f64 / 1e9;
    let (profile, unwound) = (&guest.profile, guest.unwound);
    GuestFindings {
        seconds,
        hz: guest.hz,
        trigger: guest.trigger.clone(),
        samples: profile.total(),
        lost: guest.lost,
        user_samples: unwound.outside,
        unwound: share(unwound.to_root, unwound.outside),
        threads: threads(profile, f64::from(guest.hz) * seconds),
        functions: functions(profile),
        joined: joined.map(|joined| JoinFindings {
            in_guest: joined.in_guest,
            joined: share(joined.joined, joined.in_guest),
            apart_ns: joined.apart_ns,
        }),
        calls: None,
    }
}

/// Returns the findings from the counts of system calls, with names.
pub fn calls(counts: &CallCounts) -> CallCounts<GuestCall> {
    let row = |row: &vmtax_model::CallCount| GuestCall {
        call: row.call,
        name: system_call_name(row.call.into()).into_owned(),
        pid: row.pid,
        calls: row.count,
        avg_ns: row.total_ns as f64 / row.count.max(1) as f64,
        min_ns: row.min_ns,
        max_ns: row.max_ns,
        total_ns: row.total_ns,
    };
    let rows = counts.rows.iter().map(row).collect();
    CallCounts {
        method: counts.method,
        rows,
        lost: counts.lost,
        added_ns: counts.added_ns,
    }
}

/// Samples of both sides further apart than this many of the guest's are about different moments.
const MAX_PERIODS: u64 = 2;
/// The kernel's functions in which KVM runs the guest: a sample that hits the guest is seen there.
const RUNS_GUEST: [&str; 6] = [
    "vmx_vcpu_enter_exit",
    "__vmx_vcpu_run",
    "vmx_vcpu_run",
    "__svm_vcpu_run",
    "svm_vcpu_run",
    "vcpu_enter_guest",
];

/// Both sides in one profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// QEMU's threads, with the guest's stacks where they ran it.
    pub profile: Profile,
    /// Samples of vCPUs in the guest's code, or in what that called.
    pub in_guest: u64,
    /// Of those, with the guest's stack of that moment.
    pub joined: u64,
    /// Median distance between both sides' samples, in ns.
    pub apart_ns: u64,
}

/// Puts what the guest saw of itself, by the host's clock and `hz` times a second, into what was seen of its QEMU on CPU: to
/// each sample of a vCPU in the guest's code the stack that the guest saw there nearest in time. What
/// translated code called stays above it.
pub fn join(host: &Profile, guest: &Profile, hz: u32, threads: &[QemuThread]) -> Joined {
    let vcpu = |tid: i32| match threads.iter().find(|thread| thread.tid == tid)?.role {
        Role::Vcpu(number) => Some(number),
        _ => None,
    };
    let vcpus: Vec<Option<u32>> = host.threads.iter().map(|thread| vcpu(thread.tid)).collect();
    let mut by_cpu: HashMap<u32, Vec<(u64, &Sample)>> = HashMap::new();
    for sample in &guest.samples {
        let samples = by_cpu.entry(sample.cpu).or_default();
        samples.push((sample.time, sample));
    }
    for samples in by_cpu.values_mut() {
        samples.sort_by_key(|(time, _)| *time);
    }
    let reach = MAX_PERIODS * 1_000_000_000 / u64::from(hz.max(1));

    let mut both = Both::new(host, guest);
    let (mut in_guest, mut apart) = (0, Vec::new());
    for sample in &host.samples {
        let Some((cpu, depth)) = vcpus[sample.thread].zip(where_guest_runs(host, sample.stack))
        else {
            both.profile.samples.push(*sample);
            continue;
        };
        in_guest += sample.weight;
        let near = by_cpu
            .get(&cpu)
            .and_then(|samples| nearest(samples, sample.time));
        let stack = match near.filter(|(distance, _)| *distance <= reach) {
            Some((distance, seen)) => {
                apart.push(distance);
                both.stack(host, guest, sample.stack, depth, seen)
            }
            None => sample.stack,
        };
        both.profile.samples.push(Sample { stack, ..*sample });
    }
    apart.sort_unstable();
    let apart_ns = apart.get(apart.len() / 2).copied().unwrap_or(0);
    Joined {
        profile: both.profile,
        in_guest,
        joined: apart.len() as u64,
        apart_ns,
    }
}

/// Returns the number of the stack's frames that are below the guest's; `None` where it is not the guest that runs.
fn where_guest_runs(host: &Profile, stack: usize) -> Option<usize> {
    let stack = &host.stacks[stack];
    let translated = stack
        .iter()
        .position(|&number| host.functions[number].origin == CodeOrigin::Translated);
    let runs = |&number: &usize| {
        let function = &host.functions[number];
        function.origin == CodeOrigin::Kernel && RUNS_GUEST.contains(&function.name.as_str())
    };
    translated
        .map(|at| at + 1)
        .or_else(|| stack.last().is_some_and(runs).then_some(stack.len()))
}

/// The sample nearest to a time, and how far it is away.
fn nearest<'a>(samples: &[(u64, &'a Sample)], time: u64) -> Option<(u64, &'a Sample)> {
    let after = samples.partition_point(|(at, _)| *at < time);
    let around = [after.checked_sub(1), Some(after)].into_iter().flatten();
    let near = around
        .filter_map(|number| samples.get(number))
        .map(|&(at, sample)| (at.abs_diff(time), sample));
    near.min_by_key(|(distance, _)| *distance)
}

/// A profile with both sides' functions.
struct Both {
    profile: Profile,
    /// Where the guest's functions begin among the profile's.
    first: usize,
    /// The frame that stands for each of the guest's threads that were seen.
    tasks: HashMap<usize, usize>,
    known: HashMap<(usize, usize, usize), usize>,
}

impl Both {
    fn new(host: &Profile, guest: &Profile) -> Both {
        let mut profile = Profile {
            samples: Vec::new(),
            ..host.clone()
        };
        let first = profile.functions.len();
        profile.functions.extend(guest.functions.iter().cloned());
        let (mut tasks, mut named) = (HashMap::new(), HashMap::new());
        for sample in &guest.samples {
            let name = guest.threads[sample.thread].name.as_str();
            let task = *named.entry(name).or_insert_with(|| {
                let (name, module) = (format!("task {name}"), String::new());
                profile.functions.push(Function {
                    name,
                    module,
                    origin: CodeOrigin::GuestUser,
                    named: true,
                });
                profile.functions.len() - 1
            });
            tasks.insert(sample.thread, task);
        }
        Both {
            profile,
            first,
            tasks,
            known: HashMap::new(),
        }
    }

    /// The host's stack with the guest's, under its task, put in above its first `depth` frames.
    fn stack(
        &mut self,
        host: &Profile,
        guest: &Profile,
        stack: usize,
        depth: usize,
        seen: &Sample,
    ) -> usize {
        *self
            .known
            .entry((stack, seen.thread, seen.stack))
            .or_insert_with(|| {
                let (below, above) = host.stacks[stack].split_at(depth);
                let task = self.tasks.get(&seen.thread).copied();
                let guest = guest.stacks[seen.stack]
                    .iter()
                    .map(|number| self.first + number);
                let guest: Vec<usize> = task.into_iter().chain(guest).collect();
                self.profile.stacks.push([below, &guest, above].concat());
                self.profile.stacks.len() - 1
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flame::{fold, unfold};
    use proptest::prelude::*;
    use std::path::Path;
    use vmtax_model::samples::{CodeOrigin, Function, Profile, Sample, Thread, Unwound};
    use vmtax_model::{ClockReading, Ping, SCHEMA};

    fn guest() -> GuestProfile {
        let function = |name: &str, origin| Function {
            name: name.to_owned(),
            module: String::new(),
            origin,
            named: true,
        };
        let functions = vec![
            function("main", CodeOrigin::GuestUser),
            function("do_idle", CodeOrigin::GuestKernel),
        ];
        let sample = |stack, time| Sample {
            thread: 0,
            stack,
            time,
            weight: 1,
            cpu: 0,
        };
        let profile = Profile {
            functions,
            stacks: vec![vec![0], vec![0, 1]],
            threads: vec![Thread {
                tid: 7,
                name: "work".to_owned(),
            }],
            samples: vec![sample(0, 5), sample(1, 9)],
        };
        let beat = |ticks| ClockReading {
            ticks,
            monotonic_ns: ticks,
        };
        let (trigger, unwound) = ("cpu-clock".to_owned(), Unwound::default());
        GuestProfile {
            profile,
            hz: 99,
            trigger,
            unwound,
            lost: 0,
            beats: [beat(1), beat(2)],
        }
    }

    #[test]
    fn it_comes_back_as_it_went_and_numbers_that_lead_nowhere_do_not() {
        let good = guest();
        let text = serde_json::to_vec(&good).unwrap();
        assert_eq!(parse(&text), Ok(good.clone()));
        let breaks: [fn(&mut GuestProfile); 6] = [
            |g| g.beats[1] = g.beats[0],
            |g| g.profile.stacks[0][0] = 2,
            |g| g.profile.samples[1].stack = 2,
            |g| g.profile.samples[0].thread = 1,
            |g| g.profile.samples[0].weight = u64::MAX,
            |g| g.profile.functions[0].name = "x".repeat(GuestProfile::MAX_NAME + 1),
        ];
        for (number, breaks) in breaks.iter().enumerate() {
            let mut bad = good.clone();
            breaks(&mut bad);
            let text = serde_json::to_vec(&bad).unwrap();
            assert!(parse(&text).is_err(), "break {number}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_a_guest_sends_breaks_it(at in 0usize..600, byte: u8) {
            let mut text = serde_json::to_vec(&guest()).unwrap();
            let at = at % text.len();
            text[at] = byte;
            if let Ok(guest) = parse(&text) {
                crate::flame::fold(&guest.profile);
                prop_assert!(guest.profile.total() <= 2);
            }
        }
    }

    #[test]
    fn a_stamp_goes_through_both_counters() {
        // Both count 2 ticks a nanosecond; the host's counter is 1000 ahead, its clock began 7 µs earlier.
        let beat = |ticks, monotonic_ns| ClockReading {
            ticks,
            monotonic_ns,
        };
        let guest = [beat(2_000, 1_000), beat(202_000, 101_000)];
        let facts = InsideFacts {
            schema: SCHEMA,
            threads: Vec::new(),
            pings: vec![Ping {
                at: 3_000,
                low: 990,
                high: 1_010,
                exchanges: 9,
            }],
            kvm_offset: None,
            beats: [beat(3_000, 8_500), beat(203_000, 108_500)],
            missing: Vec::new(),
        };
        let clock = GuestClock::new(guest, &facts).unwrap();
        assert_eq!(clock.host(1_000), 8_500);
        assert_eq!(clock.host(51_000), 58_500);
        assert_eq!(clock.host(0), 7_500);
        // Clocks that stood still say when, not how fast.
        let point = |x, y| Point { x, y };
        assert_eq!(along(point(5, 9), point(5, 9), u64::MAX), 9);
        // What a guest sends may be anything.
        along(point(1, u64::MAX), point(0, 0), u64::MAX);
    }

    #[test]
    fn each_moment_has_the_stack_that_the_guest_saw_then() {
        let text = "CPU 0/TCG;cpu_exec;[translated code]_[j] 1\nCPU 0/TCG;cpu_exec;[translated code]_[j];helper_rdtsc 1\n\
                    CPU 0/TCG;cpu_exec;tb_gen_code 1\nqemu;[translated code]_[j] 1\n";
        let mut host = unfold(text, Path::new("host")).unwrap();
        for (number, thread) in host.threads.iter_mut().enumerate() {
            thread.tid = 10 + number as i32;
        }
        for (number, sample) in host.samples.iter_mut().enumerate() {
            sample.time = 100_000_000 * (1 + number as u64);
        }
        let mut guest = unfold(
            "dd;main;copy 1\nkworker;process_one_work 1\n",
            Path::new("guest"),
        )
        .unwrap();
        // One a little after the first of the host's, the other far from the second.
        guest.samples[0].time = 101_000_000;
        guest.samples[1].time = 290_000_000;
        let threads = [
            QemuThread {
                tid: 10,
                role: Role::Vcpu(0),
            },
            QemuThread {
                tid: 11,
                role: Role::Main,
            },
        ];

        let joined = join(&host, &guest, 100, &threads);
        assert_eq!(
            (joined.in_guest, joined.joined, joined.apart_ns),
            (2, 1, 1_000_000)
        );
        let expected = [
            "CPU 0/TCG;cpu_exec;[translated code]_[j];helper_rdtsc 1",
            "CPU 0/TCG;cpu_exec;[translated code]_[j];task dd_[g];main;copy 1",
            "CPU 0/TCG;cpu_exec;tb_gen_code 1",
            "qemu;[translated code]_[j] 1",
        ];
        assert_eq!(fold(&joined.profile), expected);

        // The helper that the guest's code called stands above it; another CPU's samples are not taken.
        guest.samples[1].time = 205_000_000;
        let line = "CPU 0/TCG;cpu_exec;[translated code]_[j];task kworker_[g];process_one_work;helper_rdtsc 1";
        let lines = |guest: &Profile| fold(&join(&host, guest, 100, &threads).profile);
        assert!(
            lines(&guest).iter().any(|l| l == line),
            "{:?}",
            lines(&guest)
        );
        guest.samples[1].cpu = 1;
        assert!(!lines(&guest).iter().any(|l| l == line));
    }

    #[test]
    fn under_kvm_the_guest_is_on_top_of_what_enters_it() {
        let text = "CPU 0/KVM;main;kvm_arch_vcpu_ioctl_run_[k];vmx_vcpu_run_[k] 1\nCPU 0/KVM;main;vmx_vcpu_run_[k];vmx_handle_exit_[k] 1\n";
        let mut host = unfold(text, Path::new("host")).unwrap();
        host.threads[0].tid = 10;
        let guest = unfold("dd;copy 1\n", Path::new("guest")).unwrap();
        let joined = join(
            &host,
            &guest,
            100,
            &[QemuThread {
                tid: 10,
                role: Role::Vcpu(0),
            }],
        );
        assert_eq!((joined.in_guest, joined.joined), (1, 1));
        assert!(
            fold(&joined.profile)[0].ends_with("vmx_vcpu_run_[k];task dd_[g];copy 1"),
            "{:?}",
            fold(&joined.profile)
        );
    }
}
