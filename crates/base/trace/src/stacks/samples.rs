//! Sampled stacks as code locations, without duplicates, from records of perf_event_open, taken live or from a file.

use super::files::Mapping;
use super::space::{CodeLocation, CodeOwner, Registers, Space, UnwindEnd};
use linux_perf_event_reader::constants::{PERF_REG_X86_BP, PERF_REG_X86_IP, PERF_REG_X86_SP};
use linux_perf_event_reader::{
    CpuMode, EventRecord, Mmap2FileId, Mmap2Record, RawData, SampleRecord,
};
use std::collections::HashMap;
use vmtax_model::samples::{Sample, Unwound};

/// Samples taken so far, with their stacks and threads.
#[derive(Debug, Default)]
pub struct SampledStacks {
    /// Stacks, innermost place first.
    pub stacks: Vec<Vec<CodeLocation>>,
    numbers: HashMap<Vec<CodeLocation>, usize>,
    /// Threads by host TID, with their names.
    pub threads: Vec<(i32, Option<String>)>,
    by_tid: HashMap<i32, usize>,
    /// The kernel's functions that threads waited in.
    pub waits: Vec<String>,
    /// Samples taken so far.
    pub samples: Vec<Sample>,
    /// Numbers of samples by how far their stacks unwound.
    pub unwound: Unwound,
    /// Samples lost for lack of buffer space.
    pub lost: u64,
}

impl SampledStacks {
    /// The number of a thread here.
    pub fn thread(&mut self, tid: i32) -> usize {
        *self.by_tid.entry(tid).or_insert_with(|| {
            self.threads.push((tid, None));
            self.threads.len() - 1
        })
    }

    /// The number of a stack here.
    pub fn stack(&mut self, places: &[CodeLocation]) -> usize {
        if let Some(&number) = self.numbers.get(places) {
            return number;
        }
        self.stacks.push(places.to_vec());
        self.numbers.insert(places.to_vec(), self.stacks.len() - 1);
        self.stacks.len() - 1
    }

    /// The location that stands for waiting in a kernel function.
    pub fn wait(&mut self, name: &str) -> CodeLocation {
        let known = self.waits.iter().position(|wait| wait == name);
        let at = known.unwrap_or_else(|| {
            self.waits.push(name.to_owned());
            self.waits.len() - 1
        });
        CodeLocation {
            owner: CodeOwner::Wait,
            at: at as u64,
        }
    }

    /// Counts how the user's part of a sample ended.
    pub fn ended(&mut self, user: &[CodeLocation], end: UnwindEnd) {
        let Some(leaf) = user.first() else { return };
        let unwound = &mut self.unwound;
        let root = u64::from(end == UnwindEnd::Root);
        if leaf.owner == CodeOwner::Jit {
            unwound.translated += 1;
            unwound.translated_to_root += root;
        } else {
            unwound.outside += 1;
            unwound.to_root += root;
            unwound.cut += u64::from(end == UnwindEnd::Cut);
        }
    }
}

/// From here on a callchain's entries may mark whose addresses follow (`PERF_CONTEXT_*`); no code of a kernel lies there.
const MARKS: u64 = -4095_i64 as u64;
/// `PERF_CONTEXT_KERNEL`: addresses of the kernel follow.
const KERNEL_FOLLOWS: u64 = -128_i64 as u64;
/// `PERF_CONTEXT_USER`: addresses of the program follow, up to the next mark.
const USER_FOLLOWS: u64 = -512_i64 as u64;
/// Marks of other addresses: of a hypervisor, of a guest, of its kernel and of its programs; and of a cookie in place of the
/// program's addresses (`PERF_CONTEXT_USER_DEFERRED`).
const OTHERS_FOLLOW: [u64; 5] = [
    -32_i64 as u64,
    -2048_i64 as u64,
    -2176_i64 as u64,
    -2560_i64 as u64,
    -640_i64 as u64,
];
/// The upper half of the addresses is the kernel's, where no mark says whose they are.
const KERNEL: u64 = 1 << 63;
/// `PROT_EXEC` of a mapping's protection.
const EXECUTE: u32 = 4;
/// `PROT_WRITE` of a mapping's protection.
const WRITE: u32 = 2;

/// Takes in one record of a process.
pub fn take(record: &EventRecord<'_>, space: &mut Space, sampled: &mut SampledStacks) {
    match record {
        EventRecord::Sample(sample) => take_sample(sample, space, sampled),
        EventRecord::Mmap2(map) if map.protection & EXECUTE != 0 => space.map(&mapping(map), None),
        EventRecord::Comm(comm) => {
            let thread = sampled.thread(comm.tid);
            sampled.threads[thread].1 = Some(text(&comm.name));
        }
        EventRecord::Lost(lost) => sampled.lost = sampled.lost.saturating_add(lost.count),
        _ => {}
    }
}

/// A record of a new mapping.
fn mapping(map: &Mmap2Record<'_>) -> Mapping {
    let path = text(&map.path);
    let kept = path.strip_suffix(" (deleted)");
    Mapping {
        start: map.address,
        end: map.address.saturating_add(map.length),
        executable: true,
        writable: map.protection & WRITE != 0,
        offset: map.page_offset,
        inode: match &map.file_id {
            Mmap2FileId::InodeAndVersion(id) => id.inode,
            Mmap2FileId::BuildId(_) => u64::MAX, // of a file all the same
        },
        deleted: kept.is_some(),
        // The kernel's name for plain memory.
        path: if path == "//anon" {
            String::new()
        } else {
            kept.unwrap_or(&path).to_owned()
        },
    }
}

/// A name in a record, up to its end.
pub fn text(name: &RawData<'_>) -> String {
    let name = name.as_slice();
    String::from_utf8_lossy(name.split(|&b| b == 0).next().unwrap_or_default()).into_owned()
}

fn take_sample(sample: &SampleRecord<'_>, space: &mut Space, sampled: &mut SampledStacks) {
    let Chain {
        kernel: in_kernel,
        user: in_program,
    } = Chain::read(sample);
    let mut places: Vec<CodeLocation> = in_kernel
        .into_iter()
        .map(|at| CodeLocation {
            owner: CodeOwner::Kernel,
            at,
        })
        .collect();
    let inside = places.len();
    let guest = match sample.cpu_mode {
        CpuMode::GuestKernel => Some(CodeOwner::GuestKernel),
        CpuMode::GuestUser => Some(CodeOwner::GuestUser),
        _ => None,
    };
    if let Some(owner) = guest {
        // Its addresses are here somebody else's: all of it is one place.
        places = vec![CodeLocation { owner, at: 0 }];
    } else if let (Some(regs), Some((stack, copied))) = (&sample.user_regs, &sample.user_stack) {
        let register = |number| regs.get(number).unwrap_or(0);
        let registers = Registers {
            ip: register(PERF_REG_X86_IP),
            sp: register(PERF_REG_X86_SP),
            bp: register(PERF_REG_X86_BP),
        };
        let stack = stack.as_slice();
        let copied = stack.len().min(*copied as usize);
        let end = space.unwind(registers, &stack[..copied], &mut places);
        sampled.ended(&places[inside..], end);
    } else {
        user(&in_program, space, &mut places);
    }
    if places.is_empty() {
        return; // of a thread that is ending
    }
    let Some(tid) = sample.tid else { return };
    let time = sample.timestamp.unwrap_or(0);
    let sample = Sample {
        thread: sampled.thread(tid),
        stack: sampled.stack(&places),
        time,
        weight: 1,
        cpu: sample.cpu.unwrap_or(0),
    };
    sampled.samples.push(sample);
}

/// The user frames of a sample whose stack the kernel unwound by frame pointers. It is not known whether that
/// leads to the stack's beginning, so it is not counted as unwound.
fn user(addresses: &[u64], space: &Space, places: &mut Vec<CodeLocation>) {
    for (depth, &address) in addresses.iter().enumerate() {
        // Addresses to return to lie behind the call, which may be the last of its function.
        let place = space.place(address.wrapping_sub(u64::from(depth > 0)));
        if place.owner == CodeOwner::Nowhere && depth > 0 {
            return; // no frame pointer
        }
        if place.owner != CodeOwner::Jit || places.last() != Some(&place) {
            places.push(place);
        }
    }
}

/// The addresses that the kernel followed, innermost first, by whose they are.
#[derive(Debug, Default)]
struct Chain {
    kernel: Vec<u64>,
    user: Vec<u64>,
}

impl Chain {
    /// Reads the callchain of a sample; of one without a callchain the address where the CPU was.
    fn read(sample: &SampleRecord<'_>) -> Chain {
        if let Some(entries) = &sample.callchain {
            return Chain::followed((0..entries.len()).filter_map(|at| entries.get(at)));
        }
        let mut chain = Chain::default();
        match (sample.ip, sample.cpu_mode) {
            (None, _) => {}
            (Some(ip), CpuMode::Kernel) => chain.kernel.push(ip),
            (Some(ip), CpuMode::User) => chain.user.push(ip),
            (Some(ip), _) => chain.add_unmarked(ip),
        }
        chain
    }

    /// Reads the entries of a callchain. An address belongs to the mark before it, whatever its value: without frame pointers a
    /// program's may be anything.
    fn followed(entries: impl Iterator<Item = u64>) -> Chain {
        let (mut chain, mut mark) = (Chain::default(), None);
        for entry in entries {
            match (entry, mark) {
                (KERNEL_FOLLOWS | USER_FOLLOWS, _) => mark = Some(entry),
                _ if OTHERS_FOLLOW.contains(&entry) => mark = Some(entry),
                (_, Some(USER_FOLLOWS)) => chain.user.push(entry),
                (MARKS.., _) => {}
                (_, Some(KERNEL_FOLLOWS)) => chain.kernel.push(entry),
                (_, None) => chain.add_unmarked(entry),
                (_, Some(_)) => {}
            }
        }
        chain
    }

    /// Adds an address of which its half of the address space alone says whose it is.
    fn add_unmarked(&mut self, address: u64) {
        if address >= KERNEL {
            self.kernel.push(address);
        } else {
            self.user.push(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::files::FileSource;
    use std::collections::HashMap;

    /// A sample without a stack.
    fn empty(ip: u64, cpu_mode: CpuMode) -> SampleRecord<'static> {
        SampleRecord {
            id: None,
            addr: None,
            stream_id: None,
            raw: None,
            ip: Some(ip),
            timestamp: Some(1),
            pid: Some(7),
            tid: Some(7),
            cpu: None,
            period: None,
            user_regs: None,
            user_stack: None,
            callchain: None,
            phys_addr: None,
            data_page_size: None,
            code_page_size: None,
            intr_regs: None,
            cpu_mode,
        }
    }

    #[test]
    fn an_address_behind_the_users_mark_is_the_programs_whatever_its_value() {
        const GARBAGE: u64 = 0x8b48_0789_48fb_8948;
        let parts = |Chain { kernel, user }: Chain| (kernel, user);
        let alone = |ip, cpu_mode| parts(Chain::read(&empty(ip, cpu_mode)));
        let followed = |entries: &[u64]| parts(Chain::followed(entries.iter().copied()));
        let (kernel, user) = (KERNEL_FOLLOWS, USER_FOLLOWS);
        assert_eq!(
            followed(&[user, 0x40_1000, GARBAGE, u64::MAX]),
            (vec![], vec![0x40_1000, GARBAGE, u64::MAX])
        );
        assert_eq!(
            followed(&[kernel, KERNEL + 8, MARKS, user, 0x40_1000, GARBAGE]),
            (vec![KERNEL + 8], vec![0x40_1000, GARBAGE])
        );
        for other in OTHERS_FOLLOW {
            assert_eq!(
                followed(&[other, 7, KERNEL + 9]),
                (vec![], vec![]),
                "{other:#x}"
            );
        }
        // Some files have no marks.
        assert_eq!(
            followed(&[KERNEL + 8, 0x40_1000]),
            (vec![KERNEL + 8], vec![0x40_1000])
        );
        assert_eq!(alone(GARBAGE, CpuMode::User), (vec![], vec![GARBAGE]));
        assert_eq!(alone(7, CpuMode::Kernel), (vec![7], vec![]));
        assert_eq!(alone(GARBAGE, CpuMode::Unknown), (vec![GARBAGE], vec![]));
    }

    /// Whatever the address: on the host nothing is there.
    #[test]
    fn samples_of_a_guests_code_are_one_place_for_its_kernel_and_one_for_its_programs() {
        let (mut space, mut sampled) = (
            Space::empty(FileSource::Recorded(HashMap::new())),
            SampledStacks::default(),
        );
        for ip in [0xffff_ffff_8d89_92f8, 0xffff_ffff_8d12_0000] {
            take_sample(&empty(ip, CpuMode::GuestKernel), &mut space, &mut sampled);
            take_sample(
                &empty(ip >> 20, CpuMode::GuestUser),
                &mut space,
                &mut sampled,
            );
        }
        let place = |owner| vec![CodeLocation { owner, at: 0 }];
        assert_eq!(
            sampled.stacks,
            [place(CodeOwner::GuestKernel), place(CodeOwner::GuestUser)]
        );
        assert_eq!(
            sampled
                .samples
                .iter()
                .map(|sample| sample.stack)
                .collect::<Vec<_>>(),
            [0, 1, 0, 1]
        );
    }
}
