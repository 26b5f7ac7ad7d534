//! From places in code to functions with names. What has no name keeps a place of its own: it is never counted to its
//! neighbor.

use super::StackError;
use super::elf::Elf;
use super::samples::SampledStacks;
use super::space::{CodeLocation, CodeOwner, LoadedModule, Space};
use super::symbols::{Kernel, Symbol};
use crate::system_call_name;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;
use vmtax_model::samples::{CodeOrigin, Function, Profile, Thread};

/// Names functions of one process.
pub struct Names<'a> {
    space: &'a Space,
    kernel: &'a Kernel,
    /// For each module, the tables that name its functions: its own, or those of its unstripped build.
    tables: Vec<Option<Rc<Elf>>>,
    program: Option<u32>,
}

impl<'a> Names<'a> {
    /// Finds the tables of a process: an unstripped build, where one was given, and files that packages or debuginfod left here.
    pub fn find(space: &'a Space, kernel: &'a Kernel, given: Option<Elf>) -> Names<'a> {
        let stripped = |module: &LoadedModule| space.source.stripped(&module.elf);
        let mut tables: Vec<Option<Rc<Elf>>> = space.modules.iter().map(stripped).collect();
        let of_given = given.as_ref().and_then(|build| whose(build, space));
        if let Some(at) = of_given {
            tables[at] = given.map(Rc::new);
        }
        let is_program = |module: &LoadedModule| {
            let name = module.path.rsplit('/').next().unwrap_or_default();
            name.starts_with("qemu-system") || module.path == space.exe
        };
        let program = space
            .modules
            .iter()
            .position(is_program)
            .map(|at| at as u32);
        Names {
            space,
            kernel,
            tables,
            program,
        }
    }

    /// Programs and libraries whose functions are not all named, with why: `(file, why)`.
    pub fn unnamed(&self) -> Vec<(String, String)> {
        let each = self.space.modules.iter().zip(&self.tables);
        let why = |(module, table): (&LoadedModule, &Option<Rc<Elf>>)| {
            let why = module.why.clone().or_else(|| {
                (!module.elf.unstripped && table.is_none() && !module.path.starts_with('['))
                    .then(|| "stripped".to_owned())
            })?;
            Some((module.path.clone(), why))
        };
        each.filter_map(why).collect()
    }

    /// The profile of what was sampled.
    pub fn profile(
        &self,
        sampled: &SampledStacks,
        name: impl Fn(i32) -> Option<String>,
    ) -> Profile {
        let mut functions = Vec::new();
        let mut by_function: HashMap<Function, usize> = HashMap::new();
        let mut by_place: HashMap<CodeLocation, usize> = HashMap::new();
        let mut number = |place: CodeLocation| {
            *by_place.entry(place).or_insert_with(|| {
                *by_function
                    .entry(self.function(place, sampled))
                    .or_insert_with_key(|function| {
                        functions.push(function.clone());
                        functions.len() - 1
                    })
            })
        };
        let stacks = sampled
            .stacks
            .iter()
            .map(|stack| stack.iter().rev().map(|&place| number(place)).collect())
            .collect();
        let threads = sampled.threads.iter().map(|(tid, told)| Thread {
            tid: *tid,
            name: name(*tid)
                .or_else(|| told.clone())
                .unwrap_or_else(|| "ended".to_owned()),
        });
        let threads = threads.collect();
        let mut samples = sampled.samples.clone();
        samples.sort_by_key(|sample| sample.time);
        Profile {
            functions,
            stacks,
            threads,
            samples,
        }
    }

    fn function(&self, place: CodeLocation, sampled: &SampledStacks) -> Function {
        let in_kernel = self.kernel.name(place.at);
        let name = match place.owner {
            CodeOwner::Module(number) => return self.in_module(number, place.at),
            CodeOwner::Kernel => match in_kernel {
                Some(name) => name.to_owned(),
                None => format!("kernel:{:#x}", place.at),
            },
            CodeOwner::Call => system_call_name(place.at as i64).into_owned(),
            CodeOwner::Wait => sampled.waits[place.at as usize].clone(),
            CodeOwner::Jit => "[translated code]".to_owned(),
            CodeOwner::GuestKernel => "[guest kernel]".to_owned(),
            CodeOwner::GuestUser => "[guest user code]".to_owned(),
            CodeOwner::Nowhere => format!("unknown:{:#x}", place.at),
        };
        let origin = match place.owner {
            CodeOwner::Kernel | CodeOwner::Call | CodeOwner::Wait => CodeOrigin::Kernel,
            CodeOwner::Jit => CodeOrigin::Translated,
            CodeOwner::GuestKernel => CodeOrigin::GuestKernel,
            CodeOwner::GuestUser => CodeOrigin::GuestUser,
            CodeOwner::Module(_) | CodeOwner::Nowhere => CodeOrigin::Unknown,
        };
        Function {
            name,
            module: String::new(),
            origin,
            named: match place.owner {
                CodeOwner::Kernel => in_kernel.is_some(),
                owner => owner != CodeOwner::Nowhere,
            },
        }
    }

    fn in_module(&self, number: u32, at: u64) -> Function {
        let module = &self.space.modules[number as usize];
        let origin = if self.program == Some(number) {
            CodeOrigin::Program
        } else {
            CodeOrigin::Library
        };
        let table = self.tables[number as usize].as_ref();
        let symbol = table
            .into_iter()
            .chain([&module.elf])
            .find_map(|table| covering(table, &module.elf, at));
        let unnamed = || {
            // Where the function begins, so that all of it has one name.
            let start = module.elf.ranges.start_of(at).unwrap_or(at);
            let file = module.path.rsplit('/').next().unwrap_or_default();
            format!("{file}:{}", near(&module.elf, start))
        };
        Function {
            name: symbol.map_or_else(unnamed, |symbol| readable(symbol.name)),
            module: module.path.clone(),
            origin,
            named: symbol.is_some(),
        }
    }
}

/// Reads an unstripped build of one of the process's programs.
///
/// # Errors
/// [`StackError`] when the file is not an ELF program.
pub fn build(path: &Path, space: &Space) -> Result<Elf, StackError> {
    let build = Elf::open(path).map_err(|why| StackError::NoBuild {
        file: path.to_owned(),
        why,
    })?;
    match whose(&build, space) {
        Some(_) => Ok(build),
        None => Err(StackError::ForeignSymbols {
            file: path.to_owned(),
        }),
    }
}

/// The module that `build` is a build of.
fn whose(build: &Elf, space: &Space) -> Option<usize> {
    space.modules.iter().position(|module| {
        !build.build_id.is_empty() && build.build_id == module.elf.build_id
            || build.same_layout(&module.elf)
    })
}

/// An address by the symbol that is nearest to it, whichever side that is on.
fn near(elf: &Elf, at: u64) -> String {
    match (elf.symbols.before(at), elf.symbols.after(at)) {
        (Some(below), Some(above)) if above.at - at < at - below.at => {
            format!("{}-{:#x}", readable(above.name), above.at - at)
        }
        (Some(below), _) => format!("{}+{:#x}", readable(below.name), at - below.at),
        (None, Some(above)) => format!("{}-{:#x}", readable(above.name), above.at - at),
        (None, None) => format!("{at:#x}"),
    }
}

/// The symbol whose function an address is in. One without a size, as assembly has, reaches to where the next function
/// begins.
fn covering<'a>(table: &'a Elf, layout: &Elf, at: u64) -> Option<Symbol<'a>> {
    let symbol = table.symbols.before(at)?;
    let inside = if symbol.size == 0 {
        layout
            .ranges
            .start_of(at)
            .is_none_or(|start| start <= symbol.at)
    } else {
        at - symbol.at < symbol.size
    };
    inside.then_some(symbol)
}

/// A linker's name as its language has it.
fn readable(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let cpp = name
        .starts_with("_Z")
        .then(|| cpp_demangle::Symbol::new(name).ok()?.demangle().ok())
        .flatten();
    // Exported in a version: `read@@GLIBC_2.2.5`.
    cpp.unwrap_or_else(|| name.split('@').next().unwrap_or(name).to_owned())
}
