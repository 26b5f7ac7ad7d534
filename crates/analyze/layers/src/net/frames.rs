//! Packets with the payload of a round trip, recognized by their length.

use vmtax_model::{TrialRecord, WorkloadName};

/// Bytes of an Ethernet header, which a packet has on its way out.
const LINK: u64 = 14;
/// Bytes of the headers of IPv4 and UDP.
const UDP: u64 = 20 + 8;
/// Bytes of the headers of IPv4 and TCP, without options.
const TCP: u64 = 20 + 20;
/// Most bytes of TCP's options.
const TCP_OPTIONS: u64 = 40;

/// The lengths of packets with a whole payload: IP header to end, bytes. Others on the same card are ARP's, or TCP's
/// acknowledgements without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frames {
    least: u64,
    most: u64,
}

impl Frames {
    /// Of a trial of `net-rr`; `None` for one of another workload, or whose options do not say.
    pub fn of(record: &TrialRecord) -> Option<Frames> {
        let workload = record
            .result()
            .map_or(&record.workload, |result| &result.workload);
        let option = |name: &str| workload.options.get(name).map(String::as_str);
        let size =
            vmtax_model::parse_size(option("size")?).filter(|size| *size <= u64::from(u16::MAX))?;
        let (least, more) = match option("protocol")? {
            "udp" => (size + UDP, 0),
            "tcp" => (size + TCP, TCP_OPTIONS),
            _ => return None,
        };
        (workload.name == WorkloadName::NetRr).then_some(Frames {
            least,
            most: least + more,
        })
    }

    /// Returns true if a packet of this length, in bytes, has the payload, as it is on its way in.
    pub fn has(&self, len: u64) -> bool {
        (self.least..=self.most).contains(&len)
    }

    /// Returns true if a packet of this length, in bytes, has the payload, as it is on its way out, with the link's
    /// header.
    pub fn has_with_link(&self, len: u64) -> bool {
        len.checked_sub(LINK).is_some_and(|len| self.has(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vmtax_model::testing::trial;
    use vmtax_model::{Machine, WorkloadSpec};

    fn frames(protocol: &str, size: &str) -> Option<Frames> {
        let spec = WorkloadSpec::new(WorkloadName::NetRr)
            .with("protocol", protocol)
            .with("size", size);
        Frames::of(&trial(Machine::KVM, spec))
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
}
