//! Other processes on the device beneath a running VM's disk.

use crate::rule::{about_vm, instruction};
use crate::{Evidence, Finding, Rule};
use vmtax_model::DeviceUser;
use vmtax_model::number::bytes;

/// Bytes a second from which on a process loads a device.
const MIN_PER_S: f64 = 10e6;
/// More processes are not named.
const MAX_NAMED: usize = 2;

pub(super) const SETTING_SHARED_DEVICE: Rule = Rule {
    id: "setting-shared-device",
    finds: "another process that reads or writes 10 MB a second and more, as much as the VM, and has files open on the device beneath the VM's disk",
    remedies: &[
        instruction(
            "Limit what it does, or run it at another time",
            "sudo systemctl set-property --runtime UNIT IOReadBandwidthMax='/dev/DEVICE 20M' IOWriteBandwidthMax='/dev/DEVICE 20M' # UNIT: systemctl status USER_PID",
        ),
        instruction("Or move the VM's disk to a device of its own", ""),
    ],
    source: "Linux kernel documentation, The /proc Filesystem: /proc/PID/io",
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let own: f64 = vm.process_io.map_or(0.0, |parts| parts.iter().sum());
            let mut loaded = vm.disks.iter().filter_map(|disk| disk.device.as_ref());
            let first = loaded.find_map(|device| users(evidence, &device.name).next())?;
            let text = format!(
                "Other processes use {}, which holds the VM's disk: {}.",
                first.device,
                named(evidence, &first.device)
            );
            (bytes_per_s(first) >= own).then(|| Finding {
                values: vec![
                    ("DEVICE", first.device.clone()),
                    ("USER_PID", first.pid.to_string()),
                ],
                ..Finding::of_vm(vm, text, 0.0)
            })
        })
    },
};

/// " Also on sda: fio (PID 812) reads 210 MiB/s." for the requests of a device; empty where nobody else loads it.
pub(super) fn who_else<'a>(evidence: &Evidence<'a>, device: &'a str) -> String {
    match named(evidence, device).as_str() {
        "" => String::new(),
        named => format!(" Also on {device}: {named}."),
    }
}

/// The processes that load a device, with what they read and write.
fn named<'a>(evidence: &Evidence<'a>, device: &'a str) -> String {
    let part = |(per_s, what): (f64, &str)| {
        let amount = bytes(per_s as u64);
        (per_s >= 1.0).then(|| format!("{what} {amount}/s"))
    };
    let user = |user: &DeviceUser| {
        let parts = [(user.read_per_s, "reads"), (user.written_per_s, "writes")];
        let parts: Vec<String> = parts.into_iter().filter_map(part).collect();
        let name = user.name.escape_default();
        format!("{name} (PID {}) {}", user.pid, parts.join(" and "))
    };
    let all: Vec<String> = users(evidence, device).take(MAX_NAMED).map(user).collect();
    all.join("; ")
}

fn users<'a>(
    evidence: &Evidence<'a>,
    device: &'a str,
) -> impl Iterator<Item = &'a DeviceUser> + use<'a> {
    let all = evidence.activity.map(|activity| &activity.device_users);
    let is_load = move |user: &&DeviceUser| user.device == device && bytes_per_s(user) >= MIN_PER_S;
    all.into_iter().flatten().filter(is_load)
}

fn bytes_per_s(user: &DeviceUser) -> f64 {
    user.read_per_s + user.written_per_s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{evaluate, settings};
    use vmtax_findings::{DeviceRates, DiskRates, IoRates, VmRates};
    use vmtax_model::HostActivity;

    fn vm_on(device: &str, own_bytes_per_s: f64) -> VmRates {
        let io = IoRates {
            reads_per_s: 50.0,
            blkavg_ns: Some(31e6),
            ..IoRates::default()
        };
        let disk = DiskRates {
            name: "vda".to_owned(),
            io: Some(io),
            device: Some(DeviceRates {
                name: device.to_owned(),
                per_s: 900.0,
                mean_ns: Some(30e6),
            }),
            ..DiskRates::default()
        };
        VmRates {
            disks: vec![disk],
            process_io: Some([own_bytes_per_s, 0.0]),
            ..VmRates::default()
        }
    }

    fn activity(read_per_s: f64) -> HostActivity {
        let backup = DeviceUser {
            pid: 812,
            name: "borg\u{1b}".to_owned(),
            device: "sda".to_owned(),
            read_per_s,
            written_per_s: 0.0,
        };
        HostActivity {
            device_users: vec![backup],
            ..HostActivity::default()
        }
    }

    fn evidence<'a>(vm: &'a VmRates, activity: &'a HostActivity) -> Evidence<'a> {
        Evidence {
            vm: Some(vm),
            activity: Some(activity),
            ..Evidence::default()
        }
    }

    #[test]
    fn a_slow_device_is_said_with_who_else_uses_it() {
        let (vm, activity) = (vm_on("sda", 2e5), activity(210e6));
        let causes = evaluate(&evidence(&vm, &activity));
        assert_eq!(causes[0].rule, "vm-slow-device");
        let text = causes[0].finding.replace('\u{a0}', " ");
        assert!(
            text.ends_with("take 30.0 ms. Also on sda: borg\\u{1b} (PID 812) reads 200 MiB/s."),
            "{text}"
        );
    }

    #[test]
    fn a_process_on_the_same_device_is_worth_a_check_where_it_does_more() {
        let found = |device: &str, own, others| {
            let (vm, activity) = (vm_on(device, own), activity(others));
            settings(&evidence(&vm, &activity))
        };
        let advice = found("sda", 5e6, 210e6).remove(0);
        assert_eq!(advice.rule, "setting-shared-device");
        assert!(
            advice.remedies[0]
                .line
                .contains("IOReadBandwidthMax='/dev/sda 20M'")
        );
        assert!(advice.remedies[0].line.ends_with("systemctl status 812"));
        assert_eq!(found("sda", 300e6, 210e6), [], "the VM does more");
        assert_eq!(found("sdb", 5e6, 210e6), [], "another device");
        assert_eq!(found("sda", 5e5, 1e6), [], "no load");
    }
}
