//! QEMU's guest agent, where it runs in the guest: the guest's own CPU times and disk statistics, and small files of its
//! kernel. What it says is the guest's word.

use super::arguments::{Arguments, path_of};
use super::conversation::{Conversation, SharedSocket, connect_to, items};
use super::monitor::Monitor;
use crate::VmmError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vmtax_model::{GuestCounters, GuestDiskCounters, without_secrets};

/// The name of the agent's port.
pub(crate) const PORT: &str = "org.qemu.guest_agent.0";
/// Time limit for the agent's answers: a guest without an agent never answers.
const TIMEOUT: Duration = Duration::from_secs(2);
/// More disks are not read.
const MAX_DISKS: usize = 256;

/// Devices on others, whose requests would count twice, and those that are no disks.
const STACKED: [&str; 7] = ["loop", "ram", "zram", "dm-", "md", "sr", "fd"];

/// Asks an agent: a command with its arguments.
pub type Ask<'a> = dyn FnMut(&str, &Value) -> Result<Value, VmmError> + 'a;

/// Connection to the agent of a VM.
#[derive(Debug)]
pub struct GuestAgent(Way);

/// Connection to an agent, by its kind.
#[derive(Debug)]
enum Way {
    /// A socket that serves one client at a time.
    Socket(SharedSocket),
    /// libvirt, which marks the domain as tainted (`custom-ga-command`).
    Libvirt(Monitor),
}

impl GuestAgent {
    /// Returns the agent of a process; `None` where it has no channel for one, or none that is reached.
    pub fn of(pid: i32, monitor: Option<&Monitor>) -> Option<GuestAgent> {
        let arguments = Arguments::of(pid);
        match monitor.filter(|monitor| monitor.taints()) {
            Some(monitor) => arguments
                .with("device", "name", PORT)
                .map(|_| GuestAgent(Way::Libvirt(monitor.clone()))),
            None => {
                let path = path_of(pid, &socket(&arguments)?);
                Some(GuestAgent(Way::Socket(SharedSocket { path, pid })))
            }
        }
    }

    /// Returns the agent's answer to one command.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] where none answers, or it refuses.
    pub fn ask(
        &self,
        command: &str,
        arguments: &Value,
        timeout: Duration,
    ) -> Result<Value, VmmError> {
        self.session(timeout, |ask| ask(command, arguments))
    }

    /// Several commands in one conversation, within `limit` in all. After an answer that does not come nothing more is asked.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] where none answers, or not in time; and what `commands` gives.
    pub fn session<T>(
        &self,
        limit: Duration,
        commands: impl FnOnce(&mut Ask<'_>) -> Result<T, VmmError>,
    ) -> Result<T, VmmError> {
        let deadline = Instant::now() + limit;
        let late = || {
            VmmError::Monitor(format!(
                "the guest's agent did not answer within {} s",
                limit.as_secs()
            ))
        };
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut broken: Option<VmmError> = None;
        let result = match &self.0 {
            Way::Socket(socket) => {
                let mut conversation =
                    Conversation::with_agent(connect_to(socket, limit)?, left())?;
                commands(&mut |command, arguments| {
                    if broken.is_some() {
                        return Err(late());
                    }
                    conversation
                        .ask(command, arguments, left())
                        .unwrap_or_else(|error| {
                            broken = Some(error);
                            Err(late())
                        })
                })
            }
            // Each command is a program of its own, which names no reason.
            Way::Libvirt(monitor) => commands(&mut |command, arguments| {
                if left().is_zero() {
                    broken = Some(late());
                    return Err(late());
                }
                monitor.ask_agent(command, arguments, left())
            }),
        };
        broken.map_or(result, Err)
    }

    /// The guest's counters now.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] where no agent answers, or it does not know the commands (before QEMU 7.1).
    pub fn counters(&self) -> Result<GuestCounters, VmmError> {
        self.session(TIMEOUT, |ask| {
            let cpus = ask("guest-get-cpustats", &json!({}))?;
            Ok(read(
                &cpus,
                &ask("guest-get-diskstats", &json!({})).unwrap_or_default(),
            ))
        })
    }
}

/// The socket of the agent's port in a command line.
fn socket(arguments: &Arguments) -> Option<PathBuf> {
    let port = arguments.with("device", "name", PORT)?;
    arguments.chardev_path(port.get("chardev")?)
}

/// Reads the agent's two answers, about CPUs and disks. Partitions and loop devices are left out.
fn read(cpus: &Value, disks: &Value) -> GuestCounters {
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or(0);
    let sum = |of: &Value, keys: &[String]| {
        let numbers = keys.iter().map(|key| number(of, key));
        numbers.fold(0, u64::saturating_add)
    };
    let mut counters = GuestCounters::default();
    // Guest time is in user's already.
    let parts = [
        "user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal",
    ]
    .map(str::to_owned);
    for cpu in items(cpus) {
        counters.cpu_ms = counters.cpu_ms.saturating_add(sum(cpu, &parts));
        counters.steal_ms = counters.steal_ms.saturating_add(number(cpu, "steal"));
    }
    let disks: Vec<&Value> = items(disks).take(MAX_DISKS).collect();
    let names: Vec<&str> = disks
        .iter()
        .filter_map(|disk| disk["name"].as_str())
        .collect();
    let [ios, ticks] = ["ios", "ticks"]
        .map(|what| ["read", "write", "discard", "flush"].map(|kind| format!("{kind}-{what}")));
    let counted = |disk: &&Value| {
        let (name, stats) = (disk["name"].as_str()?, &disk["stats"]);
        is_disk(name, &names).then(|| GuestDiskCounters {
            name: name.to_owned(),
            requests: sum(stats, &ios),
            total_ms: sum(stats, &ticks),
        })
    };
    counters.disks = disks.iter().filter_map(counted).collect();
    counters
}

/// Returns true for a disk among the guest's block devices of these names: no partition, and no device on others.
fn is_disk(name: &str, names: &[&str]) -> bool {
    // vda1 of vda, nvme0n1p1 of nvme0n1: not sdaa of sda, nor nvme0n10 of nvme0n1.
    let is_part = |of: &&str| {
        let rest = name.strip_prefix(*of).unwrap_or_default();
        let number = if of.ends_with(|c: char| c.is_ascii_digit()) {
            rest.strip_prefix('p')
        } else {
            Some(rest)
        };
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    !STACKED.iter().any(|kind| name.starts_with(kind)) && !names.iter().any(is_part)
}

/// Returns the number of disks in the answers of a guest's agent, for fuzzing.
pub fn read_agent_answers(cpus: &Value, disks: &Value) -> usize {
    read(cpus, disks).disks.len()
}

/// Bytes of a setting: of a file of sysfs there is no more.
const MAX_FILE_BYTES: usize = 4096;

/// Reads a file of the guest, without the white space around its text.
///
/// # Errors
/// [`VmmError::Monitor`] where the agent has no such file, or may not read it.
pub fn read_file(ask: &mut Ask<'_>, path: &str) -> Result<String, VmmError> {
    let handle = ask("guest-file-open", &json!({ "path": path, "mode": "r" }))?;
    let piece = ask(
        "guest-file-read",
        &json!({ "handle": handle, "count": MAX_FILE_BYTES }),
    );
    ask("guest-file-close", &json!({ "handle": handle }))?;
    let text = file_bytes(&piece?)
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .filter(|text| text.len() <= MAX_FILE_BYTES);
    let text = text.ok_or_else(|| {
        VmmError::Monitor(format!("the guest's agent returned no text for {path}"))
    })?;
    // A kernel's command line may have some.
    Ok(without_secrets(text.trim()).into_owned())
}

/// Writes a value to a file.
///
/// # Errors
/// [`VmmError::Monitor`] where the agent may not write it, or the guest's kernel refuses the value.
pub fn write_file(ask: &mut Ask<'_>, path: &str, value: &str) -> Result<(), VmmError> {
    let handle = ask("guest-file-open", &json!({ "path": path, "mode": "w" }))?;
    let written = ask(
        "guest-file-write",
        &json!({ "handle": handle, "buf-b64": STANDARD.encode(value) }),
    );
    // The agent's write is buffered: the kernel's answer comes with the flush.
    let flushed = written.and_then(|_| ask("guest-file-flush", &json!({ "handle": handle })));
    let closed = ask("guest-file-close", &json!({ "handle": handle }));
    flushed.and(closed).map(drop)
}

/// The bytes in an answer of `guest-file-read`.
pub(crate) fn file_bytes(piece: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(piece["buf-b64"].as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;

    #[test]
    fn cpu_times_are_summed_and_partitions_left_out() {
        let cpu = |steal: u64| json!({ "type": "linux", "cpu": 0, "user": 10, "system": 5, "idle": 80, "steal": steal });
        let disk = |name: &str, ios: u64| {
            json!({ "name": name, "major": 8, "minor": 0, "stats": { "read-ios": ios, "read-ticks": 9, "flush-ios": 1,
                "flush-ticks": 2, "total-ticks": 99 }})
        };
        let found = read(
            &json!([cpu(5), cpu(15)]),
            &json!([
                disk("vda", 7),
                disk("vda1", 6),
                disk("loop0", 3),
                disk("dm-0", 6)
            ]),
        );
        assert_eq!((found.cpu_ms, found.steal_ms), (210, 20));
        let names =
            ["sda", "sdaa", "sda1", "nvme0n1", "nvme0n10", "nvme0n1p2"].map(|name| disk(name, 1));
        let disks = read(&json!([]), &json!(names)).disks;
        let disks: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
        assert_eq!(disks, ["sda", "sdaa", "nvme0n1", "nvme0n10"]);
        assert_eq!(
            found.disks,
            [GuestDiskCounters {
                name: "vda".to_owned(),
                requests: 8,
                total_ms: 11
            }]
        );
    }

    #[test]
    fn the_socket_is_that_of_the_agents_port() {
        let of =
            |line: &str| socket(&Arguments::from_line(line)).map(|path| path.display().to_string());
        let proxmox = "kvm -chardev socket,path=/var/run/qemu-server/100.qga,server=on,wait=off,id=qga0 -device virtio-serial \
                       -device virtserialport,chardev=qga0,name=org.qemu.guest_agent.0";
        assert_eq!(of(proxmox).as_deref(), Some("/var/run/qemu-server/100.qga"));
        assert_eq!(
            of("kvm -chardev socket,path=/q,id=c -device virtserialport,chardev=c,name=other"),
            None
        );
    }

    /// An agent in half: it answers as many commands as there are answers here, then no more.
    fn agent(folder: &std::path::Path, answers: Vec<Value>) -> GuestAgent {
        let path = folder.join("agent");
        let listener = UnixListener::bind(&path).unwrap();
        let answer_all = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap());
            let mut answers = answers.into_iter();
            for line in lines.split(b'\n').map_while(Result::ok) {
                let line: Value =
                    serde_json::from_slice(line.strip_prefix(b"\xff").unwrap_or(&line)).unwrap();
                let id = &line["arguments"]["id"];
                let answer = if id.is_null() {
                    answers.next()
                } else {
                    Some(json!({ "return": id }))
                };
                let Some(answer) = answer else { continue };
                writeln!(stream, "{answer}").unwrap();
            }
        };
        std::thread::Builder::new().spawn(answer_all).unwrap();
        GuestAgent(Way::Socket(SharedSocket {
            path,
            pid: std::process::id() as i32,
        }))
    }

    #[test]
    fn after_an_answer_that_does_not_come_nothing_more_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let refused = json!({ "error": { "desc": "not supported" } });
        let agent = agent(folder.path(), vec![refused, json!({ "return": 7 })]);
        let (began, mut said) = (Instant::now(), Vec::new());
        let result = agent.session(Duration::from_millis(300), |ask| {
            said = (0..100)
                .map(|_| ask("guest-info", &json!({})).ok())
                .collect();
            Ok(())
        });
        assert!(
            result.is_err() && began.elapsed() < Duration::from_secs(5),
            "{result:?}"
        );
        assert_eq!(
            (&said[..3], said.len()),
            (&[None, Some(json!(7)), None][..], 100)
        );
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(text in r#"[\[\]{}":,a-z0-9-]{0,80}"#) {
            if let Ok(value) = serde_json::from_str(&text) {
                read_agent_answers(&value, &value);
            }
        }
    }

    fn refused() -> Result<Value, VmmError> {
        Err(VmmError::Monitor("Invalid argument".to_owned()))
    }

    #[test]
    fn a_file_is_closed_also_where_the_guest_refuses() {
        let mut said: Vec<String> = Vec::new();
        let mut agent = |command: &str, arguments: &Value| {
            said.push(format!("{command} {arguments}"));
            match command {
                "guest-file-open" => Ok(json!(1000)),
                "guest-file-flush" => refused(),
                _ => Ok(json!({})),
            }
        };
        assert!(
            write_file(&mut agent, "/sys/x", "none")
                .unwrap_err()
                .to_string()
                .contains("Invalid argument")
        );
        assert!(
            read_file(&mut agent, "/sys/x").is_err(),
            "an answer without bytes"
        );
        assert_eq!(
            said.iter()
                .filter(|line| *line == r#"guest-file-close {"handle":1000}"#)
                .count(),
            2,
            "{said:?}"
        );
        assert!(
            said.contains(&r#"guest-file-write {"buf-b64":"bm9uZQ==","handle":1000}"#.to_owned()),
            "{said:?}"
        );
        let mut gives = |command: &str, _: &Value| {
            Ok(if command == "guest-file-read" {
                json!({ "buf-b64": "bm9uZSBbYmZxXQo=" })
            } else {
                json!(7)
            })
        };
        assert_eq!(read_file(&mut gives, "/sys/x").unwrap(), "none [bfq]");
        let mut long =
            |_: &str, _: &Value| Ok(json!({ "buf-b64": STANDARD.encode("x".repeat(5000)) }));
        assert!(read_file(&mut long, "/sys/x").is_err());
    }
}
