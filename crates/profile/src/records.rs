//! Records of perf_event_open, taken live or from a file, as stacks.

use crate::maps::Mapping;
use crate::profile::Sample;
use crate::seen::Seen;
use crate::space::{Home, Place, Registers, Space};
use linux_perf_event_reader::constants::{PERF_REG_X86_BP, PERF_REG_X86_IP, PERF_REG_X86_SP};
use linux_perf_event_reader::{EventRecord, Mmap2FileId, RawEventRecord, SampleRecord};

/// From here on a callchain's entries mark whose addresses follow (`PERF_CONTEXT_*`).
const MARKS: u64 = -4095_i64 as u64;
/// The upper half of the addresses is the kernel's.
const KERNEL: u64 = 1 << 63;
/// `PROT_EXEC`.
const EXECUTE: u32 = 4;
/// `PROT_WRITE`.
const WRITE: u32 = 2;

/// Takes in one record of a process.
pub fn take(record: &RawEventRecord<'_>, space: &mut Space, seen: &mut Seen) {
    match record.parse() {
        Ok(EventRecord::Sample(sample)) => take_sample(&sample, space, seen),
        Ok(EventRecord::Mmap2(map)) if map.protection & EXECUTE != 0 => {
            let path = map.path.as_slice();
            let path = String::from_utf8_lossy(path.split(|&b| b == 0).next().unwrap_or_default());
            let inode = match &map.file_id {
                Mmap2FileId::InodeAndVersion(id) => id.inode,
                Mmap2FileId::BuildId(_) => 0,
            };
            let mapping = Mapping {
                start: map.address,
                end: map.address.saturating_add(map.length),
                executable: true,
                writable: map.protection & WRITE != 0,
                offset: map.page_offset,
                inode,
                // The kernel's name for plain memory.
                path: if path == "//anon" { String::new() } else { path.into_owned() },
                deleted: false,
            };
            space.map(&mapping, None);
        }
        Ok(EventRecord::Comm(comm)) => {
            let thread = seen.thread(comm.tid);
            seen.threads[thread].1 = Some(String::from_utf8_lossy(&comm.name.as_slice()).into_owned());
        }
        Ok(EventRecord::Lost(lost)) => seen.lost += lost.count,
        _ => {}
    }
}

fn take_sample(sample: &SampleRecord<'_>, space: &mut Space, seen: &mut Seen) {
    let mut places = kernel(sample);
    let inside = places.len();
    if let (Some(regs), Some((stack, copied))) = (&sample.user_regs, &sample.user_stack) {
        let register = |number| regs.get(number).unwrap_or(0);
        let registers =
            Registers { ip: register(PERF_REG_X86_IP), sp: register(PERF_REG_X86_SP), bp: register(PERF_REG_X86_BP) };
        let stack = stack.as_slice();
        let copied = stack.len().min(*copied as usize);
        let end = space.unwind(registers, &stack[..copied], &mut places);
        seen.ended(&places[inside..], end);
    }
    if places.is_empty() {
        return; // of a thread that is ending
    }
    let (Some(tid), Some(time)) = (sample.tid, sample.timestamp) else { return };
    let (thread, stack) = (seen.thread(tid), seen.stack(&places));
    seen.samples.push(Sample { thread, stack, time, weight: 1 });
}

/// The kernel's part of a sample, innermost first.
fn kernel(sample: &SampleRecord<'_>) -> Vec<Place> {
    let Some(chain) = &sample.callchain else { return Vec::new() };
    let addresses = (0..chain.len()).filter_map(|at| chain.get(at));
    let kernel = addresses.filter(|&address| (KERNEL..MARKS).contains(&address));
    kernel.map(|at| Place { home: Home::Kernel, at }).collect()
}
