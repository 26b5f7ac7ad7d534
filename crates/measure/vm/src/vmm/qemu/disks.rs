//! The disks of a running QEMU: from its monitor, else from the files that it has open and its command line.

use super::arguments::{Arguments, path_of};
use super::monitor::Monitor;
use crate::vm::open_files::OpenFile;
use serde_json::Value;
use std::path::{Path, PathBuf};
use vmtax_model::VmDisk;
use vmtax_observe::host_disk_in_use;

/// The disks of a process, of which the open `files` and the arguments are known.
pub(crate) fn disks(pid: i32, monitor: Option<&Monitor>, files: &[OpenFile], arguments: &Arguments) -> Vec<VmDisk> {
    let from_monitor = monitor.and_then(|monitor| Some((monitor, monitor.execute("query-block").ok()?)));
    let mut disks: Vec<VmDisk> = match &from_monitor {
        Some((monitor, devices)) => {
            devices.as_array().into_iter().flatten().filter_map(|d| disk_of_device(monitor, d)).collect()
        }
        // Another user's: the kernel does not list its open files.
        None if files.is_empty() => arguments.images().into_iter().map(named_disk).collect(),
        None => files.iter().filter(|file| file.is_disk()).map(open_disk).collect(),
    };
    // A file may be open several times.
    disks.dedup_by(|a, b| from_monitor.is_none() && a.file == b.file);
    for disk in &mut disks {
        disk.aio = aio(arguments, &disk.file);
        let path = path_of(pid, &disk.file);
        if let Some(file) = files.iter().find(|file| file.is_at(&path)) {
            let host = host_disk_in_use(&file.path).unwrap_or_default();
            disk.host_device = host.device;
            disk.extents = (!host.extents.is_empty()).then_some(host.extents.len());
        }
    }
    disks
}

/// A device of `query-block`; `None` for a drive without a medium.
fn disk_of_device(monitor: &Monitor, device: &Value) -> Option<VmDisk> {
    let inserted = device.get("inserted")?;
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    // "/machine/peripheral/ID/virtio-backend": the part behind is where virtio's devices keep the disk.
    let path = text(&device["qdev"]).map(|path| path.trim_end_matches("/virtio-backend").to_owned());
    let named = path.as_ref().and_then(|path| path.strip_prefix("/machine/peripheral/"));
    let id = named.map(str::to_owned).or_else(|| text(&device["device"])).or_else(|| text(&inserted["node-name"]));
    Some(VmDisk {
        id: id.unwrap_or_default(),
        file: host_file(inserted["file"].as_str()?),
        format: text(&inserted["drv"]),
        direct: inserted["cache"]["direct"].as_bool(),
        read_only: inserted["ro"].as_bool().unwrap_or(false),
        aio: None,
        iothread: path.and_then(|path| monitor.iothread_of(&path)),
        host_device: None,
        extents: None,
    })
}

/// The file at the end of a chain of block nodes, which has no plain name where it has options.
fn host_file(name: &str) -> PathBuf {
    fn inner(node: &Value) -> Option<&str> {
        node["filename"].as_str().or_else(|| inner(node.get("file")?))
    }
    let node = name.strip_prefix("json:").and_then(|json| serde_json::from_str::<Value>(json).ok());
    node.as_ref().and_then(inner).unwrap_or(name).into()
}

fn open_disk(file: &OpenFile) -> VmDisk {
    VmDisk { direct: Some(file.is_direct()), read_only: file.is_read_only(), ..named_disk(file.name.clone()) }
}

/// One of which only the file is known.
fn named_disk(file: PathBuf) -> VmDisk {
    VmDisk {
        id: String::new(),
        file,
        format: None,
        direct: None,
        read_only: false,
        aio: None,
        iothread: None,
        host_device: None,
        extents: None,
    }
}

/// How the option that names this file submits requests; QEMU's default where it does not say.
fn aio(arguments: &Arguments, file: &Path) -> Option<String> {
    let file = file.to_str()?;
    let mut options = ["drive", "blockdev"].into_iter().flat_map(|option| arguments.properties(option));
    let option = options.find(|option| option.has_value(file))?;
    let aio = ["aio", "file.aio"].into_iter().find_map(|key| option.get(key));
    Some(aio.unwrap_or("threads").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_behind_filters_and_formats() {
        let node =
            r#"json:{"throttle-group":"g","driver":"throttle","file":{"driver":"qcow2","file":{"filename":"/d"}}}"#;
        assert_eq!(host_file(node), Path::new("/d"));
        assert_eq!(host_file("/plain"), Path::new("/plain"));
        assert_eq!(host_file("json:{"), Path::new("json:{"));
    }

    #[test]
    fn the_option_that_names_a_file_says_how_it_is_read() {
        let line = r#"q -drive if=none,file=/a,aio=native -blockdev {"driver":"file","filename":"/b","aio":"io_uring"} -hda /c"#;
        let of = |file: &str| {
            aio(&Arguments::from_line(&line.replace(" -drive", " -drive file=/d -drive")), Path::new(file))
        };
        assert_eq!(of("/a").as_deref(), Some("native"));
        assert_eq!(of("/b").as_deref(), Some("io_uring"));
        assert_eq!((of("/d").as_deref(), of("/c")), (Some("threads"), None));
    }
}
