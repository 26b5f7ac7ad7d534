//! System calls of different kernels, where the same kernel could have been compared.

use crate::{Finding, Rule};
use vmtax_model::{
    ChangeCost, KernelFacts, Machine, Remedy, SettingPlace, SourceOfKernel, WorkloadName,
};

pub(super) const HOST_KERNEL: Remedy<&str> = Remedy {
    place: SettingPlace::Vmtax,
    setting: "kernel",
    value: "IMAGE",
    action: "Boot the guest with the host's own kernel, so that differences in system calls are due to virtualization only",
    line: "--kernel IMAGE",
    cost: Some(ChangeCost::Measurement),
    read_back: "uname -r in the guest",
    undo: "leave --kernel out",
};

pub(super) const OTHER_GUEST_KERNEL: Rule = Rule {
    id: "other-guest-kernel",
    finds: "system calls compared between different kernels of host and guest, although the host's own can boot",
    remedies: &[HOST_KERNEL],
    source: "",
    evaluate: |evidence| {
        let (Some(plan), Some(host), Some(overhead)) =
            (evidence.plan, evidence.host, evidence.overhead)
        else {
            return Vec::new();
        };
        let release = |machine| {
            let mut kernels = overhead.kernels.iter();
            let (_, kernel) = kernels.find(|(of, _)| *of == machine)?;
            Some(&kernel.release)
        };
        let native = release(Machine::NATIVE).unwrap_or(&host.kernel);
        let differs = |machine| release(machine).is_some_and(|guest| guest != native);
        let mut workloads = plan.workloads.iter();
        let applies =
            workloads.any(|w| w.name == WorkloadName::Syscalls) && evidence.guests().any(differs);
        let own = host
            .kernels
            .iter()
            .find(|k| k.release == host.kernel && k.source == SourceOfKernel::Running);
        let finding = |own: &KernelFacts| {
            let text =
                "Host and guest ran different kernels, and the host's own kernel is available.";
            Finding {
                values: vec![("IMAGE", own.image.display().to_string())],
                ..Finding::new(text.to_owned())
            }
        };
        own.filter(|_| applies).map(finding).into_iter().collect()
    },
};

#[cfg(test)]
mod tests {
    use crate::test_evidence::{Overheads, advice};
    use vmtax_model::{KernelFacts, Machine, Metric, SourceOfKernel};

    fn with_kernel(release: &str, source: SourceOfKernel) -> Vec<vmtax_findings::Advice> {
        let mut overheads =
            Overheads::new(Machine::KVM, &[(Metric::SyscallGetpid, 2.0)]).kernels("6.1", "6.12");
        let image = format!("/boot/vmlinuz-{release}").into();
        overheads.host.kernel = "6.1".into();
        overheads.host.kernels = vec![KernelFacts {
            image,
            modules: None,
            release: release.into(),
            source,
        }];
        advice("other-guest-kernel", &overheads.evidence())
    }

    #[test]
    fn the_hosts_own_kernel_is_the_remedy() {
        let found = with_kernel("6.1", SourceOfKernel::Running);
        assert_eq!(
            (&*found[0].remedies[0].setting, &*found[0].remedies[0].value),
            ("kernel", "/boot/vmlinuz-6.1")
        );
    }

    #[test]
    fn other_kernels_and_the_same_kernel_are_no_findings() {
        assert_eq!(with_kernel("6.12", SourceOfKernel::Cache), []);
        assert_eq!(with_kernel("5.10", SourceOfKernel::Running), []);
        let overheads = Overheads::new(Machine::KVM, &[(Metric::SyscallGetpid, 2.0)]);
        assert_eq!(advice("other-guest-kernel", &overheads.evidence()), []);
    }
}
