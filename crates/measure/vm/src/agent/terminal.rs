//! The user's terminal in raw mode: input goes to the guest's terminal unchanged.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io;
use vmtax_wire::Size;

/// A terminal, and the file descriptor that reports new sizes.
#[derive(Debug)]
pub(crate) struct Terminal {
    terminal: OwnedFd,
    resized: OwnedFd,
}

impl Terminal {
    /// `resized` becomes readable with each new size.
    pub fn new(terminal: OwnedFd, resized: OwnedFd) -> Terminal {
        Terminal { terminal, resized }
    }

    pub fn size(&self) -> Size {
        let size = tcgetwinsize(&self.terminal)
            .ok()
            .filter(|size| size.ws_row > 0 && size.ws_col > 0);
        size.map_or(
            Size {
                rows: 24,
                columns: 80,
            },
            |size| Size {
                rows: size.ws_row,
                columns: size.ws_col,
            },
        )
    }

    pub fn resized(&self) -> BorrowedFd<'_> {
        self.resized.as_fd()
    }

    /// The new size; several changes are one.
    pub fn new_size(&self) -> Size {
        let _ = rustix::io::read(&self.resized, &mut [0; 64]);
        self.size()
    }

    /// Sets raw mode until the value is dropped.
    pub fn raw(&self) -> io::Result<Raw<'_>> {
        let was = tcgetattr(&self.terminal)?;
        let mut raw = was.clone();
        raw.make_raw();
        set(&self.terminal, &raw)?;
        Ok(Raw {
            terminal: &self.terminal,
            was,
        })
    }
}

/// A terminal in raw mode. Restores the mode on drop.
#[derive(Debug)]
pub(crate) struct Raw<'a> {
    terminal: &'a OwnedFd,
    was: Termios,
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        let _ = set(self.terminal, &self.was);
    }
}

fn set(terminal: &OwnedFd, to: &Termios) -> io::Result<()> {
    loop {
        match tcsetattr(terminal, OptionalActions::Drain, to) {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}
