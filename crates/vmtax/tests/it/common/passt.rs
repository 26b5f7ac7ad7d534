//! passt, of this host or beside it.

use super::skipped;
use std::path::{Path, PathBuf};

/// The passt of this host; without one the test is listed as skipped.
pub fn passt() -> Option<PathBuf> {
    let found = ["/usr/bin/passt", "/usr/local/bin/passt"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.exists());
    if found.is_none() {
        skipped("passt is not installed: `apt-get install passt`");
    }
    found
}

/// One that is a vhost-user back end, of this host or what `scripts/setup test` unpacked, with a `PATH` on which it is found;
/// without one the test is listed as skipped.
pub fn passt_with_vhost_user() -> Option<(PathBuf, String)> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/passt/bin/passt");
    let all = [
        "/usr/bin/passt".into(),
        "/usr/local/bin/passt".into(),
        unpacked,
    ];
    let found = all
        .into_iter()
        .find(|path| vmtax_host::passt_has_vhost_user(path));
    if found.is_none() {
        skipped("no passt with vhost-user: `scripts/setup test` brings one to Debian");
    }
    found.map(|passt| {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", passt.parent().unwrap().display());
        (passt, path)
    })
}
