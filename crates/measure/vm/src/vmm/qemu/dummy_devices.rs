//! Dummy devices, to measure costs that grow with the number of devices: empty disks and memory regions.

use crate::vmm::qemu::monitor::Monitor;
use crate::{MachineError, Setup};
use serde_json::Value;

/// Where QEMU's q35 has room for root ports: below are a guest's other devices, above is the chipset.
const FIRST_SLOT: u32 = 0x10;
const FUNCTIONS: u32 = 8;
/// Prefix of the dummy devices' names.
const NAME: &str = "extra-";

/// QEMU's arguments for them. Eight share a root port, as functions of one device, and so do eight root ports a slot.
pub(crate) fn arguments(disks: u32, regions: u32) -> Vec<String> {
    let mut arguments = Vec::new();
    for port in 0..(disks + regions).div_ceil(FUNCTIONS) {
        let (slot, function) = (FIRST_SLOT + port / FUNCTIONS, port % FUNCTIONS);
        // Nothing is plugged in later: no room of the few ports of I/O is kept for that.
        let root = format!(
            "pcie-root-port,id=extras{port},chassis={},hotplug=off,io-reserve=0",
            port + 1
        );
        arguments.extend([
            "-device".to_owned(),
            format!("{root},addr={slot:#x}.{function},multifunction=on"),
        ]);
    }
    for number in 0..disks + regions {
        let name = format!("{NAME}{number}");
        let (back, device) = if number < disks {
            (
                [
                    "-blockdev",
                    "null-co,read-zeroes=on,size=1073741824,node-name=",
                ],
                "virtio-blk-pci,drive=",
            )
        } else {
            (
                ["-object", "memory-backend-ram,size=64K,id="],
                "ivshmem-plain,memdev=",
            )
        };
        let (port, function) = (number / FUNCTIONS, number % FUNCTIONS);
        let device = format!(
            "{device}{name}-back,id={name},bus=extras{port},addr=0.{function},multifunction=on"
        );
        arguments.extend([
            back[0].to_owned(),
            format!("{}{name}-back", back[1]),
            "-device".to_owned(),
            device,
        ]);
    }
    arguments
}

/// Checks that a running guest has all dummy devices at addresses of their own: not every firmware has room for every
/// number.
pub(crate) fn check(setup: &Setup<'_>, monitor: &Monitor) -> Result<(), MachineError> {
    let asked = setup.guest.devices();
    if asked == 0 {
        return Ok(());
    }
    let placed = placed(&monitor.execute("query-pci")?);
    if placed == asked as usize {
        Ok(())
    } else {
        Err(MachineError::Devices { asked, placed })
    }
}

/// Returns the number of dummy devices that have all of their memory at an address.
fn placed(buses: &Value) -> usize {
    let devices = buses
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|bus| bus["devices"].as_array())
        .flatten();
    devices
        .map(|device| behind(device) + usize::from(is_placed(device)))
        .sum()
}

/// Returns the number of those devices behind a bridge.
fn behind(bridge: &Value) -> usize {
    let devices = bridge["pci_bridge"]["devices"].as_array();
    devices
        .into_iter()
        .flatten()
        .filter(|device| is_placed(device))
        .count()
}

fn is_placed(device: &Value) -> bool {
    let is_extra = device["qdev_id"]
        .as_str()
        .is_some_and(|name| name.starts_with(NAME));
    let regions: Vec<&Value> = device["regions"].as_array().into_iter().flatten().collect();
    // Not placed is 0 or, of 32 or 64 bits, all ones.
    let is_placed = |region: &&Value| {
        region["address"]
            .as_u64()
            .is_some_and(|at| at != 0 && at != u64::MAX && at != u64::from(u32::MAX))
    };
    is_extra && !regions.is_empty() && regions.iter().all(is_placed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn eight_share_a_port_and_none_an_address() {
        let arguments = arguments(9, 8);
        let count = |what: &str| {
            arguments
                .iter()
                .filter(|word| word.starts_with(what))
                .count()
        };
        assert_eq!(
            [
                count("pcie-root-port"),
                count("virtio-blk"),
                count("ivshmem"),
                count("null-co")
            ],
            [3, 9, 8, 9]
        );
        let mut places: Vec<_> = arguments
            .iter()
            .filter_map(|word| word.split_once("bus="))
            .collect();
        places.sort_unstable_by_key(|(_, place)| *place);
        places.dedup_by_key(|(_, place)| *place);
        assert_eq!(places.len(), 17);
        assert!(super::arguments(0, 0).is_empty());
        let most = super::arguments(vmtax_model::Guest::MAX_DEVICES, 0);
        let last = most
            .iter()
            .rfind(|word| word.starts_with("pcie-root-port"))
            .unwrap();
        assert!(
            last.contains("chassis=120,") && last.contains("addr=0x1e.7"),
            "{last}"
        );
    }

    #[test]
    fn what_has_no_address_is_not_there() {
        let device = |name: &str, at: i64| json!({ "qdev_id": name, "regions": [{ "address": 4096 }, { "address": at }] });
        let behind = json!({ "qdev_id": "extras0", "regions": [], "pci_bridge": { "devices": [
            device("extra-0", 4096), device("extra-1", -1), device("extra-2", 0xffff_ffff), device("other", 4096),
        ]}});
        let buses = json!([{ "devices": [behind, device("extra-3", 4096), device("extra-4", 0)] }]);
        assert_eq!(placed(&buses), 2);
        assert_eq!(placed(&json!("nonsense")), 0);
    }
}
