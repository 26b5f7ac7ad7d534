//! Machines with an agent: the conversation with it, the console, and the user's command between both.

pub(crate) mod capture;
pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod console;
pub(crate) mod memory_limit;
pub(crate) mod messages;
mod native;
pub(crate) mod session;
pub(crate) mod streams;
mod terminal;
