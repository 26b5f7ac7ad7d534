//! Programs and files in a running guest, by QEMU's guest agent. What it says is the guest's word.

use super::guest_agent::{GuestAgent, file_bytes};
use crate::{Vm, VmmError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time limit for one answer of the agent.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a file that are read at once: an answer has them in base64, in one line.
const PIECE: u64 = 256 << 10;
/// Time limit for a program to end.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for reading a file: a hostile guest gives it byte by byte.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A program that runs in a guest.
#[derive(Debug)]
pub struct GuestProgram {
    agent: GuestAgent,
    pid: i64,
}

impl GuestProgram {
    /// Starts a program, by its path, with arguments, as the agent's user: as a rule root.
    ///
    /// # Errors
    /// [`VmmError::InGuest`] where no agent answers, or it may not start programs.
    pub fn start(vm: &Vm, program: &str, arguments: &[&str]) -> Result<GuestProgram, VmmError> {
        let agent = GuestAgent::of(vm.pid(), vm.monitor())
            .ok_or_else(|| VmmError::InGuest("the VM has no channel for it".to_owned()))?;
        let started = json!({ "path": program, "arg": arguments, "capture-output": true });
        let pid = ask(&agent, "guest-exec", &started)?["pid"].as_i64();
        let pid = pid.ok_or_else(|| VmmError::InGuest("guest-exec names no process".to_owned()))?;
        Ok(GuestProgram { agent, pid })
    }

    /// Returns the program's standard error, once it has failed; `None` while it runs, and after it succeeded.
    ///
    /// # Errors
    /// [`VmmError::InGuest`].
    pub fn failure(&self) -> Result<Option<String>, VmmError> {
        let status = self.status()?;
        let failed = status["exited"] == true && status["exitcode"] != 0;
        Ok(failed.then(|| {
            let bytes = status["err-data"]
                .as_str()
                .and_then(|text| STANDARD.decode(text).ok())
                .unwrap_or_default();
            String::from_utf8_lossy(&bytes).trim().to_owned()
        }))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`VmmError::InGuest`] where it does not end in time.
    pub fn wait(&self) -> Result<(), VmmError> {
        let deadline = Instant::now() + END_TIMEOUT;
        while self.status()?["exited"] != true {
            if Instant::now() > deadline {
                return Err(VmmError::InGuest(format!(
                    "process {} of the guest does not end",
                    self.pid
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn status(&self) -> Result<Value, VmmError> {
        ask(
            &self.agent,
            "guest-exec-status",
            &json!({ "pid": self.pid }),
        )
    }

    /// Returns true if the guest has a file.
    pub fn has_file(&self, path: &str) -> bool {
        self.open(path).map(|handle| self.close(&handle)).is_ok()
    }

    /// Hands out a file of the guest, piece by piece, `max_bytes` at most.
    ///
    /// # Errors
    /// [`VmmError::InGuest`] where it cannot be read or is longer, and what `take` gives.
    pub fn read_file<E: From<VmmError>>(
        &self,
        path: &str,
        max_bytes: u64,
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let handle = self.open(path)?;
        let (mut left, deadline) = (max_bytes, Instant::now() + READ_TIMEOUT);
        loop {
            let wanted = json!({ "handle": handle, "count": PIECE });
            let piece = ask(&self.agent, "guest-file-read", &wanted)?;
            let bytes = file_bytes(&piece)
                .ok_or_else(|| VmmError::InGuest("guest-file-read gives no bytes".to_owned()))?;
            let fits = left
                .checked_sub(bytes.len() as u64)
                .filter(|_| Instant::now() < deadline);
            left = fits.ok_or_else(|| {
                let (mib, seconds) = (max_bytes >> 20, READ_TIMEOUT.as_secs());
                VmmError::InGuest(format!(
                    "{path} has more than {mib} MiB, or takes more than {seconds} s"
                ))
            })?;
            take(&bytes)?;
            if piece["eof"] == true || bytes.is_empty() {
                return Ok(self.close(&handle)?);
            }
        }
    }

    fn open(&self, path: &str) -> Result<Value, VmmError> {
        let asked = json!({ "path": path, "mode": "r" });
        ask(&self.agent, "guest-file-open", &asked)
    }

    fn close(&self, handle: &Value) -> Result<(), VmmError> {
        let asked = json!({ "handle": handle });
        ask(&self.agent, "guest-file-close", &asked).map(drop)
    }

    /// Removes a file of the guest, if that has `rm`.
    ///
    /// # Errors
    /// [`VmmError::InGuest`].
    pub fn remove_file(&self, path: &str) -> Result<(), VmmError> {
        let asked = json!({ "path": "/bin/rm", "arg": ["-f", path] });
        ask(&self.agent, "guest-exec", &asked).map(drop)
    }
}

fn ask(agent: &GuestAgent, command: &str, arguments: &Value) -> Result<Value, VmmError> {
    agent
        .ask(command, arguments, TIMEOUT)
        .map_err(|error| match error {
            VmmError::Monitor(why) => VmmError::InGuest(why),
            other => other,
        })
}
