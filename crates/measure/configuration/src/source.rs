//! The kinds of text that have the configuration of a VM.

use super::{ConfigurationError, command_line, domain, proxmox};
use crate::twin::line::{Line, is_program};
use crate::twin::paste;
use vmtax_model::VmConfiguration;
use vmtax_vmm::qemu::arguments::Arguments;

/// Reads a QEMU command line, also in a shell's script, a unit of systemd, a list of processes, `qm showcmd`'s output or libvirt's
/// log, a domain of libvirt, or a VM's file of Proxmox; `None` for any other text.
///
/// # Errors
/// [`ConfigurationError`] where the text is of a VM but has a fault.
pub fn configuration(text: &str) -> Result<Option<VmConfiguration>, ConfigurationError> {
    if let Some(xml) = paste::xml(text) {
        return domain::read(xml).map(Some);
    }
    let begin = text.trim_start_matches('\u{feff}').trim_start();
    if proxmox::is_config(begin) {
        return proxmox::read(begin).map(Some);
    }
    // Text of another kind may have a quote without its end.
    let lower = text.to_ascii_lowercase();
    if !lower.contains("qemu") && !lower.contains("kvm") {
        return Ok(None);
    }
    let line = paste::line(text)?;
    line.map(|line| command_line::read(&line)).transpose()
}

/// Returns the configuration with which a running QEMU was started, by its command line; `None` where that cannot be read, or the
/// process is no QEMU of x86-64.
pub fn configuration_of(pid: i32) -> Option<VmConfiguration> {
    let words: Vec<String> = Arguments::of(pid).all().map(str::to_owned).collect();
    let line = Line {
        words,
        wrappers: Vec::new(),
        further: 0,
    };
    let is_qemu = line
        .words
        .first()
        .is_some_and(|program| is_program(program));
    command_line::read(&line).ok().filter(|_| is_qemu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_texts_have_no_configuration() {
        for text in [
            "",
            "it's slow",
            "make run",
            "a: b\nc: d",
            "kvm is slow on my host, isn't it",
        ] {
            assert!(!matches!(configuration(text), Ok(Some(_))), "{text}");
        }
    }

    #[test]
    fn thousands_of_devices_are_read_in_bounded_time() {
        let line = |device: &dyn Fn(usize) -> String| {
            let devices: Vec<String> = (0..3000).map(device).collect();
            format!("qemu-kvm -m 1G {}", devices.join(" "))
        };
        let read = |text: &str| configuration(text).unwrap().unwrap();
        let dimms = line(&|n| {
            format!("-object memory-backend-ram,id=m{n},size=1M -device pc-dimm,memdev=m{n}")
        });
        assert_eq!(read(&dimms).memory >> 20, 1024 + 3000);
        let nics =
            line(&|n| format!("-netdev tap,id=n{n} -device virtio-net-pci,netdev=n{n},id=v{n}"));
        assert_eq!(read(&nics).nics.len(), 3000);
        let shares = line(&|n| {
            format!("-fsdev local,id=f{n} -device virtio-9p-pci,fsdev=f{n},mount_tag=t{n}")
        });
        assert_eq!(read(&shares).shares_9p.len(), 3000);
        let disks = line(&|n| {
            format!("-drive file=/d{n},if=none,id=d{n} -device virtio-blk-pci,drive=d{n}")
        });
        assert_eq!(read(&disks).disks.len(), 3000);
        let group = |n: usize| {
            format!(
                "<throttlegroup><group_name>g{n}</group_name><total_iops_sec>5</total_iops_sec></throttlegroup>"
            )
        };
        let disk = |n: usize| {
            format!(
                "<disk type='file'><target dev='vd{n}'/><throttlefilters><throttlefilter group='g{n}'/></throttlefilters></disk>"
            )
        };
        let [groups, disks] = [
            (0..3000).map(group).collect::<String>(),
            (0..3000).map(disk).collect(),
        ];
        let xml = format!(
            "<domain><throttlegroups>{groups}</throttlegroups><devices>{disks}</devices></domain>"
        );
        assert_eq!(read(&xml).disks[2999].limits["iops-total"], "5");
        let loops = "qemu-kvm -blockdev driver=raw,node-name=a,file=b -blockdev driver=raw,node-name=b,file=a -device virtio-blk-pci,drive=a";
        assert_eq!(read(loops).disks.len(), 1);
        assert!(configuration(&format!("qemu-kvm 'a{}", " b".repeat(50_000))).is_err());
        let controller =
            |n: usize| format!("<controller type='scsi' index='{n}' model='virtio-scsi'/>");
        let disk = |n: usize| {
            format!(
                "<disk type='file'><target dev='sd{n}' bus='scsi'/><address controller='{n}'/></disk>"
            )
        };
        let devices: String = (0..20_000).map(|n| controller(n) + &disk(n)).collect();
        let found = read(&format!("<domain><devices>{devices}</devices></domain>"));
        assert_eq!(
            (found.disks.len(), found.disks[19_999].bus.as_str()),
            (20_000, "virtio-scsi")
        );
        let wide: String = (0..200_000).map(|n| format!(" a{n}='1'")).collect();
        for xml in [
            format!("<domain{wide}/>"),
            format!("<domain>{}", "<a>".repeat(1 << 20)),
        ] {
            assert!(configuration(&xml).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(<domain>|qemu-kvm -|cores: 2\nscsi0: )?[ -~\n]{0,200}") {
            let _ = configuration(&text);
        }
    }
}
