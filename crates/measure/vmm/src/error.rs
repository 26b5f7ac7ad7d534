//! Errors of VMMs and of guests that run.

/// A VMM, or its guest, does not say or do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum VmmError {
    /// A program or file in a running guest.
    #[error(
        "QEMU's guest agent failed: {0}. Install qemu-guest-agent in the guest and allow guest-exec, or use SSH"
    )]
    InGuest(String),
    /// QEMU's monitor failed, for this reason.
    #[error("QEMU's monitor (QMP) failed: {0}")]
    Monitor(String),
    /// QEMU's monitor does not answer.
    #[error("QMP did not answer within {seconds} s{}", if *.has_client { ", since another client is connected to it" } else { "" })]
    MonitorTimeout {
        /// The timeout, seconds.
        seconds: f64,
        /// True if another client is known to be connected: a QMP socket serves one at a time.
        has_client: bool,
    },
}

impl VmmError {
    /// The reason of an error of the monitor, without the words that name it.
    pub fn monitor_reason(self) -> String {
        match self {
            VmmError::Monitor(why) => why,
            other => other.to_string(),
        }
    }
}
