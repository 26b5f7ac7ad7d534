//! Probes on the functions of a VMM's binary: each function found, and a cheap instruction in it.

use crate::uprobe::Uprobe;
use crate::uprobe_offset::{Argument, Code, UprobeOffset};
use iced_x86::Register;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, ReadCache, SymbolKind};
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use vmtax_model::Missing;

/// A point: an exported function of the VMM.
#[derive(Debug, Clone, Copy)]
pub struct ProbePoint {
    /// The event it makes. Points of one event have the same fields.
    pub event: &'static str,
    /// Name of the function.
    pub function: &'static str,
    /// Moment of the function at which the event is made.
    pub at: ProbeAt,
    /// Fields to read there, in the syntax of `uprobe_events`; registers as they are at the function's entry.
    pub fields: &'static str,
    /// When it is used.
    pub used: ProbeUse,
}

/// Moment of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeAt {
    /// It is called.
    Entry,
    /// It has called this one, whose result is in `%ax` and is not zero. Cheaper than a probe on a return, for which newer
    /// kernels make a system call; and only calls from here count.
    After(&'static str),
}

/// When a point is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeUse {
    /// Where it has a cheap place.
    Cheap,
    /// Requests are joined by it: also where it costs 10 us a hit.
    Anyway,
    /// Anyway, where the points of the event before it have no cheap place.
    Instead,
}

/// Longer functions than any of the table: what a symbol claims beyond is not trusted.
const MAX_FUNCTION: u64 = 1 << 16;

const OTHER_QEMU: &str =
    "use a QEMU that exports its functions, as distributions' builds do, or an unstripped one";

/// Probes on the points of a VMM's binary that a block request passes. What this binary does not offer, or offers only at
/// a price, is listed beside them.
pub fn uprobes(points: &[ProbePoint], binary: &Path) -> (Vec<Uprobe>, Vec<Missing>) {
    let (mut probes, mut missing): (Vec<Uprobe>, Vec<Missing>) = (Vec::new(), Vec::new());
    let mut told: Vec<&str> = Vec::new();
    let functions = Functions::open(points, binary).unwrap_or_default();
    for point in points {
        let there = probes.iter().any(|probe| probe.event == point.event);
        if there && point.used == ProbeUse::Instead {
            continue;
        }
        let Some(places) = functions.places(point) else {
            continue;
        };
        told.push(point.event);
        let cheap = places.iter().all(|(_, place)| place.cheap);
        if !cheap {
            missing.push(expensive(point));
        }
        if cheap || point.used != ProbeUse::Cheap {
            probes.extend(places.into_iter().map(|(offset, place)| Uprobe {
                event: point.event,
                binary: binary.to_owned(),
                offset,
                fields: moved(point.fields, &place),
                function: point.function,
            }));
        }
    }
    // An event may have several functions; one of them suffices.
    let mut events: Vec<&str> = points.iter().map(|point| point.event).collect();
    events.dedup();
    for event in events.into_iter().filter(|event| !told.contains(event)) {
        let names: Vec<&str> = points
            .iter()
            .filter(|p| p.event == event)
            .map(|p| p.function)
            .collect();
        missing.push(Missing {
            what: format!("QEMU's probe point `{event}`"),
            why: format!(
                "{} does not export {}",
                binary.display(),
                names.join(" or ")
            ),
            fix: OTHER_QEMU.into(),
        });
    }
    (probes, missing)
}

fn expensive(point: &ProbePoint) -> Missing {
    let effect = if point.used == ProbeUse::Cheap {
        "it is not probed"
    } else {
        "it is probed all the same"
    };
    Missing {
        what: format!("a cheap probe on QEMU's {}", point.function),
        why: format!(
            "the kernel emulates none of its first instructions, so a hit costs 10 µs; {effect}"
        ),
        fix: "use another build of QEMU".into(),
    }
}

/// Executable bytes of a binary and its functions by name.
#[derive(Default)]
struct Functions {
    by_name: HashMap<String, (u64, u64)>,
    segments: Vec<Segment>,
}

struct Segment {
    address: u64,
    offset: u64,
    bytes: Vec<u8>,
}

impl Functions {
    /// `None` for a file that is no 64-bit ELF.
    fn open(points: &[ProbePoint], binary: &Path) -> Option<Functions> {
        let cache = ReadCache::new(File::open(binary).ok()?);
        let file = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
        let endian = file.endian();
        let mut found = Functions::default();
        // The dynamic symbols come last, so that they win over static functions of the same name.
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let Ok(name) = symbol.name() else { continue };
            let wanted = points.iter().any(|point| point.function == name);
            if wanted && symbol.kind() == SymbolKind::Text && symbol.is_definition() {
                found.by_name.insert(
                    name.into(),
                    (symbol.address(), symbol.size().min(MAX_FUNCTION)),
                );
            }
        }
        for header in file.elf_program_headers() {
            let executable = header.p_flags(endian) & object::elf::PF_X != 0;
            if header.p_type(endian) == object::elf::PT_LOAD && executable {
                let bytes = header.data(endian, &cache).ok()?.to_vec();
                found.segments.push(Segment {
                    address: header.p_vaddr(endian),
                    offset: header.p_offset(endian),
                    bytes,
                });
            }
        }
        Some(found)
    }

    fn find(&self, name: &str) -> Option<(u64, u64)> {
        self.by_name.get(name).copied()
    }

    /// Offset in the file and bytes.
    fn bytes(&self, address: u64, size: u64) -> Option<(u64, &[u8])> {
        self.segments.iter().find_map(|segment| {
            let begin = address.checked_sub(segment.address)?;
            let rest = segment.bytes.get(usize::try_from(begin).ok()?..)?;
            let length = usize::try_from(size).ok()?.min(rest.len());
            (length > 0).then(|| (segment.offset + begin, &rest[..length]))
        })
    }

    /// Where in the file a point's probes go; `None` when the function is not there, or not made as the point wants it.
    fn places(&self, point: &ProbePoint) -> Option<Vec<(u64, UprobeOffset)>> {
        let (address, size) = self.find(point.function)?;
        let (offset, bytes) = self.bytes(address, size)?;
        let code = Code::new(bytes);
        let arguments = arguments(point.fields);
        let places = match point.at {
            ProbeAt::Entry => vec![code.entry(&arguments)],
            ProbeAt::After(called) => {
                let distance = self.find(called)?.0.wrapping_sub(address) as i64;
                code.after(distance, &arguments)
            }
        };
        (!places.is_empty()).then(|| {
            places
                .into_iter()
                .map(|place| (offset + place.offset, place))
                .collect()
        })
    }
}

/// Names that the kernel gives the registers of arguments.
const REGISTERS: [(&str, Register); 16] = [
    ("%ax", Register::RAX),
    ("%bx", Register::RBX),
    ("%cx", Register::RCX),
    ("%dx", Register::RDX),
    ("%si", Register::RSI),
    ("%di", Register::RDI),
    ("%bp", Register::RBP),
    ("%sp", Register::RSP),
    ("%r8", Register::R8),
    ("%r9", Register::R9),
    ("%r10", Register::R10),
    ("%r11", Register::R11),
    ("%r12", Register::R12),
    ("%r13", Register::R13),
    ("%r14", Register::R14),
    ("%r15", Register::R15),
];

/// The registers that fields name, in their order.
pub(crate) fn arguments(fields: &str) -> Vec<Argument> {
    let named = fields.split(' ').filter_map(|field| {
        let (_, fetch) = field.split_once('=')?;
        let (_, register) = REGISTERS
            .iter()
            .find(|(name, _)| register_of(fetch) == Some(name))?;
        Some(Argument {
            register: *register,
            narrow: fetch.starts_with('%') && fetch.ends_with("32"),
        })
    });
    named.collect()
}

fn register_of(fetch: &str) -> Option<&str> {
    let name = &fetch[fetch.find('%')?..];
    Some(&name[..name.find([')', ':']).unwrap_or(name.len())])
}

/// The fields with the registers of a place instead of those at the function's entry.
pub(crate) fn moved(fields: &str, place: &UprobeOffset) -> String {
    let mut registers = place.registers.iter();
    let moved = fields.split(' ').map(|field| {
        let Some(old) = register_of(field) else {
            return field.to_owned();
        };
        let new = registers
            .next()
            .and_then(|new| REGISTERS.iter().find(|(_, register)| register == new));
        field.replace(old, new.map_or(old, |(name, _)| name))
    });
    moved.collect::<Vec<String>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_found_and_replaced() {
        let fields = "offset=%si:u64 bytes=+32(%dx):u64 elem=%r9:x64 level=%si:u32 write=\\0:u8";
        let found = arguments(fields);
        let registers = [Register::RSI, Register::RDX, Register::R9, Register::RSI];
        assert_eq!(
            found.iter().map(|a| a.register).collect::<Vec<_>>(),
            registers
        );
        assert_eq!(
            found.iter().map(|a| a.narrow).collect::<Vec<_>>(),
            [false, false, false, true]
        );
        let registers = vec![Register::RBX, Register::R10, Register::R9, Register::RDX];
        let place = UprobeOffset {
            offset: 0,
            cheap: true,
            registers,
        };
        let moved = moved(fields, &place);
        assert_eq!(
            moved,
            "offset=%bx:u64 bytes=+32(%r10):u64 elem=%r9:x64 level=%dx:u32 write=\\0:u8"
        );
    }
}
