//! Processes that run a guest of KVM: those that hold descriptors of a VM and of vCPUs, map the vCPUs' memory, and did not get them
//! by a fork. Descriptors that were passed to another process make no VM of it: KVM runs a vCPU for the process that made the VM alone.

use super::vcpu_threads::{VcpuDescriptors, runs_vcpu};
use procfs::process::Process;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// Beginning of the name of a vCPU's descriptor, before the vCPU's number.
const VCPU: &str = "anon_inode:kvm-vcpu:";
/// Name of a VM's descriptor.
const VM: &str = "anon_inode:kvm-vm";
/// More descriptors of one process than this are not read.
const MAX_DESCRIPTORS: usize = 1 << 16;
/// A writable mapping from this size on is counted as the guest's memory: heaps of VMMs are smaller.
const MIN_MEMORY: u64 = 64 << 20;

/// The descriptors of KVM's that a process holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct KvmDescriptors {
    vms: Vec<i32>,
    vcpus: VcpuDescriptors,
}

impl KvmDescriptors {
    /// Returns the descriptors of a process; none where they may not be read.
    fn of(pid: i32) -> KvmDescriptors {
        let entries = fs::read_dir(format!("/proc/{pid}/fd"));
        let links = entries
            .into_iter()
            .flatten()
            .flatten()
            .take(MAX_DESCRIPTORS);
        let mut found = KvmDescriptors::default();
        for entry in links {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            if let (Some(fd), Ok(link)) = (number, fs::read_link(entry.path())) {
                found.add(fd, link.as_os_str().as_bytes());
            }
        }
        found
    }

    fn add(&mut self, fd: i32, link: &[u8]) {
        if link == VM.as_bytes() {
            self.vms.push(fd);
        } else if let Some(number) = vcpu_number(link) {
            self.vcpus.insert(fd, number);
        }
    }

    fn are_of_vm(&self) -> bool {
        !self.vms.is_empty() && !self.vcpus.is_empty()
    }
}

/// The number of the vCPU that the name of a descriptor has.
pub(crate) fn vcpu_number(link: &[u8]) -> Option<u32> {
    let number = link.strip_prefix(VCPU.as_bytes())?;
    let is_number = number.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(number)
        .ok()
        .filter(|_| is_number)?
        .parse()
        .ok()
}

/// The mappings of a process that runs a guest of KVM, as the kernel lists them; `None` for any other process. One whose descriptors may
/// not be read runs none, as far as is known.
pub(crate) fn maps_of_vm(pid: i32) -> Option<String> {
    let held = Some(KvmDescriptors::of(pid)).filter(KvmDescriptors::are_of_vm)?;
    let maps = Some(maps(pid)).filter(|maps| maps_vcpu(maps))?;
    (!is_forked_copy(pid, &held)).then_some(maps)
}

/// The kernel's list of a process's mappings; empty where it may not be read.
pub(crate) fn maps(pid: i32) -> String {
    fs::read(format!("/proc/{pid}/maps"))
        .map(|maps| String::from_utf8_lossy(&maps).into_owned())
        .unwrap_or_default()
}

/// Returns true if a mapping is the memory that KVM shares with whoever runs a vCPU.
pub(crate) fn maps_vcpu(maps: &str) -> bool {
    maps.lines()
        .filter_map(path_of_mapping)
        .any(|path| vcpu_number(path.as_bytes()).is_some())
}

/// Returns true if a process has all of KVM's descriptors by the numbers that its parent has them by, and no thread of it ever ran a
/// vCPU: a child that has not yet executed another program.
fn is_forked_copy(pid: i32, held: &KvmDescriptors) -> bool {
    let parent = Process::new(pid).and_then(|process| process.stat());
    let is_held_by_parent = parent.is_ok_and(|stat| KvmDescriptors::of(stat.ppid) == *held);
    is_held_by_parent && !runs_vcpu(pid, &held.vcpus)
}

/// The guest's memory by the mappings of its VMM, bytes: all writable ones of 64 MiB and more, or the largest where none is so large.
/// An estimate: nothing shows to others which of them KVM uses.
pub(crate) fn guest_memory(maps: &str) -> u64 {
    let sizes = guest_mappings(maps).into_iter().map(|(_, size)| size);
    sizes.fold(0, u64::saturating_add)
}

/// The mappings that are counted as the guest's memory: begin and size of each, bytes.
pub(crate) fn guest_mappings(maps: &str) -> Vec<(u64, u64)> {
    let all = || maps.lines().filter_map(writable);
    let large: Vec<(u64, u64)> = all().filter(|(_, size)| *size >= MIN_MEMORY).collect();
    match large.is_empty() {
        true => all().max_by_key(|(_, size)| *size).into_iter().collect(),
        false => large,
    }
}

/// The mappings of a VMM's own data: private, writable, and none of the guest's.
pub(crate) fn own_mappings(maps: &str) -> Vec<(u64, u64)> {
    let guest = guest_mappings(maps);
    let is_of_guest = |mapping: &(u64, u64)| {
        let mut all = guest.iter();
        all.any(|(start, size)| mapping.0 >= *start && mapping.0 - start < *size)
    };
    let private = maps.lines().filter(|line| line.contains(" rw-p "));
    private
        .filter_map(writable)
        .filter(|mapping| !is_of_guest(mapping))
        .collect()
}

/// Begin and size of a mapping that is read and written, and not executed.
fn writable(line: &str) -> Option<(u64, u64)> {
    let (range, rest) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    let address = |hex: &str| u64::from_str_radix(hex, 16).ok();
    let from = address(from)?;
    let size = address(to)?.checked_sub(from)?;
    rest.starts_with("rw-").then_some((from, size))
}

/// The name in a line of mappings: what follows five columns, and may have blanks.
fn path_of_mapping(line: &str) -> Option<&str> {
    let mut rest = line;
    for _ in 0..5 {
        rest = rest.trim_start_matches(' ').split_once(' ')?.1;
    }
    Some(rest.trim_start_matches(' ')).filter(|path| !path.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPS: &str = "\
55bfb7000000-55bfb7400000 rw-p 00000000 00:00 0                          [heap]
7f75c0000000-7f75e0000000 rw-p 00000000 00:00 0 
7f75d0000000-7f75f8000000 rw-s 00000000 00:01 17                         /memfd:guest ram (deleted)
7f75f8000000-7f7610000000 ---p 00000000 00:00 0 
7f75d7ac4000-7f75d7ac7000 rw-s 00000000 00:10 1038                       anon_inode:kvm-vcpu:0
";

    #[test]
    fn a_vcpu_is_known_by_the_name_of_its_descriptor() {
        assert_eq!(vcpu_number(b"anon_inode:kvm-vcpu:12"), Some(12));
        let others: [&[u8]; 6] = [
            b"anon_inode:kvm-vcpu:",
            b"anon_inode:kvm-vcpu:+1",
            b"anon_inode:kvm-vcpu-stats:0",
            b"/tmp/anon_inode:kvm-vcpu:0",
            b"anon_inode:kvm-vcpu:99999999999",
            b"anon_inode:kvm-vcpu:0 (deleted)",
        ];
        for other in others {
            assert_eq!(vcpu_number(other), None);
        }
    }

    #[test]
    fn a_vm_takes_a_vcpu_and_the_memory_that_it_shares() {
        let held = |links: &[&str]| {
            let mut held = KvmDescriptors::default();
            for (fd, link) in links.iter().enumerate() {
                held.add(fd as i32, link.as_bytes());
            }
            held
        };
        assert!(held(&["/dev/kvm", VM, "anon_inode:kvm-vcpu:0"]).are_of_vm());
        assert!(!held(&["/dev/kvm", VM]).are_of_vm());
        assert!(!held(&["anon_inode:kvm-vcpu:0"]).are_of_vm());
        assert!(maps_vcpu(MAPS));
        assert!(!maps_vcpu(&MAPS.replace("kvm-vcpu:0", "kvm-gmem")));
        assert!(!maps_vcpu("0-1 rw-s 0 0 0 /a anon_inode:kvm-vcpu:0"));
        assert_eq!(maps_of_vm(std::process::id() as i32), None);
    }

    #[test]
    fn memory_is_that_of_the_large_writable_mappings() {
        assert_eq!(guest_memory(MAPS), (512 + 640) << 20);
        let small: Vec<&str> = MAPS.lines().filter(|line| !line.contains("f75")).collect();
        assert_eq!(guest_memory(&small.join("\n")), 4 << 20);
        assert_eq!(guest_memory(""), 0);
        assert_eq!(guest_memory("ffffffffffffffff-0 rw-p 0 0 0"), 0);
    }

    proptest! {
        #[test]
        fn any_names_and_mappings_are_survived(link in proptest::collection::vec(any::<u8>(), 0..40), maps in "([0-9a-f]{0,17}-[0-9a-f]{0,17} [rw-]{0,4} .{0,40}\n){0,5}") {
            let _ = (vcpu_number(&link), guest_memory(&maps), maps_vcpu(&maps));
        }

        #[test]
        fn every_vcpu_is_found_by_its_number(number in any::<u32>()) {
            let link = format!("{VCPU}{number}");
            prop_assert_eq!(vcpu_number(link.as_bytes()), Some(number));
            let maps = format!("0-1 rw-s 00000000 00:10 1038      {link}\n");
            prop_assert!(maps_vcpu(&maps));
        }
    }
}
