//! The disks of a running VM, with what joins their requests to the host's events.

use super::handle::Vm;
use super::open_files::OpenFile;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use vmtax_model::TracedDisk;
use vmtax_observe::host_disk_in_use;

/// The first bytes of a qcow2 image.
const QCOW2: [u8; 4] = *b"QFI\xfb";

impl Vm {
    /// Returns the VM's disks, as needed to trace their requests. The monitor is asked, also libvirt's, which marks
    /// the domain as tainted.
    pub fn traced_disks(&self) -> Vec<TracedDisk> {
        let files = self.files().unwrap_or_default();
        let mut disks = self.process.traced_disks(&files);
        self.place(&mut disks, &files);
        disks
    }

    /// Updates where the disks' files lie: holes get a place when they are written. What is no longer known stays.
    pub fn place_disks(&self, disks: &mut [TracedDisk]) {
        self.place(disks, &self.files().unwrap_or_default());
    }

    fn place(&self, disks: &mut [TracedDisk], files: &[OpenFile]) {
        for TracedDisk { disk, host, .. } in disks {
            let path = self.process.path_of(&disk.file);
            let open: Vec<&OpenFile> = files.iter().filter(|file| file.is_at(&path)).collect();
            let Some(file) = open.first() else { continue };
            if is_raw(disk.format.as_deref(), &file.path) {
                if let Ok(now) = host_disk_in_use(&file.path) {
                    *host = now;
                }
            }
            host.descriptors = open.iter().map(|file| file.fd).collect();
        }
    }
}

/// Returns true if the guest's bytes lie in the file at the offsets at which the guest has them.
fn is_raw(format: Option<&str>, file: &Path) -> bool {
    let mut begin = [0; QCOW2.len()];
    match format {
        Some("raw" | "file" | "host_device") => true,
        // A filter, or no monitor that tells.
        None | Some("throttle" | "copy-on-read") => {
            File::open(file)
                .and_then(|mut file| file.read_exact(&mut begin))
                .is_ok()
                && begin != QCOW2
        }
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_that_maps_the_guests_bytes_is_not_raw() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let is = |format: Option<&str>, bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            is_raw(format, file.path())
        };
        assert!(
            is(Some("raw"), b"QFI\xfb\0")
                && is(None, b"any bytes")
                && is(Some("throttle"), b"any bytes")
        );
        assert!(!is(Some("qcow2"), b"any bytes") && !is(None, b"QFI\xfb\0\0") && !is(None, b""));
    }
}
