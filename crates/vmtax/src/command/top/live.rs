//! The live screen: one thread samples, this one draws and reads keys.

use super::collect::{Collector, add_exits};
use crate::cli::TopArgs;
use crate::command::interrupt;
use crate::fault::Fault;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};
use vmtax_findings::{GuestExits, TopSample};
use vmtax_live::{Fleet, Level};
use vmtax_screen::{Request, Screen};

/// Duration of a trace that a person requests.
const TRACE_TIME: Duration = Duration::from_secs(3);

pub(super) fn run(args: &TopArgs, fleet: Fleet, level: Level) -> Result<ExitCode, Fault> {
    let interrupt = interrupt()?;
    let (samples, shown) = channel();
    let (requests, asked) = channel();
    let ended = AtomicBool::new(false);
    let sampler = Sampler {
        interval: args.interval,
        left: args.samples,
        level,
        ended: &ended,
    };
    std::thread::scope(|scope| {
        let sampling =
            Builder::new().spawn_scoped(scope, move || sampler.run(fleet, &samples, &asked));
        let thread = sampling.map_err(|e| Fault::file("starting a thread", e))?;
        let screen =
            Screen::new(args.interval).run(&shown, &requests, &|| interrupt.raised() || is_gone());
        // The fleet ends in its thread, and removes what it has set.
        ended.store(true, Ordering::Relaxed);
        drop(requests);
        match thread.join() {
            Ok(sampled) => sampled?,
            Err(_) => {
                return Err(Fault::Usage(
                    "sampling ended by a panic: report it as a bug".to_owned(),
                ));
            }
        }
        match screen {
            // Nobody reads an error there.
            Err(e) if !is_gone() => Err(Fault::file("using the terminal: try --batch", e)),
            _ => Ok(ExitCode::SUCCESS),
        }
    })
}

/// Returns true if the terminal is gone: its window is closed, or its connection.
fn is_gone() -> bool {
    let stdout = rustix::stdio::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let polled = poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    );
    polled.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

struct Sampler<'a> {
    interval: Duration,
    left: Option<u64>,
    level: Level,
    ended: &'a AtomicBool,
}

impl Sampler<'_> {
    fn run(
        self,
        fleet: Fleet,
        samples: &Sender<TopSample>,
        asked: &Receiver<Request>,
    ) -> Result<(), Fault> {
        let mut collector = Collector::start(fleet, self.level)?;
        let mut left = self.left;
        while left != Some(0) {
            let Some(traced) = self.wait(&collector, asked) else {
                return Ok(());
            };
            let mut sample = collector.sample()?;
            add_exits(&mut sample, traced);
            if samples.send(sample).is_err() {
                return Ok(());
            }
            left = left.map(|left| left - 1);
        }
        Ok(())
    }

    /// Waits for the interval's end, or traces what is asked for; `None` at the end of the screen.
    fn wait(
        &self,
        collector: &Collector,
        asked: &Receiver<Request>,
    ) -> Option<Vec<(i32, Result<GuestExits, String>)>> {
        let stop = || self.ended.load(Ordering::Relaxed);
        let until = Instant::now() + self.interval;
        if self.level == Level::Traces {
            let traced = collector.trace(None, self.interval, &stop);
            if !traced.is_empty() {
                return (!stop()).then_some(traced);
            }
        }
        match asked.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Request::TraceExits(pid)) => {
                let traced = collector.trace(Some(pid), TRACE_TIME, &stop);
                (!stop()).then_some(traced)
            }
            Err(RecvTimeoutError::Timeout) => (!stop()).then(Vec::new),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}
