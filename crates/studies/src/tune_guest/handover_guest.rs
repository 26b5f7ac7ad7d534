//! File that a tuning leaves for settings other than the disk's: those of the guest as a whole, of its share, its
//! network card, its host.

use crate::analysis::ReportFile;
use vmtax_model::{Guest, GuestTuneFindings, NetBackend, TuneVerdict, Variant};

/// The file; none where nothing of the kind is kept. `answer` is the first sentence of the report.
pub(super) fn file(found: &GuestTuneFindings, answer: &str) -> Option<ReportFile> {
    if found.total.is_none() || !found.changes_guest() {
        return None;
    }
    let traps = found
        .candidates
        .iter()
        .filter(|row| row.verdict == TuneVerdict::Keep && !row.candidate.trap.is_empty());
    let traps: String = traps
        .map(|row| format!("- {}: {}\n", row.candidate.name, row.candidate.trap))
        .collect();
    let rows = found
        .changed()
        .into_iter()
        .filter(|(key, ..)| !found.is_of_disk(key));
    let rows: String = rows
        .map(|(key, before, after)| row(key, before, after))
        .collect();
    let content = format!(
        "# Settings of the guest\n\n{answer}\n\n{traps}\nThe tuning changed no VM. Words in capitals are the VM's own.\n\n\
         | setting | QEMU | libvirt | undo |\n|---|---|---|---|\n{rows}"
    );
    Some(ReportFile {
        name: "tuned/guest.md",
        content: content.into_bytes(),
    })
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
    let Some(value) = value else {
        return format!("remove {}", option_of(key));
    };
    let property = |prefix: &str| {
        key.strip_prefix(prefix)
            .map(|name| format!("{name}={}", value.replace(',', ",,")))
    };
    match key {
        "cpu-model" => format!("`-cpu {value}`"),
        "machine-type" => format!("`-machine {value}`"),
        "qemu" => format!("start this QEMU: `{value}`"),
        "qemu-args" => format!("`{value}`"),
        "kernel-args" => format!("guest's boot loader, or `-append`: `{value}`"),
        "pinning" => {
            "`taskset` for each vCPU thread (`info cpus` of the monitor has them)".to_owned()
        }
        "share" => format!("`vmtax share {value}` has arguments and mount command"),
        NetBackend::KEY => backend(value).to_owned(),
        _ => {
            let cpu = property("cpu-flag.").map(|word| format!("`-cpu MODEL,{word}`"));
            let accel = property("accel.").map(|word| format!("`-accel ACCELERATOR,{word}`"));
            let kind = if key == "memory-backend.hugetlb" {
                "memfd"
            } else {
                "ram"
            };
            let memory = property("memory-backend.").map(|word| {
                format!(
                    "`-object memory-backend-{kind},id=memory,size=SIZE,{word} -machine TYPE,memory-backend=memory`"
                )
            });
            let kernel = property(Guest::KERNEL_ARG)
                .map(|word| format!("guest's boot loader, or `-append`: `{word}`"));
            let share = key.strip_prefix("share.").map(|name| of_share(name, value));
            let host = key
                .strip_prefix(Variant::OF_HOST)
                .map(|name| of_host(name, value));
            let queue = key.strip_prefix(Guest::BLOCK_QUEUE);
            let queue =
                queue.map(|name| format!("guest: `echo {value} > /sys/block/DISK/queue/{name}`"));
            let netdev = property(NetBackend::PROPERTY)
                .map(|word| format!("`-netdev BACKEND,id=NETDEV,{word}`"));
            let others = cpu
                .or(accel)
                .or(memory)
                .or(kernel)
                .or(share)
                .or(host)
                .or(queue)
                .or(netdev);
            others
                .unwrap_or_else(|| format!("`-device virtio-net-pci,netdev=NETDEV,{key}={value}`"))
        }
    }
}

/// Where a setting that is removed stands.
fn option_of(key: &str) -> String {
    const PLACES: [(&str, &str); 8] = [
        ("cpu-flag.", "`-cpu`"),
        ("accel.", "`-accel`"),
        ("memory-backend.", "the guest's memory object"),
        (Guest::KERNEL_ARG, "the guest's kernel command line"),
        ("share.", "the share's arguments and its mount"),
        (Variant::OF_HOST, "what sets it on the host"),
        (Guest::BLOCK_QUEUE, "what sets it in the guest"),
        (NetBackend::PROPERTY, "`-netdev`"),
    ];
    let option_place = |(prefix, place): (&str, &str)| {
        Some(format!("`{}` from {place}", key.strip_prefix(prefix)?))
    };
    PLACES
        .into_iter()
        .find_map(option_place)
        .unwrap_or_else(|| format!("`{key}`"))
}

fn backend(value: &str) -> &'static str {
    match value {
        "tap" => "`-netdev tap,id=NETDEV,ifname=TAP,script=no,downscript=no`",
        "passt" => {
            "`passt --socket SOCKET`, `-netdev stream,id=NETDEV,server=off,addr.type=unix,addr.path=SOCKET`"
        }
        "vhost-user" => {
            "`passt --vhost-user --socket SOCKET`, `-chardev socket,id=CHARDEV,path=SOCKET`, `-netdev vhost-user,id=NETDEV,chardev=CHARDEV`, \
             the guest's memory of an object with `share=on`"
        }
        _ => "`-netdev user,id=NETDEV`",
    }
}

fn of_share(name: &str, value: &str) -> String {
    match name {
        "msize" | "cache" | "access" => format!("mount option in the guest: `{name}={value}`"),
        "security-model" => format!("`-fsdev local,id=FS,path=PATH,security_model={value}`"),
        name => format!("`{name}={value}` of the share's server"),
    }
}

fn of_host(name: &str, value: &str) -> String {
    match name {
        "thp" => {
            format!("`echo {value} > /sys/kernel/mm/transparent_hugepage/enabled` on the host")
        }
        "ksm" => format!("`echo {value} > /sys/kernel/mm/ksm/run` on the host"),
        "nx-huge-pages" => {
            format!("`echo {value} > /sys/module/kvm/parameters/nx_huge_pages` on the host")
        }
        "l1d-flush" => format!(
            "`echo {value} > /sys/module/kvm_intel/parameters/vmentry_l1d_flush` on the host"
        ),
        "halt-poll-ns" => {
            format!("`echo {value} > /sys/module/kvm/parameters/halt_poll_ns` on the host")
        }
        name => format!("`{name}={value}` on the host"),
    }
}

/// libvirt's element for it.
fn libvirt(key: &str, value: Option<&str>) -> String {
    let text = value.unwrap_or("none");
    let switch = if text == "off" { "disable" } else { "require" };
    let element = match key {
        "qemu" => format!("`<emulator>{text}</emulator>`"),
        "pinning" => "`<cputune><vcpupin vcpu='0' cpuset='CPU'/></cputune>`".to_owned(),
        NetBackend::KEY if text == "passt" => "`<interface type='user'><backend type='passt'/></interface>`".to_owned(),
        NetBackend::KEY if text == "vhost-user" => {
            "`<interface type='vhostuser'><backend type='passt'/></interface>`, `<memoryBacking><access mode='shared'/>` (libvirt 11.1)".to_owned()
        }
        NetBackend::KEY if text == "tap" => "`<interface type='bridge'>`".to_owned(),
        "rx_queue_size" => format!("`<driver rx_queue_size='{text}'/>` of `<interface>`"),
        "memory-backend.prealloc" => "`<memoryBacking><allocation mode='immediate'/></memoryBacking>`".to_owned(),
        "memory-backend.hugetlb" => "`<memoryBacking><hugepages/></memoryBacking>`".to_owned(),
        "cpu-model" if text == "host" => "`<cpu mode='host-passthrough'/>`".to_owned(),
        NetBackend::VHOST => "`<driver name='vhost'/>` of `<interface>`".to_owned(),
        "accel.tb-size" => format!("`<features><tcg><tb-cache unit='MiB'>{text}</tb-cache></tcg></features>`"),
        "share.security-model" => "`<filesystem accessmode='…'>`".to_owned(),
        "share" if text == "virtiofs" => {
            "`<filesystem type='mount'><driver type='virtiofs'/></filesystem>`, `<memoryBacking><access mode='shared'/>`".to_owned()
        }
        _ if key.starts_with(Guest::BLOCK_QUEUE) => {
            let name = key.trim_start_matches(Guest::BLOCK_QUEUE);
            format!("not of a domain; in the guest's `/etc/udev/rules.d`: `ACTION==\"add|change\", KERNEL==\"DISK\", ATTR{{queue/{name}}}=\"{text}\"`")
        }
        _ if key.starts_with("kernel-arg") => "`<cmdline>` where it has `<kernel>`; else in the guest".to_owned(),
        _ if key.starts_with(Variant::OF_HOST) => "not of a domain".to_owned(),
        _ => match key.strip_prefix("cpu-flag.") {
            Some(flag) if value.is_some() => format!("`<cpu><feature policy='{switch}' name='{flag}'/></cpu>`"),
            _ => "`<qemu:commandline>`, as QEMU has it".to_owned(),
        },
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
            text.contains("-netdev BACKEND,id=NETDEV,vhost=on")
                && text.contains("<driver name='vhost'/>"),
            "{text}"
        );
        assert!(
            settings_row("host.thp", None, Some("always")).contains("transparent_hugepage/enabled")
        );
        assert!(
            settings_row("tx", Some("timer"), Some("bh"))
                .contains("virtio-net-pci,netdev=NETDEV,tx=bh")
        );
    }
}
