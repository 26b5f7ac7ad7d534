//! Files that a tuning leaves: the settings that are kept, for QEMU and libvirt, each with its undo.

use crate::analysis::ReportFile;
use std::collections::BTreeMap;
use vmtax_configuration::edit_domain;
use vmtax_findings::GuestTuneFindings;
use vmtax_model::{Libvirt, Setting, SettingPart, TwinOf, Variant};
use vmtax_vm::DiskDevices;

type Settings = BTreeMap<String, String>;

/// The folder's files; none where nothing is kept. `answer` is the first sentence of the report.
pub(super) fn files(found: &GuestTuneFindings, answer: &str) -> Vec<ReportFile> {
    if found.outcome.total.is_none() {
        return Vec::new();
    }
    let [before, after] = [&found.baseline, &found.tuned].map(|set| {
        Variant {
            name: String::new(),
            set: set.clone(),
        }
        .disk()
    });
    let traps = traps(found);
    let mut all = vec![
        file("tuned/qemu.args", qemu(answer, &traps, &before, &after)),
        file(
            "tuned/libvirt.xml",
            libvirt(answer, &traps, &before, &after),
        ),
        file("tuned/UNDO.md", undo(&before, &after)),
    ];
    if let Some(like) = &found.like {
        all.extend(domain_files(like, &before, &after).into_iter().flatten());
    }
    all
}

/// A file with this text.
pub(super) fn file(name: &'static str, content: String) -> ReportFile {
    ReportFile {
        name,
        content: content.into_bytes(),
    }
}

/// The settings that differ from those before.
fn changed<'s>(
    before: &Settings,
    after: &'s Settings,
) -> impl Iterator<Item = (&'s String, &'s String)> {
    after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value))
}

/// The files of a libvirt domain: with the settings, the difference, as it was; `None` without its XML.
fn domain_files(like: &TwinOf, before: &Settings, after: &Settings) -> Option<[ReportFile; 3]> {
    let xml = like.domain_xml.as_deref()?;
    let changed = changed(before, after).map(|(key, value)| (key.clone(), value.clone()));
    let edit = edit_domain(xml, &like.disk, &changed.collect())?;
    let elsewhere = edit
        .left_out
        .iter()
        .map(|setting| format!("# {setting} is not in this XML: see qemu.args\n"));
    let convert = conversion(before, after).map(|line| format!("# {line}\n"));
    let notes: String = elsewhere.chain(convert).collect();
    Some([
        file("tuned/domain.xml", edit.xml),
        file("tuned/domain.diff", notes + &edit.diff),
        file("tuned/undo.xml", xml.to_owned()),
    ])
}

/// Returns the `qemu-img` command that converts the image to the new format and options; `None` if they stay the same.
fn conversion(before: &Settings, after: &Settings) -> Option<String> {
    let is_of_image = |(key, _): &(&String, &String)| {
        *key == "format" || Setting::of(key).part == SettingPart::Image
    };
    let [old, new] = [before, after].map(|settings| settings.iter().filter(is_of_image));
    if old.eq(new) {
        return None;
    }
    let format = after.get("format").map_or("raw", String::as_str);
    let options = after
        .iter()
        .filter_map(|(key, value)| Some(format!("{}={value}", key.strip_prefix("image.")?)));
    let options: Vec<String> = options
        .filter(|option| format != "raw" && !option.starts_with("size="))
        .collect();
    let options = match options.as_slice() {
        [] => String::new(),
        options => format!(" -o {}", options.join(",")),
    };
    Some(format!(
        "The image has to be converted while the VM is shut down: qemu-img convert -O {format}{options} DISK NEW"
    ))
}

/// When what is kept harms, a line each.
pub(super) fn traps(found: &GuestTuneFindings) -> Vec<String> {
    let kept = found.outcome.kept();
    kept.filter(|row| !row.candidate.trap.is_empty())
        .map(|row| format!("{}: {}", row.candidate.name, row.candidate.trap))
        .collect()
}

/// Returns true if a setting has no effect, or is written elsewhere.
fn is_nothing(key: &str, value: &str) -> bool {
    match Setting::of(key).part {
        SettingPart::Iothread => value == "off",
        SettingPart::Throttle => value == "0",
        SettingPart::Bus | SettingPart::Image => true,
        SettingPart::FormatNode => key == "format",
        _ => false,
    }
}

/// The image's format, where it is known.
fn format_of(settings: &Settings) -> &str {
    settings.get("format").map_or("FORMAT", String::as_str)
}

fn set_of(settings: &Settings) -> impl Iterator<Item = (&str, &str)> {
    settings
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .filter(|(key, value)| !is_nothing(key, value))
}

/// The properties of the disk's iothread.
fn iothread_properties(settings: &Settings) -> impl Iterator<Item = (&str, &str)> {
    set_of(settings).filter(|(key, _)| Setting::of(key).part == SettingPart::IothreadProperty)
}

/// libvirt's element of an iothread with these properties; `None` where it needs none. Those that libvirt does not know
/// are left out.
fn iothread_element(settings: &Settings) -> Option<String> {
    let (mut poll, mut attributes) = (String::new(), String::new());
    for (key, value) in iothread_properties(settings) {
        match Setting::of(key).libvirt {
            Libvirt::Poll(name) => poll += &format!(" {name}='{value}'"),
            Libvirt::IothreadAttribute(name) => attributes += &format!(" {name}='{value}'"),
            _ => {}
        }
    }
    if !poll.is_empty() {
        poll = format!("<poll{poll}/>");
    }
    (!poll.is_empty() || !attributes.is_empty())
        .then(|| format!("<iothread id='1'{attributes}>{poll}</iothread>"))
}

/// QEMU's arguments of a disk with these settings.
fn arguments(settings: &Settings) -> Vec<String> {
    let mut drive = format!(
        "-drive file=DISK,format={},if=none,id=disk0",
        format_of(settings)
    );
    let devices = DiskDevices::of(settings.get("bus").map(String::as_str));
    let mut controller = devices
        .controller
        .map(|controller| format!("-device {controller},id=controller0"));
    let bus = controller.as_ref().map(|_| "controller0.0").or(devices.bus);
    let bus = bus.map_or(String::new(), |bus| format!(",bus={bus}"));
    // NVMe's has to have one.
    let serial = if devices.disk == "nvme" {
        ",serial=disk0"
    } else {
        ""
    };
    let mut front = format!("-device {}{bus}{serial},drive=disk0", devices.disk);
    let mut object = None;
    for (key, value) in set_of(settings) {
        let device = controller
            .as_mut()
            .filter(|_| devices.is_of_controller(key))
            .unwrap_or(&mut front);
        let setting = Setting::of(key);
        let name = Setting::name(key);
        match setting.part_with(value) {
            SettingPart::Iothread => {
                let properties: String = iothread_properties(settings)
                    .map(|(key, value)| format!(",{}={value}", Setting::name(key)))
                    .collect();
                object = Some(format!("-object iothread,id=iothread0{properties}"));
                *device += ",iothread=iothread0";
            }
            // Above, at the object.
            SettingPart::IothreadProperty => {}
            SettingPart::FileNode if key != "aio" => drive += &format!(",file.{name}={value}"),
            SettingPart::Device(_) => *device += &format!(",{}={value}", devices.property(key)),
            _ => drive += &format!(",{key}={value}"),
        }
    }
    object
        .into_iter()
        .chain([drive])
        .chain(controller)
        .chain([front])
        .collect()
}

fn qemu(answer: &str, traps: &[String], before: &Settings, after: &Settings) -> String {
    let convert = conversion(before, after);
    let traps: String = traps
        .iter()
        .chain(&convert)
        .map(|trap| format!("# {trap}\n"))
        .collect();
    let undo = arguments(before)
        .into_iter()
        .map(|line| format!("# {line}\n"));
    format!(
        "# {answer}\n{traps}\
         # In place of the disk's -drive and -device; DISK is its file, FORMAT raw or qcow2. The VM has to be restarted.\n\
         {}\n\n\
         # Undo: what it was compared with.\n{}",
        arguments(after).join("\n"),
        undo.collect::<String>()
    )
}

fn libvirt(answer: &str, traps: &[String], before: &Settings, after: &Settings) -> String {
    let notes = traps.iter().cloned().chain(libvirt_notes(before, after));
    let notes: String = notes
        .map(|note| format!("     {}\n", comment(&note)))
        .collect();
    let was: String = set_of(before)
        .filter_map(|(key, value)| property(key, value))
        .map(|line| line.trim().to_owned())
        .collect();
    let properties: String = set_of(after)
        .filter_map(|(key, value)| property(key, value))
        .collect();
    let (namespace, overrides) = match properties.as_str() {
        "" => ("", String::new()),
        properties => (
            " xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'",
            format!(
                "  <qemu:override>\n    <qemu:device alias='virtio-disk0'>\n      <qemu:frontend>\n{properties}      </qemu:frontend>\n    \
                 </qemu:device>\n  </qemu:override>\n"
            ),
        ),
    };
    let has_limits = before.iter().any(|(key, value)| {
        Setting::of(key).part == SettingPart::Throttle && after.get(key) != Some(value)
    });
    let limits = match has_limits {
        true => "      <!-- Remove <iotune>. -->\n",
        false => "",
    };
    format!(
        "<!-- {}\n{notes}     virsh edit DOMAIN: set these in the domain; FORMAT is the image's, raw or qcow2. Then shut the domain down and start it.\n     \
         Undo, what it was compared with: {}{} -->\n\
         <domain{namespace}>\n{}  <devices>\n    <disk>\n      {}\n{limits}    </disk>\n  </devices>\n{overrides}</domain>\n",
        comment(answer),
        comment(&driver(before)),
        comment(&was),
        iothreads(after),
        driver(after),
    )
}

/// Settings for which libvirt has no element, and further changes of the domain.
fn libvirt_notes(before: &Settings, after: &Settings) -> impl Iterator<Item = String> {
    let is_missing = |(key, value): &(&str, &str)| {
        Setting::of(key).libvirt(value) == Libvirt::QemuArgument && !is_property(key, value)
    };
    let missing = set_of(after).filter(is_missing);
    let missing =
        missing.map(|(key, value)| format!("libvirt has no element for it: {key}={value}"));
    let cache = after.get("cache-size").map(|bytes| {
        format!("In <driver>: <metadata_cache><max_size unit='bytes'>{bytes}</max_size></metadata_cache>")
    });
    let bus = after
        .get("bus")
        .filter(|bus| *bus == "virtio-blk" && before.get("bus") != Some(bus));
    let bus = bus.map(|_| "In <target>: bus='virtio'; remove the disk's <address>".to_owned());
    let convert = conversion(before, after);
    missing.chain(convert).chain(cache).chain(bus)
}

/// libvirt's elements of the iothreads; empty for a disk without one.
fn iothreads(settings: &Settings) -> String {
    if set_of(settings).all(|(key, _)| key != "iothread") {
        return String::new();
    }
    let note = "  <!-- One more than the domain has; iothread= below is its number. -->\n  <iothreads>1</iothreads>\n";
    let element = iothread_element(settings);
    let element = element.map_or(String::new(), |element| {
        format!("  <iothreadids>\n    {element}\n  </iothreadids>\n")
    });
    format!("{note}{element}")
}

/// Returns true if a setting is a property of the device for which libvirt has no attribute.
fn is_property(key: &str, value: &str) -> bool {
    let setting = Setting::of(key);
    let part = setting.part_with(value);
    // The block layer's discard, which has an attribute, and virtio-blk's have the same name.
    let has_attribute = part == setting.part && setting.libvirt.driver_attribute().is_some();
    matches!(part, SettingPart::Device(_)) && !has_attribute
}

/// A value in an attribute of XML, between single quotes.
fn escaped(value: &str) -> String {
    value
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('\'', "&apos;")
}

/// Two hyphens would end a comment of XML.
fn comment(text: &str) -> String {
    text.replace("--", "- -")
}

/// libvirt's element of a disk's settings.
fn driver(settings: &Settings) -> String {
    let known = |(key, value): (&str, &str)| {
        let attribute = Setting::of(key).libvirt(value).driver_attribute();
        let name = attribute.filter(|_| !is_property(key, value))?;
        let value = if key == "iothread" {
            "1".to_owned()
        } else {
            escaped(value)
        };
        Some(format!(" {name}='{value}'"))
    };
    let attributes: String = set_of(settings).filter_map(known).collect();
    format!(
        "<driver name='qemu' type='{}'{attributes}/>",
        format_of(settings)
    )
}

/// The element of such a property.
fn property(key: &str, value: &str) -> Option<String> {
    if !is_property(key, value) {
        return None;
    }
    let key = Setting::name(key);
    let (kind, value) = match value {
        "on" => ("bool", "true"),
        "off" => ("bool", "false"),
        number if number.parse::<u64>().is_ok() => ("unsigned", number),
        text => ("string", text),
    };
    let (key, value) = (escaped(key), escaped(value));
    Some(format!(
        "        <qemu:property name='{key}' type='{kind}' value='{value}'/>\n"
    ))
}

fn undo(before: &Settings, after: &Settings) -> String {
    let row = |(key, value): (&String, &String)| {
        let was = before
            .get(key)
            .map_or("leave it out".to_owned(), |was| format!("`{key}={was}`"));
        format!("| `{key}={value}` | {was} |\n")
    };
    format!(
        "# Undo\n\n`vmtax tune` changed no VM. If you applied these settings, restore the former ones and restart \
         the VM.\n\n| setting | undo |\n|---|---|\n{}\n\
         - QEMU: the lines after `# Undo` in `qemu.args`.\n\
         - libvirt: `virsh edit DOMAIN`, with the `<driver>` that the comment in `libvirt.xml` has; remove `<iothreads>` and \
         `<qemu:override>` if they were not there before.\n",
        changed(before, after).map(row).collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn each_setting_stands_where_qemu_and_libvirt_have_it_with_its_undo() {
        let before = settings(&[
            ("aio", "threads"),
            ("cache", "writethrough"),
            ("throttling.iops-total", "50"),
        ]);
        let after = settings(&[
            ("aio", "native"),
            ("cache", "none"),
            ("iothread", "on"),
            ("modern-pio-notify", "on"),
            ("num-queues", "2"),
            ("throttling.iops-total", "0"),
        ]);
        let text = qemu(
            "It is faster.",
            &["cache=none: a trap.".to_owned()],
            &before,
            &after,
        );
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines.contains(&"-object iothread,id=iothread0")
                && lines.contains(&"# cache=none: a trap."),
            "{text}"
        );
        assert!(
            lines
                .contains(&"-drive file=DISK,format=FORMAT,if=none,id=disk0,aio=native,cache=none"),
            "{text}"
        );
        let device = "-device virtio-blk-pci,drive=disk0,iothread=iothread0,modern-pio-notify=on,num-queues=2";
        assert!(lines.contains(&device), "{text}");
        let was = "# -drive file=DISK,format=FORMAT,if=none,id=disk0,aio=threads,cache=writethrough,throttling.iops-total=50";
        assert!(
            lines.contains(&was) && lines.contains(&"# -device virtio-blk-pci,drive=disk0"),
            "{text}"
        );
        let xml = libvirt("--apply it", &[], &before, &after);
        assert!(
            xml.contains("<driver name='qemu' type='FORMAT' io='native' cache='none' iothread='1' queues='2'/>"),
            "{xml}"
        );
        assert!(
            xml.contains("<iothreads>1</iothreads>") && xml.contains("Remove <iotune>"),
            "{xml}"
        );
        assert!(
            xml.contains("<qemu:property name='modern-pio-notify' type='bool' value='true'/>"),
            "{xml}"
        );
        assert!(
            xml.contains("io='threads' cache='writethrough'/> -->") && xml.contains("- -apply it"),
            "{xml}"
        );
        assert_eq!(xml.matches("-->").count(), 3, "{xml}");
        let odd = settings(&[
            ("discard", "off"),
            ("drop-cache", "off"),
            ("serial", "<a'b>"),
        ]);
        let text = qemu("", &[], &settings(&[]), &odd);
        assert!(
            text.contains(
                "disk0,file.drop-cache=off\n-device virtio-blk-pci,drive=disk0,discard=off,serial="
            ),
            "{text}"
        );
        let xml = libvirt("", &[], &odd, &odd);
        assert!(
            xml.contains("has no element for it: drop-cache=off")
                && !xml.contains("name='drop-cache'"),
            "{xml}"
        );
        assert!(
            xml.contains("name='discard' type='bool' value='false'")
                && xml.contains("'&lt;a&apos;b&gt;'"),
            "{xml}"
        );
        let scsi = settings(&[
            ("bus", "virtio-scsi"),
            ("cache", "none"),
            ("format", "qcow2"),
            ("logical_block_size", "4096"),
            ("num-queues", "2"),
        ]);
        let virtio = settings(&[
            ("bus", "virtio-blk"),
            ("cache", "none"),
            ("format", "raw"),
            ("cache-size", "9"),
        ]);
        let text = qemu("", &[], &scsi, &virtio);
        assert!(
            text.contains("# -device virtio-scsi-pci,id=controller0,num_queues=2\n# -device scsi-hd,bus=controller0.0,drive=disk0,logical_block_size=4096\n"),
            "{text}"
        );
        assert!(
            text.contains("qemu-img convert -O raw DISK NEW")
                && text.contains("format=raw,if=none"),
            "{text}"
        );
        let xml = libvirt("", &[], &scsi, &virtio);
        assert!(
            xml.contains("bus='virtio'") && xml.contains("<max_size unit='bytes'>9<"),
            "{xml}"
        );
        assert!(
            !xml.contains("<qemu:override>") && !xml.contains("no element"),
            "{xml}"
        );
        let polled = settings(&[
            ("iothread", "on"),
            ("iothread.aio-max-batch", "128"),
            ("iothread.poll-max-ns", "0"),
            ("iothread.thread-pool-min", "16"),
        ]);
        let text = qemu("", &[], &settings(&[]), &polled);
        assert!(
            text.contains(
                "-object iothread,id=iothread0,aio-max-batch=128,poll-max-ns=0,thread-pool-min=16\n"
            ),
            "{text}"
        );
        let xml = libvirt("", &[], &settings(&[]), &polled);
        assert!(
            xml.contains("<iothread id='1' thread_pool_min='16'><poll max='0'/></iothread>"),
            "{xml}"
        );
        assert!(
            xml.contains("has no element for it: iothread.aio-max-batch=128"),
            "{xml}"
        );
        let text = undo(&before, &after);
        assert!(
            text.contains("| `cache=none` | `cache=writethrough` |"),
            "{text}"
        );
        assert!(text.contains("| `iothread=on` | leave it out |"), "{text}");
    }
}
