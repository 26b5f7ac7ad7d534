//! What this host has for a guest's network.

use crate::command::ask;
use crate::program::find_program;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long it may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether it is installed and can be a vhost-user back end: those of December 2024 and later, which print their capabilities as
/// <https://qemu-project.gitlab.io/qemu/interop/vhost-user.html> asks of a back end.
pub fn passt_has_vhost_user() -> bool {
    let answer = |passt: PathBuf| ask(&passt, &["--vhost-user", "--print-capabilities"], TIMEOUT);
    find_program("passt").is_some_and(|passt| matches!(answer(passt), Ok(Some(answer)) if answer.success))
}

/// Whether the host's kernel can move the packets of a tap.
pub fn has_vhost_net() -> bool {
    Path::new("/dev/vhost-net").exists()
}
