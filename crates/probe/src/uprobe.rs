//! Uprobe definitions in tracefs: a global list, so each of our tracers has a group of its own in it.

use crate::ProbeError;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Before all groups of ours.
pub(crate) const PREFIX: &str = "vmtax_";

/// A probe on an instruction of a program. Several may share an event: they then have the same fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uprobe {
    /// The event it makes.
    pub event: &'static str,
    /// The program's file.
    pub binary: PathBuf,
    /// Where the instruction lies in that file, bytes.
    pub offset: u64,
    /// What it reads, in the words of `uprobe_events`: `offset=%si:u64 …`.
    pub fields: String,
    /// Which of its events are wanted, in the words of an event's `filter` file; all without one.
    pub filter: Option<&'static str>,
    /// Whose instruction it is, for people.
    pub function: &'static str,
}

impl Uprobe {
    fn definition(&self, group: &str) -> String {
        let Uprobe { event, binary, offset, fields, .. } = self;
        format!("p:{group}/{event} {}:{offset:#x} {fields}\n", binary.display())
    }
}

/// Adds a probe to `group`. One write defines one probe.
pub(crate) fn define(root: &Path, group: &str, probe: &Uprobe) -> Result<(), ProbeError> {
    append(root, &probe.definition(group))
}

/// Removes all probes of a group. One that is still listened to stays.
pub(crate) fn undefine(root: &Path, group: &str) {
    let defined = fs::read_to_string(root.join("uprobe_events")).unwrap_or_default();
    for event in events(&defined, group) {
        let _ = append(root, &format!("-:{group}/{event}\n"));
    }
}

fn append(root: &Path, text: &str) -> Result<(), ProbeError> {
    let path = root.join("uprobe_events");
    // Appending matters: opened for writing without it, the kernel empties the list, other people's too.
    let written = OpenOptions::new().append(true).open(&path).and_then(|mut f| f.write_all(text.as_bytes()));
    written.map_err(|e| ProbeError::file("writing", &path, e))
}

/// The groups in a list of definitions, each once.
pub(crate) fn groups(defined: &str) -> Vec<&str> {
    let mut groups: Vec<&str> = names(defined).map(|(group, _)| group).collect();
    groups.sort_unstable();
    groups.dedup();
    groups
}

/// The events of a group in a list of definitions, each once.
fn events<'d>(defined: &'d str, group: &str) -> Vec<&'d str> {
    let mut events: Vec<&str> = names(defined).filter(|(g, _)| *g == group).map(|(_, event)| event).collect();
    events.dedup();
    events
}

/// Group and event of each line `p:GROUP/EVENT PATH:OFFSET …`.
fn names(defined: &str) -> impl Iterator<Item = (&str, &str)> {
    defined.lines().filter_map(|line| line.split(' ').next()?.split_once(':')?.1.split_once('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_written_and_read() {
        let probe = Uprobe {
            event: "pop",
            binary: "/usr/bin/qemu".into(),
            offset: 0x1234,
            fields: "elem=%ax:x64".into(),
            filter: Some("elem != 0"),
            function: "virtqueue_pop",
        };
        assert_eq!(probe.definition("vmtax_7_0"), "p:vmtax_7_0/pop /usr/bin/qemu:0x1234 elem=%ax:x64\n");
        let defined = "p:vmtax_7_0/pop /q:0x1 a=%di:u64\nr:vmtax_7_0/pop /q:0x2\np:vmt/x /q:0x3\np:other /q:1\n\nbad\n";
        assert_eq!(groups(defined), ["vmt", "vmtax_7_0"]);
        assert_eq!(events(defined, "vmtax_7_0"), ["pop"]);
        assert_eq!(events(defined, "vmtax_7"), Vec::<&str>::new());
    }
}
