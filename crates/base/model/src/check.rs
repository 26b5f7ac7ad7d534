//! Checks of a host by `doctor`: one for each part that a measurement needs.

use crate::{HostProblem, Remedy};
use serde::{Deserialize, Deserializer, Serialize};

/// State of a part of the host: usable, limited or missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readiness {
    /// As it should be.
    Ok,
    /// Works, with something named taken away.
    Limited,
    /// Not available on this host.
    Missing,
}

/// One check of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Stable identifier (`kvm`, `qemu`, `guest-kernel`, …).
    pub id: String,
    /// Subject of the check, for people.
    pub subject: String,
    /// State of the part that is checked.
    pub state: Readiness,
    /// Result of the check, for people.
    pub found: String,
    /// Why it matters to a measurement.
    pub why: String,
    /// Problem, by the rule that has the remedies. `None` where there is no problem, or nobody can change it.
    #[serde(default)]
    pub problem: Option<HostProblem>,
    /// The remedies of that rule, best first. Recordings of before have a text, `fix`.
    #[serde(default, alias = "fix", deserialize_with = "remedies_or_text")]
    pub remedies: Vec<Remedy>,
}

fn remedies_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Remedy>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Remedies(Vec<Remedy>),
        Text(Option<String>),
    }
    Ok(match Written::deserialize(deserializer)? {
        Written::Remedies(remedies) => remedies,
        Written::Text(text) => text.into_iter().map(Remedy::instruction).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_text_is_an_instruction() {
        let read = |fix: &str| {
            let check = r#"{"id": "kvm", "subject": "KVM", "state": "missing", "found": "", "why": "" FIX}"#;
            serde_json::from_str::<Check>(&check.replace("FIX", fix))
                .unwrap()
                .remedies
        };
        assert_eq!(
            read(r#", "fix": "load kvm_amd""#),
            [Remedy::instruction("load kvm_amd".to_owned())]
        );
        assert_eq!([read(""), read(r#", "fix": null"#)], [vec![], vec![]]);
        let remedy = r#"[{"place": "instruction", "setting": "", "value": "", "action": "load kvm_amd", "line": "", "cost": null, "read_back": "", "undo": ""}]"#;
        assert_eq!(
            read(&format!(r#", "remedies": {remedy}"#)),
            read(r#", "fix": "load kvm_amd""#)
        );
    }
}
