//! The files of a release, as `make dist` makes them of what is installed: the archive, its checksum, install.sh, PKGBUILD.

use crate::common::{Outcome, Place, binary, is_root, skipped};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn archive() -> String {
    format!("vmtax-{VERSION}-x86_64-linux.tar.gz")
}

/// The files of a release with the program under test, below `release` in the place.
fn packed(place: &Place) -> PathBuf {
    place.put("stage/share/man/man1/vmtax.1", ".TH vmtax 1\n");
    fs::create_dir(place.path("stage/bin")).unwrap();
    // Without what debuggers read it is packed in a second.
    let strip = place
        .program("strip")
        .arg("-o")
        .arg(place.path("stage/bin/vmtax"));
    strip.arg(binary()).succeeds();
    let release = place.path("release");
    let pack = place.program(root().join("scripts/pack"));
    pack.arg(place.path("stage")).arg(&release).succeeds();
    release
}

/// Runs install.sh of a release, into `prefix` in the place.
fn install(place: &Place, release: &Path, from: Option<&Path>) -> Outcome {
    let start = place.program("sh").arg(release.join("install.sh"));
    let start = match from {
        Some(directory) => start.arg(directory),
        None => start,
    };
    start.env("PREFIX", place.path("prefix")).outcome()
}

#[test]
fn a_release_is_installed_unless_its_checksum_is_wrong() {
    let place = Place::new();
    let release = packed(&place);
    let file = release.join(archive());
    let installed = place.path("prefix/bin/vmtax");

    let whole = fs::read(&file).unwrap();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    fs::write(&file, changed).unwrap();
    install(&place, &release, Some(&release))
        .exits(1)
        .says(&format!(
            "install.sh: {} has the wrong SHA-256 checksum",
            archive()
        ));
    assert!(!place.path("prefix").exists(), "something was installed");

    fs::write(&file, whole).unwrap();
    install(&place, &release, Some(&release))
        .exits(0)
        .shows(&format!(
            "vmtax {VERSION} is installed: {}",
            installed.display()
        ));
    place
        .program(&installed)
        .arg("--version")
        .succeeds()
        .shows(&format!("vmtax {VERSION}"));
    assert!(place.path("prefix/share/man/man1/vmtax.1").exists());

    assert!(place.path("prefix").join(UNIT).exists());

    for_a_user(&place, &release);
    downloaded(&place, &release);
    package(&place, &release);

    let checksum = format!("{}.sha256", archive());
    fs::write(release.join(&checksum), "0123 other\n").unwrap();
    install(&place, &release, Some(&release))
        .exits(1)
        .says(&format!("{checksum} has no SHA-256 checksum"));
}

/// Below a prefix.
const UNIT: &str = "lib/systemd/system/vmtax-exporter.service";

/// Of a user's directories systemd reads no unit of the system's.
fn for_a_user(place: &Place, release: &Path) {
    let home = place.path("home");
    fs::create_dir(&home).unwrap();
    let start = match is_root() {
        true => {
            for folder in [place.path(""), place.path("tmp"), home.clone()] {
                fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)).unwrap();
            }
            let nobody = place.program("setpriv");
            nobody.words("--reuid=65534 --regid=65534 --clear-groups -- sh")
        }
        false => place.program("sh"),
    };
    let start = start.arg(release.join("install.sh")).arg(release);
    start.env("HOME", &home).outcome().exits(0);
    let prefix = home.join(".local");
    assert!(prefix.join("bin/vmtax").exists() && !prefix.join(UNIT).exists());
}

/// With an address install.sh asks it for archive and checksum.
fn downloaded(place: &Place, release: &Path) {
    if !Path::new("/usr/bin/curl").exists() && !Path::new("/usr/bin/wget").exists() {
        return skipped("neither curl nor wget");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/vmtax", listener.local_addr().unwrap());
    let script = fs::read_to_string(release.join("install.sh")).unwrap();
    let script = script.replace("address=''", &format!("address='{address}'"));
    place.put("online/install.sh", script);
    let served = release.to_path_buf();
    let server = std::thread::spawn(move || {
        let clients = listener.incoming().take(2);
        clients.for_each(|client| serve(client.unwrap(), &served));
    });
    fs::remove_dir_all(place.path("prefix")).unwrap();
    install(place, &place.path("online"), None).exits(0);
    assert!(place.path("prefix/bin/vmtax").exists());
    server.join().unwrap();
}

/// Answers a request for a file of the release.
fn serve(mut client: TcpStream, release: &Path) {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        let read = client.read(&mut part).unwrap();
        head.extend_from_slice(&part[..read]);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap();
    let name = path.strip_prefix(&format!("/vmtax/releases/download/v{VERSION}/"));
    let body = fs::read(release.join(name.unwrap())).unwrap();
    write!(
        client,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )
    .unwrap();
    client.write_all(&body).unwrap();
}

/// PKGBUILD names archive and checksum, and packs what the archive has.
fn package(place: &Place, release: &Path) {
    let script = r#"set -eu; . release/PKGBUILD; pkgdir=$PWD/package; mkdir source; tar -xzf "release/$source" -C source
        cd source; package; cd ..; echo "$sha256sums  release/$source" | sha256sum --check; "$pkgdir/usr/bin/vmtax" --version"#;
    assert!(release.ends_with("release"));
    let bash = place.program("bash").arg("-c").arg(script).succeeds();
    bash.shows(&format!("release/{}: OK vmtax {VERSION}", archive()));
}

#[test]
fn without_a_release_it_is_said_how_to_build() {
    let place = Place::new();
    install(&place, &root().join("packaging"), None)
        .exits(1)
        .says(
            "no release of vmtax can be downloaded yet: build it from its source with `make dist`",
        );
    assert!(!place.path("prefix").exists());
}
