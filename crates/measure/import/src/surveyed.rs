//! A file with what it holds, for the recording.

use crate::source::SourceFile;
use crate::survey::Survey;
use vmtax_model::{ImportedFile, Missing, TraceSide};

/// A file with what it holds.
pub(crate) struct Surveyed {
    pub file: SourceFile,
    pub survey: Survey,
    pub side: TraceSide,
}

impl Surveyed {
    /// Events of exits.
    pub fn kvm_events(&self) -> u64 {
        self.survey.vcpus.values().map(|vcpu| vcpu.events).sum()
    }

    pub fn facts(&self) -> ImportedFile {
        let counts = &self.survey.counts;
        ImportedFile {
            file: self.file.path.display().to_string(),
            format: self.file.format().to_owned(),
            side: self.side,
            clock: self.file.clock().to_owned(),
            events: counts.events,
            lost: counts.lost,
            unknown: counts.unknown,
        }
    }

    /// Returns the parts of the file that could not be read.
    pub fn missing(&self) -> Vec<Missing> {
        let path = self.file.path.display();
        let counts = &self.survey.counts;
        let mut missing = Vec::new();
        let mut add = |count: u64, what: &str, why: &str, fix: &str| {
            if count > 0 {
                let why = format!("{count} {why}");
                missing.push(Missing {
                    what: format!("{what} of {path}"),
                    why,
                    fix: fix.to_owned(),
                });
            }
        };
        let again = "copy the file again, or record it again";
        add(
            counts.damaged_pages,
            "parts",
            "pages or records are invalid or cut off",
            again,
        );
        add(
            counts.short,
            "some events",
            "records do not fit their format",
            again,
        );
        add(
            counts.losses,
            "some events",
            "times events were lost",
            "record with larger buffers (`trace-cmd record -b`)",
        );
        add(
            counts.backwards + counts.leaps,
            "the order of events",
            "events are out of order or far ahead",
            "",
        );
        add(
            self.survey.unreadable.len() as u64,
            "some events",
            "tracepoints have other fields than are known",
            "",
        );
        missing
    }
}
