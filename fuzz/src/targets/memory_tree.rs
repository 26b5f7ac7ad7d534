//! Words of another's QEMU about itself: its memory tree, and its command line, words apart by zeros.

use vmtax_profile::exits::Devices;
use vmtax_vmm::qemu::read_command_line;

pub fn run(data: &[u8]) {
    let _ = Devices::of_memory_tree(&String::from_utf8_lossy(data));
    let words: Vec<String> = data
        .split(|b| *b == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    let (sockets, images, ..) = read_command_line(&words);
    assert!(sockets.len() < words.len() && images.len() < words.len() + 1);
}
