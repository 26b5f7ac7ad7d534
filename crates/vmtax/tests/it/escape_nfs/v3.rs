//! Version 3: a call for each operation, and another program that gives the export's handle.

use super::{Answer, Forger, KNOWN, Port, SIBLING, Words};

const SETATTR: u32 = 2;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const SYMLINK: u32 = 10;
const REMOVE: u32 = 12;
const RENAME: u32 = 14;
const LINK: u32 = 15;
/// Attributes of a new file, with none set.
const ATTRIBUTES: [u32; 6] = [0; 6];

/// The server's two ports.
struct Server {
    nfs: Port,
    exports: Port,
}

impl Server {
    /// A status, 0 for done, and what was answered.
    fn ask(&mut self, procedure: u32, words: &Words) -> (u32, Option<Answer>) {
        let answer = self.nfs.call([100_003, 3, procedure], words);
        (
            answer.as_ref().map_or(u32::MAX, |answer| answer.number(0)),
            answer,
        )
    }

    /// The handle of an export.
    fn export(&mut self, path: &str) -> Option<Vec<u8>> {
        let answer = self
            .exports
            .call([100_005, 3, 1], &Words::default().text(path))?;
        (answer.number(0) == 0).then(|| answer.bytes(4).to_vec())
    }

    fn find(&mut self, folder: &[u8], name: &str) -> Option<Vec<u8>> {
        let (status, answer) = self.ask(LOOKUP, &Words::default().bytes(folder).text(name));
        (status == 0).then(|| answer.unwrap().bytes(4).to_vec())
    }
}

fn at(handle: &[u8]) -> Words {
    Words::default().bytes(handle)
}

/// From the first byte on.
fn read(handle: &[u8]) -> Words {
    at(handle).numbers([0, 0, 60])
}

fn write(handle: &[u8]) -> Words {
    at(handle).numbers([0, 0, 7, 2]).text("planted")
}

/// To no bytes, unguarded.
fn truncate(handle: &[u8]) -> Words {
    at(handle).numbers([0, 0, 0, 1, 0, 0, 0, 0, 0])
}

/// Tries to get out; see [`super::v4::tries`].
pub fn tries([nfs, exports]: [u16; 2], writable: bool, forger: &Forger) -> Vec<String> {
    let mut server = Server {
        nfs: Port::at(nfs),
        exports: Port::at(exports),
    };
    let root = server.export("/share").unwrap();
    let mut wrong = forge(&mut server, &root, forger);
    for path in [
        "/",
        "..",
        "/share/..",
        "/share/out",
        "/share/up",
        "/tmp",
        "/share/../tmp",
        "",
    ] {
        if let Some(handle) = server.export(path) {
            // A name of the export's own, or a folder that has nothing but exports.
            let secret = ["secret", "canary"]
                .iter()
                .find_map(|name| server.find(&handle, name));
            wrong.extend(secret.map(|_| format!("the export '{path}'")));
        }
    }
    let scratch = server.find(&root, "scratch").unwrap();
    let inside = server.find(&scratch, "inside");
    let mut ask = |what: String, procedure: u32, words: Words, may: bool| {
        let status = server.ask(procedure, &words).0;
        if (status == 0) != may {
            wrong.push(format!("{what}: {status}"));
        }
    };
    // nfs-ganesha takes names with slashes: from here each of them leads out.
    let named = |name: &str| at(&root).text(name);
    let folder = |name: &str| named(name).numbers(ATTRIBUTES);
    ask("make a folder".to_owned(), MKDIR, folder("raw"), writable);
    for name in forger.names() {
        let mut no = |what: &str, procedure: u32, words: Words| {
            ask(format!("{what} '{name}'"), procedure, words, false)
        };
        no("look up", LOOKUP, named(name));
        no("make a folder", MKDIR, folder(name));
        no(
            "make a file",
            CREATE,
            named(name).number(0).numbers(ATTRIBUTES),
        );
        no("make a link", SYMLINK, folder(name).text("x"));
        no("remove", REMOVE, named(name));
        no("rename to", RENAME, named("raw").bytes(&root).text(name));
        no(
            "rename from",
            RENAME,
            named(name).bytes(&root).text("stolen"),
        );
        if let Some(inside) = &inside {
            no("link", LINK, at(inside).bytes(&root).text(name));
        }
    }
    for link in ["out", "up"] {
        let link = server.find(&root, link).unwrap();
        let behind = |name: &str| at(&link).text(name);
        let calls = [
            (LOOKUP, behind("secret")),
            (LOOKUP, behind("canary")),
            (MKDIR, behind("planted").numbers(ATTRIBUTES)),
            (REMOVE, behind("secret")),
            (READ, read(&link)),
            (WRITE, write(&link)),
        ];
        let done = calls
            .iter()
            .filter(|(procedure, words)| server.ask(*procedure, words).0 == 0);
        wrong.extend(
            done.map(|(procedure, _)| format!("{procedure} behind a link"))
                .collect::<Vec<_>>(),
        );
    }
    // Up is a name like others, and ends at the export.
    let mut up = root.clone();
    for _ in 0..3 {
        up = server.find(&up, "..").unwrap_or(up);
        wrong.extend(
            server
                .find(&up, "canary")
                .map(|_| "left by the parent".to_owned()),
        );
    }
    wrong
}

/// By handles of files that are none of the share.
fn forge(server: &mut Server, root: &[u8], forger: &Forger) -> Vec<String> {
    let given = server.find(root, KNOWN).unwrap();
    let (status, answer) = server.ask(READ, &read(&forger.control(&given)));
    let answer = answer.unwrap();
    // With attributes of 84 bytes, a count, whether that is all.
    assert_eq!(
        (status, answer.bytes(4 + 4 + 84 + 8)),
        (0, SIBLING.as_bytes()),
        "a handle of the share's own"
    );
    let mut wrong = Vec::new();
    for handle in forger.forged(&given) {
        for (procedure, words) in [
            (1, at(&handle)),
            (READ, read(&handle)),
            (WRITE, write(&handle)),
            (SETATTR, truncate(&handle)),
        ] {
            if server.ask(procedure, &words).0 == 0 {
                wrong.push(format!(
                    "procedure {procedure} by a forged handle {handle:x?}"
                ));
            }
        }
    }
    wrong
}
