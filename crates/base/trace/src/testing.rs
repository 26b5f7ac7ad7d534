//! Pages and formats made by hand.

use crate::{Counts, Entry, EventId, Events, Formats, Input, Lost, PageLayout};

pub(crate) const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

pub(crate) fn layout() -> PageLayout {
    PageLayout::parse(HEADER_PAGE).unwrap()
}

/// The text of a format file with these fields after the common ones.
pub(crate) fn format(name: &str, id: u16, fields: &[&str]) -> String {
    let fields: String = fields.iter().map(|field| format!("\t{field}\n")).collect();
    format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n{fields}\nprint fmt: \"%d\", REC->none\n")
}

/// One event, `test.number`, ID 7, with a number in 8 bytes.
pub(crate) fn formats() -> Formats {
    let mut formats = Formats::default();
    formats
        .add(
            "test",
            &format(
                "number",
                7,
                &["field:u64 number;\toffset:8;\tsize:8;\tsigned:0;"],
            ),
        )
        .unwrap();
    formats
}

/// A record of `test.number`.
pub(crate) fn record(number: u64) -> Vec<u8> {
    let mut record = vec![7, 0, 0, 0];
    record.extend_from_slice(&42_i32.to_le_bytes());
    record.extend_from_slice(&number.to_le_bytes());
    record
}

/// A page in the making.
pub(crate) struct Page {
    stamp: u64,
    commit: Option<u64>,
    missed: Option<Option<u64>>,
    data: Vec<u8>,
}

impl Page {
    pub fn new(stamp: u64) -> Page {
        Page {
            stamp,
            commit: None,
            missed: None,
            data: Vec::new(),
        }
    }

    pub fn word(mut self, word: u32) -> Page {
        self.data.extend_from_slice(&word.to_le_bytes());
        self
    }

    pub fn header(self, kind: u32, delta: u32) -> Page {
        assert!(delta < 1 << 27);
        self.word(kind | delta << 5)
    }

    /// A record as the kernel writes it: its length in words in the header when it has at most 28.
    pub fn event(self, delta: u32, record: &[u8]) -> Page {
        let padded = record.len().next_multiple_of(4);
        let mut page = if (1..=28 * 4).contains(&padded) {
            self.header(padded as u32 / 4, delta)
        } else {
            self.header(0, delta).word(padded as u32 + 4)
        };
        page.data.extend_from_slice(record);
        page.data.resize(page.data.len() + padded - record.len(), 0);
        page
    }

    pub fn number(self, delta: u32, number: u64) -> Page {
        self.event(delta, &record(number))
    }

    pub fn extend(self, delta: u64) -> Page {
        self.header(30, delta as u32 & 0x7ff_ffff)
            .word((delta >> 27) as u32)
    }

    pub fn absolute(self, stamp: u64) -> Page {
        let stamp = stamp & ((1 << 59) - 1);
        self.header(31, stamp as u32 & 0x7ff_ffff)
            .word((stamp >> 27) as u32)
    }

    pub fn discarded(self, delta: u32, words: u32) -> Page {
        let page = self.header(29, delta).word(words * 4 + 4);
        (0..words).fold(page, |page, _| page.word(0xdead_beef))
    }

    pub fn missed(mut self, events: Option<u64>) -> Page {
        self.missed = Some(events);
        self
    }

    /// Another length than that of the data.
    pub fn commit(mut self, commit: u64) -> Page {
        self.commit = Some(commit);
        self
    }

    pub fn bytes(self) -> Vec<u8> {
        let mut commit = self.commit.unwrap_or(self.data.len() as u64);
        let mut tail = Vec::new();
        if let Some(missed) = self.missed {
            commit |= !0 << 31 & !(1 << 30);
            if let Some(n) = missed {
                commit |= 1 << 30;
                tail = n.to_le_bytes().to_vec();
            }
        }
        let mut bytes = self.stamp.to_le_bytes().to_vec();
        bytes.extend_from_slice(&commit.to_le_bytes());
        bytes.extend_from_slice(&self.data);
        bytes.extend_from_slice(&tail);
        assert!(bytes.len() <= 4096);
        bytes.resize(4096, 0);
        bytes
    }
}

/// Entry as a test compares it: time and number of an event, or the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collected {
    Number(u64, u64),
    Lost(u64, Option<u64>),
}

/// All entries of these inputs, each one CPU's pages.
pub(crate) fn read(inputs: &[&[u8]]) -> (Vec<Collected>, Counts) {
    let formats = formats();
    let number = formats.field(EventId(7), "number").unwrap();
    let inputs = (0..).zip(inputs).map(|(cpu, bytes)| Input {
        path: "test".into(),
        cpu,
        layout: layout(),
        pages: Box::new(*bytes),
    });
    let mut events = Events::pages(&formats, inputs.collect()).unwrap();
    let mut got = Vec::new();
    while let Some(entry) = events.next().unwrap() {
        got.push(match entry {
            Entry::Event(event) => {
                Collected::Number(event.ticks, number.unsigned(event.data).unwrap())
            }
            Entry::Lost(Lost { ticks, events, .. }) => Collected::Lost(ticks, events),
        });
    }
    (got, *events.counts())
}
