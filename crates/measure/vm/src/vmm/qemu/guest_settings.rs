//! Settings of the kernel of a running guest, by QEMU's guest agent. What it says is the guest's word.

use super::agent_file::read;
use super::guest_agent::{Ask, GuestAgent};
use crate::MachineError;
use crate::host_settings::in_effect;
use serde_json::{Value, json};
use std::time::Duration;
use vmtax_model::{
    CLOCK_SOURCE_FILE, DiskSettings, GuestDiskSettings, GuestSettings, is_disk_name,
};

/// Time limit for all answers of the agent together.
const TIMEOUT: Duration = Duration::from_secs(5);
/// More disks are not read: a file takes three commands.
const MAX_DISKS: usize = 16;
/// The governor of the guest's idle states in use.
const CPUIDLE_GOVERNOR: &str = "/sys/devices/system/cpu/cpuidle/current_governor";
/// A sector of `/sys/block/NAME/size`, bytes.
const SECTOR: u64 = 512;

/// Reads, through the agent, the settings of the guest's clock and of the disks that are known.
///
/// # Errors
/// [`MachineError::Monitor`] where it does not answer, or may not read files.
pub(crate) fn guest_settings(
    agent: &GuestAgent,
    known: &[DiskSettings],
) -> Result<GuestSettings, MachineError> {
    let sources = CLOCK_SOURCE_FILE.replace("current_", "available_");
    agent.session(TIMEOUT, |ask| {
        let clock_source = read(ask, CLOCK_SOURCE_FILE)?;
        let clock_sources = read(ask, &sources).unwrap_or_default();
        let named = names(&ask("guest-get-disks", &json!({})).unwrap_or_default());
        let named = named
            .into_iter()
            .filter(|name| known.iter().any(|disk| name.starts_with(prefix(disk))));
        let sized = named.filter_map(|name| {
            let sectors: u64 = read(ask, &format!("/sys/block/{name}/size"))
                .ok()?
                .parse()
                .ok()?;
            Some((name, sectors.checked_mul(SECTOR)?))
        });
        let disks = disk_of_each(known, &sized.collect::<Vec<_>>());
        Ok(GuestSettings {
            clock_source,
            clock_sources: clock_sources
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            cpuidle_governor: read(ask, CPUIDLE_GOVERNOR).ok(),
            command_line: read(ask, "/proc/cmdline").ok(),
            disks: disks
                .into_iter()
                .map(|(disk, name)| settings(ask, disk, name))
                .collect(),
        })
    })
}

fn settings(ask: &mut Ask<'_>, disk: String, name: String) -> GuestDiskSettings {
    let mut of = |file: &str| read(ask, &format!("/sys/block/{name}/{file}")).ok();
    let cache_type = of("cache_type");
    let scheduler = of("queue/scheduler").map(|text| in_effect(&text).to_owned());
    let read_ahead_kb = of("queue/read_ahead_kb").and_then(|text| text.parse().ok());
    GuestDiskSettings {
        disk,
        name,
        cache_type,
        scheduler,
        read_ahead_kb,
    }
}

/// The guest's disks in the answer to `guest-get-disks`, without partitions and devices on others.
fn names(answer: &Value) -> Vec<String> {
    let name = |disk: &Value| {
        let is_own =
            disk["partition"] == false && disk["dependencies"].as_array().is_none_or(Vec::is_empty);
        let name = disk["name"].as_str()?.strip_prefix("/dev/")?;
        (is_own && is_disk_name(name)).then(|| name.to_owned())
    };
    answer
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(name)
        .take(MAX_DISKS)
        .collect()
}

/// Returns the beginning of Linux' names for disks on a disk's bus.
fn prefix(disk: &DiskSettings) -> &'static str {
    match disk.driver.as_str() {
        driver if driver.starts_with("virtio-blk") => "vd",
        driver if driver.starts_with("nvme") => "nvme",
        _ => "sd",
    }
}

/// Matches QEMU's disks with the guest's: the only one of its bus that has that size. Returns the names of both.
fn disk_of_each(known: &[DiskSettings], sized: &[(String, u64)]) -> Vec<(String, String)> {
    let one = |disk: &DiskSettings| {
        let is_like =
            |other: &&DiskSettings| prefix(other) == prefix(disk) && other.size == disk.size;
        let mut named = sized
            .iter()
            .filter(|(name, size)| name.starts_with(prefix(disk)) && Some(*size) == disk.size);
        let (name, _) = named.next()?;
        (named.next().is_none() && known.iter().filter(is_like).count() == 1)
            .then(|| (disk.name.clone(), name.clone()))
    };
    known.iter().filter_map(one).collect()
}

/// The disks that an answer of a guest's agent names, for fuzzing: at most 16.
pub fn read_guest_disks(answer: &Value) -> Vec<String> {
    names(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_named_without_partitions_and_what_lies_on_others() {
        let answer = json!([
            { "name": "/dev/vda1", "partition": true, "dependencies": ["/dev/vda"] },
            { "name": "/dev/vda", "partition": false, "address": {} },
            { "name": "/dev/dm-0", "partition": false, "dependencies": ["/dev/vda1"] },
            { "name": "/dev/nvme0n1", "partition": false, "dependencies": [] },
            { "name": "/dev/../etc", "partition": false },
            { "name": "vdz", "partition": false },
        ]);
        assert_eq!(names(&answer), ["vda", "nvme0n1"]);
        assert_eq!(names(&json!({ "name": 1 })), [""; 0]);
    }

    #[test]
    fn a_disk_is_the_only_one_of_its_bus_and_size() {
        let disk = |name: &str, driver: &str, size| DiskSettings {
            name: name.to_owned(),
            driver: driver.to_owned(),
            size: Some(size),
            ..DiskSettings::default()
        };
        let sized = [
            ("vda", 10),
            ("vdb", 20),
            ("vdc", 20),
            ("sda", 10),
            ("nvme0n1", 30),
        ];
        let sized = sized.map(|(name, size)| (name.to_owned(), size));
        let known = [
            disk("root", "virtio-blk-device", 10),
            disk("one", "virtio-blk-device", 20),
            disk("two", "virtio-blk-device", 20),
            disk("sata", "ide-hd", 10),
            disk("fast", "nvme-ns", 30),
            disk("gone", "scsi-hd", 40),
            DiskSettings {
                size: None,
                ..disk("unknown", "scsi-hd", 0)
            },
        ];
        let found = disk_of_each(&known, &sized);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(disk, name)| (&**disk, &**name))
            .collect();
        assert_eq!(
            found,
            [("root", "vda"), ("sata", "sda"), ("fast", "nvme0n1")]
        );
        assert_eq!(
            disk_of_each(&known[1..2], &sized),
            [],
            "two of the guest's could be it"
        );
    }
}
