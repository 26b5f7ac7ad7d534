//! Queries of QEMU's monitor about QEMU, its guest and its devices.

use super::arguments::{PV_EOI, X2APIC};
use super::conversation::items;
use super::monitor::{Monitor, qom_get};
use crate::VmmError;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use vmtax_model::device_id;
use vmtax_model::samples::ApicFeatures;

/// The class of an Ethernet controller on PCI.
const ETHERNET: u64 = 0x200;

/// QEMU's own trace events of a block request.
const EVENTS: [&str; 7] = [
    "virtio_queue_notify",
    "virtio_blk_handle_read",
    "virtio_blk_handle_write",
    "virtio_blk_submit_multireq",
    "virtio_blk_rw_complete",
    "virtio_blk_req_complete",
    "virtio_notify_irqfd",
];

impl Monitor {
    /// QEMU's process, by the thread of its first vCPU: of one in the PID namespace of this program.
    ///
    /// # Errors
    /// [`VmmError`] where the monitor does not answer, or names no thread that is visible here.
    pub fn pid(&self) -> Result<i32, VmmError> {
        let no_thread = || VmmError::Monitor("query-cpus-fast names no thread".to_owned());
        self.vcpus()?
            .first()
            .and_then(|(_, tid)| process_of(*tid))
            .ok_or_else(no_thread)
    }

    /// The numbers of the guest's vCPUs, with their threads. Where some were plugged in later, there are gaps.
    ///
    /// # Errors
    /// [`VmmError::Monitor`].
    pub fn vcpus(&self) -> Result<Vec<(u32, i32)>, VmmError> {
        let all = self.execute("query-cpus-fast")?;
        let number = |value: &Value| u32::try_from(value.as_u64()?).ok();
        let one = |cpu: &Value| Some((number(&cpu["cpu-index"])?, thread(cpu)?));
        Ok(items(&all).filter_map(one).collect())
    }

    /// The names of its iothreads, with their threads.
    pub(crate) fn iothreads(&self) -> Result<Vec<(String, i32)>, VmmError> {
        let all = self.execute("query-iothreads")?;
        let one = |iothread: &Value| Some((iothread["id"].as_str()?.to_owned(), thread(iothread)?));
        Ok(items(&all).filter_map(one).collect())
    }

    /// The iothread that serves the device at this path of QEMU's objects.
    pub(crate) fn iothread_of(&self, path: &str) -> Option<String> {
        let object = self.property(path, "iothread").ok()?;
        Some(object.as_str()?.rsplit_once('/')?.1.to_owned())
    }

    /// The path of the bus that a device is on, by the device's own path.
    pub(crate) fn bus_of(&self, path: &str) -> Option<String> {
        let bus = self.property(path, "parent_bus").ok()?;
        bus.as_str()
            .filter(|bus| !bus.is_empty())
            .map(str::to_owned)
    }

    /// QEMU's version: "7.2.22 (Debian 1:7.2+dfsg-7)".
    pub(crate) fn version(&self) -> Result<String, VmmError> {
        let answer = self.execute("query-version")?;
        let part = |name: &str| answer["qemu"][name].as_u64().unwrap_or(0);
        let package = answer["package"]
            .as_str()
            .filter(|package| !package.is_empty());
        let package = package.map_or(String::new(), |package| format!(" ({package})"));
        Ok(format!(
            "{}.{}.{}{package}",
            part("major"),
            part("minor"),
            part("micro")
        ))
    }

    /// The guest's name.
    pub(crate) fn name(&self) -> Result<Option<String>, VmmError> {
        Ok(self.execute("query-name")?["name"]
            .as_str()
            .map(str::to_owned))
    }

    /// Returns true if KVM runs the guest.
    ///
    /// # Errors
    /// [`VmmError`] where the monitor does not answer.
    pub fn is_kvm(&self) -> Result<bool, VmmError> {
        Ok(self.execute("query-kvm")?["enabled"] == true)
    }

    /// The memory tree, as `info mtree -f` prints it.
    ///
    /// # Errors
    /// [`VmmError::Monitor`].
    pub fn memory_tree(&self) -> Result<String, VmmError> {
        self.human("info mtree -f", None)
    }

    /// Returns the output of a command for people about one of the guest's vCPUs, by its number.
    ///
    /// # Errors
    /// [`VmmError::Monitor`], also for a vCPU that is not there.
    pub fn of_vcpu(&self, vcpu: u32, command: &str) -> Result<String, VmmError> {
        self.human(command, Some(vcpu))
    }

    fn human(&self, line: &str, vcpu: Option<u32>) -> Result<String, VmmError> {
        let mut arguments = json!({ "command-line": line });
        if let Some(vcpu) = vcpu {
            arguments["cpu-index"] = vcpu.into();
        }
        let text = self.execute_with("human-monitor-command", &arguments)?;
        let unknown = || VmmError::Monitor(format!("{line}: no text"));
        text.as_str().map(str::to_owned).ok_or_else(unknown)
    }

    /// KVM's own counters of the guest's vCPUs, summed up; empty where it is not KVM, or QEMU does not tell (it does since
    /// 7.1).
    pub fn kvm_counters(&self) -> BTreeMap<String, u64> {
        let all = self.execute_with("query-stats", &json!({ "target": "vcpu" }));
        all.map(|all| counters(&all)).unwrap_or_default()
    }

    /// Features of the local APIC of the first vCPU, without those that KVM lacks; `-cpu host` is expanded.
    pub(crate) fn apic_features(&self) -> ApicFeatures {
        let path = &self.execute("query-cpus-fast").unwrap_or_default()[0]["qom-path"];
        let commands = [PV_EOI, X2APIC].map(|name| qom_get(path, name));
        let answers = self.execute_all(&commands).unwrap_or_default();
        let mut answers = answers.into_iter().map(|answer| answer.ok()?.as_bool());
        let [pv_eoi, x2apic] = [(); 2].map(|()| answers.next().flatten());
        ApicFeatures { pv_eoi, x2apic }
    }

    /// The regions of a device, ports and addresses: first and length. A guest kicks the device in one.
    ///
    /// # Errors
    /// [`VmmError::Monitor`].
    pub fn regions(&self, device: &str) -> Result<Vec<(u64, u64)>, VmmError> {
        Ok(regions(&self.execute("query-pci")?, device))
    }

    /// Returns the regions of the device at a path of QEMU's objects, which may have no ID.
    pub(crate) fn regions_of_object(&self, path: &str) -> Result<Vec<(u64, u64)>, VmmError> {
        if let Some(id) = device_id(path) {
            return self.regions(id);
        }
        let number = |name| self.property(path, name);
        let buses = self.execute("query-pci")?;
        Ok(regions_at(&buses, &number("busnr")?, &number("addr")?))
    }

    /// The ports and addresses by which the guest kicks the queues of the card on a tap: first and length. `descriptors` are
    /// those that QEMU has of the tap.
    pub(crate) fn doorbells(
        &self,
        tap: &str,
        descriptors: &[i32],
    ) -> Result<Vec<(u64, u64)>, VmmError> {
        match card_of(&self.human("info network", None)?, tap, descriptors) {
            Some(card) => Ok(regions_of_card(&self.execute("query-pci")?, &card)),
            None => Ok(Vec::new()),
        }
    }

    /// Switches QEMU's own trace events of block requests on or off; those that it has not are left out.
    ///
    /// # Errors
    /// [`VmmError::Monitor`] when it does not answer or refuses.
    pub fn log_events(&self, on: bool) -> Result<(), VmmError> {
        for name in EVENTS {
            let arguments = json!({ "name": name, "enable": on, "ignore-unavailable": true });
            // An older QEMU does not know an event, and says so.
            if let Err(VmmError::Monitor(what)) =
                self.execute_with("trace-event-set-state", &arguments)
            {
                if !what.contains("unknown event") {
                    return Err(VmmError::Monitor(what));
                }
            }
        }
        Ok(())
    }
}

/// The thread that an answer names.
fn thread(of: &Value) -> Option<i32> {
    i32::try_from(of["thread-id"].as_i64()?).ok()
}

/// Those that are one number; histograms are left out.
fn counters(answer: &Value) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    let providers = items(answer).filter(|one| one["provider"] == "kvm");
    for stat in providers.flat_map(|one| items(&one["stats"])) {
        if let (Some(name), Some(value)) = (stat["name"].as_str(), stat["value"].as_u64()) {
            let sum: &mut u64 = sums.entry(name.to_owned()).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    sums
}

/// The process that a thread belongs to.
fn process_of(thread: i32) -> Option<i32> {
    let status = vmtax_observe::proc_text(format!("/proc/{thread}/status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))
        .and_then(|pid| pid.trim().parse().ok())
}

/// The devices of these buses, those behind bridges among them.
pub fn devices(buses: &Value) -> Vec<&Value> {
    let mut devices: Vec<&Value> = items(buses)
        .flat_map(|bus| items(&bus["devices"]))
        .collect();
    let mut next = 0;
    while let Some(device) = devices.get(next).copied() {
        devices.extend(items(&device["pci_bridge"]["devices"]));
        next += 1;
    }
    devices
}

fn regions(buses: &Value, device: &str) -> Vec<(u64, u64)> {
    regions_of(
        devices(buses)
            .into_iter()
            .filter(|own| own["qdev_id"] == device),
    )
}

/// Returns the regions of the device with a number (`devfn`: 8 for each slot, 1 for each function) on a bus.
fn regions_at(buses: &Value, bus: &Value, devfn: &Value) -> Vec<(u64, u64)> {
    let number =
        |device: &Value| Some((device["slot"].as_u64()? << 3) | device["function"].as_u64()?);
    let is_it = |device: &&Value| {
        device["bus"] == *bus && number(device).is_some_and(|number| *devfn == number)
    };
    regions_of(devices(buses).into_iter().filter(is_it))
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

/// Returns the regions of a network card. One without an ID is called after its model in QEMU's network, and known
/// here where it is the only one.
fn regions_of_card(buses: &Value, card: &str) -> Vec<(u64, u64)> {
    let cards: Vec<&Value> = devices(buses)
        .into_iter()
        .filter(|device| device["class_info"]["class"] == ETHERNET)
        .collect();
    match cards[..] {
        [only] => regions_of([only].into_iter()),
        _ => regions_of(cards.into_iter().filter(|own| own["qdev_id"] == card)),
    }
}

fn regions_of<'a>(devices: impl Iterator<Item = &'a Value>) -> Vec<(u64, u64)> {
    let regions = devices.flat_map(|device| items(&device["regions"]));
    regions
        .filter_map(|region| Some((region["address"].as_u64()?, region["size"].as_u64()?)))
        // Not placed yet by the guest.
        .filter(|(address, _)| *address != 0 && *address != u64::MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_disks_regions_count() {
        let region = |address: i64| json!({ "address": address, "size": 64, "type": "io" });
        let buses = json!([{ "bus": 0, "devices": [
            { "qdev_id": "", "regions": [region(1)] },
            { "qdev_id": "d", "regions": [region(0xc000), region(-1)] },
        ]}]);
        assert_eq!(regions(&buses, "d"), [(0xc000, 64)]);
        // libvirt puts devices behind ports of PCI Express.
        let port =
            json!([{ "bus": 0, "devices": [{ "qdev_id": "pci.1", "pci_bridge": buses[0] }] }]);
        assert_eq!(regions(&port, "d"), [(0xc000, 64)]);
        assert_eq!(regions(&json!("nonsense"), "d"), []);
    }

    #[test]
    fn a_device_without_an_id_is_known_by_its_place() {
        let disk = |slot: u64, function: u64, at: u64| json!({ "qdev_id": "", "bus": 0, "slot": slot, "function": function, "regions": [{ "address": at, "size": 64 }] });
        let buses = json!([{ "bus": 0, "devices": [disk(1, 0, 7), disk(2, 0, 8), disk(2, 1, 9)] }]);
        assert_eq!(regions_at(&buses, &json!(0), &json!(17)), [(9, 64)]);
        assert_eq!(regions_at(&buses, &json!(1), &json!(8)), []);
        assert_eq!(regions_at(&buses, &json!(0), &json!("01.0")), []);
        assert_eq!(
            regions_at(
                &json!([{ "devices": [{ "slot": u64::MAX }] }]),
                &Value::Null,
                &json!(0)
            ),
            []
        );
    }

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
    fn the_only_network_card_needs_no_id() {
        let card = |id: &str, at: u64| json!({ "qdev_id": id, "class_info": { "class": 0x200 }, "regions": [{ "address": at, "size": 64 }] });
        let of =
            |devices: Value, name: &str| regions_of_card(&json!([{ "devices": devices }]), name);
        assert_eq!(of(json!([card("", 7)]), "virtio-net-pci.0"), [(7, 64)]);
        assert_eq!(of(json!([card("a", 7), card("b", 8)]), "b"), [(8, 64)]);
        assert_eq!(
            of(json!([card("", 7), card("", 8)]), "virtio-net-pci.0"),
            []
        );
    }

    #[test]
    fn counters_are_summed_over_cpus() {
        let vcpu = |exits: u64| {
            json!({ "provider": "kvm", "qom-path": "/machine/unattached/device[0]", "stats": [
                { "name": "exits", "value": exits }, { "name": "halt_wait_hist", "value": [1, 2] },
                { "name": "guest_mode", "value": false },
            ]})
        };
        let other = json!({ "provider": "cryptodev", "stats": [{ "name": "exits", "value": 9 }] });
        assert_eq!(
            counters(&json!([vcpu(3), vcpu(4), other])),
            BTreeMap::from([("exits".to_owned(), 7)])
        );
        assert!(counters(&json!("nonsense")).is_empty());
    }

    #[test]
    fn this_thread_is_of_this_process() {
        assert_eq!(
            process_of(std::process::id() as i32),
            Some(std::process::id() as i32)
        );
        assert_eq!(process_of(-1), None);
    }
}
