//! The VMM as the tests of vmtax start it; cargo builds a program for tests of its own package.

use std::process::Command;

#[test]
fn a_missing_image_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_vmtax-test-vmm"))
        .args(["--kernel", "/dev/null", "--image", "/nowhere"])
        .output();
    let output = output.expect("the VMM starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("/nowhere"),
        "{said}"
    );
}
