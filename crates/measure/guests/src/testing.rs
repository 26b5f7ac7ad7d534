//! An archive of a distribution on this disk, for tests that run the real apt.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Options for apt's configuration in tests: nobody here has the key of a distribution.
pub(crate) const UNSIGNED: &str =
    "Acquire::AllowInsecureRepositories \"true\";\nAPT::Get::AllowUnauthenticated \"true\";\n";

/// Puts a suite into an archive, with this list of packages. Like backports, it is preferred only where it is asked for, if
/// it is called so.
pub(crate) fn suite(archive: &Path, name: &str, packages: &str) {
    let folder = archive.join("dists").join(name);
    let list = folder.join("main/binary-amd64/Packages");
    fs::create_dir_all(list.parent().unwrap()).unwrap();
    fs::write(&list, packages).unwrap();
    let sum = String::from_utf8(
        Command::new("sha256sum")
            .arg(&list)
            .output()
            .unwrap()
            .stdout,
    )
    .unwrap();
    let (sum, size) = (sum.split(' ').next().unwrap(), packages.len());
    let automatic = if name.ends_with("-backports") {
        "NotAutomatic: yes\nButAutomaticUpgrades: yes\n"
    } else {
        ""
    };
    let release = format!(
        "Origin: Test\nSuite: {name}\nCodename: {name}\nArchitectures: amd64\nComponents: main\n{automatic}\
         Date: Sat, 01 Jan 2022 00:00:00 UTC\nSHA256:\n {sum} {size} main/binary-amd64/Packages\n"
    );
    fs::write(folder.join("Release"), release).unwrap();
}
