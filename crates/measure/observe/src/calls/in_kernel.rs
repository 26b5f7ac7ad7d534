//! Counted and timed inside the kernel, by three small BPF programs at its tracepoints: nothing is written down call by
//! call.
//!
//! The programs are in BPF's instructions (Linux's Documentation/bpf/standardization/instruction-set.rst). Registers 1 to 5
//! are a helper's arguments and lost in its call, 6 to 9 stay, 10 is the end of the stack. Jumps count instructions from the
//! next one.

use super::bpf::{Attached, Instruction, Map, MapKind};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::fs;
use std::io;
use vmtax_model::CallCount;

/// Threads that may be in a call at one time.
const THREADS: u32 = 16_384;
/// Calls, or calls of processes, that are distinguished.
pub(super) const ROWS: usize = 8192;
/// Number of totals of each call on each CPU: count, sum, shortest, longest.
const TOTALS: usize = 4;

/// The programs and what they share with us.
#[derive(Debug)]
pub(super) struct InKernel {
    totals: Map,
    lost: Map,
    by_process: bool,
    _attached: [Attached; 3],
}

impl InKernel {
    pub(super) fn start(by_process: bool) -> io::Result<InKernel> {
        // Kernels before 5.11 count maps as locked memory; where that may not be raised, they say so below.
        let _ = setrlimit(
            Resource::Memlock,
            Rlimit {
                current: None,
                maximum: None,
            },
        );
        let cpus = cpus()?;
        let entered = Map::create(MapKind::Hash, 8, 16, THREADS, cpus)?;
        let totals = Map::create(MapKind::PerCpuHash, 8, 8 * TOTALS as u32, ROWS as u32, cpus)?;
        let lost = Map::create(MapKind::Array, 4, 8, 1, cpus)?;
        let own = std::process::id();
        // The one that reads what the other left is there first.
        let attached = [
            Attached::at(c"sys_exit", &exit(&entered, &totals, &lost, by_process))?,
            Attached::at(c"sched_process_exit", &gone(&entered))?,
            Attached::at(c"sys_enter", &enter(&entered, &lost, own))?,
        ];
        Ok(InKernel {
            totals,
            lost,
            by_process,
            _attached: attached,
        })
    }

    pub(super) fn read(&self) -> io::Result<Vec<CallCount>> {
        let mut rows = Vec::new();
        let mut key: Option<[u8; 8]> = None;
        while let Some(next) = self.totals.next_key(key)? {
            if let Some(values) = self.totals.get(&next)? {
                let number = u64::from_ne_bytes(next);
                let pid = self.by_process.then_some((number >> 32) as i32);
                rows.extend(row(number as u32, pid, &values));
            }
            key = Some(next);
            if rows.len() > ROWS {
                break; // keys that change meanwhile begin again
            }
        }
        Ok(rows)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
            .get(&[0; 4])
            .ok()
            .flatten()
            .and_then(|lost| lost.first().copied())
            .unwrap_or(0)
    }
}

/// The CPUs' parts together.
fn row(call: u32, pid: Option<i32>, values: &[u64]) -> Option<CallCount> {
    let parts = || values.chunks_exact(TOTALS).filter(|part| part[0] > 0);
    Some(CallCount {
        call,
        pid,
        count: parts().map(|part| part[0]).sum(),
        total_ns: parts().map(|part| part[1]).sum(),
        min_ns: parts().map(|part| part[2]).min()?,
        max_ns: parts().map(|part| part[3]).max()?,
    })
}

/// Returns the number of possible CPUs: the kernel keeps a part for each.
fn cpus() -> io::Result<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = vmtax_model::cpu_list::parse(&text).and_then(|all| all.last().copied());
    Ok(last.ok_or(io::ErrorKind::InvalidData)? + 1)
}

/// The helpers' numbers, as linux/bpf.h has them.
const MAP_LOOKUP: i32 = 1;
const MAP_UPDATE: i32 = 2;
const MAP_DELETE: i32 = 3;
const KTIME_GET_NS: i32 = 5;
const CURRENT_PID_TGID: i32 = 14;

const fn op(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction {
        code,
        registers: to | from << 4,
        offset,
        immediate,
    }
}
/// `to = from`
const fn copy(to: u8, from: u8) -> Instruction {
    op(0xbf, to, from, 0, 0)
}
/// `to = value`
const fn set(to: u8, value: i32) -> Instruction {
    op(0xb7, to, 0, 0, value)
}
/// `to += value`
const fn add(to: u8, value: i32) -> Instruction {
    op(0x07, to, 0, 0, value)
}
/// `to += from`
const fn add_register(to: u8, from: u8) -> Instruction {
    op(0x0f, to, from, 0, 0)
}
/// `to -= from`
const fn subtract(to: u8, from: u8) -> Instruction {
    op(0x1f, to, from, 0, 0)
}
/// `to |= from`
const fn or(to: u8, from: u8) -> Instruction {
    op(0x4f, to, from, 0, 0)
}
/// `to >>= bits`
const fn right(to: u8, bits: i32) -> Instruction {
    op(0x77, to, 0, 0, bits)
}
/// `to <<= bits`
const fn left(to: u8, bits: i32) -> Instruction {
    op(0x67, to, 0, 0, bits)
}
/// `to = *(u64 *)(from + offset)`
const fn load(to: u8, from: u8, offset: i16) -> Instruction {
    op(0x79, to, from, offset, 0)
}
/// `*(u64 *)(to + offset) = from`
const fn store(to: u8, offset: i16, from: u8) -> Instruction {
    op(0x7b, to, from, offset, 0)
}
/// `*(u32 *)(to + offset) = value`
const fn store_word(to: u8, offset: i16, value: i32) -> Instruction {
    op(0x62, to, 0, offset, value)
}
/// `*(u64 *)(to + offset) += from`, at once
const fn add_atomically(to: u8, offset: i16, from: u8) -> Instruction {
    op(0xdb, to, from, offset, 0)
}
/// `if (register == value) skip`
const fn skip_if(register: u8, value: i32, skip: i16) -> Instruction {
    op(0x15, register, 0, skip, value)
}
/// `if (register != value) skip`
const fn skip_unless(register: u8, value: i32, skip: i16) -> Instruction {
    op(0x55, register, 0, skip, value)
}
/// `if (a <= b) skip`
const fn skip_if_at_most(a: u8, b: u8, skip: i16) -> Instruction {
    op(0xbd, a, b, skip, 0)
}
/// `if (a >= b) skip`
const fn skip_if_at_least(a: u8, b: u8, skip: i16) -> Instruction {
    op(0x3d, a, b, skip, 0)
}
const fn call(helper: i32) -> Instruction {
    op(0x85, 0, 0, 0, helper)
}
const EXIT: Instruction = op(0x95, 0, 0, 0, 0);

/// `to =` the map; of two instructions' length.
fn map(to: u8, map: &Map) -> [Instruction; 2] {
    [op(0x18, to, 1, 0, map.fd()), op(0, 0, 0, 0, 0)]
}

/// Looks up in a map by the key at the stack's `key`: register 0 becomes the value's address, or 0.
fn look_up(of: &Map, key: i32) -> Vec<Instruction> {
    [
        &map(1, of)[..],
        &[copy(2, 10), add(2, key), call(MAP_LOOKUP)],
    ]
    .concat()
}

/// Puts the value at the stack's `value` under the key at `key`: register 0 becomes 0 where there was room.
fn put(into: &Map, key: i32, value: i32) -> Vec<Instruction> {
    let rest = [
        copy(2, 10),
        add(2, key),
        copy(3, 10),
        add(3, value),
        set(4, 0),
        call(MAP_UPDATE),
    ];
    [&map(1, into)[..], &rest].concat()
}

/// Counts a call that there was no room for, and ends.
fn lose(lost: &Map) -> Vec<Instruction> {
    let key = [store_word(10, -4, 0)];
    let rest = [
        skip_if(0, 0, 2),
        set(1, 1),
        add_atomically(0, 0, 1),
        set(0, 0),
        EXIT,
    ];
    [&key[..], &look_up(lost, -4), &rest].concat()
}

/// Puts as [`put`] does, and ends; where there was no room the call counts as lost.
fn put_or_lose(into: &Map, key: i32, value: i32, lost: &Map) -> Vec<Instruction> {
    [
        &put(into, key, value)[..],
        &[skip_unless(0, 0, 2)],
        &END,
        &lose(lost),
    ]
    .concat()
}

const END: [Instruction; 2] = [set(0, 0), EXIT];

/// At a call's begin: when it began, and which it is, under the thread's number. Processes of number `own` are left out.
fn enter(entered: &Map, lost: &Map, own: u32) -> Vec<Instruction> {
    let begin = [
        copy(6, 1),
        call(CURRENT_PID_TGID),
        copy(1, 0),
        right(1, 32),
        skip_unless(1, own as i32, 2),
        set(0, 0),
        EXIT,
        store(10, -8, 0),
        load(7, 6, 8), // the call's number is the second argument
    ];
    // Of a thread that is known, written in place: the time comes last, so that as little of this as can be is in it.
    let known = [
        copy(9, 0),
        store(9, 8, 7),
        call(KTIME_GET_NS),
        store(9, 0, 0),
        set(0, 0),
        EXIT,
    ];
    let first = [store(10, -16, 7), call(KTIME_GET_NS), store(10, -24, 0)];
    [
        &begin[..],
        &look_up(entered, -8),
        &[skip_if(0, 0, known.len() as i16)],
        &known,
        &first,
        &put_or_lose(entered, -8, -24, lost),
    ]
    .concat()
}

/// Puts the time of a call that was looked up into register 8 and its number into register 7; ends where it is not to be counted.
const TIME: [Instruction; 13] = [
    skip_unless(0, 0, 2), // a call that began before this did
    set(0, 0),
    EXIT,
    load(1, 0, 0),
    skip_unless(1, 0, 2), // or that is counted already
    set(0, 0),
    EXIT,
    subtract(8, 1),
    set(1, 0),
    store(0, 0, 1),
    load(7, 0, 8),
    left(7, 32),
    right(7, 32),
];

/// Adds the time in register 8 to the totals that were looked up, and ends.
const ADD: [Instruction; 15] = [
    load(1, 0, 0),
    load(2, 0, 16),
    skip_if(1, 0, 1), // the first on this CPU is its shortest
    skip_if_at_most(2, 8, 1),
    store(0, 16, 8),
    load(2, 0, 24),
    skip_if_at_least(2, 8, 1),
    store(0, 24, 8),
    add(1, 1),
    store(0, 0, 1),
    load(1, 0, 8),
    add_register(1, 8),
    store(0, 8, 1),
    set(0, 0),
    EXIT,
];

/// At a call's end: its time, added to what its number, and process, have on this CPU.
fn exit(entered: &Map, totals: &Map, lost: &Map, by_process: bool) -> Vec<Instruction> {
    let begin = [
        call(KTIME_GET_NS),
        copy(8, 0),
        call(CURRENT_PID_TGID),
        store(10, -8, 0),
    ];
    let process = [load(1, 10, -8), right(1, 32), left(1, 32), or(7, 1)];
    let process: &[Instruction] = if by_process { &process } else { &[] };
    let first = [
        set(1, 1),
        store(10, -48, 1),
        store(10, -40, 8),
        store(10, -32, 8),
        store(10, -24, 8),
    ];
    [
        &begin[..],
        &look_up(entered, -8),
        &TIME,
        process,
        &[store(10, -16, 7)],
        &look_up(totals, -16),
        &[skip_if(0, 0, ADD.len() as i16)],
        &ADD,
        &first,
        &put_or_lose(totals, -16, -48, lost),
    ]
    .concat()
}

/// At a thread's end: what is kept of it goes.
fn gone(entered: &Map) -> Vec<Instruction> {
    let begin = [call(CURRENT_PID_TGID), store(10, -8, 0)];
    let rest = [copy(2, 10), add(2, -8), call(MAP_DELETE), set(0, 0), EXIT];
    [&begin[..], &map(1, entered), &rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_add_up_and_the_idle_one_has_no_shortest() {
        let values = [2, 30, 10, 20, 0, 0, 0, 0, 1, 5, 5, 5];
        let row = row(39, Some(7), &values).unwrap();
        assert_eq!(
            (row.call, row.pid, row.count, row.total_ns),
            (39, Some(7), 3, 35)
        );
        assert_eq!((row.min_ns, row.max_ns), (5, 20));
        assert_eq!(super::row(39, None, &[0; 8]), None);
    }
}
