//! The user's standard streams, which are those of a command on a machine: with a terminal in raw mode, whose input goes to the
//! guest's unchanged, and with what is kept of the output.

use crate::{Interrupt, MachineError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, MemfdFlags, SeekFrom, fstat, memfd_create, seek};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use vmtax_wire::Size;

/// Size that a pipe accepts at once whenever it accepts anything, bytes.
const MAX_WRITE: usize = 4096;
/// Largest size of an input that comes once and that several runs need, bytes.
const MAX_KEPT: u64 = 1 << 30;

/// Where a command's input comes from, and its output goes to.
#[derive(Debug)]
pub struct Streams {
    input: Input,
    stdout: OwnedFd,
    stderr: OwnedFd,
    /// The terminal, where all three are one.
    pub(crate) terminal: Option<Terminal>,
}

/// The input of the commands of a run.
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
        let terminal = Some(Terminal {
            terminal: own(stdin)?,
            resized,
        });
        let input = Input::Once(File::from(own(stdin)?));
        Ok(Streams {
            input,
            stdout: own(stdout)?,
            stderr: own(rustix::stdio::stderr())?,
            terminal,
        })
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

/// Returns true for `/dev/null`.
fn is_null(about: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(about.st_mode) == FileType::CharacterDevice
        && about.st_rdev == rustix::fs::makedev(1, 3)
}

/// A terminal, and the file descriptor that reports new sizes.
#[derive(Debug)]
pub(crate) struct Terminal {
    terminal: OwnedFd,
    resized: OwnedFd,
}

impl Terminal {
    /// The size of the terminal, 24 rows of 80 columns where it has none.
    pub fn size(&self) -> Size {
        let (rows, columns) = match tcgetwinsize(&self.terminal) {
            Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
            _ => (24, 80),
        };
        Size { rows, columns }
    }

    /// Readable with each new size.
    pub fn resized(&self) -> BorrowedFd<'_> {
        self.resized.as_fd()
    }

    /// The new size; several changes are one.
    pub fn new_size(&self) -> Size {
        let _ = rustix::io::read(&self.resized, &mut [0; 64]);
        self.size()
    }

    /// Sets raw mode until the value is dropped: the terminal means nothing by what is typed.
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

/// Sets the mode of a terminal.
fn set(terminal: &OwnedFd, to: &Termios) -> io::Result<()> {
    loop {
        match tcsetattr(terminal, OptionalActions::Drain, to) {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Largest size of the kept beginning of an output, and of its end, bytes.
const MAX_PART: usize = 256 << 10;

/// The beginning and the end of one stream's output, bounded, to read metrics from.
#[derive(Debug, Default)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: bool,
}

impl Capture {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(MAX_PART - self.head.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(MAX_PART);
        if over > 0 {
            self.tail.drain(..over);
            self.left_out = true;
        }
    }

    /// Returns true if bytes in the middle are missing.
    pub fn is_cut(&self) -> bool {
        self.left_out
    }

    /// The beginning and the end; where the middle is missing they are on lines of their own.
    pub fn text(&self) -> String {
        let mut all = self.head.clone();
        if self.left_out {
            all.push(b'\n');
        }
        all.extend(&self.tail);
        String::from_utf8_lossy(&all).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginning_and_end_are_kept_and_no_more() {
        let mut capture = Capture::default();
        for piece in [&b"first\n"[..], b"second\n"] {
            capture.push(piece);
        }
        assert_eq!(
            (capture.text().as_str(), capture.is_cut()),
            ("first\nsecond\n", false)
        );
        for i in 0..40_000 {
            capture.push(format!("line {i} of many\n").as_bytes());
        }
        let text = capture.text();
        assert!(text.starts_with("first\n") && text.ends_with("line 39999 of many\n"));
        assert!(
            capture.is_cut() && text.len() == 2 * MAX_PART + 1,
            "{}",
            text.len()
        );
        // One piece that is longer than both parts.
        let mut capture = Capture::default();
        capture.push(&vec![b'x'; 3 * MAX_PART]);
        assert_eq!(
            (capture.text().len(), capture.is_cut()),
            (2 * MAX_PART + 1, true)
        );
    }
}
