//! `vmtax mcp` as a client sees it: over pipes, by hostile clients, and by the official client for Python.

use crate::common::{Busy, Outcome, Place, Running, Signal, copy, json, skipped, until};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time within which a server answers.
const ANSWERS: Duration = Duration::from_secs(60);

/// A client of a server that runs here.
struct Client<'a> {
    server: Running<'a>,
    input: UnixStream,
    output: BufReader<UnixStream>,
    number: u64,
}

impl<'a> Client<'a> {
    /// Starts a server, and initializes it.
    fn start(place: &'a Place, options: &str) -> Client<'a> {
        let (input, theirs) = UnixStream::pair().unwrap();
        let (output, their_output) = UnixStream::pair().unwrap();
        output.set_read_timeout(Some(ANSWERS)).unwrap();
        let server = place.vmtax("mcp").words(options);
        let server = server.stdin(OwnedFd::from(theirs));
        let server = server.stdout(OwnedFd::from(their_output)).start(120);
        let mut client = Client {
            server,
            input,
            output: BufReader::new(output),
            number: 0,
        };
        let about = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let answer = client.asks("initialize", about);
        let version = &answer["result"]["protocolVersion"];
        assert_eq!(version, "2025-06-18", "{answer}");
        assert_eq!(answer["result"]["serverInfo"]["name"], "vmtax");
        client.sends(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        client
    }

    fn sends(&mut self, line: impl AsRef<[u8]>) {
        self.input.write_all(line.as_ref()).unwrap();
        self.input.write_all(b"\n").unwrap();
    }

    /// The next line of the server, which is a message.
    fn receives(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let message = json(&line);
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    /// Sends a request, and returns its identifier.
    fn requests(&mut self, method: &str, parameters: Value) -> u64 {
        self.number += 1;
        let request =
            json!({"jsonrpc": "2.0", "id": self.number, "method": method, "params": parameters});
        self.sends(request.to_string());
        self.number
    }

    fn asks(&mut self, method: &str, parameters: Value) -> Value {
        let id = self.requests(method, parameters);
        let answer = self.receives();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    fn calls(&mut self, tool: &str, arguments: Value) -> Value {
        let parameters = json!({"name": tool, "arguments": arguments});
        self.asks("tools/call", parameters)
    }

    /// The answer of a tool, its sentence and its document.
    fn answer(&mut self, tool: &str, arguments: Value) -> (String, Value) {
        let answer = self.calls(tool, arguments);
        let result = &answer["result"];
        assert_eq!(result["isError"], false, "{answer:#}");
        let text = |number: usize| result["content"][number]["text"].as_str().unwrap();
        let document = json(text(1));
        let structured = match document.is_array() {
            true => json!({"items": document}),
            false => document.clone(),
        };
        assert_eq!(result["structuredContent"], structured);
        (text(0).to_owned(), document)
    }

    /// The reason for which a tool has no answer.
    fn refusal(&mut self, tool: &str, arguments: Value) -> String {
        let answer = self.calls(tool, arguments);
        assert_eq!(answer["result"]["isError"], true, "{answer:#}");
        let reason = &answer["result"]["content"][0]["text"];
        reason.as_str().unwrap().to_owned()
    }

    /// Closes the server's input; the server ends.
    fn leaves(self) -> Outcome {
        drop(self.input);
        self.server.outcome().exits(0)
    }
}

fn tools(client: &mut Client) -> Vec<String> {
    let answer = client.asks("tools/list", json!({}));
    let tools = answer["result"]["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

#[test]
fn tools_that_observe_more_are_there_only_where_they_are_allowed() {
    let place = Place::new();
    let mut client = Client::start(&place, "");
    assert_eq!(tools(&mut client), ["vms", "list", "report", "diagnose"]);
    let answer = client.asks("tools/list", json!({}));
    let diagnose = &answer["result"]["tools"][3]["inputSchema"];
    assert_eq!(diagnose["properties"]["level"], Value::Null);
    assert_eq!(diagnose["required"], json!(["vm"]));
    // Also what the program has, but no tool.
    for name in [
        "profile", "layers", "exec", "run", "tune", "undo", "jail", "--help", "top",
    ] {
        let answer = client.calls(name, json!({"vm": "1"}));
        assert_eq!(answer["error"]["code"], -32602, "{name}: {answer}");
    }
    let level = client.refusal("diagnose", json!({"vm": "1", "level": 2}));
    assert_eq!(
        level,
        "diagnose has no argument \"level\": it has vm, duration"
    );
    client.leaves();
    let mut client = Client::start(&place, "--allow observe");
    let all = ["vms", "list", "report", "diagnose", "profile", "layers"];
    assert_eq!(tools(&mut client), all);
    // Without a VM they would boot a guest.
    for name in ["profile", "layers"] {
        let refused = client.refusal(name, json!({}));
        assert_eq!(refused, format!("{name} needs vm"));
    }
    client.leaves();
    assert!(!place.runs().exists());
}

#[test]
fn whatever_a_client_sends_the_server_answers_and_goes_on() {
    let place = Place::new();
    let mut client = Client::start(&place, "");
    for (line, code) in [
        ("{", -32700),
        ("no JSON", -32700),
        ("\u{0}", -32700),
        (&*"[".repeat(50_000), -32700),
        (r#"[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]"#, -32600),
        (r#"{"jsonrpc": "2.0", "id": {}, "method": "ping"}"#, -32600),
        (
            r#"{"jsonrpc": "2.0", "id": 7, "method": "resources/list"}"#,
            -32601,
        ),
        (
            r#"{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": []}"#,
            -32602,
        ),
    ] {
        client.sends(line);
        let answer = client.receives();
        assert_eq!(answer["error"]["code"], code, "{line:.60}: {answer}");
    }
    // What has no answer: an empty line, a notification, a response, the end of a call that is none.
    for line in [
        "",
        r#"{"jsonrpc": "2.0", "method": "notifications/unknown"}"#,
        r#"{"jsonrpc": "2.0", "id": 1, "result": {}}"#,
        r#"{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}"#,
    ] {
        client.sends(line);
    }
    let memory = |client: &Client| {
        let status = fs::read_to_string(format!("/proc/{}/status", client.server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap()
    };
    let before = memory(&client);
    client.sends(vec![b'x'; 64 << 20]);
    let answer = client.receives();
    assert_eq!(answer["error"]["message"], "a message is longer than 1 MiB");
    let grown = memory(&client) - before;
    assert!(grown < 8 << 10, "a line of 64 MiB took {grown} KiB");
    assert_eq!(client.asks("ping", json!({}))["result"], json!({}));
    let outcome = client.leaves();
    assert_eq!(outcome.stderr, "");
}

#[test]
fn hostile_arguments_are_no_options_and_leave_the_directory_of_recordings() {
    let place = Place::new();
    place.put("runs/.keep", "");
    place.put("elsewhere/plan.toml", "secret = 1");
    symlink(place.path("elsewhere"), place.path("runs/link")).unwrap();
    // Where none runs, names do not matter.
    let vm = Busy::start(&place, "named", "");
    let mut client = Client::start(&place, "--allow observe");
    let path = |name: &str| place.path(name).to_str().unwrap().to_owned();
    for (tool, arguments, why) in [
        ("diagnose", json!({"vm": "--apply"}), "vm begins with \"-\""),
        ("diagnose", json!({"vm": "-h"}), "vm begins with \"-\""),
        (
            "diagnose",
            json!({"vm": "a\u{0}b"}),
            "vm has a control character",
        ),
        (
            "diagnose",
            json!({"vm": "a\nb"}),
            "vm has a control character",
        ),
        ("diagnose", json!({"vm": "a".repeat(5000)}), "vm is longer"),
        (
            "diagnose",
            json!({"vm": "../../etc/passwd"}),
            "../../etc/passwd",
        ),
        ("diagnose", json!({"vm": "no such VM"}), "no such VM"),
        ("diagnose", json!({"vm": "$(reboot)"}), "$(reboot)"),
        (
            "diagnose",
            json!({"vm": "1", "level": 3}),
            "3 is not in 0..=2",
        ),
        (
            "diagnose",
            json!({"vm": "1", "output": "/etc"}),
            "diagnose has no argument \"output\"",
        ),
        (
            "diagnose",
            json!({"vm": "1", "duration": "1000000000000000000s"}),
            "duration: ",
        ),
        (
            "diagnose",
            json!({"vm": "1", "duration": "999h"}),
            "duration is longer than 10m",
        ),
        (
            "profile",
            json!({"vm": "1", "pid": 1}),
            "profile has no argument \"pid\"",
        ),
        (
            "layers",
            json!({"vm": "1", "device": "--fio"}),
            "device is none of disk, net",
        ),
        (
            "layers",
            json!({"vm": "1", "what": ["rw=write"]}),
            "layers has no argument \"what\"",
        ),
        (
            "vms",
            json!({"--json": true}),
            "vms has no argument \"--json\": it has none",
        ),
        (
            "report",
            json!({"recording": "--output=/etc/passwd"}),
            "recording begins with \"-\"",
        ),
        (
            "report",
            json!({"recording": path("elsewhere")}),
            "recording is not in",
        ),
        (
            "report",
            json!({"recording": "../elsewhere"}),
            "has no recording of that name",
        ),
        (
            "report",
            json!({"recording": path("runs/../elsewhere")}),
            "recording is not in",
        ),
        (
            "report",
            json!({"recording": "link"}),
            "recording is not in",
        ),
        (
            "report",
            json!({"recording": "/etc"}),
            "recording is not in",
        ),
        (
            "report",
            json!({"recording": "none"}),
            "has no recording of that name",
        ),
        ("report", json!({}), "no recordings in"),
    ] {
        let refused = client.refusal(tool, arguments.clone());
        assert!(refused.contains(why), "{tool} {arguments}: {refused}");
    }
    let secret = client.refusal("diagnose", json!({"vm": "password=Q7zT9geheim"}));
    assert!(!secret.contains("Q7zT9geheim"), "{secret}");
    client.leaves();
    let left: Vec<PathBuf> = fs::read_dir(place.runs())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
    drop(vm);
}

#[test]
fn recordings_are_listed_and_reported_as_the_commands_do() {
    let place = Place::new();
    let golden =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../base/recording/tests/golden/schema-1");
    copy(&golden, &place.path("runs/first"));
    place.put(
        "runs/first/headline.txt",
        "A guest on tcg is slow.\u{1b}[1m",
    );
    let mut client = Client::start(&place, "");
    let (sentence, list) = client.answer("list", json!({}));
    assert_eq!(list, json(&place.vmtax("list --json").succeeds().stdout));
    assert_eq!(
        sentence,
        "1 recording in runs. The newest: A guest on tcg is slow.\u{fffd}[1m"
    );
    let folder = list[0]["folder"].as_str().unwrap().to_owned();
    for arguments in [
        json!({"recording": folder}),
        json!({"recording": "first"}),
        json!({}),
    ] {
        let (sentence, mut report) = client.answer("report", arguments);
        let mut expected = json(&place.vmtax("report --json").succeeds().stdout);
        assert_eq!(sentence, "A guest on tcg is slow.\u{fffd}[1m");
        for document in [&mut report, &mut expected] {
            document["folder"] = Value::Null;
        }
        assert_eq!(report, expected);
    }
    // That of an older recording is not written down.
    fs::remove_file(place.path("runs/first/headline.txt")).unwrap();
    let (sentence, _) = client.answer("report", json!({"recording": "first"}));
    let list = json(&place.vmtax("list --json").succeeds().stdout);
    assert_eq!(Some(sentence.as_str()), list[0]["headline"].as_str());
    assert!(sentence.contains("native"), "{sentence}");
    client.leaves();
}

#[test]
fn a_vm_is_diagnosed_by_its_counters_alone_and_a_call_ends_with_its_client() {
    let place = Place::new();
    let vm = Busy::start(&place, "agents", "");
    let mut client = Client::start(&place, "");
    let (sentence, vms) = client.answer("vms", json!({}));
    let named = |name: &Value| name == vm.name.as_str();
    assert!(
        vms.as_array()
            .unwrap()
            .iter()
            .any(|one| named(&one["name"])),
        "{vms:#}"
    );
    assert!(sentence.contains("run"), "{sentence}");
    let (sentence, report) = client.answer("diagnose", json!({"vm": vm.name, "duration": "1s"}));
    assert_eq!(report["plan"]["vm"]["level"], 0, "{:#}", report["plan"]);
    assert_eq!(report["findings"]["profile"], Value::Null);
    let recording = place.recording();
    let name = recording.file_name().unwrap().to_str().unwrap();
    let headline = fs::read_to_string(recording.join("headline.txt")).unwrap();
    assert_eq!(sentence, format!("{} (recording: {name})", headline.trim()));
    let missing = report["findings"]["missing"].to_string();
    assert!(missing.contains("--level 0 leaves them out"), "{missing}");

    let children = || {
        let mut all = place.processes();
        all.retain(|process| process.command.starts_with("vmtax diagnose"));
        all
    };
    let long = json!({"name": "diagnose", "arguments": {"vm": vm.name, "duration": "5m"}});
    let id = client.requests("tools/call", long.clone());
    until("a call is under way", || {
        (!children().is_empty()).then_some(())
    });
    client.sends(
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
            .to_string(),
    );
    until("the cancelled call ends", || {
        children().is_empty().then_some(())
    });
    // It has no answer: the next is that of the next request.
    client.asks("ping", json!({}));
    client.requests("tools/call", long.clone());
    until("a call is under way", || {
        (!children().is_empty()).then_some(())
    });
    client.leaves();
    assert!(children().is_empty());

    let mut client = Client::start(&place, "");
    client.requests("tools/call", long);
    until("a call is under way", || {
        (!children().is_empty()).then_some(())
    });
    client.server.signal(Signal::KILL);
    until("the call ends with a killed server", || {
        children().is_empty().then_some(())
    });
    drop(client);
    drop(vm);
}

/// Python that has the official client; `None`, and the test is skipped, where there is none.
fn python_with_client() -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/python3");
    let found = [tools, PathBuf::from("python3")]
        .into_iter()
        .find(|python| {
            let imported = Command::new(python).args(["-c", "import mcp"]).output();
            imported.is_ok_and(|output| output.status.success())
        });
    if found.is_none() {
        skipped("no client of the Model Context Protocol for Python (mcp): run scripts/setup test");
    }
    found
}

#[test]
fn the_official_client_lists_and_calls_the_tools() {
    let Some(python) = python_with_client() else {
        return;
    };
    let place = Place::new();
    let golden =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../base/recording/tests/golden/schema-1");
    copy(&golden, &place.path("runs/first"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/mcp_client.py");
    let client = place
        .program(python)
        .arg(script)
        .arg(crate::common::binary());
    let printed = client.start(120).outcome().exits(0).stdout;
    let found = json(&printed);
    assert_eq!(found["tools"], json!(["vms", "list", "report", "diagnose"]));
    assert_eq!(found["server"], "vmtax");
    assert_eq!(found["recordings"], 1);
    assert_eq!(found["report"], "ok");
    assert_eq!(found["refused"], "vm begins with \"-\", as options do");
    assert_eq!(found["unknown"], "refused");
}
