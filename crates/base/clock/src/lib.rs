//! Guest and host ticks brought onto one clock, with the error of that.
//!
//! Both sides stamp with the time stamp counter, which in a guest is the host's plus something. How much is bounded by
//! [`Evidence`]: stamps exchanged through memory that both sides see ([`exchange`] and [`answer`] over [`Shared`]),
//! KVM's own record, and cause and effect. It gives a [`ClockMap`], the only way from [`GuestTicks`] to [`HostTicks`].

mod error;
mod evidence;
mod exchange;
mod map;
mod shared;
mod ticks;

pub use error::ClockError;
pub use evidence::Evidence;
pub use exchange::{GUEST_CELL, HOST_CELL, answer, exchange};
pub use map::{ClockMap, Offset, Source};
pub use shared::Shared;
pub use ticks::{GuestTicks, HostTicks, beat, host_mhz, time_of_day};
