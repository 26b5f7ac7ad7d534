//! Properties that a QEMU binary shows without being started: linked libraries, exported functions, compiled-in texts.

use memchr::memmem;
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef, SymbolKind};
use std::fs::File;
use std::path::Path;

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
pub fn read(path: &Path) -> Option<QemuBinary> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    #[test]
    fn a_program_that_is_no_qemu_has_none_of_it() {
        let found = read(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(found.aio, Vec::<String>::new());
        // The shell imports many functions and exports none.
        let shell = read(Path::new("/bin/sh")).unwrap();
        assert!(
            shell.exported_functions < 50,
            "{}",
            shell.exported_functions
        );
        assert_eq!(shell.trace_backends, Vec::<String>::new());
        assert_eq!(read(Path::new("/etc/passwd")), None);
        assert_eq!(read(Path::new("/nonexistent")), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A damaged ELF file: real headers with bytes changed.
        #[test]
        fn a_damaged_file_never_panics(changes in proptest::collection::vec((0usize..4096, any::<u8>()), 0..40)) {
            let mut bytes = std::fs::read("/bin/true").unwrap();
            for (at, value) in changes {
                let at = at % bytes.len();
                // Half of the changes near the end, where the section headers are.
                let at = if value % 2 == 0 { at } else { bytes.len() - 1 - at };
                bytes[at] = value;
            }
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(&bytes).unwrap();
            let _ = read(file.path());
        }
    }
}
