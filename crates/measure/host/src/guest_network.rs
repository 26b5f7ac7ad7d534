//! Programs and kernel features that this host has for a guest's network.

use crate::command::ask;
use std::path::Path;
use std::time::Duration;

/// Timeout for passt's answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns true if this passt can be a vhost-user back end: those of December 2024 and later, which print their
/// capabilities as <https://qemu-project.gitlab.io/qemu/interop/vhost-user.html> asks of a back end.
pub fn passt_has_vhost_user(passt: &Path) -> bool {
    let answer = ask(passt, &["--vhost-user", "--print-capabilities"], TIMEOUT);
    matches!(answer, Ok(Some(answer)) if answer.success)
}

/// Returns true if the host's kernel can move the packets of a tap (vhost-net).
pub fn has_vhost_net() -> bool {
    Path::new("/dev/vhost-net").exists()
}
