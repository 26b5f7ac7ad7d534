//! Identity of this host.

use crate::system_files::read;
use sha2::{Digest, Sha256};
use vmtax_model::HostIdentity;

pub fn collect() -> HostIdentity {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    HostIdentity {
        name: Some(name).filter(|name| !name.is_empty() && name != "(none)"),
        id: read("/etc/machine-id").and_then(|machine_id| id(&machine_id)),
    }
}

/// machine-id(5) asks for a hash, as the number itself is confidential. It has 128 random bits, so that the hash leads to
/// nothing. `None` for what is none: it is empty, or "uninitialized", in images.
fn id(machine_id: &str) -> Option<String> {
    let is_set = machine_id.len() == 32 && machine_id.bytes().all(|b| b.is_ascii_hexdigit());
    let digest = Sha256::new()
        .chain_update("vmtax host\n")
        .chain_update(machine_id)
        .finalize();
    is_set.then(|| {
        digest
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_a_hash_of_what_is_set() {
        let known = id("0123456789abcdef0123456789abcdef").unwrap();
        assert!(
            known.len() == 16 && !"0123456789abcdef0123456789abcdef".contains(&known),
            "{known}"
        );
        assert_ne!(id("0123456789abcdef0123456789abcdee"), Some(known));
        assert_eq!([id(""), id("uninitialized")], [None, None]);
    }
}
