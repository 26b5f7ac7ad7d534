//! The names of a disk: the ID of its device, and libvirt's name by that.

/// The ID that a user gave a device, by the path of it, or of a part of it, among QEMU's objects: `/machine/peripheral/ID/…`; `None` for
/// a device without.
pub fn device_id(path: &str) -> Option<&str> {
    path.strip_prefix("/machine/peripheral/")?.split('/').next()
}

/// Target of a disk (`vda`) by libvirt's ID of its device (`virtio-disk0`), which is also what Linux calls it where nobody chose
/// otherwise; `None` for another ID.
pub fn libvirt_target(id: &str) -> Option<String> {
    let virtio = || id.strip_prefix("virtio-disk")?.parse().ok();
    let (bus, number) = match virtio() {
        Some(number) => ("vd", number),
        None => ("sd", scsi(id).or_else(|| sata(id))?),
    };
    Some(format!("{bus}{}", letters(number)))
}

/// The number of a SCSI disk, `scsi0-0-0-3`: controller, bus, target, unit. Fifteen units a controller have disks, all but the seventh,
/// which is the controller's own.
fn scsi(id: &str) -> Option<u32> {
    let [controller, _, _, unit] = numbers(id.strip_prefix("scsi")?)?;
    (unit < 16 && unit != 7).then_some(())?;
    controller
        .checked_mul(15)?
        .checked_add(unit - u32::from(unit > 7))
}

/// The number of a SATA disk, `sata0-0-1`: controller, bus, unit. Six units a controller.
fn sata(id: &str) -> Option<u32> {
    let [controller, _, unit] = numbers(id.strip_prefix("sata")?)?;
    (unit < 6)
        .then(|| controller.checked_mul(6)?.checked_add(unit))
        .flatten()
}

/// Exactly so many numbers between hyphens.
fn numbers<const N: usize>(text: &str) -> Option<[u32; N]> {
    let numbers: Option<Vec<u32>> = text.split('-').map(|part| part.parse().ok()).collect();
    numbers?.try_into().ok()
}

/// The letters of a disk's name by its number: a to z, aa, ab, ….
fn letters(number: u32) -> String {
    let last = char::from(b'a' + (number % 26) as u8);
    if number < 26 {
        last.to_string()
    } else {
        format!("{}{last}", letters(number / 26 - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_called_as_libvirt_and_the_guest_do() {
        let target_of = |id| libvirt_target(id).unwrap_or_default();
        assert_eq!(
            [
                "virtio-disk0",
                "virtio-disk26",
                "scsi0-0-0-3",
                "scsi1-0-0-8"
            ]
            .map(target_of),
            ["vda", "vdaa", "sdd", "sdw"]
        );
        assert_eq!(["sata0-0-1", "sata1-0-5"].map(target_of), ["sdb", "sdl"]);
        let others = [
            "scsi0-0-0-7",
            "scsi0",
            "scsi0-0-0-0-0",
            "scsi4294967295-0-0-1",
            "sata0-0-6",
            "virtio-disk",
            "disk0",
            "",
        ];
        assert_eq!(others.map(target_of), [""; 8]);
    }

    #[test]
    fn disks_are_numbered_as_libvirt_and_the_kernel_do() {
        let names = [0, 1, 25, 26, 27, 51, 52, 701, 702].map(letters);
        assert_eq!(names, ["a", "b", "z", "aa", "ab", "az", "ba", "zz", "aaa"]);
    }
}
