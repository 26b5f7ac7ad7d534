//! The guest agent: answers the controller's requests, natively or as a guest's first process. Each workload runs in a
//! fresh process of this same binary (`vmtax agent run`), which is also how the agent works alone; so native and guest
//! trials start alike, and a workload that crashes or is killed for its memory is an error, not the end of the agent.

mod block_queue;
mod confine;
mod devices;
mod exec;
mod init;
mod modules;
mod network;
mod observe;
mod outbox;
mod sampling;
mod serve;
mod share;
mod trace;
mod trial;

pub use confine::{Confinement, confine};
pub use init::init;
pub use observe::GuestObserver;
pub use serve::serve;

use std::io;
use std::path::PathBuf;
use vmtax_model::limit_remedy;
use vmtax_wire::PORT;

/// A fatal error of the agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The stream to the controller broke.
    #[error("the channel to the controller broke: {0}")]
    Channel(#[source] io::Error),
    /// The controller sent an invalid request.
    #[error(transparent)]
    Wire(#[from] vmtax_wire::WireError),
    /// A system call that setting up needs.
    #[error("{what}: {source}{}", limit_remedy(.source))]
    System {
        /// Action that failed, with its object.
        what: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// Neither a virtio-serial port nor a serial console.
    #[error("no channel to the controller: this kernel has neither a virtio-serial port '{PORT}' nor {console}", console = .0.display())]
    NoChannel(PathBuf),
    /// Nothing to trace.
    #[error(
        "this guest has no disk on virtio-blk or virtio-scsi: `vmtax agent observe` traces the requests of those alone"
    )]
    NoDisk,
    /// This kernel, or this user, cannot trace.
    #[error(transparent)]
    Probe(#[from] vmtax_observe::ProbeError),
    /// Tracing ended early.
    #[error("failed to trace this guest's kernel: {0}")]
    Observe(String),
}

impl AgentError {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        AgentError::System {
            what: what.into(),
            source: source.into(),
        }
    }
}
