//! The Model Context Protocol as a server of tools over standard input and output speaks it: a line is a message of JSON-RPC 2.0.
//! Nothing here reads a file or starts a program; whatever a client sends is a message, or an error that says why not.
//!
//! - [`read_line`] reads a bounded line.
//! - [`Message::parse`] makes a message of it.
//! - [`Tool`] describes a tool to clients, and checks the arguments of a call.
//! - [`reply`] has the answers, a line each.
//!
//! The protocol's own schema: <https://modelcontextprotocol.io/specification/2025-11-25/schema>. Of it a server of tools needs
//! `initialize`, `ping`, `tools/list`, `tools/call` and `notifications/cancelled`.

mod line;
mod message;
pub mod reply;
mod tool;

pub use line::{Line, MAX_LINE, read_line};
pub use message::{Message, Refused, RequestId};
pub use tool::{Form, Parameter, Tool};
