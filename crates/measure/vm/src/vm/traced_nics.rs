//! The network cards of a running VM, with what joins their packets to the host's events.

use super::handle::Vm;
use super::open_files::nics;
use vmtax_model::{Missing, TracedNic, VmNic};

impl Vm {
    /// The cards on a tap, whose packets QEMU or a vhost worker moves; and those of which the host shows less, each with the reason.
    /// The monitor is asked, also libvirt's, which marks the domain as tainted.
    pub fn traced_nics(&self) -> (Vec<TracedNic>, Vec<Missing>) {
        let files = self.files().unwrap_or_default();
        let backends = self.process.network_backends();
        let traced = |nic: VmNic| {
            let descriptors: Vec<i32> = files
                .iter()
                .filter(|file| file.is_tap(&nic.tap))
                .map(|file| file.fd)
                .collect();
            TracedNic {
                notify: self.process.doorbells_of(&nic.tap, &descriptors),
                nic,
            }
        };
        let missing = backends.iter().map(|(id, kind)| without_tap(id, kind));
        (
            nics(&files).into_iter().map(traced).collect(),
            missing.collect(),
        )
    }
}

fn without_tap(id: &str, kind: &str) -> Missing {
    let own = if matches!(kind, "user" | "passt") {
        kind
    } else {
        "tap"
    };
    Missing {
        what: format!("packets of the network backend {id} ({kind})"),
        why: "of a running VM those that pass a tap are followed".to_owned(),
        fix: format!(
            "`vmtax layers --device net --set backend={own}` follows round trips of a guest that vmtax boots"
        ),
    }
}
