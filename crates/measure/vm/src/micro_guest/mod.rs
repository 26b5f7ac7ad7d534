//! The micro-guest: a ROM of ours without an operating system, the floor under every guest figure.
//!
//! QEMU starts it as firmware ([`rom`], [`qemu`]). It goes straight to 64-bit user mode, where its code runs natively
//! under every KVM, also one that emulates kernel mode, and takes its orders through a [`Mailbox`] in its RAM, which is
//! a file that the host maps too. It has drivers of its own for virtio-blk, polled or interrupt driven, and virtio-net,
//! and stamps each request; it measures the cost of each kind of exit, and of antipatterns of guest kernels beside their
//! fixes; it answers
//! the host's clock.

mod guest;
pub mod layout;
mod mailbox;
mod order;
mod workloads;

pub(crate) use guest::MicroGuest;
pub use layout::rom;
pub use mailbox::{Mailbox, MicroRequest};
pub use order::{
    Completion, Direction, ExitKind, Failure, MicroError, Order, Pattern, RoundTrips, Run, State,
};

/// QEMU's arguments for the micro-guest, which starts as
///
/// ```text
/// qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -accel kvm -bios ROM
///     -M pc,memory-backend=ram -m 64M -object memory-backend-file,id=ram,mem-path=RAM,size=64M,share=on
///     -device virtio-blk-pci,disable-modern=on,drive=…
/// ```
///
/// `-no-reboot` turns a crash of the ROM into an end of QEMU. The file RAM must be new, or zeros: the ROM would
/// mistake the data of an earlier guest for its own.
pub mod qemu {
    /// `-M`. The ROM knows the i440FX's interrupt router and power management.
    pub const MACHINE: &str = "pc,memory-backend=ram";

    /// `-m`, and the size in `-object`.
    pub const MEMORY: &str = "64M";

    /// `-object` without the path, which follows it.
    pub const MEMORY_OBJECT: &str = "memory-backend-file,id=ram,size=64M,share=on,mem-path=";

    /// The disk's options beside `drive=`: the ROM's driver is for the legacy interface.
    pub const DISK_DEVICE: &str = "virtio-blk-pci,disable-modern=on";

    /// The network card's options beside `netdev=` and `mac=`, likewise.
    pub const NET_DEVICE: &str = "virtio-net-pci,disable-modern=on,romfile=";

    /// QEMU arguments for the devices that [`crate::micro_guest::Order::Antipattern`] needs in addition: a UART and a
    /// screen. The HPET is the machine's own.
    pub const ANTIPATTERN_DEVICES: [&str; 4] = ["-serial", "null", "-vga", "std"];

    /// QEMU's exit status after [`crate::micro_guest::Order::Leave`].
    pub const LEFT: i32 = 0;
}
