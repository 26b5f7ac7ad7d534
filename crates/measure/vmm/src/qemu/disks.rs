//! The disks of a running QEMU: from its monitor, else from the files that it has open and its command line.

use super::arguments::Arguments;
use super::block_graph::{BlockGraph, Chain, GuestDisk, Storage};
use super::conversation::items;
use super::monitor::Monitor;
use crate::vm::images::{named_disk, open_disk, set_host_device};
use crate::vm::open_files::{OpenFile, opened_as};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use vmtax_model::{HostDisk, TracedDisk, VmDisk, device_id, libvirt_target};

/// Before the IDs of devices that the user named.
const PERIPHERAL: &str = "/machine/peripheral/";
const BACKEND: &str = TracedDisk::VIRTIO_BACKEND;
/// Format of an image of which the guest's disk is a part.
const PART: &str = "raw with an offset";

/// The disks of a process, of which the open `files` and the arguments are known.
pub(crate) fn disks(
    pid: i32,
    monitor: Option<&Monitor>,
    files: &[OpenFile],
    arguments: &Arguments,
) -> Vec<VmDisk> {
    devices(pid, monitor, files, &BlockGraph::of(arguments))
        .into_iter()
        .map(|(_, disk)| disk)
        .collect()
}

/// Returns the disks with the data that join their requests to the host's events, without the extents of their files.
pub(crate) fn traced(
    pid: i32,
    monitor: Option<&Monitor>,
    files: &[OpenFile],
    arguments: &Arguments,
) -> Vec<TracedDisk> {
    let graph = BlockGraph::of(arguments);
    let traced = |(device, disk): (Option<String>, VmDisk)| {
        let on_line = || graph.disk_of_file(&names(pid, &disk.file));
        let device = device
            .or_else(|| device_of(&graph, on_line()?))
            .unwrap_or_default();
        let controller = match monitor {
            _ if device.is_empty() || device.ends_with(BACKEND) => None,
            Some(monitor) => monitor
                .bus_of(&device)
                .and_then(|bus| virtio_controller(&bus)),
            None => on_line().and_then(|disk| controller_of(&graph, disk)),
        };
        let virtio = controller.as_ref().unwrap_or(&device);
        let regions = |monitor: &Monitor| monitor.regions_of_object(device_path(virtio)).ok();
        let notify = monitor.and_then(regions).unwrap_or_default();
        TracedDisk {
            controller: controller.unwrap_or_default(),
            device,
            disk,
            host: HostDisk::default(),
            notify,
        }
    };
    devices(pid, monitor, files, &graph)
        .into_iter()
        .map(traced)
        .collect()
}

/// The disks, each with the path of its device among QEMU's objects, as far as the monitor tells.
fn devices(
    pid: i32,
    monitor: Option<&Monitor>,
    files: &[OpenFile],
    graph: &BlockGraph,
) -> Vec<(Option<String>, VmDisk)> {
    let from_monitor =
        monitor.and_then(|monitor| Some((monitor, monitor.execute("query-block").ok()?)));
    let mut disks: Vec<(Option<String>, VmDisk)> = match &from_monitor {
        Some((monitor, devices)) => items(devices)
            .filter_map(|device| disk_of_device(monitor, device))
            .collect(),
        // Another user's: the kernel does not list its open files.
        None if files.is_empty() => graph
            .chains()
            .filter_map(|chain| Some((None, chain_disk(&chain)?)))
            .collect(),
        None => files
            .iter()
            .filter(|file| file.is_disk())
            .map(|file| (None, open_disk(file)))
            .collect(),
    };
    // A file may be open several times.
    let are_open = from_monitor.is_none() && !files.is_empty();
    disks.dedup_by(|(_, a), (_, b)| are_open && a.file == b.file);
    for (_, disk) in &mut disks {
        if let Some(chain) = graph.of_file(&names(pid, &disk.file)) {
            disk.aio = Some(chain.of_file("aio").unwrap_or("threads").to_owned());
            if from_monitor.is_none() {
                disk.format = format_of(&chain);
            }
        }
        if let Some(file) = opened_as(files, pid, &disk.file).first() {
            set_host_device(disk, file);
        }
    }
    disks
}

/// A device of `query-block`; `None` for a drive without a medium.
fn disk_of_device(monitor: &Monitor, device: &Value) -> Option<(Option<String>, VmDisk)> {
    let inserted = device.get("inserted")?;
    let text = |value: &Value| {
        value
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    // Of a device that has an ID itself, as a SCSI disk, that alone is given; of one within another its path.
    let by_id = |name: String| {
        if name.starts_with('/') {
            name
        } else {
            format!("{PERIPHERAL}{name}")
        }
    };
    let path = text(&device["qdev"]).map(by_id);
    let file = inserted["file"].as_str()?;
    let is_part = BlockGraph::of_name(file)
        .chains()
        .any(|chain| chain.has_offset());
    let disk = VmDisk {
        id: name_of(&device["qdev"], &device["device"], &inserted["node-name"]),
        format: is_part.then(|| PART.to_owned()).or(text(&inserted["drv"])),
        direct: inserted["cache"]["direct"].as_bool(),
        read_only: inserted["ro"].as_bool().unwrap_or(false),
        iothread: path.as_deref().and_then(|path| iothread(monitor, path)),
        ..named_disk(host_file(file))
    };
    Some((path, disk))
}

/// The iothread of a disk's device, or of the virtio controller that has it.
fn iothread(monitor: &Monitor, device: &str) -> Option<String> {
    let of_device = || monitor.iothread_of(device_path(device));
    // The bus of a virtio disk leads to no controller.
    let is_virtio = device.ends_with(BACKEND);
    let bus = (!is_virtio).then(|| monitor.bus_of(device)).flatten();
    let controller = bus.and_then(|bus| virtio_controller(&bus));
    controller.map_or_else(of_device, |controller| {
        monitor.iothread_of(device_path(&controller))
    })
}

/// The virtio controller of a bus: `/machine/peripheral/scsi0/virtio-backend/scsi0.0` is one of a virtio-scsi controller.
fn virtio_controller(bus: &str) -> Option<String> {
    let (controller, _) = bus.rsplit_once('/')?;
    controller.ends_with(BACKEND).then(|| controller.to_owned())
}

/// The virtio-scsi controller that the command line gives a disk.
fn controller_of(graph: &BlockGraph, disk: &GuestDisk) -> Option<String> {
    let [_, controller] = graph.devices_of(disk);
    let controller = controller?;
    controller
        .get("driver")?
        .starts_with("virtio-scsi")
        .then_some(())?;
    Some(format!("{PERIPHERAL}{}{BACKEND}", controller.get("id")?))
}

/// The names that a file may have on the command line of a process: its path, or that from the folder in which the process works.
fn names(pid: i32, file: &Path) -> Vec<String> {
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let names = [Some(file), file.strip_prefix(folder).ok()];
    let text = |name: Option<&Path>| Some(name?.to_str()?.to_owned());
    names.into_iter().filter_map(text).collect()
}

/// The device with an ID that the command line gives a disk, by its path among QEMU's objects.
fn device_of(graph: &BlockGraph, disk: &GuestDisk) -> Option<String> {
    let [device, _] = graph.devices_of(disk);
    let device = device?;
    let is_virtio = device.get("driver")?.starts_with("virtio-blk");
    let part = if is_virtio { BACKEND } else { "" };
    Some(format!("{PERIPHERAL}{}{part}", device.get("id")?))
}

/// The object of a disk's device: virtio's devices keep the disk in a part of theirs.
pub(super) fn device_path(qdev: &str) -> &str {
    qdev.trim_end_matches(BACKEND)
}

/// A disk's name: that of its device (of a SCSI disk `qdev` is its ID alone, of others a path that has it; libvirt's
/// target where the name is one of libvirt's), else of its backend, else of its node.
pub(super) fn name_of(qdev: &Value, device: &Value, node: &Value) -> String {
    let named = qdev
        .as_str()
        .and_then(|path| device_id(path).or(Some(path).filter(|path| !path.contains('/'))));
    if let Some(target) = named.and_then(libvirt_target) {
        return target;
    }
    let names = [named, device.as_str(), node.as_str()];
    names
        .into_iter()
        .flatten()
        .find(|name| !name.is_empty())
        .unwrap_or_default()
        .to_owned()
}

/// The file of an image that QEMU names, which has no plain name where it has options; the driver, as `null-co://`, where
/// there is no file.
pub(super) fn host_file(name: &str) -> PathBuf {
    let graph = BlockGraph::of_name(name);
    let storage = graph.chains().find_map(|chain| chain.storage());
    storage.map_or_else(|| "unknown://".into(), Storage::name)
}

/// One of the command line, of which no more is known.
fn chain_disk(chain: &Chain<'_>) -> Option<VmDisk> {
    Some(VmDisk {
        format: format_of(chain),
        direct: Some(chain.switch("cache.direct") == Some(true)),
        read_only: chain.is_read_only(),
        ..named_disk(chain.storage()?.name())
    })
}

/// The format of an image that the command line names.
fn format_of(chain: &Chain<'_>) -> Option<String> {
    let part = chain.has_offset().then_some(PART);
    part.or_else(|| chain.format()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_behind_filters_and_formats() {
        let node = r#"json:{"throttle-group":"g","driver":"throttle","file":{"driver":"qcow2","file":{"filename":"/d"}}}"#;
        assert_eq!(host_file(node), Path::new("/d"));
        let null = r#"json:{"driver":"raw","file":{"driver":"null-co","size":"64M"}}"#;
        assert_eq!(host_file(null), Path::new("null-co://"));
        assert_eq!(host_file("/plain"), Path::new("/plain"));
        assert_eq!(host_file("json:{"), Path::new("json://"));
        assert_eq!(host_file("rbd:p/i:id=u:key=s"), Path::new("rbd://"));
    }

    #[test]
    fn a_disk_is_named_by_its_device() {
        let disk_name = |qdev: &str| name_of(&qdev.into(), &"".into(), &"libvirt-1-storage".into());
        assert_eq!(
            (
                disk_name("/machine/peripheral/disk0/virtio-backend"),
                disk_name("scsi0")
            ),
            ("disk0".into(), "scsi0".into())
        );
        assert_eq!(
            (
                disk_name("/machine/peripheral/virtio-disk0/virtio-backend"),
                disk_name("scsi0-0-0-0")
            ),
            ("vda".into(), "sda".into())
        );
        assert_eq!(
            disk_name("/machine/peripheral/usb0/usb0.0/legacy[0]"),
            "usb0"
        );
        assert_eq!(
            disk_name("/machine/unattached/device[5]"),
            "libvirt-1-storage"
        );
        assert_eq!(disk_name(""), "libvirt-1-storage");
    }

    #[test]
    fn the_device_on_a_file_is_found_in_the_command_line() {
        let line = r#"q -drive if=none,id=a,file=/a -device virtio-blk-pci,drive=a,id=disk-a -blockdev {"driver":"file","filename":"/b","node-name":"b-file"} -blockdev {"driver":"qcow2","file":"b-file","node-name":"b"} -device {"driver":"virtio-blk-pci","drive":"b","id":"disk-b"} -drive if=virtio,file=/c"#;
        let graph = BlockGraph::of(&Arguments::from_line(line));
        let device_on_file =
            |file: &str| device_of(&graph, graph.disk_of_file(&[file.to_owned()])?);
        assert_eq!(
            device_on_file("/a").as_deref(),
            Some("/machine/peripheral/disk-a/virtio-backend")
        );
        assert_eq!(
            device_on_file("/b").as_deref(),
            Some("/machine/peripheral/disk-b/virtio-backend")
        );
        assert_eq!((device_on_file("/c"), device_on_file("/d")), (None, None));
    }

    #[test]
    fn a_scsi_disk_has_the_virtio_controller_of_its_bus() {
        let line = "q -device lsi53c895a,id=old -device virtio-scsi-pci,id=s0 -device virtio-scsi-pci,id=s1 -hda /x \
            -device scsi-hd,id=a,bus=s0.0,drive=a -device scsi-hd,id=b,drive=b -device scsi-hd,id=c,bus=old.0,drive=c -device ide-hd,id=d,drive=d";
        let graph = BlockGraph::of(&Arguments::from_line(line));
        let controllers: Vec<Option<String>> = graph
            .disks()
            .iter()
            .map(|disk| controller_of(&graph, disk))
            .collect();
        let path = |id: &str| Some(format!("/machine/peripheral/{id}/virtio-backend"));
        assert_eq!(
            controllers,
            [path("s0"), path("s1"), None, None, None],
            "without a bus on the last"
        );
        let bus = "/machine/peripheral/scsi0/virtio-backend/scsi0.0";
        assert_eq!(
            virtio_controller(bus).as_deref(),
            Some("/machine/peripheral/scsi0/virtio-backend")
        );
        assert_eq!(virtio_controller("/machine/peripheral/ahci/ide.0"), None);
    }

    #[test]
    fn a_file_is_also_named_from_the_processs_folder() {
        let here = std::env::current_dir().unwrap();
        let own = std::process::id() as i32;
        assert_eq!(
            names(own, &here.join("d/x.raw")),
            [here.join("d/x.raw").to_str().unwrap(), "d/x.raw"]
        );
        assert_eq!(names(own, Path::new("/x.raw")), ["/x.raw"]);
    }
}
