//! Batches of requests whose CPU time in the VMM the controller counts.

use crate::WorkloadError;
use rustix::io::{read, retry_on_intr, write};
use vmtax_model::{BatchEdge, Places};

/// Notifies the agent, if it waits for that, and waits until the controller has read the clock.
pub(crate) fn notify(places: &Places, edge: BatchEdge) -> Result<(), WorkloadError> {
    if !places.notified {
        return Ok(());
    }
    let agent = rustix::stdio::stdin();
    // Eight bytes fit into an empty socket at once.
    retry_on_intr(|| write(agent, &edge.to_bytes())).map_err(|e| WorkloadError::Agent(e.into()))?;
    match retry_on_intr(|| read(agent, &mut [0; 1][..])) {
        Ok(1) => Ok(()),
        Ok(_) => Err(WorkloadError::Agent(
            std::io::ErrorKind::UnexpectedEof.into(),
        )),
        Err(e) => Err(WorkloadError::Agent(e.into())),
    }
}
