//! The user's standard streams, which are those of a command on a machine.

use crate::agent::terminal::{Raw, Terminal};
use crate::{Interrupt, MachineError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, MemfdFlags, SeekFrom, fstat, memfd_create, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use vmtax_wire::Size;

/// Size that a pipe accepts at once whenever it accepts anything, bytes.
const MAX_WRITE: usize = 4096;

/// Of an input that comes once, and that several runs need.
const MAX_KEPT: u64 = 1 << 30;

/// Where a command's input comes from, and its output goes to.
#[derive(Debug)]
pub struct Streams {
    input: Input,
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// Where all three are one.
    terminal: Option<Terminal>,
}

#[derive(Debug)]
enum Input {
    None,
    /// A file, read from this place on for each run.
    File(File, u64),
    /// For one run alone, as it comes.
    Once(File),
}

impl Streams {
    /// The streams of this process; with `to_stderr` all that is printed goes to standard error. A terminal and a closed
    /// stream are no input; what can be read once is kept in memory where several `runs` need it.
    ///
    /// # Errors
    /// [`MachineError::System`] for a stream that cannot be taken over.
    pub fn of_this_process(runs: u64, to_stderr: bool) -> Result<Streams, MachineError> {
        let failed = |e: io::Error| MachineError::system("duplicating the standard streams", e);
        let stderr = rustix::stdio::stderr()
            .try_clone_to_owned()
            .map_err(failed)?;
        let stdout = if to_stderr {
            stderr.try_clone()
        } else {
            rustix::stdio::stdout().try_clone_to_owned()
        };
        let input = input(rustix::stdio::stdin(), runs).map_err(failed)?;
        Ok(Streams {
            input,
            stdout: stdout.map_err(failed)?,
            stderr,
            terminal: None,
        })
    }

    /// The terminal of this process, for one run; `resized` becomes readable with each new size of it.
    ///
    /// # Errors
    /// [`MachineError::System`] where standard input and output are no terminal.
    pub fn terminal(resized: OwnedFd) -> Result<Streams, MachineError> {
        let failed = |e: io::Error| MachineError::system("opening the terminal", e);
        let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
        if !rustix::termios::isatty(stdin) || !rustix::termios::isatty(stdout) {
            return Err(failed(io::Error::other(
                "standard input and output are not a terminal: leave out -t",
            )));
        }
        let own = |stream: BorrowedFd<'_>| stream.try_clone_to_owned().map_err(failed);
        let terminal = Some(Terminal::new(own(stdin)?, resized));
        let input = Input::Once(File::from(own(stdin)?));
        Ok(Streams {
            input,
            stdout: own(stdout)?,
            stderr: own(rustix::stdio::stderr())?,
            terminal,
        })
    }

    /// The terminal's size, where there is one.
    pub(crate) fn size(&self) -> Option<Size> {
        self.terminal.as_ref().map(Terminal::size)
    }

    /// Readable with each new size.
    pub(crate) fn resized(&self) -> Option<BorrowedFd<'_>> {
        self.terminal.as_ref().map(Terminal::resized)
    }

    /// The new size.
    pub(crate) fn new_size(&self) -> Option<Size> {
        self.terminal.as_ref().map(Terminal::new_size)
    }

    /// While the value lives, the terminal means nothing by what is typed.
    pub(crate) fn raw(&self) -> io::Result<Option<Raw<'_>>> {
        self.terminal.as_ref().map(Terminal::raw).transpose()
    }

    /// Streams for what is run beside the command: without input, all to standard error.
    pub(crate) fn aside(&self) -> io::Result<Streams> {
        Ok(Streams {
            input: Input::None,
            stdout: self.stderr.try_clone()?,
            stderr: self.stderr.try_clone()?,
            terminal: None,
        })
    }

    /// Returns true if a command has an input.
    pub fn has_input(&self) -> bool {
        !matches!(self.input, Input::None)
    }

    /// The input from its beginning, for one run.
    pub(crate) fn input(&self) -> io::Result<Option<File>> {
        match &self.input {
            Input::None => Ok(None),
            Input::Once(file) => file.try_clone().map(Some),
            Input::File(file, from) => {
                seek(file, SeekFrom::Start(*from))?;
                file.try_clone().map(Some)
            }
        }
    }

    /// Prints, and waits for the reader until a stop is requested. `BrokenPipe` if there is no reader.
    pub(crate) fn print(&self, error: bool, bytes: &[u8], interrupt: &Interrupt) -> io::Result<()> {
        let to = if error { &self.stderr } else { &self.stdout };
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut fds = [
                PollFd::new(to, PollFlags::OUT),
                PollFd::new(interrupt, PollFlags::IN),
            ];
            rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
            if fds[0].revents().is_empty() {
                // What cannot be printed is lost, so that the wish to stop is heard.
                return Ok(());
            }
            match rustix::io::write(to, &rest[..rest.len().min(MAX_WRITE)]) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

fn input(stdin: BorrowedFd<'_>, runs: u64) -> io::Result<Input> {
    let Ok(about) = fstat(stdin) else {
        return Ok(Input::None);
    };
    if rustix::termios::isatty(stdin) || is_null(&about) {
        return Ok(Input::None);
    }
    let file = File::from(stdin.as_fd().try_clone_to_owned()?);
    if FileType::from_raw_mode(about.st_mode) == FileType::RegularFile {
        let from = seek(&file, SeekFrom::Current(0))?;
        return Ok(Input::File(file, from));
    }
    if runs <= 1 {
        return Ok(Input::Once(file));
    }
    let mut kept = File::from(memfd_create("vmtax-input", MemfdFlags::CLOEXEC)?);
    if io::copy(&mut file.take(MAX_KEPT + 1), &mut kept)? > MAX_KEPT {
        return Err(io::Error::other(
            "standard input is larger than 1 GiB, which several rounds cannot share: redirect it from a file, or use --rounds 1",
        ));
    }
    Ok(Input::File(kept, 0))
}

fn is_null(about: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(about.st_mode) == FileType::CharacterDevice
        && about.st_rdev == rustix::fs::makedev(1, 3)
}
