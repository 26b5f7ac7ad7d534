//! The tracepoints that are read from text, and how each prints its fields.

use crate::import::{ARGUMENTS, ArgumentKind};
use crate::kernel::{NAMED_IN_TEXT, SVM, VMX, exit_reason_named};
use ArgumentKind::{Arguments, Signed, Text, Unsigned};
use Value::{Name, Number};

/// A value that a line holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Text(&'a str),
    /// A name in place of a number: of the event's own table.
    Name(&'a str),
}

/// Reads an event's arguments; `None` where they are not as the tracepoint prints them.
type Read = for<'a> fn(&'a str) -> Option<Vec<Value<'a>>>;

/// A tracepoint that is read from text.
pub(super) struct Tracepoint {
    pub system: &'static str,
    pub name: &'static str,
    pub fields: &'static [(&'static str, ArgumentKind)],
    pub read: Read,
}

const fn tracepoint(
    system: &'static str,
    name: &'static str,
    fields: &'static [(&'static str, ArgumentKind)],
    read: Read,
) -> Tracepoint {
    Tracepoint {
        system,
        name,
        fields,
        read,
    }
}

/// No vCPU is printed.
pub(super) const NO_VCPU: u64 = u32::MAX as u64;

pub(super) const TRACEPOINTS: &[Tracepoint] = &[
    tracepoint(
        "kvm",
        "kvm_exit",
        &[
            ("exit_reason", Unsigned),
            ("isa", Unsigned),
            ("vcpu_id", Unsigned),
        ],
        |text| {
            let reason = word(text, "reason ")?;
            let isa = match exit_reason_named(reason) {
                Some((isa, _)) => isa,
                None if unnamed(reason).is_some() => 0,
                None => NAMED_IN_TEXT,
            };
            Some(vec![Name(reason), Number(isa.into()), Number(vcpu(text))])
        },
    ),
    tracepoint("kvm", "kvm_entry", &[("vcpu_id", Unsigned)], |text| {
        Some(vec![Number(vcpu(text))])
    }),
    tracepoint(
        "kvm",
        "kvm_pio",
        &[("port", Unsigned), ("rw", Unsigned)],
        |text| {
            let write = direction(text, "pio_read", "pio_write")?;
            Some(vec![Number(hex(text, " at ")?), Number(write)])
        },
    ),
    tracepoint(
        "kvm",
        "kvm_mmio",
        &[("gpa", Unsigned), ("type", Unsigned)],
        |text| {
            let kinds = ["unsatisfied-read", "read", "write"];
            let kind = word(text, "mmio ")?;
            let kind = kinds.into_iter().position(|known| known == kind)?;
            Some(vec![Number(hex(text, "gpa ")?), Number(kind as u64)])
        },
    ),
    tracepoint("kvm", "kvm_fast_mmio", &[("gpa", Unsigned)], |text| {
        Some(vec![Number(hex(text, "gpa ")?)])
    }),
    tracepoint(
        "kvm",
        "kvm_msr",
        &[("ecx", Unsigned), ("write", Unsigned)],
        |text| {
            let write = direction(text, "msr_read", "msr_write")?;
            let address = hex(text, ["msr_read", "msr_write"][write as usize])?;
            Some(vec![Number(address), Number(write)])
        },
    ),
    tracepoint("kvm", "kvm_eoi", &[], |_| Some(Vec::new())),
    tracepoint(
        "kvm",
        "kvm_userspace_exit",
        &[("reason", Unsigned), ("errno", Signed)],
        |text| {
            let (name, number) = told(text)?;
            let errno = if matches!(name, "error" | "restart") {
                number.wrapping_neg()
            } else {
                0
            };
            Some(vec![Number(number), Number(errno)])
        },
    ),
    tracepoint("kvm", "kvm_apic_accept_irq", &[("vec", Unsigned)], |text| {
        Some(vec![Number(decimal(text, "vec ")?)])
    }),
    tracepoint(
        "kvm",
        "kvm_set_irq",
        &[("gsi", Unsigned), ("level", Unsigned)],
        |text| {
            let gsi = decimal(text, "gsi ")?;
            Some(vec![Number(gsi), Number(decimal(text, "level ")?)])
        },
    ),
    tracepoint("kvm", "kvm_msi_set_irq", &[("data", Unsigned)], |text| {
        Some(vec![Number(decimal(text, "vec ")?)])
    }),
    tracepoint(
        "kvm",
        "kvm_write_tsc_offset",
        &[("next_tsc_offset", Unsigned)],
        |text| Some(vec![Number(decimal(text, "next=")?)]),
    ),
    tracepoint(
        "sched",
        "sched_switch",
        &[
            ("prev_pid", Signed),
            ("prev_state", Signed),
            ("next_pid", Signed),
        ],
        switch,
    ),
    tracepoint("sched", "sched_waking", &[("pid", Signed)], |text| {
        let tid = signed(text, " pid=").or_else(|| of_plugin(text))?;
        Some(vec![Number(tid)])
    }),
    tracepoint(
        "raw_syscalls",
        "sys_enter",
        &[("id", Signed), ("args", Arguments)],
        |text| {
            let (_, arguments) = text.split_once('(')?;
            let arguments = arguments
                .strip_suffix(')')?
                .split(", ")
                .map(|word| from_hex(word).map(Number));
            let all: Option<Vec<Value<'_>>> = std::iter::once(signed(text, "NR ").map(Number))
                .chain(arguments)
                .collect();
            all.filter(|all| all.len() == 1 + ARGUMENTS)
        },
    ),
    tracepoint("raw_syscalls", "sys_exit", &[("id", Signed)], |text| {
        Some(vec![Number(signed(text, "NR ")?)])
    }),
    tracepoint("block", "block_rq_insert", BLOCK, block),
    tracepoint("block", "block_rq_issue", BLOCK, block),
    tracepoint("block", "block_rq_complete", BLOCK, block),
    tracepoint(
        "irq",
        "irq_handler_entry",
        &[("irq", Unsigned), ("name", Text)],
        |text| {
            let (_, name) = text.split_once("name=")?;
            Some(vec![Number(decimal(text, "irq=")?), Value::Text(name)])
        },
    ),
];

const BLOCK: &[(&str, ArgumentKind)] = &[
    ("dev", Unsigned),
    ("sector", Unsigned),
    ("nr_sector", Unsigned),
    ("rwbs", Text),
];

/// Returns the exit reason that `kvm_userspace_exit` gives QEMU, name and number: `reason KVM_EXIT_IO (2)`.
pub(super) fn told(text: &str) -> Option<(&str, u64)> {
    Some((word(text, "reason ")?, decimal(text, "(")?))
}

fn vcpu(text: &str) -> u64 {
    decimal(text, "vcpu ")
        .or_else(|| decimal(text, "vcpu="))
        .or_else(|| decimal(text, "vcpu_id="))
        .unwrap_or(NO_VCPU)
}

/// Mark of libtraceevent before fields that it prints by their names, since it cannot parse the event's own print format.
const FAILED: &str = "[FAILED TO PARSE]";

impl Tracepoint {
    /// Reads an event's arguments as the tracepoint prints them, else field by field; `None` where they are neither.
    pub fn values<'a>(&self, text: &'a str) -> Option<Vec<Value<'a>>> {
        match text.strip_prefix(FAILED) {
            Some(fields) => self.by_name(fields),
            None => (self.read)(text).or_else(|| self.by_name(text)),
        }
    }

    /// Reads fields by their names: `exit_reason=12 isa=1`, as `trace-cmd report -R` and tracefs's option `fields` print them, too.
    fn by_name<'a>(&self, text: &'a str) -> Option<Vec<Value<'a>>> {
        let mut values = Vec::with_capacity(self.fields.len());
        for (name, kind) in self.fields {
            let field = named(text, name);
            match (*name, kind) {
                (_, Text) => values.push(Value::Text(field?)),
                (_, Arguments) => values.extend(array(field?)?.map(Number)),
                // Not every kernel has it.
                ("vcpu_id", _) => values.push(Number(field.and_then(number).unwrap_or(NO_VCPU))),
                // A number without its instruction set has no name.
                ("isa", _) => {
                    let isa = field.and_then(number);
                    let is_known = |isa: &u64| [VMX, SVM].map(u64::from).contains(isa);
                    values.push(Number(isa.filter(is_known).unwrap_or(0)));
                }
                _ => values.push(Number(number(field?)?)),
            }
        }
        Some(values)
    }
}

/// Returns the text of a field, up to the next field.
fn named<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.match_indices(name).find_map(|(at, _)| {
        let is_begin = at == 0 || text[..at].ends_with(' ');
        let rest = text[at + name.len()..].strip_prefix('=')?;
        is_begin.then_some(rest)
    })?;
    let is_field = |(end, _): &(usize, &str)| {
        let word = rest[end + 1..].split(' ').next().unwrap_or_default();
        word.contains('=')
    };
    let end = rest.match_indices(' ').find(is_field);
    Some(end.map_or(rest, |(end, _)| &rest[..end]).trim())
}

/// Returns the number of a field, of which tracefs prints the other base behind it: `12`, `-1`, `0xc (12)`.
fn number(field: &str) -> Option<u64> {
    let word = field.split(' ').next()?;
    match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok().or_else(|| signed_number(word)),
    }
}

/// Returns the arguments of a system call: `ARRAY[05, 00, …]`, its bytes.
fn array(field: &str) -> Option<impl Iterator<Item = u64>> {
    let bytes = field.strip_prefix("ARRAY[")?.strip_suffix(']')?;
    let bytes: Option<Vec<u8>> = bytes
        .split(", ")
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    let bytes = bytes.filter(|bytes| bytes.len() == ARGUMENTS * size_of::<u64>())?;
    let words = |at: usize| {
        bytes[at * 8..]
            .first_chunk()
            .map(|word| u64::from_le_bytes(*word))
    };
    let words: Vec<u64> = (0..ARGUMENTS).filter_map(words).collect();
    Some(words.into_iter())
}

fn direction(text: &str, read: &str, write: &str) -> Option<u64> {
    if text.starts_with(read) {
        Some(0)
    } else {
        text.starts_with(write).then_some(1)
    }
}

/// `8,0 WS 4096 () 2048 + 8 none,0,0 [fio]`, of a completion `8,0 WS () 2048 + 8 [0]`.
fn block(text: &str) -> Option<Vec<Value<'_>>> {
    let (device, rest) = text.split_once(' ')?;
    let (major, minor) = device.split_once(',')?;
    let (major, minor) = (major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?);
    let (rwbs, _) = rest.split_once(' ')?;
    // What a program passes through stands in parentheses, and may hold anything.
    let (_, place) = rest.rsplit_once(") ")?;
    let (sector, rest) = place.split_once(" + ")?;
    let sectors = rest.split(' ').next()?.parse().ok()?;
    let device = u64::from(major) << 20 | u64::from(minor & 0xf_ffff);
    Some(vec![
        Number(device),
        Number(signed_number(sector)?),
        Number(sectors),
        Value::Text(rwbs),
    ])
}

/// `prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120`, or by trace-cmd's
/// plugin `a:1 [120] S ==> b:2 [120]`.
fn switch(text: &str) -> Option<Vec<Value<'_>>> {
    let (prev, next) = text.split_once(" ==> ")?;
    let (prev_pid, next_pid) = match signed(prev, " prev_pid=") {
        Some(pid) => (pid, signed(next, " next_pid=")?),
        None => (of_plugin(prev)?, of_plugin(next)?),
    };
    let letter = prev.rsplit([' ', '=']).next()?.chars().next()?;
    // TASK_REPORT in include/linux/sched.h.
    let state = match letter {
        'R' => 0,
        'X' => 0x10,
        'Z' => 0x20,
        _ => 1,
    };
    Some(vec![Number(prev_pid), Number(state), Number(next_pid)])
}

/// The thread in `name:12 [120]`.
fn of_plugin(text: &str) -> Option<u64> {
    let (before, _) = text.rsplit_once(" [")?;
    signed_number(before.rsplit_once(':')?.1)
}

/// The number of a reason that has no name.
pub(super) fn unnamed(reason: &str) -> Option<u64> {
    reason.strip_prefix("0x").and_then(from_hex)
}

/// Returns the word behind `before`, up to the next blank, comma or closing parenthesis.
fn word<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    let rest = rest.trim_start();
    let end = rest.find([' ', ',', ')']).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|word| !word.is_empty())
}

/// The decimal number behind `before`.
fn decimal(text: &str, before: &str) -> Option<u64> {
    word(text, before)?.parse().ok()
}

/// Returns the decimal number behind `before`, which may be negative.
fn signed(text: &str, before: &str) -> Option<u64> {
    signed_number(word(text, before)?)
}

fn signed_number(word: &str) -> Option<u64> {
    word.parse::<i64>().ok().map(|number| number as u64)
}

/// The hexadecimal number behind `before`, with or without `0x`.
fn hex(text: &str, before: &str) -> Option<u64> {
    from_hex(word(text, before)?)
}

fn from_hex(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}
