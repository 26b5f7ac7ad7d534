//! Signals that end what is under way in good order.

use crate::fault::Fault;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use vmtax_vm::Interrupt;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Ctrl-C and its like end what is under way in good order: what was recorded until then is shown. It is one for the whole
/// program: what a command does in several steps is ended by one signal.
pub(super) fn interrupt() -> Result<&'static Interrupt, Fault> {
    static INTERRUPT: OnceLock<Interrupt> = OnceLock::new();
    if let Some(interrupt) = INTERRUPT.get() {
        return Ok(interrupt);
    }
    let failed = |e| Fault::file("catching signals", e);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    for signal in SIGNALS {
        let end = theirs.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, end).map_err(failed)?;
    }
    Ok(INTERRUPT.get_or_init(|| Interrupt::new(ours.into())))
}
