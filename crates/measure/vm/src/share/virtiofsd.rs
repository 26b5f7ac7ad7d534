//! virtiofsd: QEMU's own old one in C, and its successor in Rust, which take different words.

use super::serving::{Meeting, Serving};
use super::sharing::Sharing;
use crate::MachineError;
use crate::process::child::FIRST_DESCRIPTOR;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

/// The server, and the stream to it. The name that both meet by is in no folder: nothing of it can be left behind.
pub(super) fn serving(sharing: &Sharing, program: &Path) -> Result<Serving, MachineError> {
    let failed = |e| MachineError::system("making virtiofsd's socket", e);
    let name = format!("vmtax-{}-{}", std::process::id(), fastrand::u64(..));
    let address = SocketAddr::from_abstract_name(name).map_err(failed)?;
    let listener = UnixListener::bind_addr(&address).map_err(failed)?;
    // The first in its queue, so the only one that is ever accepted.
    let stream = UnixStream::connect_addr(&address).map_err(failed)?;
    let successor = is_successor(program)?;
    let (command, meeting) = (words(sharing, program, successor), Meeting::Stream(stream.into()));
    // The successor makes a user namespace by itself.
    Ok(Serving { command, jail: Vec::new(), descriptors: vec![listener.into()], meeting, as_root: !successor })
}

fn is_successor(program: &Path) -> Result<bool, MachineError> {
    let asked = Command::new(program).arg("--help").stdin(Stdio::null()).output();
    let output = asked.map_err(|e| {
        MachineError::NoShare(format!("{} does not start ({e}): name another with share.server", program.display()))
    })?;
    let said = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&said).contains("--shared-dir"))
}

fn words(sharing: &Sharing, program: &Path, successor: bool) -> Vec<String> {
    let option = |key: &str| sharing.share.option(key);
    let source = sharing.source.display();
    let mut words = vec![program.display().to_string(), format!("--fd={FIRST_DESCRIPTOR}")];
    if successor {
        words.push(format!("--shared-dir={source}"));
        words.extend(option("cache").map(|mode| format!("--cache={mode}")));
        words.extend(sharing.share.is_on("xattr").then(|| "--xattr".to_owned()));
    } else {
        // Its name for no cache is another; and a comma begins another option unless it is escaped.
        let cache = option("cache").map(|mode| if mode == "never" { "none" } else { mode });
        words.extend([
            "-o".to_owned(),
            format!("source={}", source.to_string().replace('\\', "\\\\").replace(',', "\\,")),
        ]);
        words.extend(cache.into_iter().flat_map(|mode| ["-o".to_owned(), format!("cache={mode}")]));
        words.extend(sharing.share.is_on("xattr").then_some(["-o", "xattr"]).into_iter().flatten().map(str::to_owned));
    }
    words.extend(option("threads").map(|count| format!("--thread-pool-size={count}")));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Share, ShareMethod};

    #[test]
    fn both_take_the_same_settings_in_their_own_words() {
        let options = [("cache", "never"), ("threads", "0"), ("xattr", "on")];
        let options = options.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let share = Share { method: ShareMethod::Virtiofs, options };
        let source = "/x,y".into();
        let sharing = Sharing::new(share, source);
        let said = |successor| words(&sharing, Path::new("v"), successor).join(" ");
        assert_eq!(said(true), "v --fd=4 --shared-dir=/x,y --cache=never --xattr --thread-pool-size=0");
        assert_eq!(said(false), "v --fd=4 -o source=/x\\,y -o cache=none -o xattr --thread-pool-size=0");
    }
}
