//! The guest agent: answers the controller's requests, natively or as a guest's first process. Each workload runs in a
//! fresh process of this same binary (`vmtax agent run`), which is also how the agent works alone; so native and guest
//! trials start alike, and a workload that crashes or is killed for its memory is an error, not the end of the agent.

mod block_queue;
mod confine;
mod devices;
mod error;
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
pub use error::AgentError;
pub use init::init;
pub use observe::GuestObserver;
pub use serve::serve;
