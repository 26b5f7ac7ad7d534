//! Code that a guest's vCPUs execute: costs that make no exit, in guests without an agent, of any kernel.

mod decode;
mod findings;
#[cfg(test)]
mod tests;

pub use findings::findings;
