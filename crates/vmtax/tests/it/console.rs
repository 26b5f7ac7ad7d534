//! A guest that has no virtio-serial talks over its serial console.

use crate::common::{Place, fake_qemu, json, kernel, qemu, trials};

/// Some kernels have the driver built in, so it is the device that is taken away.
const WITHOUT_THE_PORT: &str = r#"
left=$#
while [ "$left" -gt 0 ]; do
    case "$1 $2" in
    "-device virtio-serial"* | "-device virtserialport"*) shift 2; left=$((left - 2)) ;;
    *) set -- "$@" "$1"; shift; left=$((left - 1)) ;;
    esac
done
"#;

#[test]
fn a_guest_without_virtio_serial_is_measured_over_the_console() {
    let place = Place::new();
    let kernel = kernel().copy(&place, &[]);
    let qemu = fake_qemu(
        &place,
        &format!("{WITHOUT_THE_PORT}exec {} \"$@\"", qemu().display()),
    );
    let plan = "syscalls syscalls.only=getpid,pipe syscalls.time=0.02 cpu cpu.time=0.1 --machine tcg --rounds 2";
    let run = place
        .run(plan)
        .words(&kernel.options())
        .arg("--qemu")
        .arg(qemu)
        .arg("--json")
        .start(90)
        .outcome()
        .exits(0);
    let report = json(&run.stdout);
    assert_eq!(trials(&report).len(), 4);
    for trial in trials(&report) {
        assert_eq!(trial["outcome"], "done", "{trial}");
    }
    // The console's log is the channel's too: the frames stand in it.
    let log = std::fs::read(place.recording().join("turns/0000-tcg/console.log")).unwrap();
    assert!(
        log.windows(4).any(|bytes| bytes == b"VMTX"),
        "not spoken over the console"
    );
}

#[test]
fn a_guest_with_virtio_serial_leaves_the_console_to_its_kernel() {
    let place = Place::new();
    let kernel = kernel().copy(&place, &[]);
    let plan = "cpu cpu.time=0.05 --machine tcg --rounds 1";
    place
        .run(plan)
        .words(&kernel.options())
        .start(60)
        .outcome()
        .exits(0);
    let log = std::fs::read(place.recording().join("turns/0000-tcg/console.log")).unwrap();
    assert!(!log.windows(4).any(|bytes| bytes == b"VMTX"));
}
