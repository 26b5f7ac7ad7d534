//! Output of `virsh domstats`.

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = vmtax_vmm::qemu::libvirt::read_domain_stats(&text);
    // A domain and a disk take a line each, at least.
    assert!(read <= text.lines().count() + 1, "{read} of {text:?}");
}
