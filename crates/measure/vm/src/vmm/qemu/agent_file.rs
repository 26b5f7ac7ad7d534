//! Small files of a running guest, by QEMU's guest agent: settings of its kernel. What it says is the guest's word.

use super::guest_agent::Ask;
use crate::MachineError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Bytes of a setting: of a file of sysfs there is no more.
const MAX_BYTES: usize = 4096;

/// Reads a file of the guest, without the white space around its text.
///
/// # Errors
/// [`MachineError::Monitor`] where the agent has no such file, or may not read it.
pub(crate) fn read(ask: &mut Ask<'_>, path: &str) -> Result<String, MachineError> {
    let handle = ask("guest-file-open", &json!({ "path": path, "mode": "r" }))?;
    let piece = ask(
        "guest-file-read",
        &json!({ "handle": handle, "count": MAX_BYTES }),
    );
    ask("guest-file-close", &json!({ "handle": handle }))?;
    let text = bytes(&piece?)
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .filter(|text| text.len() <= MAX_BYTES);
    let text = text.ok_or_else(|| {
        MachineError::Monitor(format!("the guest's agent returned no text for {path}"))
    })?;
    Ok(text.trim().to_owned())
}

/// Writes a value to a file.
///
/// # Errors
/// [`MachineError::Monitor`] where the agent may not write it, or the guest's kernel refuses the value.
pub(crate) fn write(ask: &mut Ask<'_>, path: &str, value: &str) -> Result<(), MachineError> {
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
pub(crate) fn bytes(piece: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(piece["buf-b64"].as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Result<Value, MachineError> {
        Err(MachineError::Monitor("Invalid argument".to_owned()))
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
            write(&mut agent, "/sys/x", "none")
                .unwrap_err()
                .to_string()
                .contains("Invalid argument")
        );
        assert!(
            read(&mut agent, "/sys/x").is_err(),
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
        assert_eq!(read(&mut gives, "/sys/x").unwrap(), "none [bfq]");
        let mut long =
            |_: &str, _: &Value| Ok(json!({ "buf-b64": STANDARD.encode("x".repeat(5000)) }));
        assert!(read(&mut long, "/sys/x").is_err());
    }
}
