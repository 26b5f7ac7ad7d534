//! virtiofsd: QEMU's own in C, and its successor in Rust, which take different arguments.

use super::Sharing;
use super::server_command::{ServerCommand, ServerEndpoint};
use crate::MachineError;
use crate::process::child::FIRST_DESCRIPTOR;
use rustix::fs::{AtFlags, unlinkat};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

const SOCKET: &str = "virtiofsd.socket";

/// The server, and the stream to it. Its socket has a name for a moment, in a folder that is closed to others: an abstract
/// one can be connected to by everyone.
pub(super) fn server_command(
    sharing: &Sharing,
    program: &Path,
    scratch: &Path,
) -> Result<ServerCommand, MachineError> {
    let help = help(program)?;
    let rust = help.contains("--shared-dir");
    // The one in C, even for its help.
    if help.contains("setgroups() failed") {
        return Err(MachineError::NoShare(format!(
            "share=virtiofs: {} drops supplementary groups when it starts, which only root may do: run vmtax as root, install the \
             virtiofsd in Rust and name it with share.server, or use share=9p",
            program.display()
        )));
    }
    let failed = |e| MachineError::system("making virtiofsd's socket", e);
    let (listener, stream) = connected(scratch).map_err(failed)?;
    let (command, endpoint) = (
        arguments(sharing, program, rust),
        ServerEndpoint::Stream(stream.into()),
    );
    // The one in Rust makes a user namespace by itself.
    Ok(ServerCommand {
        command,
        jail: Vec::new(),
        descriptors: vec![listener.into()],
        endpoint,
        as_root: !rust,
    })
}

/// A listening socket with its only client.
fn connected(folder: &Path) -> io::Result<(UnixListener, UnixStream)> {
    // By the folder's descriptor, as the path of a socket has at most 107 bytes.
    let folder = File::open(folder)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
    let listener = UnixListener::bind(&path)?;
    // The first in its queue, so the only one that is ever accepted.
    let stream = UnixStream::connect(&path);
    unlinkat(&folder, SOCKET, AtFlags::empty())?;
    Ok((listener, stream?))
}

fn help(program: &Path) -> Result<String, MachineError> {
    let asked = Command::new(program)
        .arg("--help")
        .stdin(Stdio::null())
        .output();
    let output = asked.map_err(|e| {
        MachineError::NoShare(format!(
            "{} does not start ({e}): use another with share.server",
            program.display()
        ))
    })?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn arguments(sharing: &Sharing, program: &Path, rust: bool) -> Vec<String> {
    let option = |key: &str| sharing.share.option(key);
    let source = sharing.source.display();
    let mut arguments = vec![
        program.display().to_string(),
        format!("--fd={FIRST_DESCRIPTOR}"),
    ];
    if rust {
        arguments.push(format!("--shared-dir={source}"));
        arguments.extend(option("cache").map(|mode| format!("--cache={mode}")));
        arguments.extend(sharing.share.is_on("xattr").then(|| "--xattr".to_owned()));
    } else {
        // Its name for no cache is another; and a comma begins another option unless it is escaped.
        let cache = option("cache").map(|mode| if mode == "never" { "none" } else { mode });
        arguments.extend([
            "-o".to_owned(),
            format!(
                "source={}",
                source.to_string().replace('\\', "\\\\").replace(',', "\\,")
            ),
        ]);
        arguments.extend(
            cache
                .into_iter()
                .flat_map(|mode| ["-o".to_owned(), format!("cache={mode}")]),
        );
        arguments.extend(
            sharing
                .share
                .is_on("xattr")
                .then_some(["-o", "xattr"])
                .into_iter()
                .flatten()
                .map(str::to_owned),
        );
    }
    arguments.extend(option("threads").map(|count| format!("--thread-pool-size={count}")));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Share, ShareMethod};

    #[test]
    fn nobody_else_can_connect_to_the_server() {
        let place = tempfile::tempdir().unwrap();
        let (listener, _stream) = connected(place.path()).unwrap();
        assert!(
            std::fs::read_dir(place.path()).unwrap().next().is_none(),
            "its name is gone"
        );
        let address = listener.local_addr().unwrap();
        assert!(std::os::linux::net::SocketAddrExt::as_abstract_name(&address).is_none());
        assert!(UnixStream::connect_addr(&address).is_err());
        listener.accept().unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(
            listener.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }

    #[test]
    fn both_take_the_same_settings_in_their_own_syntax() {
        let options = [("cache", "never"), ("threads", "0"), ("xattr", "on")];
        let options = options.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let share = Share {
            method: ShareMethod::Virtiofs,
            options,
        };
        let source = "/x,y".into();
        let sharing = Sharing::new(share, source);
        let line = |rust| arguments(&sharing, Path::new("v"), rust).join(" ");
        assert_eq!(
            line(true),
            "v --fd=4 --shared-dir=/x,y --cache=never --xattr --thread-pool-size=0"
        );
        assert_eq!(
            line(false),
            "v --fd=4 -o source=/x\\,y -o cache=none -o xattr --thread-pool-size=0"
        );
    }
}
