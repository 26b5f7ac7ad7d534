//! Settings of a VM, its guest and its host, with an entry for each. Comparisons, `vmtax tune`, the settings that it
//! hands over, a VM's twin, live changes and the remedies of rules read it.

mod device;
mod entry;
mod guest;
mod host;
mod remedy;

pub use entry::{
    Libvirt, NO_FIGURE, ScsiDevice, SetBy, Setting, SettingPart, SettingPlace, SpecialValue, Unset,
};
pub use remedy::Remedy;

use entry::OTHER;
pub(crate) use entry::is_same;

/// The entries, by what they are of. Of several that fit a key the longest is its own.
const TABLES: [&[Setting]; 3] = [device::TABLE, guest::TABLE, host::TABLE];

impl Setting {
    /// Returns the entry for a variant's key: its own, that of its family, else that of every device's property.
    pub fn of(key: &str) -> &'static Setting {
        Setting::listed(key).unwrap_or(&OTHER)
    }

    /// Returns the entry of a key, or of its family; `None` where no entry names it.
    pub fn listed(key: &str) -> Option<&'static Setting> {
        Setting::all()
            .filter(|setting| {
                setting.key == key || (setting.is_family() && key.starts_with(setting.key))
            })
            .max_by_key(|setting| setting.key.len())
    }

    /// Returns the entry of this key.
    ///
    /// # Panics
    /// Where there is none: in a constant, which does not compile then.
    pub const fn named(key: &str) -> &'static Setting {
        let mut table = 0;
        while table < TABLES.len() {
            let mut entry = 0;
            while entry < TABLES[table].len() {
                if is_same(TABLES[table][entry].key, key) {
                    return &TABLES[table][entry];
                }
                entry += 1;
            }
            table += 1;
        }
        panic!("no setting has this key")
    }

    /// The name of a setting without that of its family, as QEMU or a kernel has it.
    pub fn name(key: &str) -> &str {
        let of_family = key.find('.').filter(|dot| {
            Setting::all().any(|setting| setting.is_family() && setting.key == &key[..=*dot])
        });
        of_family.map_or(key, |dot| &key[dot + 1..])
    }

    /// Every entry.
    pub fn all() -> impl Iterator<Item = &'static Setting> {
        TABLES.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn each_key_has_one_entry() {
        let mut keys = BTreeSet::new();
        let twice = Setting::all().find(|setting| !keys.insert(setting.key));
        assert_eq!(twice.map(|setting| setting.key), None);
    }

    #[test]
    fn a_key_has_its_own_entry_before_that_of_its_family() {
        let part = |key: &str| Setting::of(key).part;
        assert_eq!(
            Setting::of("iothread.poll-max-ns").unset,
            Unset::Is("32768")
        );
        assert_eq!(part("iothread.anything"), SettingPart::IothreadProperty);
        assert_eq!(part("iothread"), SettingPart::Iothread);
        assert_eq!(
            part("of-a-newer-qemu"),
            SettingPart::Device(ScsiDevice::Controller)
        );
        assert!(Setting::listed("of-a-newer-qemu").is_none());
        assert_eq!(Setting::name("iothread.poll-max-ns"), "poll-max-ns");
        let discard = Setting::of("discard");
        assert_eq!(discard.part_with("unmap"), SettingPart::AllNodes);
        assert_eq!(
            discard.part_with("off"),
            SettingPart::Device(ScsiDevice::Controller)
        );
    }

    #[test]
    fn only_a_familys_name_is_left_out_of_a_settings() {
        assert_eq!(Setting::name("device.discard"), "discard");
        assert_eq!(Setting::name("drive.cache.direct"), "cache.direct");
        // QEMU says that it has no such property.
        assert_eq!(Setting::name("devices.num-queues"), "devices.num-queues");
    }

    #[test]
    fn a_value_may_need_a_newer_qemu_than_its_setting() {
        let since = |key: &str, value: &str| Setting::of(key).since(value);
        assert_eq!(
            (since("aio", "native"), since("aio", "io_uring")),
            ((1, 0), (5, 0))
        );
        assert_eq!(
            (since("backend", "user"), since("backend", "passt")),
            ((1, 0), (7, 2))
        );
        assert_eq!(since("packed", "on"), (4, 2));
        assert_eq!(since("tx_queue_size", "1024"), (2, 10));
    }

    #[test]
    fn a_line_has_name_value_and_file() {
        let line = |key: &str, value: &str| Setting::of(key).line(key, value);
        assert_eq!(line("cpu-flag.x2apic", "on"), "-cpu MODEL,x2apic=on");
        assert_eq!(line("accel.a", "b,c"), "-accel ACCELERATOR,a=b,,c");
        assert_eq!(line("kernel-arg.isolcpus", "1,2"), "isolcpus=1,2");
        assert_eq!(
            line("host.ksm", "0"),
            "echo 0 | sudo tee /sys/kernel/mm/ksm/run"
        );
        assert!(line("backend", "passt").starts_with("passt --socket SOCKET; -netdev stream,"));
        assert_eq!(
            line("tx_queue_size", "1024"),
            "-device virtio-net-pci,…,tx_queue_size=1024 # above 256 with vhost-user alone"
        );
        let remedy = Setting::named("host.ksm").remedy("0", "Stop merging");
        let remedy = remedy.filled(&[("BEFORE", "1".to_owned())]);
        assert_eq!(remedy.undo, "echo 1 | sudo tee /sys/kernel/mm/ksm/run");
        let remedy = Setting::named("kernel-args")
            .remedy("quiet loglevel=3", "Print less")
            .filled(&[]);
        assert_eq!(
            remedy.undo,
            "take quiet loglevel=3 from the guest kernel's command line"
        );
    }

    /// `make test` fails where the page is out of date; with VMTAX_WRITE_DOCS set, this writes it.
    #[test]
    fn the_page_of_settings_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/settings.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (head, _) = page.split_once("| setting |").unwrap();
        let rows: String = Setting::all().map(row).collect();
        let head_of_table = "| setting | QEMU, the guest or the host is given | libvirt | where nobody sets it | applying takes | since |";
        let current = format!("{head}{head_of_table}\n|---|---|---|---|---|---|\n{rows}");
        if std::env::var_os("VMTAX_WRITE_DOCS").is_some() {
            std::fs::write(&path, &current).unwrap();
        } else {
            assert!(
                page == current,
                "docs/settings.md is out of date: VMTAX_WRITE_DOCS=1 cargo test -p vmtax-model"
            );
        }
    }

    fn row(setting: &Setting) -> String {
        let name = match setting.is_family() {
            true => "NAME",
            false => Setting::name(setting.key),
        };
        let in_words = |text: &str| {
            let file = setting.host_file().unwrap_or(setting.key);
            text.replace("NAME", name).replace("FILE", file)
        };
        let code = |text: &str| match text.contains('`') {
            true => in_words(text),
            false => format!("`{}`", in_words(text)),
        };
        let libvirt = |form: Libvirt| match form {
            Libvirt::QemuArgument => String::new(),
            Libvirt::NoDomain => "not of a domain".to_owned(),
            Libvirt::Driver(name) => format!("`<driver {name}=…/>`"),
            Libvirt::DriverOrController(name) => {
                format!("`<driver {name}=…/>`, of SCSI the controller's")
            }
            Libvirt::Poll(name) => format!("`<iothread><poll {name}=…/>`"),
            Libvirt::IothreadAttribute(name) => format!("`<iothread {name}=…/>`"),
            Libvirt::MetadataCache => "`<metadata_cache><max_size unit='bytes'>`".to_owned(),
            Libvirt::Element(element) => in_words(element),
        };
        let since = |version: (u32, u32)| match version {
            (1, 0) => String::new(),
            (major, minor) => format!("QEMU {major}.{minor}"),
        };
        // A cell with what special values have otherwise.
        let cell = |usual: String, special: &dyn Fn(&SpecialValue) -> String| {
            let special = setting.values.iter().map(|one| (one.value, special(one)));
            let special = special.filter(|(_, text)| !text.is_empty() && *text != usual);
            let special = special.map(|(value, text)| format!("`{value}`: {text}"));
            let parts: Vec<String> = [usual.clone()].into_iter().chain(special).collect();
            parts.join("; ").trim_start_matches("; ").to_owned()
        };
        let (line, comment) = setting.line.split_once(" # ").unwrap_or((setting.line, ""));
        let place = if comment == "in the guest" {
            " in the guest"
        } else {
            ""
        };
        let key = if setting.is_family() {
            format!("{}NAME", setting.key)
        } else {
            setting.key.to_owned()
        };
        let unset = match setting.unset {
            Unset::Is(value) => format!("`{value}`"),
            Unset::PerCpu => "a queue for each vCPU".to_owned(),
            Unset::LeftOut | Unset::Choice => String::new(),
        };
        let line_of = |special: &SpecialValue| match special.line.split(" # ").next() {
            Some(line) if !line.is_empty() => code(line),
            _ => String::new(),
        };
        let cells = [
            format!("`{key}`"),
            cell(code(line) + place, &line_of),
            cell(libvirt(setting.libvirt), &|special| {
                libvirt(special.libvirt)
            }),
            unset,
            setting.cost.to_string(),
            cell(since(setting.since), &|special| since(special.since)),
        ];
        format!(
            "| {} |\n",
            cells.map(|cell| cell.replace('|', "\\|")).join(" | ")
        )
    }
}
