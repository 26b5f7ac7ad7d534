//! NFSv4 by hand, to nfs-ganesha: compounds that no kernel's client sends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const CREATE: u32 = 6;
const GETFH: u32 = 10;
const LINK: u32 = 11;
const LOOKUP: u32 = 15;
const LOOKUPP: u32 = 16;
const PUTROOTFH: u32 = 24;
const READ: u32 = 25;
const REMOVE: u32 = 28;
const RENAME: u32 = 29;
const SAVEFH: u32 = 32;
const WRITE: u32 = 38;
const FOLDER: u32 = 2;
const SYMLINK: u32 = 5;

/// Operations of a compound.
#[derive(Default, Clone)]
struct Ops(u32, Vec<u8>);

impl Ops {
    fn number(mut self, number: u32) -> Ops {
        self.1.extend(number.to_be_bytes());
        self
    }

    fn text(mut self, text: &str) -> Ops {
        self = self.number(text.len() as u32);
        self.1.extend(text.bytes());
        self.1.resize(self.1.len().next_multiple_of(4), 0);
        self
    }

    fn op(mut self, op: u32) -> Ops {
        self.0 += 1;
        self.number(op)
    }

    /// From the server's root down to a folder of the share.
    fn at(names: &[&str]) -> Ops {
        names.iter().fold(Ops::default().op(PUTROOTFH).lookup("share"), |ops, name| ops.lookup(name))
    }

    fn lookup(self, name: &str) -> Ops {
        self.op(LOOKUP).text(name)
    }

    /// Without attributes.
    fn folder(self, name: &str) -> Ops {
        self.op(CREATE).number(FOLDER).text(name).number(0).number(0)
    }

    fn symlink(self, name: &str, to: &str) -> Ops {
        self.op(CREATE).number(SYMLINK).text(to).text(name).number(0).number(0)
    }

    /// By nobody's leave: the stateid of all zeros.
    fn anonymous(self, op: u32) -> Ops {
        (0..4).fold(self.op(op), |ops, _| ops.number(0))
    }
}

/// The status of the last operation that was done; 0 if all were.
fn compound(server: &mut TcpStream, ops: &Ops) -> u32 {
    // Call 1 of NFS 4: a compound, by root.
    let head = [1, 0, 2, 100_003, 4, 1, 1, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, ops.0];
    let body = head.into_iter().fold(Ops::default(), Ops::number).1;
    let length = (body.len() + ops.1.len()) as u32 | 1 << 31;
    server.write_all(&[&length.to_be_bytes()[..], &body, &ops.1].concat()).unwrap();
    let mut mark = [0; 4];
    server.read_exact(&mut mark).unwrap();
    let mut answer = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
    server.read_exact(&mut answer).unwrap();
    let word = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().unwrap());
    // Its number, a reply, accepted, no verifier, done.
    assert_eq!([word(0), word(4), word(8), word(16), word(20)], [1, 1, 0, 0, 0], "{answer:?}");
    word(24)
}

/// Tries to get out. `writable` is whether the share may be written to. What it got that it should not, or did not get that
/// it should.
pub fn tries(port: u16, writable: bool) -> Vec<String> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut wrong = Vec::new();
    let mut ask = |what: String, ops: Ops, may: bool| {
        let status = compound(&mut server, &ops);
        if (status == 0) != may {
            wrong.push(format!("{what}: {status}"));
        }
    };
    let scratch = || Ops::at(&["scratch"]);
    ask("look".to_owned(), scratch().op(GETFH), true);
    ask("make a folder".to_owned(), scratch().folder("raw"), writable);
    for name in ["..", ".", "../canary", "../../canary", "a/../../../canary", "/etc/passwd", "../beside/planted", ""] {
        let mut no = |what: &str, ops: Ops| ask(format!("{what} '{name}'"), ops, false);
        no("look up", Ops::at(&[]).lookup(name));
        no("look up in scratch", scratch().lookup(name));
        no("make a folder", scratch().folder(name));
        no("make a link", scratch().symlink(name, "x"));
        no("remove", scratch().op(REMOVE).text(name));
        no("rename to", scratch().op(SAVEFH).op(RENAME).text("raw").text(name));
        no("rename from", scratch().op(SAVEFH).op(RENAME).text(name).text("stolen"));
        no("link", Ops::at(&["scratch", "inside"]).op(SAVEFH).op(LOOKUPP).op(LINK).text(name));
    }
    let mut no = |what: &str, ops: Ops| ask(what.to_owned(), ops, false);
    no("leave by the parent", Ops::at(&[]).op(LOOKUPP).op(LOOKUPP).lookup("canary"));
    no("leave by the parent twice", Ops::at(&[]).op(LOOKUPP).lookup("canary"));
    for link in ["out", "up"] {
        no("follow a link", Ops::at(&[link]).lookup("secret"));
        no("follow a link up", Ops::at(&[link]).lookup("canary"));
        no("make a folder behind a link", Ops::at(&[link]).folder("planted"));
        no("remove behind a link", Ops::at(&[link]).op(REMOVE).text("secret"));
        no("read a link", Ops::at(&[link]).anonymous(READ).number(0).number(0).number(60));
        no("write to a link", Ops::at(&[link]).anonymous(WRITE).number(0).number(0).number(2).text("planted"));
    }
    wrong
}
