//! One picture: the guest's stack on top of the vCPU's thread that ran it.

use std::collections::HashMap;
use vmtax_model::samples::{CodeOrigin, Function, Profile, Sample};
use vmtax_model::{QemuThread, Role};

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
    let vcpu = |tid: i32| {
        let thread = threads.iter().find(|thread| thread.tid == tid)?;
        if let Role::Vcpu(number) = thread.role {
            Some(number)
        } else {
            None
        }
    };
    let vcpus: Vec<Option<u32>> = host.threads.iter().map(|thread| vcpu(thread.tid)).collect();
    let mut by_cpu: HashMap<u32, Vec<(u64, &Sample)>> = HashMap::new();
    for sample in &guest.samples {
        by_cpu
            .entry(sample.cpu)
            .or_default()
            .push((sample.time, sample));
    }
    by_cpu
        .values_mut()
        .for_each(|samples| samples.sort_by_key(|(time, _)| *time));
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
    use crate::fold::{fold, unfold};
    use std::path::Path;

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
