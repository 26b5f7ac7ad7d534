//! The text of a guest's console, which the guest writes: the line of a failure is printable and has an end.

pub fn run(data: &[u8]) {
    vmtax_vmm::qemu::console::read_console(data);
}
