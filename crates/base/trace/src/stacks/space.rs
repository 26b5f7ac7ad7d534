//! A process's address space: which program or library is where, and how stacks in it unwind.

use crate::stacks::elf::{Bytes, Elf};
use crate::stacks::files::FileSource;
use crate::stacks::jit;
use crate::stacks::location::{CodeLocation, CodeOwner, Registers, UnwindEnd};
use crate::stacks::maps::{self, Mapping};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use std::ops::Range;
use std::rc::Rc;

/// A stack deeper than this is a loop.
const MAX_DEPTH: usize = 1024;

/// A program or library of the process.
#[derive(Debug)]
pub struct LoadedModule {
    /// Path of the file as the process sees it.
    pub path: String,
    /// Tables of the file; `why` says what is missing.
    pub elf: Rc<Elf>,
    /// Why its functions have no names, where that is so.
    pub why: Option<String>,
    inode: u64,
}

#[derive(Debug)]
struct Region {
    range: Range<u64>,
    owner: CodeOwner,
    /// To be taken from an address in the region for the linked one.
    bias: u64,
}

/// The address space of one process.
pub struct Space {
    /// Where its files are.
    pub source: FileSource,
    /// The file that it was started from, as it sees it.
    pub exe: String,
    /// Programs and libraries that are loaded.
    pub modules: Vec<LoadedModule>,
    /// Code, sorted by address.
    regions: Vec<Region>,
    /// Translated code that says how its frames are left.
    jits: Vec<Range<u64>>,
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
}

impl Space {
    /// A process's as it is now.
    pub fn of(pid: i32) -> Space {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let exe = exe.to_string_lossy();
        let mut space = Space::empty(FileSource::Process(pid));
        space.exe = exe.strip_suffix(" (deleted)").unwrap_or(&exe).to_owned();
        space.reload();
        space
    }

    /// One that nothing is mapped in.
    pub fn empty(source: FileSource) -> Space {
        Space {
            source,
            exe: String::new(),
            modules: Vec::new(),
            regions: Vec::new(),
            jits: Vec::new(),
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
        }
    }

    /// Looks again what is mapped.
    pub fn reload(&mut self) {
        let maps = maps::parse(&self.source.maps());
        for mapping in maps.iter().filter(|m| m.executable) {
            let base = maps
                .iter()
                .find(|m| m.inode == mapping.inode && m.path == mapping.path && m.offset == 0);
            self.map(mapping, base);
        }
    }

    /// Forgets what is mapped: the process runs another program from here on.
    pub fn clear(&mut self) {
        self.unmap(0..u64::MAX);
        self.exe.clear();
    }

    /// Takes in a mapping of code, over what was there before.
    pub fn map(&mut self, mapping: &Mapping, base: Option<&Mapping>) {
        self.unmap(mapping.start..mapping.end);
        let range = mapping.start..mapping.end;
        if mapping.path.is_empty() || mapping.inode == 0 && !mapping.path.starts_with("[vdso]") {
            // Plain memory with code in it: translated code, unless it tells more of itself.
            let owner = if mapping.path.starts_with('[') {
                CodeOwner::Nowhere
            } else {
                CodeOwner::Jit
            };
            return self.insert(Region {
                range,
                owner,
                bias: 0,
            });
        }
        if mapping.path.starts_with("/memfd:") {
            return self.insert(Region {
                range,
                owner: CodeOwner::Jit,
                bias: 0,
            });
        }
        let known = self
            .modules
            .iter()
            .position(|m| m.path == mapping.path && m.inode == mapping.inode);
        let number = known.unwrap_or_else(|| {
            let (elf, why) = match self.source.elf(mapping, base) {
                Ok(elf) => (elf, None),
                Err(why) => (Rc::default(), Some(why)),
            };
            self.modules.push(LoadedModule {
                path: mapping.path.clone(),
                elf,
                why,
                inode: mapping.inode,
            });
            self.modules.len() - 1
        });
        let elf = &self.modules[number].elf;
        // Of one that could not be read, the offset in its file stands for the linked address.
        let linked = elf.linked(mapping.offset).unwrap_or(mapping.offset);
        let bias = mapping.start.wrapping_sub(linked);
        self.unwinder
            .add_module(unwinding(&mapping.path, range.clone(), bias, elf));
        let descriptor = known
            .is_none()
            .then(|| jit::descriptor(elf, bias))
            .flatten();
        self.insert(Region {
            range,
            owner: CodeOwner::Module(number as u32),
            bias,
        });
        if self.exe.is_empty() {
            self.exe.clone_from(&mapping.path); // what is mapped first
        }
        if let (FileSource::Process(pid), Some(at)) = (&self.source, descriptor) {
            for jit in jit::read(*pid, at) {
                self.add_jit(jit);
            }
        }
    }

    fn add_jit(&mut self, jit: jit::Jit) {
        let range = jit.range.clone();
        let sections = ExplicitModuleSectionInfo {
            base_svma: range.start,
            debug_frame: Some(Bytes::from(jit.debug_frame)),
            ..ExplicitModuleSectionInfo::default()
        };
        self.unwinder.add_module(Module::new(
            "translated code".to_owned(),
            range.clone(),
            range.start,
            sections,
        ));
        self.jits.push(range);
    }

    fn insert(&mut self, region: Region) {
        let at = self
            .regions
            .partition_point(|other| other.range.start < region.range.start);
        self.regions.insert(at, region);
    }

    fn unmap(&mut self, range: Range<u64>) {
        let gone =
            |region: &Region| region.range.start < range.end && range.start < region.range.end;
        for region in self.regions.iter().filter(|region| gone(region)) {
            self.unwinder.remove_module(region.range.start);
        }
        self.regions.retain(|region| !gone(region));
    }

    /// Whose code is at an address.
    pub fn place(&self, address: u64) -> CodeLocation {
        let after = self
            .regions
            .partition_point(|region| region.range.start <= address);
        let region = after
            .checked_sub(1)
            .map(|at| &self.regions[at])
            .filter(|region| region.range.contains(&address));
        match region {
            Some(Region {
                owner: owner @ CodeOwner::Module(_),
                bias,
                ..
            }) => CodeLocation {
                owner: *owner,
                at: address.wrapping_sub(*bias),
            },
            // One location: translated code has no functions to distinguish.
            Some(Region {
                owner: CodeOwner::Jit,
                ..
            }) => CodeLocation {
                owner: CodeOwner::Jit,
                at: 0,
            },
            _ => CodeLocation {
                owner: CodeOwner::Nowhere,
                at: address,
            },
        }
    }

    /// Unwinds a copy of a stack that begins at the stack pointer, innermost frame first, onto `frames`.
    pub fn unwind(
        &mut self,
        registers: Registers,
        stack: &[u8],
        frames: &mut Vec<CodeLocation>,
    ) -> UnwindEnd {
        let mut read = |address: u64| {
            let at = address
                .checked_sub(registers.sp)
                .and_then(|at| usize::try_from(at).ok())
                .ok_or(())?;
            let bytes = stack
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .ok_or(())?;
            Ok(u64::from_le_bytes(*bytes))
        };
        let regs = UnwindRegsX86_64::new(registers.ip, registers.sp, registers.bp);
        let begin = frames.len();
        let mut unwound = Vec::with_capacity(64);
        let end = {
            let mut iterator =
                self.unwinder
                    .iter_frames(registers.ip, regs, &mut self.cache, &mut read);
            loop {
                match iterator.next() {
                    Ok(Some(frame)) if unwound.len() < MAX_DEPTH => {
                        unwound.push(frame.address_for_lookup())
                    }
                    Ok(Some(_)) => break UnwindEnd::Lost,
                    Ok(None) | Err(framehop::Error::ReturnAddressIsNull) => break UnwindEnd::Root,
                    Err(framehop::Error::CouldNotReadStack(at))
                        if at >= registers.sp + stack.len() as u64 =>
                    {
                        break UnwindEnd::Cut;
                    }
                    Err(_) => break UnwindEnd::Lost,
                }
            }
        };
        let end = if end == UnwindEnd::Root {
            end
        } else {
            self.made_context(&mut unwound).unwrap_or(end)
        };
        for address in unwound {
            let place = self.place(address);
            if place.owner == CodeOwner::Nowhere && frames.len() > begin {
                return UnwindEnd::Lost;
            }
            if place.owner != CodeOwner::Jit || frames.last() != Some(&place) {
                frames.push(place);
            }
            if !self.leads_on(place, address) {
                return UnwindEnd::Lost;
            }
        }
        end
    }

    /// Cuts a stack at the function that `makecontext` put below a coroutine's first one, and tells that it begins there. It
    /// was never called: the address to return to is where it begins, and what lies before that is another function.
    fn made_context(&self, addresses: &mut Vec<u64>) -> Option<UnwindEnd> {
        let begins = |address: u64| {
            let CodeLocation {
                owner: CodeOwner::Module(number),
                at,
            } = self.place(address)
            else {
                return false;
            };
            self.modules[number as usize].elf.ranges.start_of(at) == Some(at)
        };
        let at = (1..addresses.len()).find(|&at| begins(addresses[at].wrapping_add(1)))?;
        addresses.truncate(at + 1);
        addresses[at] = addresses[at].wrapping_add(1);
        Some(UnwindEnd::Root)
    }

    /// Returns true if the code says how its frames are left; what follows one that does not is guessed.
    fn leads_on(&self, place: CodeLocation, address: u64) -> bool {
        match place.owner {
            CodeOwner::Module(number) => self.modules[number as usize].elf.eh_frame.is_some(),
            CodeOwner::Jit => self.jits.iter().any(|range| range.contains(&address)),
            _ => false,
        }
    }
}

fn unwinding(path: &str, range: Range<u64>, bias: u64, elf: &Elf) -> Module<Bytes> {
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: elf.text.clone(),
        got_svma: elf.got.clone(),
        eh_frame_svma: elf.eh_frame.as_ref().map(|s| s.at.clone()),
        eh_frame: elf.eh_frame.as_ref().map(|s| s.bytes.clone()),
        eh_frame_hdr_svma: elf.eh_frame_hdr.as_ref().map(|s| s.at.clone()),
        eh_frame_hdr: elf.eh_frame_hdr.as_ref().map(|s| s.bytes.clone()),
        ..ExplicitModuleSectionInfo::default()
    };
    Module::new(path.to_owned(), range, bias, sections)
}
