//! Output of the recorded events, as the kernel wrote them.

use crate::tracefs::Instance;
use crate::{ProbeError, TraceClock};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Takes a file's name and the next bytes of it.
pub type Sink<'s> = &'s mut dyn FnMut(&str, &[u8]) -> io::Result<()>;

/// No event's description is longer.
const DESCRIPTION: usize = 64 << 10;
/// So many bytes are handed on at once.
const PIECE: usize = 1 << 20;

/// The files that say how pages and events are laid out.
pub(crate) fn layouts(
    root: &Path,
    events: &[(String, String)],
    clock: TraceClock,
    sink: Sink<'_>,
) -> Result<(), ProbeError> {
    let mut copy = |from: &str, to: &str| {
        let path = root.join("events").join(from);
        let bytes = whole(&path).map_err(|e| ProbeError::file("reading", &path, e))?;
        sink(to, &bytes).map_err(saving)
    };
    copy("header_page", "header_page")?;
    for (system, name) in events {
        copy(
            &format!("{system}/{name}/format"),
            &format!("formats/{system}.{name}"),
        )?;
    }
    sink("clock", format!("{}\n", clock.name()).as_bytes()).map_err(saving)
}

/// In one call and with room for all: `header_page` gives nothing to a second one (`fs::read` begins with a small one).
fn whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; DESCRIPTION];
    let mut file = File::open(path)?;
    let length = file.read(&mut bytes)?;
    bytes.truncate(length);
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Every CPU's pages, those that are there by now. The last of each may be partly filled.
pub(crate) fn pages(kind: &str, instance: &Instance, sink: Sink<'_>) -> Result<(), ProbeError> {
    let page = page_size(instance);
    let mut piece = Vec::with_capacity(PIECE);
    for cpu in cpus(instance)? {
        let (name, path) = (
            format!("{kind}.cpu{cpu}.raw"),
            instance.path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw")),
        );
        let reading = |e: Errno| ProbeError::file("reading", &path, e.into());
        let raw = rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())
            .map_err(reading)?;
        sink(&name, &[]).map_err(saving)?;
        loop {
            let begin = piece.len();
            piece.resize(begin + page, 0);
            let read = match rustix::io::read(&raw, &mut piece[begin..]) {
                Err(Errno::INTR) => Some(0),
                Ok(0) | Err(Errno::AGAIN) => None,
                read => Some(read.map_err(reading)?),
            };
            piece.truncate(begin + read.unwrap_or(0));
            if read.is_none() || piece.len() + page > PIECE {
                sink(&name, &piece).map_err(saving)?;
                piece.clear();
            }
            if read.is_none() {
                break;
            }
        }
    }
    Ok(())
}

/// Every CPU's statistics.
pub(crate) fn stats(kind: &str, instance: &Instance, sink: Sink<'_>) -> Result<(), ProbeError> {
    for cpu in cpus(instance)? {
        let path = instance.path(&format!("per_cpu/cpu{cpu}/stats"));
        let stats = fs::read_to_string(&path).map_err(|e| ProbeError::file("reading", &path, e))?;
        sink("stats", format!("{kind}.cpu{cpu}\n{stats}").as_bytes()).map_err(saving)?;
    }
    Ok(())
}

/// Numbers of the CPUs that have a buffer, in order.
fn cpus(instance: &Instance) -> Result<Vec<u32>, ProbeError> {
    let path = instance.path("per_cpu");
    let entries = fs::read_dir(&path)
        .map_err(|e| ProbeError::file("reading", &path, e))?
        .flatten();
    let number = |name: &str| name.strip_prefix("cpu")?.parse().ok();
    let mut cpus: Vec<u32> = entries
        .filter_map(|entry| number(entry.file_name().to_str()?))
        .collect();
    cpus.sort_unstable();
    Ok(cpus)
}

/// Since Linux 6.8 a page of the buffer may be several of the CPU's.
fn page_size(instance: &Instance) -> usize {
    let kib = fs::read_to_string(instance.path("buffer_subbuf_size_kb"))
        .ok()
        .and_then(|text| text.trim().parse().ok());
    kib.map_or_else(rustix::param::page_size, |kib: usize| {
        kib.clamp(4, 1024) << 10
    })
}

fn saving(source: io::Error) -> ProbeError {
    ProbeError::System {
        what: "saving the trace".into(),
        source,
    }
}
