//! File that a tuning leaves for settings other than the disk's: those of the guest as a whole, of its share, its
//! network card, its host.

use super::handover::{self, traps};
use crate::analysis::ReportFile;
use vmtax_findings::GuestTuneFindings;
use vmtax_model::{Libvirt, Setting, SettingPart, SettingPlace};

/// The file; none where nothing of the kind is kept. `answer` is the first sentence of the report.
pub(super) fn file(found: &GuestTuneFindings, answer: &str) -> Option<ReportFile> {
    if found.outcome.total.is_none() || !found.changes_guest() {
        return None;
    }
    let traps = traps(found).into_iter();
    let traps: String = traps.map(|trap| format!("- {trap}\n")).collect();
    let rows = found
        .changed()
        .into_iter()
        .filter(|(key, ..)| !found.is_of_disk(key));
    let rows: String = rows
        .map(|(key, before, after)| row(key, before, after))
        .collect();
    let content = format!(
        "# Settings of the guest\n\n{answer}\n\n{traps}\n`vmtax tune` changed no VM. Replace the words in capitals by your VM's values.\n\n\
         | setting | QEMU | libvirt | undo |\n|---|---|---|---|\n{rows}"
    );
    Some(handover::file("tuned/guest.md", content))
}

fn row(key: &str, before: Option<&str>, after: Option<&str>) -> String {
    let setting = after.map_or_else(
        || format!("without {key}"),
        |value| format!("{key}={value}"),
    );
    let undo = before.map_or_else(
        || "leave it out".to_owned(),
        |value| format!("`{key}={value}`"),
    );
    let [setting, qemu, libvirt] =
        [setting, qemu(key, after), libvirt(key, after)].map(|text| text.replace('|', "\\|"));
    format!("| `{setting}` | {qemu} | {libvirt} | {undo} |\n")
}

/// QEMU's argument that sets it, or what sets it where QEMU does not.
fn qemu(key: &str, value: Option<&str>) -> String {
    let setting = Setting::of(key);
    let Some(value) = value else {
        return removed(setting, key);
    };
    let line = setting.line(key, value);
    match setting.place {
        // A sentence that has its code marked.
        SettingPlace::Instruction => line,
        SettingPlace::GuestCommandLine => {
            format!("guest's boot loader, or `-append`: `{line}`")
        }
        SettingPlace::GuestSysfs => format!("guest: `{line}`"),
        SettingPlace::HostSysfs => format!("host: `{line}`"),
        _ => format!("`{line}`"),
    }
}

/// The step that removes a setting: what stands where.
fn removed(setting: &Setting, key: &str) -> String {
    if !key.contains('.') {
        return format!("remove `{key}`");
    }
    let place = match (setting.part, setting.place) {
        (SettingPart::Share, _) => "the share's arguments and its mount".to_owned(),
        (_, SettingPlace::GuestCommandLine) => "the guest's kernel command line".to_owned(),
        (_, SettingPlace::GuestSysfs) => "what sets it in the guest".to_owned(),
        (_, SettingPlace::HostSysfs) => "what sets it on the host".to_owned(),
        _ => format!("`{}`", setting.line.split(' ').next().unwrap_or_default()),
    };
    format!("remove `{}` from {place}", Setting::name(key))
}

/// libvirt's element for it.
fn libvirt(key: &str, value: Option<&str>) -> String {
    let setting = Setting::of(key);
    let text = value.unwrap_or("none");
    let element = match setting.libvirt(text) {
        Libvirt::Element(element) => setting.filled(element, key, text),
        Libvirt::NoDomain => "not of a domain".to_owned(),
        _ => "`<qemu:commandline>`, as QEMU has it".to_owned(),
    };
    if value.is_none() {
        format!("remove it: {element}")
    } else {
        element
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_stands_where_qemu_and_libvirt_have_it_with_its_undo() {
        let settings_row = |key: &str, before, after| row(key, before, after);
        let text = settings_row("cpu-flag.x2apic", Some("off"), Some("on"));
        assert!(
            text.contains("`-cpu MODEL,x2apic=on`")
                && text.contains("policy='require' name='x2apic'"),
            "{text}"
        );
        assert!(text.ends_with("| `cpu-flag.x2apic=off` |\n"), "{text}");
        let text = settings_row("kernel-arg.clocksource", Some("acpi_pm"), None);
        assert!(
            text.starts_with(
                "| `without kernel-arg.clocksource` | remove `clocksource` from the guest's"
            ),
            "{text}"
        );
        let text = settings_row("backend", Some("user"), Some("passt"));
        assert!(
            text.contains("-netdev stream") && text.contains("<backend type='passt'/>"),
            "{text}"
        );
        let text = settings_row("share.msize", None, Some("512000"));
        assert!(
            text.contains("`msize=512000`") && text.ends_with("| leave it out |\n"),
            "{text}"
        );
        let text = settings_row("block-queue.read_ahead_kb", None, Some("4096"));
        assert!(
            text.contains("`echo 4096 > /sys/block/DISK/queue/read_ahead_kb`"),
            "{text}"
        );
        assert!(
            text.contains("ATTR{queue/read_ahead_kb}=\"4096\"") && text.contains("leave it out"),
            "{text}"
        );
        let text = settings_row("netdev.vhost", None, Some("on"));
        assert!(
            text.contains("-netdev tap,…,vhost=on") && text.contains("<driver name='vhost'/>"),
            "{text}"
        );
        assert!(
            settings_row("host.thp", None, Some("always")).contains("transparent_hugepage/enabled")
        );
        assert!(settings_row("tx", Some("timer"), Some("bh")).contains("virtio-net-pci,…,tx=bh"));
    }
}
