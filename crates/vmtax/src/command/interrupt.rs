//! Signals that end what is under way in good order.

use crate::fault::Fault;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use vmtax_vm::Interrupt;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// A flag that is set by Ctrl-C and its like: what was recorded until then is shown.
/// It is one for the whole program: what a command does in several steps is ended by one signal.
pub(super) fn stop_flag() -> Result<Arc<AtomicBool>, Fault> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    if let Some(stopped) = FLAG.get() {
        return Ok(Arc::clone(stopped));
    }
    let stopped = Arc::clone(FLAG.get_or_init(Arc::default));
    for signal in SIGNALS {
        signal_hook::flag::register(signal, Arc::clone(&stopped))
            .map_err(|e| Fault::file("catching signals", e))?;
    }
    Ok(stopped)
}

/// Ctrl-C and its like end the trial under way in good order.
pub(super) fn interrupt() -> Result<Interrupt, Fault> {
    let failed = |e| Fault::file("catching signals", e);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    for signal in SIGNALS {
        let end = theirs.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, end).map_err(failed)?;
    }
    Ok(Interrupt::new(ours.into()))
}
