//! NFS by hand, to nfs-ganesha: calls that no kernel's client makes, and handles of files that it never gave.

mod v3;
mod v4;

use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

pub use v3::tries as tries_of_v3;
pub use v4::tries as tries_of_v4;

/// In the shared tree: files of these names, with their names in them.
pub const KNOWN: &str = "known";
pub const SIBLING: &str = "sibling";
/// Names that are none, or lead out of any folder; nothing that this test's machine would miss.
const NAMES: [&str; 5] = [
    "../canary",
    "../../canary",
    "a/../../../canary",
    "../beside/planted",
    "",
];

/// Arguments of a call, encoded as XDR.
#[derive(Default, Clone)]
struct Words(Vec<u8>);

impl Words {
    fn number(mut self, number: u32) -> Words {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn numbers<const N: usize>(self, numbers: [u32; N]) -> Words {
        numbers.into_iter().fold(self, Words::number)
    }

    fn bytes(mut self, bytes: &[u8]) -> Words {
        self = self.number(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn text(self, text: &str) -> Words {
        self.bytes(text.as_bytes())
    }
}

/// Content of an answer, encoded as XDR.
struct Answer(Vec<u8>);

impl Answer {
    fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.0[at..at + 4].try_into().unwrap())
    }

    fn bytes(&self, at: usize) -> &[u8] {
        &self.0[at + 4..][..self.number(at) as usize]
    }
}

/// A server's port.
struct Port(TcpStream);

impl Port {
    fn at(port: u16) -> Port {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Port(stream)
    }

    /// Sends a call as root and returns the server's answer; `None` if the server rejects the call.
    fn call(&mut self, [program, version, procedure]: [u32; 3], words: &Words) -> Option<Answer> {
        let head = [
            1, 0, 2, program, version, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0,
        ];
        let call = [Words::default().numbers(head).0.as_slice(), &words.0].concat();
        self.0
            .write_all(&[&(call.len() as u32 | 1 << 31).to_be_bytes()[..], &call].concat())
            .unwrap();
        let mut mark = [0; 4];
        self.0.read_exact(&mut mark).unwrap();
        let mut answer = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        self.0.read_exact(&mut answer).unwrap();
        let answer = Answer(answer);
        // Its number, a reply, accepted, no verifier.
        assert_eq!(
            [0, 4, 8, 16].map(|at| answer.number(at)),
            [1, 1, 0, 0],
            "{:?}",
            answer.0
        );
        (answer.number(20) == 0).then(|| Answer(answer.0[24..].to_vec()))
    }
}

/// Forger of file handles, made from a handle that the server gave.
pub struct Forger {
    /// The kernel's handle of [`KNOWN`], which is in the server's, and its file system's.
    known: Vec<u8>,
    system: [u8; 8],
    /// Of [`SIBLING`]: what is made of its handle has to be taken, or nothing is tried here.
    sibling: Vec<u8>,
    /// Of files that the guest has no business with.
    outside: Vec<(Vec<u8>, [u8; 8])>,
    /// Paths of the files outside the tree.
    paths: Vec<String>,
}

impl Forger {
    /// `root` is where the host sees the tree.
    pub fn new(root: &Path, outside: &[&Path]) -> Forger {
        let (known, sibling) = (root.join(KNOWN), root.join(SIBLING));
        Forger {
            known: kernels_handle(&known),
            system: system(&known),
            sibling: kernels_handle(&sibling),
            outside: outside
                .iter()
                .map(|path| (kernels_handle(path), system(path)))
                .collect(),
            paths: outside
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
        }
    }

    /// Names that are none, or lead out.
    fn names(&self) -> impl Iterator<Item = &str> {
        NAMES
            .into_iter()
            .chain(self.paths.iter().map(String::as_str))
    }

    fn control(&self, given: &[u8]) -> Vec<u8> {
        replaced(given, &self.known, &self.sibling)
    }

    /// Each of another file of the tree's file system, and of the file's own.
    fn forged(&self, given: &[u8]) -> Vec<Vec<u8>> {
        let forge = |(handle, system): &(Vec<u8>, [u8; 8])| {
            let forged = replaced(given, &self.known, handle);
            [replaced(&forged, &self.system, system), forged]
        };
        self.outside.iter().flat_map(forge).collect()
    }
}

fn replaced(given: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len(), "handles of one kind of file system");
    let at = given.windows(from.len()).position(|window| window == from);
    let at = at.unwrap_or_else(|| panic!("no {from:x?} in {given:x?}"));
    [&given[..at], to, &given[at + from.len()..]].concat()
}

fn kernels_handle(path: &Path) -> Vec<u8> {
    const MOST: usize = 128;
    let (name, mut mount) = (CString::new(path.as_os_str().as_bytes()).unwrap(), 0);
    // `struct file_handle`: length, kind, bytes.
    let mut handle = [0_u32; 2 + MOST / 4];
    handle[0] = MOST as u32;
    // SAFETY: the kernel reads the name, and writes as much as the length allows, and a number.
    let done = unsafe {
        libc::name_to_handle_at(
            libc::AT_FDCWD,
            name.as_ptr(),
            handle.as_mut_ptr().cast(),
            &mut mount,
            0,
        )
    };
    assert_eq!(
        done,
        0,
        "{}: {}",
        path.display(),
        std::io::Error::last_os_error()
    );
    let bytes: Vec<u8> = handle[2..]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    bytes[..handle[0] as usize].to_vec()
}

/// The number of a file's file system, by which nfs-ganesha tells them apart.
fn system(path: &Path) -> [u8; 8] {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the kernel reads the name and fills in what it is given room for, of which any bytes are sound.
    let (done, found) = unsafe {
        (
            libc::statfs(name.as_ptr(), found.as_mut_ptr()),
            found.assume_init(),
        )
    };
    assert_eq!(
        done,
        0,
        "{}: {}",
        path.display(),
        std::io::Error::last_os_error()
    );
    // SAFETY: eight bytes both.
    unsafe { std::mem::transmute::<libc::fsid_t, [u8; 8]>(found.f_fsid) }
}

/// Returns the ports of NFS and of the mount service, and the exported directory, from nfs-ganesha's configuration.
pub fn configured(text: &str) -> Option<([u16; 2], String)> {
    let after = |name: &str| {
        text.split_once(name)?
            .1
            .split_once(';')
            .map(|(word, _)| word.to_owned())
    };
    let port = |name: &str| after(name)?.parse().ok();
    Some((
        [port("NFS_Port = ")?, port("MNT_Port = ")?],
        after(" Path = ")?,
    ))
}

/// Puts files in the tree that are looked for there.
pub fn prepare(root: &Path) {
    for name in [KNOWN, SIBLING] {
        fs::write(root.join(name), name).unwrap();
    }
}
