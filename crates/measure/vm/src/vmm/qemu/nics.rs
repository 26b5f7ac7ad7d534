//! The network cards of a running QEMU: which backend each has, and where its guest kicks it.

use super::arguments::Arguments;
use super::monitor::Monitor;
use crate::MachineError;

/// Backends that end in a tap.
const TAPS: [&str; 2] = ["tap", "bridge"];

/// The backends that the command line has beside taps: ID and type.
pub(crate) fn backends_without_tap(arguments: &Arguments) -> Vec<(String, String)> {
    let options = ["netdev", "nic"]
        .into_iter()
        .flat_map(|option| arguments.properties(option));
    let backend = |properties: super::arguments::Properties| {
        let kind = properties.first("type")?.to_owned();
        let id = properties.get("id").unwrap_or("without an ID").to_owned();
        (!TAPS.contains(&kind.as_str()) && kind != "none").then_some((id, kind))
    };
    options.filter_map(backend).collect()
}

/// The ports and addresses by which the guest kicks the queues of the card on a tap: first and length. `descriptors` are those that QEMU
/// has of the tap.
///
/// # Errors
/// [`MachineError::Monitor`].
pub(crate) fn doorbells(
    monitor: &Monitor,
    tap: &str,
    descriptors: &[i32],
) -> Result<Vec<(u64, u64)>, MachineError> {
    let text = monitor.network()?;
    card_of(&text, tap, descriptors).map_or(Ok(Vec::new()), |card| monitor.regions_of_card(&card))
}

/// The card on a tap, as `info network` prints it: a line for each queue of a card, and below it one for its backend.
fn card_of(text: &str, tap: &str, descriptors: &[i32]) -> Option<String> {
    let mut card = None;
    for line in text.lines() {
        let (name, properties) = line.trim_start_matches([' ', '\\']).split_once(": ")?;
        let property = |key: &str| {
            let mut all = properties
                .split(',')
                .filter_map(|property| property.split_once('='));
            all.find(|(name, _)| *name == key).map(|(_, value)| value)
        };
        if property("type") == Some("nic") {
            card = Some(name.to_owned());
        }
        let has_descriptor = property("fd")
            .and_then(|fd| fd.parse().ok())
            .is_some_and(|fd: i32| descriptors.contains(&fd));
        if property("type") == Some("tap") && (property("ifname") == Some(tap) || has_descriptor) {
            return card;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_on_a_tap_is_found_by_the_taps_name_or_descriptor() {
        let text = "net0: index=0,type=nic,model=virtio-net-pci,macaddr=52:54:00:12:34:56\r\n \\ host0: \
                    index=0,type=tap,ifname=vnet7,script=no,downscript=no\r\nnet1: index=0,type=nic,model=e1000\r\n \\ \
                    host1: index=0,type=tap,fd=35\r\nhost2: index=0,type=user,net=10.0.2.0";
        let card_on_tap = |tap: &str, descriptors: &[i32]| card_of(text, tap, descriptors);
        assert_eq!(card_on_tap("vnet7", &[]).as_deref(), Some("net0"));
        assert_eq!(card_on_tap("vnet8", &[34, 35]).as_deref(), Some("net1"));
        assert_eq!(
            (card_on_tap("vnet8", &[3]), card_of("nonsense", "a", &[])),
            (None, None)
        );
    }

    #[test]
    fn backends_that_are_no_taps_are_named() {
        let line = r#"q -netdev tap,id=a,fd=3 -netdev {"type":"user","id":"b"} -nic none -nic user -netdev bridge,id=c"#;
        let named = |(id, kind): (&str, &str)| (id.to_owned(), kind.to_owned());
        let expected = [("b", "user"), ("without an ID", "user")].map(named);
        assert_eq!(backends_without_tap(&Arguments::from_line(line)), expected);
    }
}
