//! Sends replies and files to the controller.

use crate::AgentError;
use rustix::fd::BorrowedFd;
use std::io;
use vmtax_wire::{MAX_PIECE, Reply, encode, piece};

pub(crate) fn send(channel: BorrowedFd<'_>, reply: &Reply) -> Result<(), AgentError> {
    send_frame(channel, &encode(reply)?)
}

pub(crate) fn send_frame(channel: BorrowedFd<'_>, frame: &[u8]) -> Result<(), AgentError> {
    let mut rest = frame;
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(channel, rest));
        rest = &rest[written.map_err(|e| AgentError::Channel(e.into()))?..];
    }
    Ok(())
}

/// Sends a frame.
pub(crate) type Send<'a> = dyn FnMut(&[u8]) -> Result<(), AgentError> + 'a;

/// Why a trial has no result.
pub(crate) enum Failure {
    /// The trial itself failed: the controller is told.
    Trial(String),
    /// The channel broke.
    Channel(AgentError),
}

impl Failure {
    /// Returns the reply to send, where the channel still carries it.
    pub fn reply(self) -> Result<Reply, AgentError> {
        match self {
            Failure::Trial(error) => Ok(Reply::Failed { error }),
            Failure::Channel(error) => Err(error),
        }
    }
}

/// Sends files, piece by piece, as `fill` hands them over by name.
pub(crate) fn ship(
    send: &mut Send<'_>,
    fill: impl FnOnce(&mut dyn FnMut(&str, &[u8]) -> io::Result<()>) -> Result<(), String>,
) -> Result<(), Failure> {
    let mut broken = None;
    let filled = fill(&mut |name, bytes| {
        for part in bytes.chunks(MAX_PIECE) {
            let frame = piece(name, part).map_err(io::Error::other)?;
            if let Err(error) = send(&frame) {
                broken = Some(error);
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(())
    });
    match broken {
        Some(error) => Err(Failure::Channel(error)),
        None => filled.map_err(Failure::Trial),
    }
}
