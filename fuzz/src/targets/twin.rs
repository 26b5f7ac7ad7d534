//! A domain's XML or a QEMU command line that somebody gives as the original of a twin, and the header of its image.

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let set = vmtax_configuration::read_twin(&text);
    assert!(
        set <= text.len() + 8,
        "{set} settings of {} bytes",
        text.len()
    );
}
