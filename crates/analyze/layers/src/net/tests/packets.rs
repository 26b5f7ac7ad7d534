//! Tests of what is known of packets by their length.

use crate::net::Frames;
use proptest::prelude::*;
use vmtax_model::testing::trial;
use vmtax_model::{Machine, WorkloadName, WorkloadSpec};

fn frames(protocol: &str, size: &str) -> Option<Frames> {
    let spec = WorkloadSpec::new(WorkloadName::NetRr)
        .with("protocol", protocol)
        .with("size", size);
    Frames::of_trial(&trial(Machine::KVM, spec))
}

#[test]
fn packets_with_the_payload_differ_from_arp_and_from_acknowledgements() {
    let udp = frames("udp", "64").unwrap();
    assert!(
        udp.has(92)
            && udp.has_with_link(106)
            && !udp.has(28)
            && !udp.has(106)
            && !udp.has_with_link(13)
    );
    let tcp = frames("tcp", "16").unwrap();
    // With time stamps, and an acknowledgement with them.
    assert!(tcp.has(16 + 52) && !tcp.has(52), "{tcp:?}");
    assert_eq!(
        (
            frames("sctp", "64"),
            frames("udp", "much"),
            frames("udp", "1G")
        ),
        (None, None, None)
    );
}

proptest! {
    #[test]
    fn any_length_and_any_option_is_read(size in "[0-9A-Za-z]{0,12}", len in any::<u64>()) {
        for protocol in ["udp", "tcp", &size] {
            let _ = frames(protocol, &size).map(|frames| frames.has(len) || frames.has_with_link(len));
        }
    }
}
