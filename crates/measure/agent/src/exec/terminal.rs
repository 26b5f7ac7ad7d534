//! A pseudo-terminal for a command, connected with the user's terminal.

use rustix::fd::OwnedFd;
use rustix::fs::{Gid, Mode, OFlags, Uid, fchown, open};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::io;
use std::path::Path;
use vmtax_wire::Size;

/// The group that terminals belong to, as the file system of terminals is mounted.
const TTY: u32 = 5;

/// Both ends of a pseudoterminal.
pub(super) struct Terminal {
    pub ours: OwnedFd,
    pub theirs: OwnedFd,
}

/// One of the terminals in `root`, of this size, for this user.
pub(super) fn make(root: &Path, size: Size, user: u32) -> io::Result<Terminal> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let ours = open(root.join("dev/pts/ptmx"), flags, Mode::empty())?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(
        &ours,
        OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
    )?;
    fchown(&theirs, Some(Uid::from_raw(user)), Some(Gid::from_raw(TTY)))?;
    resize(&ours, size);
    Ok(Terminal { ours, theirs })
}

/// Tells the programs in it.
pub(super) fn resize(terminal: &OwnedFd, size: Size) {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let _ = tcsetwinsize(terminal, size);
}
