//! Classifies KVM by running code on it.

use crate::CheckResult;
use crate::cpu;
use crate::micro_vm::{Loop, Ring, native_rate, rate};
use crate::raw;
use kvm_ioctls::{Cap, Kvm};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;
use vmtax_model::{Check, CpuFacts, HostProblem, KvmClass, KvmFacts};

/// The only version of the interface there has been since 2007.
const API_VERSION: i32 = 12;
/// The probe takes 0.2 s, on a loaded host up to 2 s, in an emulated one more; a KVM that takes longer is stuck where no signal
/// reaches it.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);
/// The part of the rate at which this CPU counts natively, above which code runs by itself and is not interpreted. An emulating KVM
/// has a thousandth; the load/store loop has more work per iteration. A ratio, since a host may be slow itself.
const MIN_COUNT_RATIO: f64 = 0.05;
const MIN_LOAD_STORE_RATIO: f64 = 0.02;
/// Overrides the class that the probe finds: a name of [`KvmClass`] as in JSON.
const CLASS_VARIABLE: &str = "VMTAX_KVM_CLASS";

/// Iterations per second of each loop, or how it failed.
struct Rates {
    /// The rate of this CPU, without KVM.
    native_count: f64,
    kernel_count: Result<f64, String>,
    kernel_load_store: Result<f64, String>,
    kernel_sse2: Result<f64, String>,
    user_count: Result<f64, String>,
}

/// Finds out what `/dev/kvm` is good for, by running four endless loops of 30 ms on it. Ends in any case after 20 s.
/// `VMTAX_KVM_CLASS` overrides what is found.
///
/// The work is done in a thread of its own with all signals blocked, so no signal handler is installed or run, and the
/// caller's threads are left as they are. Only if KVM itself hangs in the kernel does that thread outlive the call.
pub fn kvm() -> KvmFacts {
    let facts = probed();
    let Ok(name) = std::env::var(CLASS_VARIABLE) else {
        return facts;
    };
    let (class, said) = match name.parse() {
        Ok(class) => (class, format!("as {CLASS_VARIABLE} says")),
        Err(_) => (facts.class, format!("{CLASS_VARIABLE}={name} is no class")),
    };
    KvmFacts {
        class,
        evidence: format!("{said}; {}", facts.evidence),
    }
}

fn probed() -> KvmFacts {
    let (answer, wait) = mpsc::channel();
    let started = std::thread::Builder::new()
        .name("kvm-probe".into())
        .spawn(move || {
            // Nobody listens any more once the limit is over.
            let _ = answer.send(probe());
        });
    match started.map(|thread| (wait.recv_timeout(PROBE_TIMEOUT), thread)) {
        Ok((Ok(facts), thread)) => {
            // It has answered, so it is about to end; its machine is gone when it has.
            let _ = thread.join();
            facts
        }
        Ok((Err(_), _)) => broken(format!(
            "a guest did not stop within {} ms",
            PROBE_TIMEOUT.as_millis()
        )),
        Err(error) => broken(format!("starting a thread for the probe: {error}")),
    }
}

/// A KVM of no use, for this reason.
pub(crate) fn broken(evidence: String) -> KvmFacts {
    KvmFacts {
        class: KvmClass::Broken,
        evidence,
    }
}

fn probe() -> KvmFacts {
    let kvm = match Kvm::new() {
        Ok(kvm) => kvm,
        Err(error) => return not_opened(error.errno()),
    };
    let version = kvm.get_api_version();
    if version != API_VERSION {
        return broken(format!(
            "/dev/kvm has API version {version} instead of {API_VERSION}"
        ));
    }
    if !kvm.check_extension(Cap::UserMemory) {
        return broken("/dev/kvm has no KVM_CAP_USER_MEMORY".into());
    }
    if let Err(error) = raw::block_signals() {
        return broken(format!("blocking signals in the probe's thread: {error}"));
    }
    classify(
        &Rates {
            native_count: native_rate(),
            kernel_count: rate(&kvm, Ring::Kernel, Loop::Count),
            kernel_load_store: rate(&kvm, Ring::Kernel, Loop::LoadStore),
            kernel_sse2: rate(&kvm, Ring::Kernel, Loop::Sse2),
            user_count: rate(&kvm, Ring::User, Loop::Count),
        },
        module(),
    )
}

/// `/dev/kvm` could not be opened.
fn not_opened(errno: i32) -> KvmFacts {
    let error = std::io::Error::from_raw_os_error(errno);
    let class = match errno {
        libc::EACCES | libc::EPERM => KvmClass::NoPermission,
        libc::ENOENT | libc::ENODEV | libc::ENXIO => KvmClass::Absent,
        _ => KvmClass::Broken,
    };
    KvmFacts {
        class,
        evidence: format!("/dev/kvm: {error}"),
    }
}

/// Returns true if this host's KVM loses a breakpoint's exception (int3) that is on its way into a guest when somebody
/// reads that CPU's registers, as QEMU's monitor does. Observed with kvm_pvm of Linux 6.18; where the CPU itself
/// delivers exceptions, the instruction is executed again.
pub fn kvm_forgets_breakpoints() -> bool {
    // Beside it, kvm_intel can be built in and unused.
    Path::new("/sys/module/kvm_pvm").is_dir()
}

/// The kernel module behind `/dev/kvm`: a label, not a test, since a module can be built in.
fn module() -> Option<&'static str> {
    ["kvm_intel", "kvm_amd", "kvm_pvm"]
        .into_iter()
        .find(|name| Path::new("/sys/module").join(name).is_dir())
}

/// The verdict. A kernel needs all three of its loops: some KVMs count at CPL 0 but cannot run SSE there.
fn classify(rates: &Rates, module: Option<&str>) -> KvmFacts {
    let above = |rate: &Result<f64, String>, ratio: f64| {
        rate.as_ref().is_ok_and(|r| *r > ratio * rates.native_count)
    };
    let class = if above(&rates.kernel_count, MIN_COUNT_RATIO)
        && above(&rates.kernel_load_store, MIN_LOAD_STORE_RATIO)
        && above(&rates.kernel_sse2, MIN_LOAD_STORE_RATIO)
    {
        KvmClass::Hardware
    } else if rates.kernel_count.is_ok() && above(&rates.user_count, MIN_COUNT_RATIO) {
        KvmClass::EmulatesKernels
    } else {
        KvmClass::Broken
    };
    let shown = |rate: &Result<f64, String>| match rate {
        Ok(rate) => format!("{rate:.1e}"),
        Err(error) => format!("failed ({error})"),
    };
    let module = module.map_or(String::new(), |module| format!(" ({module})"));
    let evidence = format!(
        "loop iterations/s in kernel mode: {} counting, {} load/store, {} SSE2; in user mode: {} counting; \
         natively: {:.1e}{module}",
        shown(&rates.kernel_count),
        shown(&rates.kernel_load_store),
        shown(&rates.kernel_sse2),
        shown(&rates.user_count),
        rates.native_count
    );
    KvmFacts { class, evidence }
}

/// The check of KVM. `device_group` is the group that owns `/dev/kvm`.
pub(crate) fn check(facts: &KvmFacts, cpu: &CpuFacts, device_group: Option<u32>) -> Check {
    let found = |verdict: &str| format!("{verdict}: {}", facts.evidence);
    let verdict = match facts.class {
        KvmClass::Hardware => CheckResult::ok(found("runs kernels at full speed")),
        KvmClass::EmulatesKernels => CheckResult::limited(
            found("runs user mode at full speed but emulates kernel mode"),
            HostProblem::KvmEmulatesKernels,
        ),
        KvmClass::Broken => CheckResult::limited(
            found("opens but does not run code correctly"),
            HostProblem::KvmBroken,
        ),
        KvmClass::NoPermission => {
            let problem = match device_group {
                Some(1..) => HostProblem::KvmNotPermitted,
                _ => HostProblem::KvmGroupMissing,
            };
            CheckResult::limited(found("this user may not open it"), problem)
        }
        KvmClass::Absent => {
            let problem = match cpu.virtualisation.as_deref() {
                Some("vmx") => HostProblem::KvmIntelNotLoaded,
                Some(_) => HostProblem::KvmAmdNotLoaded,
                None => cpu::without_virtualization(cpu),
            };
            CheckResult::missing(found("there is no /dev/kvm"), problem)
        }
    };
    let why = "without KVM at full speed, guests run under TCG, which is several times slower";
    verdict.about("kvm", "KVM", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(count: f64, load_store: f64, sse2: Result<f64, String>, user: f64) -> Rates {
        Rates {
            native_count: 1.2e9,
            kernel_count: Ok(count),
            kernel_load_store: Ok(load_store),
            kernel_sse2: sse2,
            user_count: Ok(user),
        }
    }

    #[test]
    fn three_classes_of_kvm_are_distinguished() {
        let died = || Err("KVM_RUN ended with InternalError".to_owned());
        let cases = [
            (rates(1.1e9, 6e8, Ok(9e8), 1.1e9), KvmClass::Hardware),
            (
                rates(8.0e5, 2.4e5, died(), 1.7e9),
                KvmClass::EmulatesKernels,
            ),
            (rates(1.1e9, 6e8, died(), 1.1e9), KvmClass::EmulatesKernels),
            (rates(1.1e9, 1e6, Ok(9e8), 1.1e9), KvmClass::EmulatesKernels),
            (rates(8.0e5, 2.4e5, died(), 7e5), KvmClass::Broken),
            (
                Rates {
                    kernel_count: died(),
                    ..rates(0.0, 1e9, Ok(1e9), 1e9)
                },
                KvmClass::Broken,
            ),
            // A host that is emulated itself, as slow as it is.
            (
                Rates {
                    native_count: 4e7,
                    ..rates(3e7, 8e6, Ok(5e6), 3e7)
                },
                KvmClass::Hardware,
            ),
            (
                Rates {
                    native_count: 4e7,
                    ..rates(3e4, 8e3, died(), 3e7)
                },
                KvmClass::EmulatesKernels,
            ),
        ];
        for (rates, class) in cases {
            let facts = classify(&rates, Some("kvm_x"));
            assert_eq!(facts.class, class, "{}", facts.evidence);
            assert!(facts.evidence.ends_with("(kvm_x)"));
        }
    }

    #[test]
    fn a_device_that_does_not_open_says_which_way() {
        assert_eq!(not_opened(libc::EACCES).class, KvmClass::NoPermission);
        assert_eq!(not_opened(libc::ENOENT).class, KvmClass::Absent);
        assert_eq!(not_opened(libc::ENODEV).class, KvmClass::Absent);
        assert_eq!(not_opened(libc::EBUSY).class, KvmClass::Broken);
    }

    #[test]
    fn the_problem_is_the_machines() {
        let problem_for = |class, flag: Option<&str>, group| {
            let cpu = CpuFacts {
                virtualisation: flag.map(str::to_owned),
                ..cpu::collect()
            };
            check(
                &KvmFacts {
                    class,
                    evidence: String::new(),
                },
                &cpu,
                group,
            )
            .problem
        };
        assert_eq!(
            problem_for(KvmClass::Absent, Some("svm"), None),
            Some(HostProblem::KvmAmdNotLoaded)
        );
        assert_eq!(
            problem_for(KvmClass::Absent, None, None),
            Some(cpu::without_virtualization(&cpu::collect()))
        );
        assert_eq!(
            problem_for(KvmClass::NoPermission, None, Some(106)),
            Some(HostProblem::KvmNotPermitted)
        );
        assert_eq!(
            problem_for(KvmClass::NoPermission, None, Some(0)),
            Some(HostProblem::KvmGroupMissing)
        );
        assert_eq!(
            problem_for(KvmClass::Hardware, Some("vmx"), Some(106)),
            None
        );
    }

    /// Signals of this process that are caught or ignored, as the kernel shows them.
    fn handlers() -> String {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        status
            .lines()
            .filter(|l| l.starts_with("SigCgt") || l.starts_with("SigIgn"))
            .collect()
    }

    /// The KVM probe answers; `tests/kvm_leaks.rs` checks in a process of its own that it does so in time and leaves
    /// nothing.
    #[test]
    fn answers_and_leaves_handlers_alone() {
        let before = handlers();
        assert!(!kvm().evidence.is_empty());
        assert_eq!(handlers(), before);
    }
}
