//! Finds QEMUs, asks each what it can do, and reads the properties that a binary shows without being started: linked
//! libraries, exported functions, compiled-in texts.

#[cfg(test)]
#[path = "qemu_tests.rs"]
mod tests;

use crate::CheckResult;
use crate::command::{self, Answer, Begun, ask, begin, find_program};
use crate::error::{HostError, OLDEST_QEMU, QemuVersion, version_in_banner};
use memchr::memmem;
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef, SymbolKind};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use vmtax_model::{Check, HostProblem, QemuFacts, Readiness, Remedy};

/// The names a QEMU for x86-64 goes by: everywhere, and on Red Hat's.
const NAMES: [&str; 2] = ["qemu-system-x86_64", "qemu-kvm"];
/// A QEMU answers in 20 to 100 ms; the rest is for a cold disk and a loaded host.
const LIMIT: Duration = Duration::from_secs(10);
/// Devices a guest is built from here.
const DEVICES: [&str; 3] = ["virtio-blk-pci", "virtio-serial-pci", "virtserialport"];

/// A QEMU, and what only `doctor` says of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Probed {
    pub facts: QemuFacts,
    /// Names of [`DEVICES`] that it does not have.
    pub lacks: Vec<&'static str>,
    /// A wrapper script: nothing is known of exported functions, AIO engines and trace back ends.
    pub is_wrapper: bool,
}

/// The QEMU to use: the one named, by a path, a name in PATH, or the version or suite of a fetched one; or the best in PATH and the
/// system's folders: those with both KVM and TCG come before others, then the order of the search path counts, so that it is what
/// the bare name starts. Each is started a few times with a help option, in parallel, at most 3 s.
///
/// # Errors
/// When the one named is not there, does not run, is another program, too old, or emulates no PC; when none is named, what
/// is wrong with the first that was found, or that there is none.
pub fn best_qemu(explicit: Option<&Path>) -> Result<QemuFacts, HostError> {
    let found = match explicit {
        Some(named) => probe(&resolve(named)?),
        None => survey(None, &[])
            .into_iter()
            .next()
            .unwrap_or(Err(HostError::NoQemu)),
    };
    found.map(|probed| probed.facts)
}

/// Checks that a QEMU that is named exists and may be executed. Only a version that was neither fetched nor built needs an answer
/// of the QEMUs in PATH: one start of each.
///
/// # Errors
/// When it does not exist, is no file, or is not executable.
pub fn check_named_qemu(named: &Path) -> Result<(), HostError> {
    check_executable(&resolve(named)?)
}

/// The QEMUs that were fetched, as far as they are usable. Such as were built here may be patched, and are left out.
pub fn fetched_qemus() -> Vec<QemuFacts> {
    let fetched = vmtax_guests::qemu::cache_dir()
        .map(|cache| vmtax_guests::qemu::find(&cache))
        .unwrap_or_default();
    let paths: Vec<PathBuf> = fetched
        .into_iter()
        .filter(|qemu| !vmtax_guests::qemu::is_name_of_built(&qemu.name()))
        .map(|qemu| qemu.path)
        .collect();
    let all = probe_all(&paths).into_iter();
    all.filter_map(|found| Some(found.ok()?.facts)).collect()
}

fn probe_all(paths: &[PathBuf]) -> Vec<Result<Probed, HostError>> {
    thread::scope(|scope| {
        let begun: Vec<_> = paths
            .iter()
            .map(|path| begin(scope, || probe(path)))
            .collect();
        begun.into_iter().filter_map(Begun::result).collect()
    })
}

/// The one named first, then all others, usable ones before the rest; each with what is wrong with it. `fetched` are such
/// as are not in the search path.
pub(crate) fn survey(
    explicit: Option<&Path>,
    fetched: &[PathBuf],
) -> Vec<Result<Probed, HostError>> {
    let (named, unknown) = match explicit.map(resolve).transpose() {
        Ok(named) => (named, None),
        Err(error) => (None, Some(error)),
    };
    let all = candidates(&command::folders())
        .into_iter()
        .chain(fetched.iter().cloned())
        .collect();
    let others = distinct(all, named.as_deref());
    let mut found = probe_all(&named.iter().cloned().chain(others).collect::<Vec<_>>());
    let first_other = named.iter().count();
    found[first_other..].sort_by_key(rank);
    if let Some(error) = unknown {
        found.insert(0, Err(error));
    }
    found
}

/// Lower is better; the sort keeps the order of the search path among equals.
fn rank(found: &Result<Probed, HostError>) -> u8 {
    let Ok(probed) = found else { return 2 };
    let has = |name: &&str| probed.facts.accelerators.iter().any(|a| a == name);
    u8::from(!["kvm", "tcg"].iter().all(has))
}

fn candidates(folders: &[PathBuf]) -> Vec<PathBuf> {
    let paths = folders
        .iter()
        .flat_map(|folder| NAMES.map(|name| folder.join(name)));
    paths.filter(|path| path.is_file()).collect()
}

/// Without those that are the same file under another name.
fn distinct(paths: Vec<PathBuf>, named: Option<&Path>) -> Vec<PathBuf> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let mut seen: Vec<PathBuf> = named.iter().map(|path| real(path)).collect();
    let mut kept = Vec::new();
    for path in paths {
        let file = real(&path);
        if !seen.contains(&file) {
            seen.push(file);
            kept.push(path);
        }
    }
    kept
}

/// An absolute path. A word without a slash, that is no file here, is the name of a fetched QEMU or, as for the shell, of a
/// program in PATH, or the version of an installed QEMU; the rest starts from the current folder.
fn resolve(named: &Path) -> Result<PathBuf, HostError> {
    let bare_name = named
        .to_str()
        .filter(|name| !name.contains('/') && !named.exists());
    if let Some(name) = bare_name {
        // Without a cache none was fetched.
        let (cache, unread) = match vmtax_guests::qemu::cache_dir() {
            Ok(cache) => (Some(cache), String::new()),
            Err(why) => (None, format!(" ({why})")),
        };
        let fetched = cache
            .as_ref()
            .and_then(|cache| vmtax_guests::qemu::named(cache, name));
        if let Some(program) = fetched
            .map(|fetched| fetched.path)
            .or_else(|| find_program(name))
            .or_else(|| installed(name))
        {
            return Ok(program);
        }
        if vmtax_guests::qemu::is_name(name) {
            let all = cache.map(|cache| vmtax_guests::qemu::find(&cache));
            let here = all.iter().flatten().map(|qemu| qemu.name()).collect();
            let name = name.into();
            return Err(HostError::QemuNotFetched { name, here, unread });
        }
    }
    Ok(std::path::absolute(named).unwrap_or_else(|_| named.to_path_buf()))
}

/// The installed QEMU of a version, or of its beginning: 7.2 is 7.2.22 too.
fn installed(version: &str) -> Option<PathBuf> {
    let own_version = |path: &PathBuf| {
        let banner = asked(path, &["--version"]).ok()?;
        Some(version_in_banner(&banner.text)?.to_string())
    };
    let is_wanted = |own: String| {
        let rest = own.strip_prefix(version);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let is_number = version.starts_with(|c: char| c.is_ascii_digit());
    let mut candidates = candidates(&command::folders()).into_iter();
    candidates.find(|path| is_number && own_version(path).is_some_and(is_wanted))
}

fn probe(path: &Path) -> Result<Probed, HostError> {
    check_executable(path)?;
    // Alone first: nothing but `--version` is asked of a program that may be anything.
    let version = version_of(path)?;
    let (accelerators, machines, objects, devices, binary) = thread::scope(|scope| {
        let help = |option: &'static str| {
            begin(scope, move || {
                asked(path, &[option, "help"]).map(|a| a.text)
            })
        };
        let asking = ["-accel", "-machine", "-object", "-device"].map(help);
        let binary =
            read_binary(&vmtax_guests::qemu::binary(path).unwrap_or_else(|| path.to_path_buf()));
        let failed = || Err(does_not_start(path, "asking it failed"));
        let [a, b, c, d] = asking.map(|begun| begun.result().unwrap_or_else(failed));
        Ok::<_, HostError>((a?, b?, c?, d?, binary))
    })?;
    if !first_words(&machines).any(|word| ["pc", "q35"].contains(&word)) {
        return Err(HostError::QemuNotX86 { path: path.into() });
    }
    let is_wrapper = binary.is_none();
    let binary = binary.unwrap_or_default();
    let mut aio = vec!["threads".to_owned()];
    aio.extend(binary.aio);
    Ok(Probed {
        lacks: DEVICES
            .into_iter()
            .filter(|name| !devices.contains(&format!("\"{name}\"")))
            .collect(),
        is_wrapper,
        facts: QemuFacts {
            path: path.into(),
            version: version.to_string(),
            accelerators: accelerators_in(&accelerators),
            aio,
            iothread: first_words(&objects).any(|word| word == "iothread"),
            exported_functions: binary.exported_functions,
            trace_backends: binary.trace_backends,
        },
    })
}

/// Checks that a path leads to a file that this user may execute.
fn check_executable(path: &Path) -> Result<(), HostError> {
    let own = || path.to_path_buf();
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => HostError::QemuMissing { path: own() },
        _ => does_not_start(path, error),
    })?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() {
            "a directory"
        } else {
            "a device, pipe or socket"
        };
        return Err(HostError::QemuNotAFile { path: own(), kind });
    }
    if !command::is_executable(path) {
        return Err(HostError::QemuNotExecutable { path: own() });
    }
    Ok(())
}

/// The version of a QEMU that is new enough.
fn version_of(path: &Path) -> Result<QemuVersion, HostError> {
    let banner = asked(path, &["--version"])?;
    let path = path.to_path_buf();
    match version_in_banner(&banner.text) {
        Some(version) if version < OLDEST_QEMU => Err(HostError::QemuTooOld { path, version }),
        Some(version) => Ok(version),
        None if banner.success => Err(HostError::NotQemu {
            path,
            said: first_line(&banner.text),
        }),
        None => Err(does_not_start(&path, first_line(&banner.text))),
    }
}

fn does_not_start(path: &Path, reason: impl ToString) -> HostError {
    HostError::QemuDoesNotStart {
        path: path.into(),
        reason: reason.to_string(),
    }
}

fn asked(path: &Path, arguments: &[&str]) -> Result<Answer, HostError> {
    match ask(path, arguments, LIMIT) {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(HostError::QemuHangs {
            path: path.to_path_buf(),
            arguments: arguments.join(" "),
            seconds: LIMIT.as_secs(),
        }),
        Err(error) => Err(does_not_start(path, error)),
    }
}

/// The first line, short, without control characters: it may come from anything.
fn first_line(text: &str) -> String {
    let line = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    line.trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(120)
        .collect()
}

fn first_words(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
}

/// The accelerators that run x86 guests here, from `-accel help`: one a line, or before 5.0 all in one line.
fn accelerators_in(help: &str) -> Vec<String> {
    let words = help.split(|c: char| c.is_whitespace() || c == ',');
    let known: BTreeSet<&str> = words
        .filter(|word| ["kvm", "tcg", "xen"].contains(word))
        .collect();
    known.into_iter().map(str::to_owned).collect()
}

/// One line of `doctor` for each QEMU, or one that says there is none.
pub(crate) fn checks(found: &[Result<Probed, HostError>]) -> Vec<Check> {
    if found.is_empty() {
        return vec![check(&Err(HostError::NoQemu))];
    }
    found.iter().map(check).collect()
}

fn check(found: &Result<Probed, HostError>) -> Check {
    let why = "runs the guests; its build options decide what can be compared and traced";
    let about = |verdict: CheckResult| verdict.about("qemu", "QEMU", why);
    let probed = match found {
        Ok(probed) => probed,
        Err(error) => {
            // The error knows best what to do: a check has a place of its own for that.
            let (text, fix) = (error.to_string(), error.fix());
            let cause = text
                .strip_suffix(&fix)
                .map_or(text.as_str(), |cause| cause.trim_end_matches([':', ' ']));
            let remedies = vec![Remedy::instruction(fix)];
            return Check {
                state: Readiness::Missing,
                remedies,
                ..about(CheckResult::limited_for_good(cause))
            };
        }
    };
    let facts = &probed.facts;
    let tcg = facts.accelerators.iter().any(|name| name == "tcg");
    let whole = tcg && facts.iothread && facts.aio.len() == 3 && probed.lacks.is_empty();
    about(CheckResult::ok_if(
        whole,
        described(probed),
        HostProblem::QemuIncomplete,
    ))
}

/// Where a QEMU is, and what it can do.
fn described(probed: &Probed) -> String {
    let facts = &probed.facts;
    let list = |names: &[String]| {
        if names.is_empty() {
            "none".into()
        } else {
            names.join(", ")
        }
    };
    let mut text = format!(
        "{} {}: accelerators {}",
        facts.path.display(),
        facts.version,
        list(&facts.accelerators)
    );
    if probed.is_wrapper {
        text += "; a wrapper script, so its AIO engines, exported functions and trace back ends are unknown";
    } else {
        text += &format!(
            "; AIO {}; {}; {} exported functions; trace back ends {}",
            list(&facts.aio),
            if facts.iothread {
                "iothreads"
            } else {
                "no iothreads"
            },
            facts.exported_functions,
            list(&facts.trace_backends)
        );
    }
    if !probed.lacks.is_empty() {
        text += &format!("; lacks {}", probed.lacks.join(", "));
    }
    text
}

/// Properties that were read from the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QemuBinary {
    /// AIO engines beyond the thread pool that is always there.
    pub aio: Vec<String>,
    /// Functions in `.dynsym` that are defined there.
    pub exported_functions: u32,
    /// Trace back ends.
    pub trace_backends: Vec<String>,
}

/// Reads a QEMU binary; `None` when it is no ELF file (a wrapper script), so nothing is known of it.
///
/// - AIO engines: a dynamic QEMU links `libaio` and `liburing` exactly when it was configured with them; a static one has
///   their entry points `laio_init` and `luring_init` among its symbols.
/// - Trace back ends: `simple` and `ftrace` by their error texts; `log` by the format text of an event, which only the
///   back ends that print hold (and syslog, which needs `openlog`); `ust` by its library; `dtrace` by its probe notes.
pub fn read_binary(path: &Path) -> Option<QemuBinary> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let libraries = needed(&file);
    let links = |name: &str| {
        libraries
            .iter()
            .any(|library| library.starts_with(name.as_bytes()))
    };
    let mut symbols = [false; 3];
    let names: [&[u8]; 3] = [b"laio_init", b"luring_init", b"openlog"];
    for symbol in file.dynamic_symbols().chain(file.symbols()) {
        for (found, wanted) in symbols.iter_mut().zip(names) {
            *found |= symbol.name_bytes() == Ok(wanted);
        }
    }
    let [laio, luring, openlog] = symbols;
    let exported = file
        .dynamic_symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());

    let texts = file
        .section_by_name(".rodata")
        .and_then(|section| section.data().ok())
        .unwrap_or_default();
    let has = |text: &str| memmem::find(texts, text.as_bytes()).is_some();
    Some(QemuBinary {
        aio: present(&[
            ("native", links("libaio.so") || laio),
            ("io_uring", links("liburing.so") || luring),
        ]),
        exported_functions: exported.count() as u32,
        trace_backends: present(&[
            ("log", has("virtqueue_pop vq %p") && !openlog),
            ("simple", has("failed to initialize simple tracing backend")),
            ("ftrace", has("failed to initialize ftrace backend")),
            ("ust", links("liblttng-ust")),
            ("dtrace", file.section_by_name(".note.stapsdt").is_some()),
        ]),
    })
}

/// The names of what is there.
fn present(all: &[(&str, bool)]) -> Vec<String> {
    let there = all.iter().filter(|(_, is_there)| *is_there);
    there.map(|(name, _)| name.to_string()).collect()
}

/// The libraries of DT_NEEDED.
fn needed<'data, R: ReadRef<'data>>(file: &ElfFile64<'data, Endianness, R>) -> Vec<&'data [u8]> {
    let (endian, data) = (file.endian(), file.data());
    let read = || {
        let sections = file.elf_header().sections(endian, data).ok()?;
        let (entries, link) = sections.dynamic(endian, data).ok()??;
        let strings = sections.strings(endian, data, link).ok()?;
        let libraries = entries
            .iter()
            .filter(|entry| entry.tag32(endian) == Some(object::elf::DT_NEEDED));
        Some(
            libraries
                .filter_map(|entry| strings.get(entry.val32(endian)?).ok())
                .collect(),
        )
    };
    read().unwrap_or_default()
}
