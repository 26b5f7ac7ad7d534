//! `vmtax top`: what running VMs do, live on a screen (one thread samples, this one draws and reads keys), or interval
//! by interval for other programs: as text, or as OpenMetrics in a file or for requests to a port of the loopback
//! address.

mod collect;

use super::{interrupt, is_dumb_terminal, note, print, style};
use crate::cli::{Exposition, TopArgs, interval};
use crate::fault::Fault;
use collect::{Collector, add_exits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs;
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use vmtax_findings::{GuestExits, TopSample};
use vmtax_live::{Fleet, Level};
use vmtax_model::Counter;
use vmtax_screen::{Request, Screen};
use vmtax_vm::Interrupt;

pub fn top(args: &TopArgs) -> Result<ExitCode, Fault> {
    if let Some(name) = &args.explain {
        return explain(name);
    }
    let level = match args.level {
        0 => Level::Counters,
        1 => Level::Histograms,
        _ => Level::Traces,
    };
    super::host::undo_interrupted();
    if level == Level::Traces {
        vmtax_observe::remove_stale_traces();
    }
    let fleet = Fleet::find(&args.vms, level)?;
    let is_batch = args.batch
        || args.json
        || args.csv
        || args.openmetrics.is_some()
        || args.duration.is_some();
    if is_batch || !std::io::stdout().is_terminal() || is_dumb_terminal() {
        print_intervals(args, fleet, level)
    } else {
        run_screen(args, fleet, level)
    }
}

/// Prints the explanation of a column; for an unknown name the error lists the columns.
fn explain(name: &str) -> Result<ExitCode, Fault> {
    let is_named = |known: &str| {
        known.eq_ignore_ascii_case(name) || known.trim_matches('%').eq_ignore_ascii_case(name)
    };
    let Some(column) = Counter::columns().find(|column| is_named(column.column)) else {
        let known: Vec<&str> = Counter::columns().map(|column| column.column).collect();
        return Err(Fault::Usage(format!(
            "there is no column \"{name}\": choose from {}",
            known.join(", ")
        )));
    };
    print(&format!(
        "{}: {}. {}\n",
        column.column, column.what, column.explanation
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints intervals as text, JSON lines, CSV or OpenMetrics.
fn print_intervals(args: &TopArgs, fleet: Fleet, level: Level) -> Result<ExitCode, Fault> {
    let interrupt = interrupt()?;
    let mut published = args.openmetrics.as_ref().map(Published::open).transpose()?;
    let (length, samples) = match args.duration {
        Some(duration) => (duration, Some(1)),
        None => (args.interval, args.samples),
    };
    let mut collector = Collector::start(fleet, level)?;
    if args.csv {
        print(&vmtax_report::csv_head())?;
    }
    let mut done = 0;
    let mut due = Instant::now();
    while samples.is_none_or(|samples| done < samples) {
        publish(published.as_mut(), &collector)?;
        due += length;
        let traced = if level == Level::Traces {
            collector.trace(None, due.saturating_duration_since(Instant::now()), &|| {
                interrupt.raised()
            })
        } else {
            Vec::new()
        };
        if waits(interrupt, due) {
            // Endless by what was asked: then the end is no failure.
            return Ok(samples.map_or(ExitCode::SUCCESS, |_| ExitCode::from(130)));
        }
        let mut sample = collector.sample()?;
        add_exits(&mut sample, traced);
        show(args, &sample)?;
        done += 1;
        // After a stop of the host, or a slow sample, intervals are not made up for.
        due = due.max(Instant::now());
        if !args.vms.is_empty() && collector.counters().is_empty() {
            return Err(Fault::Usage(format!(
                "{} ended: `vmtax vms` lists the VMs that run",
                args.vms.join(", ")
            )));
        }
    }
    publish(published.as_mut(), &collector)?;
    Ok(ExitCode::SUCCESS)
}

fn publish(published: Option<&mut Published>, collector: &Collector) -> Result<(), Fault> {
    published.map_or(Ok(()), |published| {
        published.replace(&vmtax_report::openmetrics(&collector.counters()))
    })
}

/// Waits until then; whether a signal came first.
fn waits(interrupt: &Interrupt, until: Instant) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if interrupt.raised() || left.is_zero() {
            return interrupt.raised();
        }
        let Ok(left) = Timespec::try_from(left.max(Duration::from_millis(1))) else {
            return true;
        };
        let _ = poll(&mut [PollFd::new(interrupt, PollFlags::IN)], Some(&left));
    }
}

fn show(args: &TopArgs, sample: &TopSample) -> Result<(), Fault> {
    if args.json {
        let line = serde_json::to_string(sample).map_err(vmtax_report::ReportError::from)?;
        return print(&(line + "\n"));
    }
    if args.csv {
        sample.notes.iter().for_each(|line| note(line));
        return print(&vmtax_report::csv_rows(sample));
    }
    if args.batch || args.openmetrics.is_none() {
        return print(&(vmtax_report::top(sample).terminal(style(), true) + "\n"));
    }
    Ok(())
}

/// A request's head is no longer, bytes.
const MAX_REQUEST: usize = 8192;
/// Clients that are answered at the same time; further ones are refused.
const MAX_CLIENTS: usize = 16;
/// Longest time that a client may take.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Where the text is published.
enum Published {
    File(PathBuf),
    Port(Arc<Mutex<String>>),
}

impl Published {
    pub fn open(at: &Exposition) -> Result<Published, Fault> {
        let port = match at {
            Exposition::File(path) => return Ok(Published::File(path.clone())),
            Exposition::Port(port) => *port,
        };
        let failed = |e| {
            Fault::file(
                format!(
                    "listening on port {port} of 127.0.0.1 (another program may use it: choose another port)"
                ),
                e,
            )
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let text = Arc::new(Mutex::new(String::new()));
        let served = text.clone();
        // A client that is silent holds up no other.
        let serve = move || {
            let clients = Arc::new(());
            for client in listener.incoming().flatten() {
                let (served, client_count) = (served.clone(), clients.clone());
                if Arc::strong_count(&clients) > MAX_CLIENTS + 1 {
                    continue;
                }
                let answered = move || {
                    let _ = answer(client, &served);
                    drop(client_count);
                };
                // Without a thread the client is left, as one too many.
                let _ = Builder::new().spawn(answered);
            }
        };
        Builder::new()
            .spawn(serve)
            .map_err(|e| Fault::file("starting a thread", e))?;
        note(&format!("serving http://127.0.0.1:{port}/metrics"));
        Ok(Published::Port(text))
    }

    /// Publishes another text.
    pub fn replace(&mut self, text: &str) -> Result<(), Fault> {
        match self {
            Published::Port(published) => {
                text.clone_into(&mut published.lock().unwrap_or_else(PoisonError::into_inner));
                Ok(())
            }
            // A reader sees the old file or the new one.
            Published::File(path) => {
                let mut new = path.clone().into_os_string();
                new.push(".new");
                let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &*path));
                written.map_err(|e| {
                    Fault::file(format!("writing {}: name another file", path.display()), e)
                })
            }
        }
    }
}

/// The answer to a request: `GET /metrics`, or `HEAD /metrics`, which has no body.
fn response(head: &[u8], text: &Mutex<String>) -> String {
    let is_head = head.starts_with(b"HEAD ");
    let path = head.strip_prefix(if is_head { "HEAD " } else { "GET " }.as_bytes());
    let is_metrics =
        path.is_some_and(|path| path.starts_with(b"/metrics ") || path.starts_with(b"/metrics?"));
    let (status, kind, body) = match is_metrics {
        true => (
            "200 OK",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            text.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        ),
        false => ("404 Not Found", "text/plain", "GET /metrics\n".to_owned()),
    };
    let length = body.len();
    let body = if is_head { "" } else { &body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Answers one request within [`CLIENT_TIMEOUT`].
fn answer(mut client: TcpStream, text: &Mutex<String>) -> std::io::Result<()> {
    let end = Instant::now() + CLIENT_TIMEOUT;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MAX_REQUEST {
        // A client that sends a byte now and then has no more time than others.
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut part)? {
            0 => break,
            n => head.extend_from_slice(&part[..n]),
        }
    }
    client.write_all(response(&head, text).as_bytes())
}

/// Duration of a trace that a person requests.
const TRACE_TIME: Duration = Duration::from_secs(3);

fn run_screen(args: &TopArgs, fleet: Fleet, level: Level) -> Result<ExitCode, Fault> {
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
        let screen = Screen::new(args.interval, interval)
            .run(&shown, &requests, &|| interrupt.raised() || is_gone());
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
    let polled = poll(&mut fds, Some(&Timespec::default()));
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
        mut self,
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
        &mut self,
        collector: &Collector,
        asked: &Receiver<Request>,
    ) -> Option<Vec<(i32, Result<GuestExits, String>)>> {
        let ended = self.ended;
        let stop = || ended.load(Ordering::Relaxed);
        let began = Instant::now();
        if self.level == Level::Traces {
            let traced = collector.trace(None, self.interval, &stop);
            if !traced.is_empty() {
                // What is asked for meanwhile is traced already.
                asked.try_iter().for_each(|request| self.set(request));
                return (!stop()).then_some(traced);
            }
        }
        loop {
            let left = (began + self.interval).saturating_duration_since(Instant::now());
            match asked.recv_timeout(left) {
                Ok(Request::TraceExits(pid)) => {
                    let traced = collector.trace(Some(pid), TRACE_TIME, &stop);
                    return (!stop()).then_some(traced);
                }
                Ok(request) => self.set(request),
                Err(RecvTimeoutError::Timeout) => return (!stop()).then(Vec::new),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn set(&mut self, request: Request) {
        if let Request::SetInterval(interval) = request {
            self.interval = interval;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_request_is_answered_as_get_without_the_body() {
        let text = Mutex::new("vmtax_vms 0\n# EOF\n".to_owned());
        let answer = |request: &str| response(request.as_bytes(), &text);
        let (get, head) = (
            answer("GET /metrics HTTP/1.1\r\n\r\n"),
            answer("HEAD /metrics HTTP/1.1\r\n\r\n"),
        );
        assert!(get.starts_with("HTTP/1.1 200 OK\r\n"), "{get}");
        assert_eq!(get, head + "vmtax_vms 0\n# EOF\n");
        for other in [
            "GET /metricsx HTTP/1.1",
            "POST /metrics HTTP/1.1",
            "GET /",
            "",
        ] {
            assert!(answer(other).starts_with("HTTP/1.1 404 "), "{other}");
        }
        assert!(answer("HEAD / HTTP/1.1").ends_with("\r\n\r\n"));
    }
}
