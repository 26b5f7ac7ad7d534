//! The parts of the file head that versions 6 and 7 share.

use super::compress::Codec;
use super::options::Options;
use crate::import::read::{self, sized, string, wrong};
use crate::{Formats, PageLayout, TracedThreads};
use std::io::{self, Read};

/// `events/header_page` and `events/header_event`.
pub(super) fn layout(from: &mut (impl Read + ?Sized)) -> io::Result<PageLayout> {
    let named = |from: &mut _, name: &str| match string(from)? == name {
        true => sized(from),
        false => Err(wrong(&format!("it has no {name}"))),
    };
    let page = named(from, "header_page")?;
    let event = named(from, "header_event")?;
    let known = |line: &str| {
        event
            .lines()
            .any(|l| l.split_whitespace().collect::<String>() == line)
    };
    if ![
        "type_len:5bits",
        "time_delta:27bits",
        "padding:type==29",
        "time_extend:type==30",
    ]
    .into_iter()
    .all(known)
    {
        return Err(wrong("unknown event header"));
    }
    PageLayout::parse(&page).map_err(|reason| wrong(&reason))
}

/// The formats of the function tracer's own events.
pub(super) fn ftrace_formats(
    from: &mut (impl Read + ?Sized),
    formats: &mut Formats,
) -> io::Result<()> {
    some_formats(from, "ftrace", formats)
}

/// The formats of all other events.
pub(super) fn event_formats(
    from: &mut (impl Read + ?Sized),
    formats: &mut Formats,
) -> io::Result<()> {
    for _ in 0..read::u32(from)? {
        let system = string(from)?;
        some_formats(from, &system, formats)?;
    }
    Ok(())
}

fn some_formats(
    from: &mut (impl Read + ?Sized),
    system: &str,
    formats: &mut Formats,
) -> io::Result<()> {
    for _ in 0..read::u32(from)? {
        let text = sized(from)?;
        // All the events of a kernel are here; one that nobody recorded may be odd.
        let _ = formats.add(system, &text);
    }
    Ok(())
}

/// The pages of one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuPages {
    /// The instance of tracefs; empty for the top one.
    pub instance: String,
    /// Number of the CPU.
    pub cpu: u32,
    /// Offset of its data in the file.
    pub(super) offset: u64,
    /// Length of its data in the file.
    pub(super) bytes: u64,
    pub(super) layout: PageLayout,
    pub(super) codec: Option<Codec>,
}

/// The contents of a file's head.
#[derive(Debug)]
pub(super) struct Head {
    pub options: Options,
    pub formats: Formats,
    pub threads: TracedThreads,
    pub parts: Vec<CpuPages>,
}
