//! A QEMU that a guest may have taken over, as it is read: its words, its answers, its console.

use serde_json::Value;
use vmtax_profile::exits::Devices;
use vmtax_vmm::kvm::read_process_files;
use vmtax_vmm::qemu::read_command_line;

/// The text of a guest's console, which the guest writes: the line of a failure is printable and has an end.
pub fn console(data: &[u8]) {
    vmtax_vmm::qemu::console::read_console(data);
}

/// Output of `virsh domstats`.
pub fn domain_stats(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = vmtax_vmm::qemu::libvirt::read_domain_stats(&text);
    // A domain and a disk take a line each, at least.
    assert!(read <= text.lines().count() + 1, "{read} of {text:?}");
}

/// Words of another's QEMU about itself: its memory tree, and its command line, words apart by zeros.
pub fn memory_tree(data: &[u8]) {
    let _ = Devices::of_memory_tree(&String::from_utf8_lossy(data));
    let words: Vec<String> = data
        .split(|b| *b == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let (sockets, images, ..) = read_command_line(&words);
    assert!(sockets.len() < words.len() && images.len() < words.len() + 1);
}

/// The name of a descriptor that a process holds, in the first line, and its mappings, which another process made.
pub fn process_files(data: &[u8]) {
    let end = data.iter().position(|b| *b == b'\n');
    let (link, maps) = data.split_at(end.unwrap_or(data.len()));
    let (vcpu, memory, maps_vcpu) = read_process_files(link, &String::from_utf8_lossy(maps));
    let name = b"anon_inode:kvm-vcpu:";
    assert!(vcpu.is_none() || link.starts_with(name));
    assert!(!maps_vcpu || maps.windows(name.len()).any(|part| part == name));
    assert!(memory == 0 || maps.windows(3).any(|part| part == b" rw"));
}

/// Virtqueues of a guest that forges them: the number of words of the VMM's own memory, these words, and the guest's memory at two moments.
pub fn rings(data: &[u8]) {
    let Some((words, data)) = data.split_first() else {
        return;
    };
    let (own, guest) = data.split_at(data.len().min(8 * usize::from(*words)));
    let (before, after) = guest.split_at(guest.len() / 2);
    for queue in vmtax_vmm::ring::read_bytes(own, before, after) {
        assert!(queue.served >= 100 && queue.in_flight <= queue.size);
        let read = queue.requests.map_or(0, |requests| requests.len());
        assert!(read <= queue.in_flight as usize, "{read} requests");
        assert!(queue.stall.is_none_or(|(_, lying)| lying <= queue.size));
    }
}

/// Answers of a hostile QEMU when its counters are read.
pub fn monitor_counters(data: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    let one = vmtax_vmm::qemu::counters::read_answers(&answer, &answer, &answer);
    assert!(vmtax_vmm::qemu::guest_agent::read_agent_answers(&answer, &answer) <= 256);
    assert!(vmtax_vmm::qemu::settings::read_guest_disks(&answer).len() <= 16);
    let entries = answer.as_array().map_or(0, Vec::len);
    assert!(one <= entries + 2, "{one} findings in {entries} entries");
}

/// Answers of a hostile QEMU when its settings are read, and its command line: a line of JSON, then an argument a line.
pub fn vm_settings(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let block: Value = lines
        .next()
        .and_then(|line| serde_json::from_str(line).ok())
        .unwrap_or_default();
    let arguments: Vec<String> = lines.map(str::to_owned).collect();
    let most = block.as_array().map_or(0, Vec::len) + arguments.len();
    let found = vmtax_vmm::qemu::settings::read_settings(&block, &arguments);
    assert!(
        found <= most,
        "{found} disks and shares of {most} entries and arguments"
    );
}
