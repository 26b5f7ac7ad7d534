//! Network backends: the path between a guest's network card and the host's network.

use crate::PlanError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Queues of a tap.
const QUEUES: RangeInclusive<usize> = 1..=16;

/// A backend of QEMU's for a network card.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::VariantArray,
    strum::VariantNames,
    strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum NetBackend {
    /// A tap: packets go to the host's stack as they are.
    Tap,
    /// QEMU's user-mode network (slirp): QEMU ends the guest's connections and makes its own by sockets.
    User,
    /// passt: a process that does the same outside of QEMU, which passes it packets by a stream.
    Passt,
    /// passt as a vhost-user back end: it has the guest's memory, takes packets from the virtqueues and puts them there, past QEMU.
    VhostUser,
}

impl NetBackend {
    /// A variant's setting that chooses it.
    pub const KEY: &str = "backend";
    /// Beginning of a variant's setting that is a property of it: `netdev.vhost=on`.
    pub const PROPERTY: &str = "netdev.";
    /// A variant's setting with the number of a tap's queues.
    pub const QUEUES: &str = "netdev.queues";
    /// A variant's setting by which the host's kernel moves a tap's packets.
    pub const VHOST: &str = "netdev.vhost";
    /// Every backend, as it is written in plans and options.
    pub const NAMES: &[&str] = <NetBackend as strum::VariantNames>::VARIANTS;
}

impl NetBackend {
    /// The queues that these settings of a variant ask a tap for.
    ///
    /// # Errors
    /// [`PlanError::Invalid`] for anything but 1 to 16.
    pub fn queues(set: &BTreeMap<String, String>) -> Result<usize, PlanError> {
        let Some(asked) = set.get(NetBackend::QUEUES) else {
            return Ok(1);
        };
        let queues = asked.parse().ok().filter(|queues| QUEUES.contains(queues));
        let fault = || {
            PlanError::Invalid(format!(
                "netdev.queues={}: choose 1 to 16",
                asked.escape_default()
            ))
        };
        queues.ok_or_else(fault)
    }
}

impl FromStr for NetBackend {
    type Err = PlanError;
    fn from_str(name: &str) -> Result<NetBackend, PlanError> {
        let mut all = <NetBackend as strum::VariantArray>::VARIANTS
            .iter()
            .copied();
        all.find(|backend| <&str>::from(backend) == name)
            .ok_or_else(|| {
                let all = NetBackend::NAMES.join(", ");
                PlanError::Invalid(format!(
                    "unknown backend '{}': choose from {all}",
                    name.escape_default()
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_have_the_names_that_qemu_and_the_docs_use() {
        assert_eq!(NetBackend::NAMES, ["tap", "user", "passt", "vhost-user"]);
        assert_eq!(
            ("passt".parse(), "tap".parse()),
            (Ok(NetBackend::Passt), Ok(NetBackend::Tap))
        );
        let queues = |text: &str| {
            NetBackend::queues(&[(NetBackend::QUEUES.to_owned(), text.to_owned())].into())
        };
        assert_eq!(
            (queues("2"), NetBackend::queues(&BTreeMap::new())),
            (Ok(2), Ok(1))
        );
        assert!(
            ["0", "17", "-1", "two"]
                .iter()
                .all(|text| queues(text).unwrap_err().to_string().contains("1 to 16"))
        );
        let error = "slirp".parse::<NetBackend>().unwrap_err().to_string();
        assert!(error.contains("tap, user, passt, vhost-user"), "{error}");
    }
}
