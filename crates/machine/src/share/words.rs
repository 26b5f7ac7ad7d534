//! QEMU's words for a share.

use super::Sharing;
use crate::disk::Disk;
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_model::{QemuFacts, ShareMethod};
use vmtax_wire::SHARE_SERIAL;

/// The name by which a guest mounts it.
pub(super) const TAG: &str = "share";
/// The share's disk in QEMU.
const NODE: &str = "share";
/// What tells 9p's message size as both sides agreed on it.
pub(super) const VERSION_EVENT: &str = "v9fs_version_return";

/// What the machine itself needs for it, behind its type.
pub(crate) fn machine(sharing: Option<&Sharing>) -> &'static str {
    match sharing.map(|s| s.share.method) {
        Some(ShareMethod::Virtiofs) => ",memory-backend=ram",
        _ => "",
    }
}

/// The words that share it. `usual` is how this run's disks are read: past the page cache or not, by which engine.
pub(crate) fn words(sharing: &Sharing, qemu: &QemuFacts, usual: (bool, &str)) -> Vec<String> {
    match sharing.share.method {
        ShareMethod::NineP => nine_p(sharing, qemu),
        ShareMethod::Disk | ShareMethod::Erofs | ShareMethod::Squashfs => disk(sharing, usual),
        ShareMethod::Virtiofs | ShareMethod::Nfs3 | ShareMethod::Nfs4 => Vec::new(),
    }
}

fn nine_p(sharing: &Sharing, qemu: &QemuFacts) -> Vec<String> {
    let mut back = format!("local,id={TAG},path={}", escaped(&sharing.source));
    let model = sharing.share.option("security-model").unwrap_or("none");
    back += &format!(",security_model={model}");
    for key in ["writeout", "fmode", "dmode", "multidevs"] {
        if let Some(value) = sharing.share.option(key) {
            back += &format!(",{key}={value}");
        }
    }
    if sharing.read_only {
        back += ",readonly=on";
    }
    let front = format!("virtio-9p-pci,fsdev={TAG},mount_tag={TAG}");
    let mut words = ["-fsdev", &back, "-device", &front].map(str::to_owned).to_vec();
    // One event at the mount, in QEMU's log. Another back end would put a file of its own somewhere.
    if qemu.trace_backends == ["log"] {
        words.extend(["-trace".to_owned(), VERSION_EVENT.to_owned()]);
    }
    words
}

fn disk(sharing: &Sharing, (direct, aio): (bool, &str)) -> Vec<String> {
    let ours = |key: &str| !matches!(key, "readonly" | "compress");
    let set: BTreeMap<String, String> =
        sharing.share.options.iter().filter(|(k, _)| ours(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
    let (file, serial, device) = (sharing.source.as_path(), Some(SHARE_SERIAL), "virtio-blk-pci");
    Disk { node: NODE, device, serial, file, direct, aio, read_only: sharing.read_only, set: &set }.words()
}

/// A comma would begin another property: QEMU wants it doubled.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}
