//! The live screen of `vmtax top`. It draws samples that come through a channel and knows nothing of how they are taken.

mod details;
mod keys;
mod layout;
mod list;
mod page;
mod state;
mod threads;

pub use keys::Request;
pub use state::ParseInterval;

use crate::keys::{Action, action};
use crate::page::draw;
use crate::state::State;
use ratatui::crossterm::event::{self, Event};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::Builder;
use std::time::Duration;
use vmtax_findings::TopSample;

/// Longest time until a sample or a signal shows.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Live screen of `vmtax top`.
#[derive(Debug)]
pub struct Screen {
    state: State,
}

impl Screen {
    /// One that waits for its first sample, which takes an interval; `parse_interval` reads another that a person types.
    pub fn new(interval: Duration, parse_interval: ParseInterval) -> Screen {
        Screen {
            state: State::new(interval, parse_interval),
        }
    }

    /// Shows samples until a person ends it, `interrupted` says so, or no more samples come. The terminal is as before
    /// afterwards, also after a panic. A thread that reads its keys stays until the process ends.
    ///
    /// # Errors
    /// Where the terminal cannot be used.
    pub fn run(
        mut self,
        samples: &Receiver<TopSample>,
        requests: &Sender<Request>,
        interrupted: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let mut terminal = ratatui::try_init()?;
        let events = events()?;
        let shown = (|| {
            let mut is_new = true;
            while !interrupted() {
                if is_new {
                    terminal.draw(|frame| draw(frame, &mut self.state))?;
                }
                is_new = match samples.try_recv() {
                    Ok(sample) => {
                        self.state.show(sample);
                        true
                    }
                    Err(TryRecvError::Empty) => false,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                };
                let event = match events.recv_timeout(if is_new {
                    Duration::ZERO
                } else {
                    POLL_INTERVAL
                }) {
                    Ok(event) => event?,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                };
                is_new = true;
                match event {
                    Event::Key(key) => match action(key, &mut self.state) {
                        Some(Action::Quit) => return Ok(()),
                        // A sampler that has ended is noticed above.
                        Some(Action::Ask(request)) => drop(requests.send(request)),
                        None => {}
                    },
                    Event::Resize(..) => terminal.clear()?,
                    _ => {}
                }
            }
            Ok(())
        })();
        ratatui::try_restore()?;
        shown
    }
}

/// Events of the terminal, read by a thread of its own: crossterm reads a terminal that is gone again and again and never returns.
fn events() -> io::Result<Receiver<io::Result<Event>>> {
    let (sender, events) = channel();
    let read = move || {
        loop {
            let event = event::read();
            let failed = event.is_err();
            if sender.send(event).is_err() || failed {
                return;
            }
        }
    };
    Builder::new().spawn(read)?;
    Ok(events)
}

#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod tests;
