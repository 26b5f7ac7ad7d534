//! Devices and registers by address.

use vmtax_findings::DevicesFrom;
use vmtax_model::AddressSpace;
use vmtax_model::samples::Access;
use vmtax_rules::Register;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Region {
    space: AddressSpace,
    first: u64,
    last: u64,
    /// Where the device's first register would be.
    base: u64,
    name: String,
}

/// A machine's devices by their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    regions: Vec<Region>,
    pub(super) from: DevicesFrom,
}

/// The standard addresses of a PC; the PM timer as SeaBIOS, and as OVMF and older firmware place it.
const USUAL: &str = "
Port 20-21 pic
Port 40-43 pit
Port 60-60 i8042-data
Port 64-64 i8042-cmd
Port 70-71 rtc
Port a0-a1 pic
Port 1f0-1f7 ide
Port 170-177 ide
Port 2e8-2ef serial
Port 2f8-2ff serial
Port 3b4-3b5 vga
Port 3ba-3ba vga
Port 3c0-3cf vga
Port 3d4-3d5 vga
Port 3da-3da vga
Port 3e8-3ef serial
Port 3f8-3ff serial
Port 4d0-4d1 elcr
Port 510-51b fwcfg
Port 608-60b acpi-tmr
Port b008-b00b acpi-tmr
Port cf8-cfb pci-conf-idx
Port cfc-cff pci-conf-data
Memory fec00000-fec00fff ioapic
Memory fed00000-fed003ff hpet
Memory fee00000-feefffff apic-msi
";

impl Devices {
    /// The standard addresses, where QEMU's monitor is not available.
    pub fn usual() -> Devices {
        let region = |line: &str| {
            let mut words = line.split(' ');
            let space = if words.next()? == "Port" {
                AddressSpace::Port
            } else {
                AddressSpace::Memory
            };
            let (first, last) = range(words.next()?)?;
            Some(Region {
                space,
                first,
                last,
                base: first,
                name: words.next()?.to_owned(),
            })
        };
        Devices {
            regions: USUAL.lines().filter_map(region).collect(),
            from: DevicesFrom::UsualPlaces,
        }
    }

    /// Parses QEMU's `info mtree -f`; `None` where it lists no device's region.
    pub fn of_memory_tree(text: &str) -> Option<Devices> {
        let mut regions = Vec::new();
        let mut space = None;
        for line in text.lines() {
            if line.starts_with("FlatView") {
                space = None;
            } else if let Some(name) = line.trim_start().strip_prefix("AS \"") {
                space = match name {
                    _ if name.starts_with("I/O\"") => Some(AddressSpace::Port),
                    _ if name.starts_with("memory\"") => Some(AddressSpace::Memory),
                    _ => space,
                };
            } else if let Some(space) = space {
                regions.extend(region(space, line));
            }
        }
        (!regions.is_empty()).then_some(Devices {
            regions,
            from: DevicesFrom::MemoryTree,
        })
    }

    /// The device's name, empty where there is none, and the register where it is known.
    pub(super) fn at(&self, access: &Access) -> (String, Option<Register>) {
        if access.space == AddressSpace::Msr {
            let device = match access.address {
                0x1b | 0x6e0 | 0x800..=0x8ff => "local APIC",
                HYPER_V..=HYPER_V_LAST => "Hyper-V",
                _ => "CPU",
            };
            return (device.to_owned(), msr(access.address));
        }
        let within =
            |r: &&Region| r.space == access.space && (r.first..=r.last).contains(&access.address);
        let Some(region) = self.regions.iter().find(within) else {
            return (String::new(), None);
        };
        (region.name.clone(), register(region, access.address))
    }
}

/// A line such as `  00000000fed00000-00000000fed003ff (prio 0, i/o): hpet @0000000000000000 KVM`.
fn region(space: AddressSpace, line: &str) -> Option<Region> {
    let (place, rest) = line.trim_start().split_once(" (prio ")?;
    let (kind, name) = rest.split_once("): ")?;
    kind.ends_with(" i/o").then_some(())?;
    let (first, last) = range(place)?;
    let name = name.trim_end();
    let (name, offset) = match name.split_once(" @") {
        Some((name, rest)) => (name, u64::from_str_radix(rest.split(' ').next()?, 16).ok()?),
        None => (name, 0),
    };
    // The space itself: no device answers there.
    (name != "io" && name != "system").then_some(())?;
    Some(Region {
        space,
        first,
        last,
        base: first.wrapping_sub(offset),
        name: name.to_owned(),
    })
}

fn range(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.split_once('-')?;
    Some((
        u64::from_str_radix(first, 16).ok()?,
        u64::from_str_radix(last, 16).ok()?,
    ))
}

/// From the devices' data sheets; the local APIC's from Intel's manual (volume 3, table 11-1).
fn register(region: &Region, address: u64) -> Option<Register> {
    use Register::Named;
    let offset = address.wrapping_sub(region.base);
    Some(match region.name.as_str() {
        name if name.starts_with("serial") => match offset {
            0 => Register::UartData,
            5 => Register::UartStatus,
            1 => Named("interrupt enable"),
            2 => Named("FIFO control, interrupt identity"),
            3 => Named("line control"),
            4 => Named("modem control"),
            6 => Named("modem status"),
            _ => return None,
        },
        // QEMU's regions of the VGA are pieces; these are its index and data for colour and monochrome.
        "vga" if matches!(address, 0x3d4 | 0x3d5 | 0x3b4 | 0x3b5) => Register::VgaCursor,
        "acpi-tmr" => Register::PmTimer,
        "rtc" => Register::Rtc,
        "hpet" => match offset {
            0xf0..=0xf7 => Register::HpetCounter,
            0..=7 => Named("capabilities"),
            0x10..=0x17 => Named("configuration"),
            0x100.. => Register::HpetTimer,
            _ => return None,
        },
        "apic-msi" | "kvm-apic-msi" | "apic" => local_apic(offset & 0xfff)?,
        "virtio-pci" => match offset {
            0x10..=0x11 => Register::Notify,
            0x13 => Named("interrupt status"),
            _ => return None,
        },
        name if name.starts_with("virtio-pci-notify") => Register::Notify,
        name if name.starts_with("virtio-pci-isr") => Named("interrupt status"),
        name if name.starts_with("virtio-mmio") && offset == 0x50 => Register::Notify,
        _ => return None,
    })
}

fn local_apic(offset: u64) -> Option<Register> {
    use Register::Named;
    Some(match offset {
        0xb0 => Register::Eoi,
        0x20 => Named("ID"),
        0x30 => Named("version"),
        0x80 => Register::TaskPriority,
        0xf0 => Named("spurious interrupts"),
        0x300 | 0x310 => Register::InterruptCommand,
        0x320 => Named("timer's vector"),
        0x350 | 0x360 => Named("local line's vector"),
        0x380 => Named("timer's initial count"),
        0x390 => Named("timer's current count"),
        0x3e0 => Named("timer's divider"),
        _ => return None,
    })
}

/// The registers that Hyper-V, and KVM for its guests, has besides a CPU's own: first and last.
const HYPER_V: u64 = 0x4000_0000;
const HYPER_V_LAST: u64 = 0x4000_01ff;

/// From Microsoft's Hypervisor Top-Level Functional Specification, appendix of MSRs.
fn hyper_v(number: u64) -> Option<Register> {
    use Register::Named;
    Some(match number - HYPER_V {
        0x00 => Named("guest OS ID"),
        0x01 => Named("hypercall page"),
        0x02 => Named("vCPU index"),
        0x10 => Named("vCPU run time"),
        0x20 => Register::ReferenceCounter,
        0x21 => Named("reference TSC page"),
        0x22 | 0x23 => Named("frequency"),
        0x70 => Named("end of interrupt"),
        0x71 => Register::InterruptCommand,
        0x72 => Register::TaskPriority,
        0x73 => Named("assist page"),
        0x80..=0x9f => Named("synthetic interrupt controller"),
        0xb0..=0xb7 => Named("synthetic timer"),
        _ => return None,
    })
}

fn msr(number: u64) -> Option<Register> {
    use Register::Named;
    match number {
        0x6e0 => Some(Named("TSC deadline")),
        0x1b => Some(Named("base")),
        0x48 => Some(Named("SPEC_CTRL")),
        0x80b => Some(Register::EoiByMsr),
        0x83f => Some(Named("self IPI")),
        HYPER_V..=HYPER_V_LAST => hyper_v(number),
        // In x2APIC mode registers are numbered in steps of one, not of 16 bytes.
        0x800..=0x8ff => local_apic((number - 0x800) << 4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TREE: &str = include_str!("mtree.txt");

    fn at(devices: &Devices, space: AddressSpace, address: u64) -> (String, Option<Register>) {
        devices.at(&Access {
            space,
            address,
            write: true,
        })
    }

    #[test]
    fn a_real_tree_names_devices_and_registers() {
        let devices = Devices::of_memory_tree(TREE).unwrap();
        let port = |address| at(&devices, AddressSpace::Port, address);
        let memory = |address| at(&devices, AddressSpace::Memory, address);
        assert_eq!(port(0x3f8), ("serial".to_owned(), Some(Register::UartData)));
        assert_eq!(
            port(0x3fd),
            ("serial".to_owned(), Some(Register::UartStatus))
        );
        assert_eq!(port(0x3d5), ("vga".to_owned(), Some(Register::VgaCursor)));
        assert_eq!(port(0x3c0), ("vga".to_owned(), None));
        assert_eq!(
            port(0xb008),
            ("acpi-tmr".to_owned(), Some(Register::PmTimer))
        );
        assert_eq!(
            port(0xc010),
            ("virtio-pci".to_owned(), Some(Register::Notify))
        );
        assert_eq!(
            port(0x1234),
            (String::new(), None),
            "the space itself is no device"
        );
        assert_eq!(
            memory(0xfed0_00f0),
            ("hpet".to_owned(), Some(Register::HpetCounter))
        );
        assert_eq!(
            memory(0xfee0_00b0),
            ("kvm-apic-msi".to_owned(), Some(Register::Eoi))
        );
        assert_eq!(memory(0x1000), (String::new(), None), "RAM is no device");
        assert!(Devices::of_memory_tree("FlatView #0\n  No rendered FlatView\n").is_none());
    }

    #[test]
    fn the_usual_places_are_those_of_the_tree() {
        let (usual, tree) = (Devices::usual(), Devices::of_memory_tree(TREE).unwrap());
        let places = [
            (AddressSpace::Port, 0x3f8),
            (AddressSpace::Port, 0x3d4),
            (AddressSpace::Memory, 0xfed0_00f0),
        ];
        assert!(
            places
                .iter()
                .all(|&(space, address)| at(&usual, space, address) == at(&tree, space, address))
        );
        assert_eq!(
            at(&usual, AddressSpace::Port, 0x608).1,
            Some(Register::PmTimer)
        );
        assert_eq!(
            at(&usual, AddressSpace::Msr, 0x80b).1,
            Some(Register::EoiByMsr)
        );
        // What Windows does without and with Hyper-V's timers.
        assert_eq!(at(&usual, AddressSpace::Port, 0x71).1, Some(Register::Rtc));
        assert_eq!(
            at(&usual, AddressSpace::Memory, 0xfed0_0108).1,
            Some(Register::HpetTimer)
        );
        let hyper_v = |number| at(&usual, AddressSpace::Msr, number);
        assert_eq!(
            hyper_v(0x4000_0020),
            ("Hyper-V".to_owned(), Some(Register::ReferenceCounter))
        );
        assert_eq!(
            [0x830, 0x4000_0071, 0x4000_0072].map(|number| hyper_v(number).1),
            [
                Some(Register::InterruptCommand),
                Some(Register::InterruptCommand),
                Some(Register::TaskPriority)
            ]
        );
    }

    proptest! {
        #[test]
        fn any_tree_is_survived(text in "(FlatView #1\n AS \"(I/O|memory)\", root: io\n)?( *[0-9a-f]{1,20}-[0-9a-f]{1,20} \\(prio 0, i/o\\): [a-z@ 0-9é]*\n)*", address: u64) {
            if let Some(devices) = Devices::of_memory_tree(&text) {
                let _ = at(&devices, AddressSpace::Port, address);
                let _ = at(&devices, AddressSpace::Memory, address);
            }
        }
    }
}
