//! A private port mapper for a server that must register with one.

use crate::MachineError;
use crate::process::spawn;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// Where a port mapper is met.
const SOCKET: &str = "/run/rpcbind.sock";
/// It takes a tenth of a second.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// rpcbind. Ended when dropped.
pub(crate) struct Portmapper(Child);

impl Portmapper {
    /// In this process's network and root; gives it when it can be asked.
    pub fn start(program: &Path) -> Result<Portmapper, MachineError> {
        let mut started = Portmapper(spawn(&program.display().to_string(), &["-f".to_owned()])?);
        let failed = |source| {
            MachineError::system(
                format!("waiting for {} at {SOCKET}", program.display()),
                source,
            )
        };
        let deadline = Instant::now() + START_TIMEOUT;
        while !Path::new(SOCKET).exists() {
            if let Some(status) = started.0.try_wait().map_err(failed)? {
                return Err(failed(io::Error::other(format!("it ended with {status}"))));
            }
            if Instant::now() > deadline {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(started)
    }
}

impl Drop for Portmapper {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}
