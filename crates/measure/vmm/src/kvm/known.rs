//! The VMMs beside QEMU that are told from others, one entry each: the names of the program, of the library, of the threads. All of
//! them are the program's choice: they say what a thread is for, never whether a process runs a guest.

use super::holders::maps_of_vm;
use super::vcpu_threads::{VcpuDescriptors, vcpu_threads};
use crate::qemu::arguments::Arguments;
use crate::qemu::attach::binary;
use vmtax_model::{QemuThread, Role, RoleSource, Vmm};
use vmtax_observe::thread_names;

/// Marks of a VMM.
struct KnownVmm {
    vmm: Vmm,
    /// Beginnings of the names that its program's file has: releases append a version.
    programs: &'static [&'static str],
    /// Beginning of the name of the library's file, where it is one.
    library: Option<&'static str>,
    /// Beginnings of the name that its process gives itself.
    process_names: &'static [&'static str],
    /// Name of a vCPU's thread before the vCPU's number.
    vcpu: &'static str,
    /// Beginnings of the names of threads that serve devices.
    devices: &'static [&'static str],
    /// Options with the VM's name.
    name_options: &'static [&'static str],
}

/// Firecracker: `fc_vcpu 0`, `fc_api`; the thread of the process serves the devices. Names from its source
/// (`src/vmm/src/vstate/vcpu.rs`, `src/firecracker/src/api_server_adapter.rs`).
const FIRECRACKER: KnownVmm = KnownVmm {
    vmm: Vmm::Firecracker,
    programs: &["firecracker"],
    library: None,
    process_names: &[],
    vcpu: "fc_vcpu ",
    devices: &[],
    name_options: &["--id"],
};

/// Cloud Hypervisor: `vcpu0`, `vmm`, `_disk0_q0`. Names from its source (`vmm/src/cpu.rs`, `vmm/src/device_manager.rs`,
/// `virtio-devices/src/block.rs`).
const CLOUD_HYPERVISOR: KnownVmm = KnownVmm {
    vmm: Vmm::CloudHypervisor,
    programs: &["cloud-hypervisor"],
    library: None,
    process_names: &[],
    vcpu: "vcpu",
    devices: &[
        "_disk",
        "_fs",
        "_net",
        "_pmem",
        "_vsock",
        "_console",
        "__console",
    ],
    name_options: &[],
};

/// libkrun: `fc_vcpu 0` (its code began as Firecracker's), `block worker`. Its process calls itself `libkrun VM`, or `VM:` and the
/// value of HOSTNAME. Seen of `msb` 0.7.11; other names from its source (`src/libkrun/src/lib.rs`).
const LIBKRUN: KnownVmm = KnownVmm {
    vmm: Vmm::Libkrun,
    programs: &["krunvm", "krunkit", "msb", "muvm"],
    library: Some("libkrun.so"),
    process_names: &["libkrun VM", "VM:"],
    vcpu: "fc_vcpu ",
    devices: &[
        "block worker",
        "virtio-blk",
        "fs worker",
        "virtio-net",
        "console port",
    ],
    name_options: &["--name"],
};

/// crosvm: `crosvm_vcpu0`. Its devices are processes of their own, unless its sandbox is off. Names from its source
/// (`src/crosvm/sys/linux/vcpu.rs`).
const CROSVM: KnownVmm = KnownVmm {
    vmm: Vmm::Crosvm,
    programs: &["crosvm"],
    library: None,
    process_names: &[],
    vcpu: "crosvm_vcpu",
    devices: &[],
    name_options: &["--name"],
};

/// kvmtool: `kvm-vcpu-0`, `virtio-blk-io`. Names from its source (`builtin-run.c`, `virtio/blk.c`, `virtio/net.c`, `disk/aio.c`).
const KVMTOOL: KnownVmm = KnownVmm {
    vmm: Vmm::Kvmtool,
    programs: &["lkvm"],
    library: None,
    process_names: &[],
    vcpu: "kvm-vcpu-",
    devices: &["virtio-blk-io", "disk-image-io", "virtio-net-"],
    name_options: &["--name"],
};

const ALL: [&KnownVmm; 5] = [&FIRECRACKER, &CLOUD_HYPERVISOR, &LIBKRUN, &CROSVM, &KVMTOOL];

impl KnownVmm {
    fn of(vmm: Vmm) -> Option<&'static KnownVmm> {
        ALL.into_iter().find(|known| known.vmm == vmm)
    }

    /// The role of a thread by its name.
    fn role(&self, name: &str) -> Option<Role> {
        let number = name.strip_prefix(self.vcpu).map(str::parse);
        if let Some(Ok(number)) = number {
            return Some(Role::Vcpu(number));
        }
        let is_device = self.devices.iter().any(|begin| name.starts_with(begin));
        is_device.then(|| Role::Iothread(name.to_owned()))
    }

    fn is(&self, program: &str, process_name: &str, maps: &str) -> bool {
        let begins = |name: &str, all: &[&str]| all.iter().any(|begin| name.starts_with(begin));
        let mapped = || maps.lines().filter_map(|line| line.rsplit_once('/'));
        begins(program, self.programs)
            || begins(process_name, self.process_names)
            || self
                .library
                .is_some_and(|library| mapped().any(|(_, file)| file.starts_with(library)))
    }
}

/// The VMM beside QEMU that a process is; `None` where the process runs no guest of KVM, or its descriptors may not be read, and for
/// vmtax, which runs guests of a moment to check KVM.
pub(crate) fn recognize(pid: i32) -> Option<Vmm> {
    let maps = maps_of_vm(pid)?;
    let program = binary(pid).unwrap_or_default();
    let is_own = std::env::current_exe().is_ok_and(|own| own == program);
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    (!is_own).then(|| vmm_of(&name, &process_name(pid), &maps))
}

/// The VMM by the names of its program's file and of its process, and the libraries among its mappings.
fn vmm_of(program: &str, process_name: &str, maps: &str) -> Vmm {
    let mut all = ALL.into_iter();
    let known = all.find(|known| known.is(program, process_name, maps));
    known.map_or(Vmm::Unknown, |known| known.vmm)
}

/// The name that a process gave itself.
fn process_name(pid: i32) -> String {
    let name = vmtax_observe::proc_text(format!("/proc/{pid}/comm"));
    name.unwrap_or_default().trim_end().to_owned()
}

/// The VM's name by its VMM's command line, or by the name of libkrun's process.
pub(crate) fn name(pid: i32, vmm: Vmm) -> Option<String> {
    let known = KnownVmm::of(vmm)?;
    let of_process = process_name(pid);
    let of_process = of_process
        .strip_prefix("VM:")
        .filter(|_| vmm == Vmm::Libkrun);
    let given = value_of(&Arguments::of(pid), known.name_options);
    given.or(of_process.map(str::to_owned))
}

/// The value of the first of these options, as its next word or behind a "=".
fn value_of(arguments: &Arguments, options: &[&str]) -> Option<String> {
    let mut words = arguments.all();
    let mut value = None;
    while let Some(word) = words.next().filter(|_| value.is_none()) {
        let (option, behind) = match word.split_once('=') {
            Some((option, behind)) => (option, Some(behind)),
            None => (word, None),
        };
        if options.contains(&option) {
            value = behind.or_else(|| words.next());
        }
    }
    value.filter(|value| !value.is_empty()).map(str::to_owned)
}

/// The threads of a process with their roles, by number, and where the roles of vCPUs are known from: the VMM's names of them,
/// else what they do.
pub(crate) fn roles(pid: i32, vmm: Vmm, vcpus: &VcpuDescriptors) -> (RoleSource, Vec<QemuThread>) {
    let tasks = thread_names(pid);
    let known = KnownVmm::of(vmm);
    let by_name = |name: &str| known.and_then(|known| known.role(name));
    let are_named = tasks
        .iter()
        .any(|(_, name)| matches!(by_name(name), Some(Role::Vcpu(_))));
    let tids: Vec<i32> = tasks.iter().map(|(tid, _)| *tid).collect();
    let (source, running) = match are_named {
        true => (RoleSource::Names, Default::default()),
        false => vcpu_threads(pid, &tids, vcpus),
    };
    let thread = |(tid, name): (i32, String)| {
        let role = match (running.get(&tid), by_name(&name)) {
            (Some(number), _) => Role::Vcpu(*number),
            (None, Some(role)) => role,
            (None, None) if tid == pid => Role::Main,
            (None, None) => of_kernel(&name).unwrap_or(Role::Other(name)),
        };
        QemuThread { tid, role }
    };
    (source, tasks.into_iter().map(thread).collect())
}

/// The role of a thread that the host's kernel started in the process.
fn of_kernel(name: &str) -> Option<Role> {
    Some(Role::of_thread_name(name)).filter(|role| *role == Role::Vhost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_vmm_is_known_by_its_program_its_library_or_its_name() {
        let cases = [
            (
                "firecracker-v1.12.0-x86_64",
                "firecracker",
                "",
                Vmm::Firecracker,
            ),
            (
                "cloud-hypervisor-static",
                "cloud-hyperviso",
                "",
                Vmm::CloudHypervisor,
            ),
            ("crosvm", "crosvm", "", Vmm::Crosvm),
            ("lkvm-static", "lkvm-static", "", Vmm::Kvmtool),
            ("msb", "libkrun VM", "", Vmm::Libkrun),
            ("launcher", "VM:web01", "", Vmm::Libkrun),
            (
                "crun",
                "crun",
                "7f0-7f1 r-xp 0 fe:00 12 /usr/lib64/libkrun.so.1.17.0\n",
                Vmm::Libkrun,
            ),
            (
                "python3.13",
                "python3",
                "7f0-7f1 r-xp 0 fe:00 12 /lib/libc.so.6\n",
                Vmm::Unknown,
            ),
            ("", "", "", Vmm::Unknown),
        ];
        for (program, process, maps, vmm) in cases {
            assert_eq!(vmm_of(program, process, maps), vmm, "{program} {process}");
        }
    }

    #[test]
    fn roles_are_those_of_the_names_that_a_vmm_gives() {
        let role = |vmm: Vmm, name: &str| KnownVmm::of(vmm).and_then(|known| known.role(name));
        let vcpus = [
            (Vmm::Firecracker, "fc_vcpu 3"),
            (Vmm::CloudHypervisor, "vcpu3"),
            (Vmm::Libkrun, "fc_vcpu 3"),
            (Vmm::Crosvm, "crosvm_vcpu3"),
            (Vmm::Kvmtool, "kvm-vcpu-3"),
        ];
        for (vmm, name) in vcpus {
            assert_eq!(role(vmm, name), Some(Role::Vcpu(3)), "{name}");
        }
        let disk = Role::Iothread("_disk0_q0".to_owned());
        assert_eq!(role(Vmm::CloudHypervisor, "_disk0_q0"), Some(disk));
        for (vmm, name) in [
            (Vmm::Firecracker, "fc_api"),
            (Vmm::Firecracker, "fc_vcpu x"),
            (Vmm::CloudHypervisor, "vmm"),
            (Vmm::Unknown, "vcpu0"),
        ] {
            assert_eq!(role(vmm, name), None, "{name}");
        }
    }

    #[test]
    fn a_name_is_the_value_of_its_option() {
        let name = |line: &str| value_of(&Arguments::from_line(line), &["--id", "-n"]);
        assert_eq!(
            name("firecracker --id web01 --no-api").as_deref(),
            Some("web01")
        );
        assert_eq!(name("lkvm run --id=web01").as_deref(), Some("web01"));
        assert_eq!(name("lkvm run -n db -n other").as_deref(), Some("db"));
        for line in [
            "firecracker",
            "firecracker --id",
            "firecracker --id=",
            "a --identity b",
        ] {
            assert_eq!(name(line), None, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_names_are_survived(program in ".{0,20}", process in ".{0,20}", maps in ".{0,80}", thread in "[a-z_ -]{0,12}[0-9]{0,12}") {
            let vmm = vmm_of(&program, &process, &maps);
            let _ = KnownVmm::of(vmm).and_then(|known| known.role(&thread));
        }
    }
}
