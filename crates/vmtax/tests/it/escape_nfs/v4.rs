//! Version 4: compounds.

use super::{Answer, Forger, KNOWN, Port, SIBLING, Words};

const CREATE: u32 = 6;
const GETFH: u32 = 10;
const LINK: u32 = 11;
const LOOKUP: u32 = 15;
const LOOKUPP: u32 = 16;
const PUTFH: u32 = 22;
const PUTROOTFH: u32 = 24;
const READ: u32 = 25;
const REMOVE: u32 = 28;
const RENAME: u32 = 29;
const SAVEFH: u32 = 32;
const SETATTR: u32 = 34;
const WRITE: u32 = 38;
const FOLDER: u32 = 2;
const SYMLINK: u32 = 5;

/// Operations of a compound.
#[derive(Default, Clone)]
struct Ops(u32, Words);

impl Ops {
    fn with(self, change: impl FnOnce(Words) -> Words) -> Ops {
        Ops(self.0, change(self.1))
    }

    fn op(self, op: u32) -> Ops {
        Ops(self.0 + 1, self.1.number(op))
    }

    fn named(self, op: u32, name: &str) -> Ops {
        self.op(op).with(|words| words.text(name))
    }

    /// From the server's root down to a folder of the share.
    fn at(names: &[&str]) -> Ops {
        let share = Ops::default().op(PUTROOTFH).named(LOOKUP, "share");
        names
            .iter()
            .fold(share, |ops, name| ops.named(LOOKUP, name))
    }

    fn by_handle(handle: &[u8]) -> Ops {
        Ops::default().op(PUTFH).with(|words| words.bytes(handle))
    }

    /// Creates a directory without attributes.
    fn folder(self, name: &str) -> Ops {
        self.op(CREATE)
            .with(|words| words.number(FOLDER).text(name).numbers([0, 0]))
    }

    fn symlink(self, name: &str, to: &str) -> Ops {
        self.op(CREATE)
            .with(|words| words.number(SYMLINK).text(to).text(name).numbers([0, 0]))
    }

    /// From the first byte on; by nobody's leave: the stateid of all zeros.
    fn read(self) -> Ops {
        self.op(READ).with(|words| words.numbers([0; 6]).number(60))
    }

    fn write(self) -> Ops {
        self.op(WRITE)
            .with(|words| words.numbers([0; 6]).number(2).text("planted"))
    }

    /// To no bytes.
    fn truncate(self) -> Ops {
        self.op(SETATTR)
            .with(|words| words.numbers([0; 4]).numbers([1, 1 << 4, 8, 0, 0]))
    }
}

/// The status of the last operation that was done, 0 if all were; and what was answered.
fn compound(server: &mut Port, ops: &Ops) -> (u32, Option<Answer>) {
    // Without a tag, of version 4.0.
    let words = Words([Words::default().numbers([0, 0, ops.0]).0, ops.1.0.clone()].concat());
    let answer = server.call([100_003, 4, 1], &words);
    (
        answer.as_ref().map_or(u32::MAX, |answer| answer.number(0)),
        answer,
    )
}

/// Tries to get out. `writable` is whether the share may be written to. What it got that it should not, or did not get that
/// it should.
pub fn tries(port: u16, writable: bool, forger: &Forger) -> Vec<String> {
    let mut server = Port::at(port);
    let mut wrong = forge(&mut server, forger);
    let mut ask = |what: String, ops: Ops, may: bool| {
        let status = compound(&mut server, &ops).0;
        if (status == 0) != may {
            wrong.push(format!("{what}: {status}"));
        }
    };
    let scratch = || Ops::at(&["scratch"]);
    ask("look".to_owned(), scratch().op(GETFH), true);
    ask(
        "make a folder".to_owned(),
        scratch().folder("raw"),
        writable,
    );
    for name in forger.names().chain([".", ".."]) {
        let mut no = |what: &str, ops: Ops| ask(format!("{what} '{name}'"), ops, false);
        no("look up", Ops::at(&[]).named(LOOKUP, name));
        no("look up in scratch", scratch().named(LOOKUP, name));
        no("make a folder", scratch().folder(name));
        no("make a link", scratch().symlink(name, "x"));
        no("remove", scratch().named(REMOVE, name));
        no(
            "rename to",
            scratch()
                .op(SAVEFH)
                .named(RENAME, "raw")
                .with(|words| words.text(name)),
        );
        no(
            "rename from",
            scratch()
                .op(SAVEFH)
                .named(RENAME, name)
                .with(|words| words.text("stolen")),
        );
        no(
            "link",
            Ops::at(&["scratch", "inside"])
                .op(SAVEFH)
                .op(LOOKUPP)
                .named(LINK, name),
        );
    }
    let mut no = |what: &str, ops: Ops| ask(what.to_owned(), ops, false);
    no(
        "leave by the parent",
        Ops::at(&[]).op(LOOKUPP).op(LOOKUPP).named(LOOKUP, "canary"),
    );
    no(
        "leave by the parent twice",
        Ops::at(&[]).op(LOOKUPP).named(LOOKUP, "canary"),
    );
    for link in ["out", "up"] {
        no("follow a link", Ops::at(&[link]).named(LOOKUP, "secret"));
        no("follow a link up", Ops::at(&[link]).named(LOOKUP, "canary"));
        no(
            "make a folder behind a link",
            Ops::at(&[link]).folder("planted"),
        );
        no(
            "remove behind a link",
            Ops::at(&[link]).named(REMOVE, "secret"),
        );
        no("read a link", Ops::at(&[link]).read());
        no("write to a link", Ops::at(&[link]).write());
    }
    wrong
}

/// By handles of files that are none of the share.
fn forge(server: &mut Port, forger: &Forger) -> Vec<String> {
    let (status, answer) = compound(server, &Ops::at(&[KNOWN]).op(GETFH));
    assert_eq!(status, 0);
    // Status, no tag, how many; of each operation its number and status; then the handle.
    let given = answer.unwrap().bytes(12 + 4 * 8).to_vec();
    let (status, answer) = compound(server, &Ops::by_handle(&forger.control(&given)).read());
    // With the end of the file.
    assert_eq!(
        (status, answer.unwrap().bytes(12 + 2 * 8 + 4)),
        (0, SIBLING.as_bytes()),
        "a handle of the share's own"
    );
    let mut wrong = Vec::new();
    for handle in forger.forged(&given) {
        let by = || Ops::by_handle(&handle);
        for (what, ops) in [
            ("found", by().op(GETFH)),
            ("read", by().read()),
            ("wrote", by().write()),
            ("cut", by().truncate()),
        ] {
            if compound(server, &ops).0 == 0 {
                wrong.push(format!("{what} by a forged handle {handle:x?}"));
            }
        }
    }
    wrong
}
