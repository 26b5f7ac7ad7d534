//! Doorbells of virtio devices that a vCPU thread of QEMU handles itself.

use crate::evidence::Register;
use crate::rule::about_exits;
use crate::{Finding, Rule};
use vmtax_model::Setting;
use vmtax_model::number::count;

pub(super) const NOTIFY_WITHOUT_IOEVENTFD: Rule = Rule {
    id: "notify-without-ioeventfd",
    finds: "kicks of a virtio device that go on to QEMU's own vCPU thread",
    remedies: &[Setting::named("ioeventfd").remedy(
        "on",
        "Switch ioeventfd on: KVM then wakes another thread, and the vCPU continues",
    )],
    source: "QEMU commit 0ebf76aae583: an emulated NVMe disk went from 35,000 to 41,000 requests a second, one at a time",
    evaluate: |evidence| {
        about_exits(evidence, |exits| {
            let kicks = exits.writes_to_qemu(Register::Notify);
            let text = format!(
                "QEMU's vCPU threads themselves handle {} kicks of virtio devices: the vCPU does not run the guest during this time.",
                count(kicks)
            );
            exits
                .many(kicks)
                .then(|| Finding::with_gain(text, exits.share(kicks)))
        })
    },
};

#[cfg(test)]
mod tests {
    use crate::evidence::Register::Notify;
    use crate::test_evidence::fires;

    #[test]
    fn kicks_fire_where_qemu_handles_them() {
        assert!(fires(
            "notify-without-ioeventfd",
            &[(Notify, [0, 600, 600])]
        ));
        assert!(
            !fires("notify-without-ioeventfd", &[(Notify, [0, 6000, 0])]),
            "KVM took them"
        );
    }
}
