//! The network cards of a running VM, with what joins their packets to the host's events.

use super::handle::Vm;
use super::open_files::nics;
use vmtax_model::{Missing, TracedNic, VmNic};

impl Vm {
    /// Its cards whose packets QEMU reads from a tap and writes to one; and those of which the host shows less, each with the reason.
    /// The monitor is asked, also libvirt's, which marks the domain as tainted.
    pub fn traced_nics(&self) -> (Vec<TracedNic>, Vec<Missing>) {
        let files = self.files().unwrap_or_default();
        let backends = self.process.network_backends();
        let (by_vhost, taps): (Vec<VmNic>, Vec<VmNic>) = nics(&files).into_iter().partition(|nic| nic.vhost);
        let traced = |nic: VmNic| {
            let descriptors: Vec<i32> = files.iter().filter(|file| file.is_tap(&nic.tap)).map(|file| file.fd).collect();
            TracedNic { notify: self.process.doorbells_of(&nic.tap, &descriptors), nic }
        };
        let missing = by_vhost.iter().map(of_vhost).chain(backends.iter().map(|(id, kind)| without_tap(id, kind)));
        (taps.into_iter().map(traced).collect(), missing.collect())
    }
}

fn of_vhost(nic: &VmNic) -> Missing {
    Missing {
        what: format!("packets of {}", nic.tap),
        why: "vhost-net moves them in the host's kernel, past QEMU, and has no events for them".to_owned(),
        fix: "start the VM with vhost=off on this card, for as long as you trace it".to_owned(),
    }
}

fn without_tap(id: &str, kind: &str) -> Missing {
    let own = if matches!(kind, "user" | "passt") { kind } else { "tap" };
    Missing {
        what: format!("packets of the network backend {id} ({kind})"),
        why: "of a running VM those that pass a tap are followed".to_owned(),
        fix: format!("`vmtax layers --device net --set backend={own}` follows round trips of a guest that vmtax boots"),
    }
}
