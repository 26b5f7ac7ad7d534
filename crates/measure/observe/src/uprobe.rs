//! Definitions of probes in tracefs: global lists, so each of our tracers has a group of its own in them.

use crate::ProbeError;
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Before all groups of ours.
pub(crate) use vmtax_model::PROBE_GROUP as PREFIX;

/// A probe on an instruction of a program. Several may share an event: they then have the same fields.
///
/// Only the given threads' hits are recorded, but every process that runs the file traps there as long as it is defined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uprobe {
    /// The event it makes.
    pub event: &'static str,
    /// The program's file.
    pub binary: PathBuf,
    /// Where the instruction lies in that file, bytes.
    pub offset: u64,
    /// Fields that the probe reads, in the syntax of `uprobe_events`: `offset=%si:u64 …`.
    pub fields: String,
    /// Whose instruction it is, for people.
    pub function: &'static str,
}

/// A list of definitions in tracefs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// Probes in programs.
    Uprobes,
    /// Probes in the kernel.
    Kprobes,
}

impl List {
    pub const ALL: [List; 2] = [List::Uprobes, List::Kprobes];

    fn path(self, root: &Path) -> PathBuf {
        root.join(match self {
            List::Uprobes => "uprobe_events",
            List::Kprobes => "kprobe_events",
        })
    }

    fn read(self, root: &Path) -> String {
        fs::read_to_string(self.path(root)).unwrap_or_default()
    }

    fn append(self, root: &Path, text: &str) -> Result<(), ProbeError> {
        let path = self.path(root);
        // Appending matters: opened for writing without it, the kernel empties the list, other people's too.
        let written = OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut f| f.write_all(text.as_bytes()));
        written.map_err(|e| ProbeError::file("writing", &path, e))
    }

    /// The groups of ours in it, each once.
    pub fn groups(self, root: &Path) -> Vec<String> {
        let defined = self.read(root);
        let groups = names(&defined).map(|(group, _)| group);
        let ours: BTreeSet<&str> = groups.filter(|group| group.starts_with(PREFIX)).collect();
        ours.into_iter().map(str::to_owned).collect()
    }

    /// Removes all probes of a group. One that is still listened to stays.
    pub fn undefine(self, root: &Path, group: &str) {
        let mut tried: Vec<String> = Vec::new();
        // The kernel gives the list in pieces: a probe is missing from it when another goes meanwhile.
        loop {
            let list = self.read(root);
            let found: Vec<&str> = events(&list, group)
                .into_iter()
                .filter(|e| !tried.iter().any(|t| t == e))
                .collect();
            if found.is_empty() {
                return;
            }
            for event in found {
                self.remove(root, group, event);
                tried.push(event.to_owned());
            }
        }
    }

    /// Removes the probes of one name; one that is still listened to stays.
    fn remove(self, root: &Path, group: &str, event: &str) {
        let _ = self.append(root, &format!("-:{group}/{event}\n"));
    }
}

/// Definitions of ours, under a name of their own. Removed on drop.
#[derive(Debug)]
pub(crate) struct Group {
    root: PathBuf,
    name: String,
    /// Each event once. Not read from the kernel's list at the end, see [`List::undefine`].
    defined: Vec<(List, String)>,
}

impl Group {
    pub fn new(root: &Path, name: String) -> Group {
        Group {
            root: root.to_owned(),
            name,
            defined: Vec::new(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Defines a probe in a program.
    pub fn user(&mut self, probe: &Uprobe) -> Result<(), ProbeError> {
        let (file, offset) = (probe.binary.display(), probe.offset);
        let what = format!("{file}:{offset:#x} {}", probe.fields);
        self.define(List::Uprobes, probe.event, &what)
    }

    /// Defines a probe on a function of the kernel.
    pub fn kernel(&mut self, event: &str, function: &str, fields: &str) -> Result<(), ProbeError> {
        self.define(List::Kprobes, event, &format!("{function} {fields}"))
    }

    fn define(&mut self, list: List, event: &str, what: &str) -> Result<(), ProbeError> {
        list.append(&self.root, &format!("p:{}/{event} {what}\n", self.name))?;
        if !self.defined.iter().any(|(l, e)| *l == list && e == event) {
            self.defined.push((list, event.to_owned()));
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (list, event) in &self.defined {
            list.remove(&self.root, &self.name, event);
        }
    }
}

/// The events of a group in a list of definitions, each once.
fn events<'d>(defined: &'d str, group: &str) -> Vec<&'d str> {
    let own = names(defined).filter(|(g, _)| *g == group);
    let events: BTreeSet<&str> = own.map(|(_, event)| event).collect();
    events.into_iter().collect()
}

/// Group and event of each line `p:GROUP/EVENT PLACE …`.
fn names(defined: &str) -> impl Iterator<Item = (&str, &str)> {
    defined
        .lines()
        .filter_map(|line| line.split(' ').next()?.split_once(':')?.1.split_once('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_groups_told_apart() {
        let defined = "p:vmtax_7_0/pop /q:0x1 a=%di:u64\np:vmtax_7_0/push /q:0x2\np:vmtax_7_0/pop /q:0x5\n\
                       p:vmt/x /q:0x3\np:other /q:1\n\nbad\n";
        assert_eq!(events(defined, "vmtax_7_0"), ["pop", "push"]);
        assert_eq!(events(defined, "vmtax_7"), Vec::<&str>::new());
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("uprobe_events"), defined).unwrap();
        assert_eq!(List::Uprobes.groups(root.path()), ["vmtax_7_0"]);
        assert_eq!(List::Kprobes.groups(root.path()), Vec::<String>::new());
    }

    #[test]
    fn a_group_takes_back_what_it_defined() {
        let root = tempfile::tempdir().unwrap();
        let list = root.path().join("uprobe_events");
        fs::write(&list, "p:vmt/x /q:0x3\n").unwrap();
        let mut group = Group::new(root.path(), "vmtax_7_0".into());
        let probe = Uprobe {
            event: "pop",
            binary: "/usr/bin/qemu".into(),
            offset: 0x1234,
            fields: "elem=%ax:x64".into(),
            function: "virtqueue_pop",
        };
        group.user(&probe).unwrap();
        group.user(&probe).unwrap();
        assert!(
            group.kernel("notify", "vp_notify", "vq=%di:x64").is_err(),
            "there is no such list"
        );
        let written = fs::read_to_string(&list).unwrap();
        let defined = "p:vmtax_7_0/pop /usr/bin/qemu:0x1234 elem=%ax:x64\n";
        assert_eq!(written, format!("p:vmt/x /q:0x3\n{defined}{defined}"));
        // As the kernel gives the list while another process removes probes.
        fs::write(&list, "").unwrap();
        drop(group);
        assert_eq!(fs::read_to_string(&list).unwrap(), "-:vmtax_7_0/pop\n");
    }

    #[test]
    fn a_group_of_a_process_that_ended_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let list = root.path().join("uprobe_events");
        let defined = "p:vmtax_7_0/pop /q:0x1\np:vmt/x /q:0x3\np:vmtax_7_0/push /q:0x2\n";
        fs::write(&list, defined).unwrap();
        List::Uprobes.undefine(root.path(), "vmtax_7_0");
        let written = fs::read_to_string(&list).unwrap();
        assert_eq!(
            written,
            format!("{defined}-:vmtax_7_0/pop\n-:vmtax_7_0/push\n")
        );
    }
}
