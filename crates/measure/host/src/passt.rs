//! What this host's passt can do.

use crate::command::ask;
use crate::program::find_program;
use std::path::PathBuf;
use std::time::Duration;

/// How long it may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Whether it is installed and can be a vhost-user back end: those of December 2024 and later, which print their capabilities as
/// <https://qemu-project.gitlab.io/qemu/interop/vhost-user.html> asks of a back end.
pub fn passt_has_vhost_user() -> bool {
    let answer = |passt: PathBuf| ask(&passt, &["--vhost-user", "--print-capabilities"], TIMEOUT);
    find_program("passt").is_some_and(|passt| matches!(answer(passt), Ok(Some(answer)) if answer.success))
}
