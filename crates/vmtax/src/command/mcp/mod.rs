//! `vmtax mcp`: a server of the Model Context Protocol over standard input and output. One thread reads messages; each call of a tool
//! has a thread that runs the command as a child process. Standard output has the protocol alone.

mod child;
mod tools;

use super::note;
use super::report::first_sentence;
use crate::cli::McpArgs;
use crate::fault::Fault;
use child::{ChildError, Ended};
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};
use tools::{Call, OfferedTool};
use vmtax_mcp::{Line, Message, Refused, RequestId, Tool, read_line, reply};
use vmtax_model::{VmFacts, without_secrets};
use vmtax_report::{counted, printable};

/// Calls at the same time, at most: observers disturb each other.
const MAX_CALLS: usize = 4;

/// Description of the tools, which a client gives to its model.
const INSTRUCTIONS: &str = "Measurements of the QEMU/KVM virtual machines on this host. Begin with vms: it has the names and PIDs that the other tools take. \
diagnose says why a VM is slow and what to change; nothing here makes the change. The first text of an answer is its first sentence, the second \
the whole answer as JSON.";

/// Serves a client until it closes standard input, or goes away.
pub fn mcp(args: &McpArgs) -> Result<ExitCode, Fault> {
    if io::stdin().is_terminal() {
        note(
            "An AI client starts this as its MCP server, and speaks JSON-RPC: docs/mcp.md. Ctrl-D ends it.",
        );
    }
    let server = Server {
        offered: tools::tools(args.allow),
        dir: args.dir.clone(),
        running: Mutex::default(),
        number: AtomicU64::new(0),
        is_gone: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let served = server.serve(scope);
        // Each child is ended, and waited for.
        server.running().clear();
        served
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The server of one client.
struct Server {
    offered: Vec<OfferedTool>,
    /// Directory of recordings.
    dir: PathBuf,
    /// Calls under way. A call whose end here is dropped is cancelled.
    running: Mutex<Vec<Running>>,
    /// Number of the next recording.
    number: AtomicU64,
    /// True once the client does not read any more.
    is_gone: AtomicBool,
}

/// A call under way.
struct Running {
    id: RequestId,
    /// The call ends when this closes.
    _lifeline: UnixStream,
}

impl Server {
    fn serve<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>) -> Result<(), Fault> {
        let mut input = io::stdin().lock();
        while !self.is_gone.load(Ordering::Relaxed) {
            let line = read_line(&mut input);
            let line = match line.map_err(|e| Fault::file("reading standard input", e))? {
                Line::Whole(line) => line,
                Line::TooLong => {
                    self.send(&reply::refused(&Refused::invalid(
                        "a message is longer than 1 MiB",
                    )));
                    continue;
                }
                Line::End => break,
            };
            if line.trim_ascii().is_empty() {
                continue;
            }
            match Message::parse(&line).and_then(|message| self.answer(scope, message)) {
                Ok(Some(answer)) => self.send(&answer),
                Ok(None) => {}
                Err(refused) => self.send(&reply::refused(&refused)),
            }
        }
        Ok(())
    }

    /// Returns the answer to a message; `None` where there is none, or where it comes later.
    fn answer<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        message: Message,
    ) -> Result<Option<String>, Refused> {
        let answer = match message {
            Message::Initialize { id, version } => {
                let program = env!("CARGO_PKG_VERSION");
                reply::initialized(&id, &version, program, INSTRUCTIONS)
            }
            Message::Ping { id } => reply::pong(&id),
            Message::ListTools { id } => {
                let tools = self.offered.iter().map(|offered| offered.tool.clone());
                reply::tools(&id, &tools.collect::<Vec<Tool>>())
            }
            Message::CallTool {
                id,
                name,
                arguments,
            } => {
                let offered = self
                    .offered
                    .iter()
                    .find(|offered| offered.tool.name == name);
                let Some(offered) = offered else {
                    let name: String = name.escape_debug().take(40).collect();
                    let reason = format!("there is no tool \"{name}\"");
                    return Err(Refused::parameters(id, reason));
                };
                match self.begin(scope, &id, offered, &arguments) {
                    Ok(()) => return Ok(None),
                    Err(why) => reply::failure(&id, &shown(&why)),
                }
            }
            Message::Cancelled { id } => {
                self.running().retain(|running| running.id != id);
                return Ok(None);
            }
            Message::Unanswered => return Ok(None),
        };
        Ok(Some(answer))
    }

    /// Begins a call in a thread of its own; the error is a sentence for the model.
    fn begin<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        id: &RequestId,
        offered: &'env OfferedTool,
        arguments: &Map<String, Value>,
    ) -> Result<(), String> {
        let values = offered.tool.check(arguments)?;
        let call = offered.call(&values, &self.dir, &self.new_name(&offered.tool))?;
        let failed = |e: io::Error| format!("starting a call: {e}");
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut running = self.running();
        if running.len() >= MAX_CALLS {
            return Err(format!(
                "{MAX_CALLS} calls are under way, the most at a time: wait for one"
            ));
        }
        if running.iter().any(|running| running.id == *id) {
            return Err("a call of this identifier is under way".to_owned());
        }
        running.push(Running {
            id: id.clone(),
            _lifeline: theirs,
        });
        drop(running);
        let thread_id = id.clone();
        let work = move || self.carry_out(&thread_id, offered, &call, &ours);
        let started = Builder::new().spawn_scoped(scope, work);
        started.map(drop).map_err(|e| {
            self.running().retain(|running| running.id != *id);
            failed(e)
        })
    }

    /// Runs a call and sends its answer, unless it was cancelled: then nobody waits for one.
    fn carry_out(
        &self,
        id: &RequestId,
        offered: &OfferedTool,
        call: &Call,
        cancelled: &UnixStream,
    ) {
        let ended = child::run(&call.words, call.limit, cancelled.as_fd());
        let answer = match &ended {
            Err(ChildError::Cancelled) => return,
            Err(error) => Err(error.to_string()),
            Ok(ended) => self.document(offered, call, ended),
        };
        let answer = match answer {
            Ok((sentence, document)) => reply::answer(id, &sentence, &document),
            Err(why) => reply::failure(id, &shown(&why)),
        };
        let mut running = self.running();
        let count = running.len();
        running.retain(|running| running.id != *id);
        let is_wanted = running.len() < count;
        drop(running);
        if is_wanted {
            self.send(&answer);
        }
    }

    /// Returns the answer of a command that ended, with its first sentence; the error is what the command printed.
    fn document(
        &self,
        offered: &OfferedTool,
        call: &Call,
        ended: &Ended,
    ) -> Result<(String, Value), String> {
        let messages = String::from_utf8_lossy(&ended.stderr);
        let messages = printable(messages.trim());
        // 1: a claim that is not reproduced, a metric that is worse: with its report.
        let has_answer = matches!(ended.status, Some(0 | 1));
        let document = has_answer.then(|| serde_json::from_slice::<Value>(&ended.stdout).ok());
        let Some(document) = document.flatten() else {
            return Err(match messages.is_empty() {
                true => "vmtax ended without an answer".to_owned(),
                false => messages.trim_start_matches("Error: ").to_owned(),
            });
        };
        if !messages.is_empty() {
            note(&messages);
        }
        let sentence = match offered.tool.name.as_str() {
            "vms" => sentence_of_vms(&document),
            "list" => self.sentence_of_list(&document),
            _ => sentence_of_recording(&document, call.recording.as_deref()),
        };
        Ok((printable(&sentence), document))
    }

    fn sentence_of_list(&self, document: &Value) -> String {
        let all = document.as_array().map_or(0, Vec::len) as u64;
        let newest = document[0]["headline"].as_str();
        let newest = newest.map_or(String::new(), |text| format!(" The newest: {text}"));
        format!(
            "{} in {}.{newest}",
            counted(all, "recording"),
            self.dir.display()
        )
    }

    /// Name of the next recording's directory.
    fn new_name(&self, tool: &Tool) -> String {
        let (time, process) = (Timestamp::now(), std::process::id());
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let time = time.strftime("%Y%m%dT%H%M%SZ");
        format!("{time}-{}-{process}-{number}", tool.name)
    }

    fn running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a line. A client that does not read any more is gone.
    fn send(&self, line: &str) {
        let mut output = io::stdout().lock();
        let line = format!("{line}\n");
        let sent = output
            .write_all(line.as_bytes())
            .and_then(|()| output.flush());
        if sent.is_err() {
            self.is_gone.store(true, Ordering::Relaxed);
        }
    }
}

/// A reason for the model, without secrets that its arguments quote.
fn shown(why: &str) -> String {
    printable(&without_secrets(why))
}

fn sentence_of_vms(document: &Value) -> String {
    let facts: Vec<VmFacts> = serde_json::from_value(document.clone()).unwrap_or_default();
    vmtax_report::vms(&facts).headline().to_owned()
}

/// The first sentence of a report, and where a new recording is.
fn sentence_of_recording(document: &Value, new: Option<&Path>) -> String {
    let named = document["folder"].as_str().map(Path::new);
    let headline = new.or(named).and_then(first_sentence);
    let headline = headline.unwrap_or_else(|| "The report of a recording.".to_owned());
    let name = new
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy());
    let recording = name.map_or(String::new(), |name| format!(" (recording: {name})"));
    format!("{}{recording}", headline.trim())
}
