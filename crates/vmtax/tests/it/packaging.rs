//! What other programs take from `packaging`: Grafana's dashboard, the systemd unit, the GitHub Action; what continuous integration does
//! without the box. And the files of a release, as `make dist` makes them of what is installed: the archive, its checksum,
//! install.sh, PKGBUILD.

use crate::common::{Outcome, Place, binary, is_root, skipped};
use crate::compare::{RUN, planted};
use regex_lite::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use vmtax_model::{Counter, DiskCounters, LatencyHistogram, VmCounters, VmFacts};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    let path = root().join(name);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Names of samples in a text: of OpenMetrics or of queries.
fn metrics(text: &str) -> BTreeSet<String> {
    let name = Regex::new(r"vmtax_[a-z_]+").unwrap();
    let names = name.find_iter(text).map(|hit| hit.as_str().to_owned());
    names.collect()
}

/// What the program exports: the counters' samples; facts and histograms by a VM that has them.
fn exported() -> BTreeSet<String> {
    let disk = DiskCounters {
        name: "vda".to_owned(),
        histograms: Some(vec![LatencyHistogram {
            boundaries: vec![1],
            bins: vec![1, 1],
        }]),
        ..DiskCounters::default()
    };
    let vm = VmCounters {
        disks: vec![disk],
        ..VmCounters::default()
    };
    let text = vmtax_report::openmetrics(&[(&VmFacts::unknown(7), &vm)]);
    let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let counters = Counter::all().filter(|counter| !counter.metric.is_empty());
    let mut names: BTreeSet<String> = counters.map(Counter::sample_name).collect();
    names.extend(metrics(&samples.join("\n")));
    names
}

/// Each text of a JSON document.
fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_what_is_exported_and_for_all_of_it() {
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana-dashboard.json")).unwrap();
    let mut found = Vec::new();
    texts(&dashboard, &mut found);
    let (asked, exported) = (metrics(&found.join("\n")), exported());
    let unknown: Vec<&String> = asked.difference(&exported).collect();
    assert!(unknown.is_empty(), "not exported: {unknown:?}");
    let missing: Vec<&String> = exported.difference(&asked).collect();
    assert!(missing.is_empty(), "on no panel: {missing:?}");
}

#[test]
fn the_unit_of_the_exporter_is_one_for_systemd_and_for_vmtax() {
    let place = Place::new();
    let unit = read("packaging/vmtax-exporter.service");
    let command = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=vmtax "));
    // One sample of the same command, into a file.
    let (file, options) = (place.path("metrics"), command.unwrap());
    let once = options
        .replace("9177", file.to_str().unwrap())
        .replace("--interval 15", "--interval 0.1 --samples 1");
    place.vmtax(&once).succeeds();
    assert!(fs::read_to_string(&file).unwrap().ends_with("# EOF\n"));

    if !Path::new("/usr/bin/systemd-analyze").exists() {
        return skipped("no systemd-analyze");
    }
    // Where program and manual page are installed is not known here.
    let unit = unit.replace("ExecStart=vmtax", &format!("ExecStart={}", binary()));
    let unit = unit.replace("Documentation=man:vmtax-top(1)\n", "");
    let unit = place.put("vmtax-exporter.service", unit);
    let verified = place
        .program("systemd-analyze")
        .arg("verify")
        .arg(unit)
        .succeeds();
    assert_eq!(verified.stderr, "");
}

#[test]
fn the_action_fails_where_a_metric_is_worse_and_leaves_its_results() {
    let place = Place::new();
    place.run(RUN).succeeds();
    let baseline = planted(&place, &place.recording(), "first", 1.0);
    let (summary, output) = (place.path("summary"), place.path("output"));
    let check = |recording: &Path| {
        let _ = fs::remove_file(&output);
        place
            .program(root().join("packaging/compare-action"))
            .env("VMTAX", binary())
            .env("BASELINE", &baseline)
            .env("RECORDING", recording)
            .env("THRESHOLDS", "")
            .env("RUNNER_TEMP", place.path("results"))
            .env("GITHUB_OUTPUT", &output)
            .env("GITHUB_STEP_SUMMARY", &summary)
            .outcome()
    };
    let written = || fs::read_to_string(&output).unwrap();
    check(&baseline).exits(0);
    assert!(written().starts_with("status=0\n"), "{}", written());
    check(&planted(&place, &baseline, "slower", 1.5))
        .exits(1)
        .shows("::error title=cpu.events");
    assert!(fs::read_to_string(&summary).unwrap().contains("**worse**"));
    let results: Vec<String> = written().lines().map(str::to_owned).collect();
    assert_eq!(results[0], "status=1");
    for (line, name) in results[1..].iter().zip(["xml", "md"]) {
        let path = line.strip_prefix(&format!("{name}="));
        assert!(Path::new(path.unwrap()).exists(), "{line}");
    }
    check(&place.path("nowhere")).exits(2).says("nowhere");
    assert_eq!(written(), "status=2\n");
}

#[test]
fn the_action_passes_each_input_on() {
    let action = read("action.yml");
    let script = read("packaging/compare-action");
    for (input, variable) in [
        ("baseline", "BASELINE"),
        ("recording", "RECORDING"),
        ("thresholds", "THRESHOLDS"),
    ] {
        assert!(
            action.contains(&format!("{variable}: ${{{{ inputs.{input} }}}}")),
            "{input}"
        );
        assert!(
            script.contains(&format!("${variable}")) || script.contains(&format!("${{{variable}")),
            "{variable}"
        );
    }
}

#[test]
fn a_box_that_cannot_be_made_is_named_with_its_reason() {
    // All that `box/box image` needs before it makes one, but mmdebstrap.
    let place = Place::new();
    let programs = place.path("bin");
    fs::create_dir(&programs).unwrap();
    for program in [
        "awk",
        "apt-get",
        "basename",
        "cat",
        "cc",
        "cut",
        "df",
        "dirname",
        "id",
        "ln",
        "mkdir",
        "mkfs.ext4",
        "python3",
        "rm",
        "sed",
        "sha256sum",
        "sh",
        "ssh-keygen",
        "tail",
    ] {
        let folders = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].iter();
        let found = folders
            .map(|folder| Path::new(folder).join(program))
            .find(|path| path.exists());
        if let Some(found) = found {
            std::os::unix::fs::symlink(found, programs.join(program)).unwrap();
        }
    }
    let caches = place.path("caches");
    let image = place
        .program(root().join("box/box"))
        .arg("image")
        .env("PATH", &programs)
        .env("XDG_CACHE_HOME", &caches)
        .env("CARGO_TARGET_DIR", place.path("target"))
        .outcome();
    // `.ci/run` goes on at this status, and says that ordinary KVM was not tested.
    let reason = if is_root() {
        "mmdebstrap is missing: scripts/setup box installs it"
    } else {
        "only root can make the image"
    };
    image
        .exits(3)
        .says(reason)
        .says("no image of Debian trixie could be made");
    let left = fs::read_dir(caches.join("vmtax/box")).unwrap().count();
    assert_eq!(left, 0, "a half image");
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn archive() -> String {
    format!("vmtax-{VERSION}-x86_64-linux.tar.gz")
}

/// The files of a release with the program under test, below `release` in the place.
fn packed(place: &Place) -> PathBuf {
    place.put("stage/share/man/man1/vmtax.1", ".TH vmtax 1\n");
    let unit = root().join("packaging/vmtax-exporter.service");
    place.put(&format!("stage/{UNIT}"), fs::read(unit).unwrap());
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
