//! Round trips over the network of Linux guests on KVM, see `kvm_guest`.

use crate::common::{Place, fake_qemu, json, number, passes, passt, passt_with_vhost_user, qemu};
use crate::kvm_guest::kvm;
use crate::layers::is_corrected;
use std::fs;
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;
use vmtax_model::testing::KvmGuest;

/// Round trips of a trial.
const COUNT: u64 = 300;
const VHOST_USER: &str = "--device net --machine kvm --rounds 1 --set backend=vhost-user";

#[test]
#[ignore = "needs root"]
fn round_trips_pass_ioeventfd_the_tap_and_an_msi() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let words = format!("--device net --machine kvm --rounds 1 count={COUNT} protocol=tcp --json");
    let report = json(
        &kvm(&place, &guest, "layers", &words)
            .start(120)
            .outcome()
            .exits(0)
            .stdout,
    );
    let column = &report["findings"]["columns"][0];
    let matched = &column["matched"];
    assert_eq!(matched["operations"], 2 * COUNT);
    // Of events that a busy host's buffers dropped nobody can know.
    assert!(
        number(&matched["joined"]) >= 0.99 * (2 * COUNT) as f64,
        "{matched}"
    );
    assert_eq!(column["clock"]["violations"], 0, "{}", column["clock"]);
    assert!(
        number(&column["clock"]["bound_ns"]) <= 500.0,
        "{}",
        column["clock"]
    );
    let rows = column["rows"].as_array().unwrap();
    for checkpoint in [
        "net-guest-xmit",
        "net-kvm-kick",
        "net-tx-wake",
        "net-tx",
        "net-tap-receive",
        "net-server-send",
        "net-host-xmit",
        "net-rx-wake",
        "net-rx-fill",
        "net-inject",
        "net-guest-interrupt",
        "net-guest-return",
    ] {
        assert!(
            passes(column, checkpoint) > COUNT,
            "{checkpoint} is seldom passed: {rows:#?}"
        );
    }
    let (traced, unexplained) = (
        number(&column["traced"]["mean_ns"]),
        number(&column["unexplained_ns"]),
    );
    assert!(unexplained < 0.1 * traced, "{unexplained} of {traced}");
    is_corrected(column, &["guest", "host"]);
    assert_eq!(
        column["missing"].as_array().map(Vec::len),
        Some(0),
        "{}",
        column["missing"]
    );
}

#[test]
#[ignore = "needs root"]
fn round_trips_pass_qemus_own_network_and_passt() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    if passt().is_none() {
        return;
    }
    let place = Place::new();
    let words = format!(
        "--device net --machine kvm --rounds 1 count={COUNT} --vary backend=tap,user,passt --json"
    );
    let report = json(
        &kvm(&place, &guest, "layers", &words)
            .start(240)
            .outcome()
            .exits(0)
            .stdout,
    );
    let columns = report["findings"]["columns"].as_array().unwrap();
    for (column, own) in columns
        .iter()
        .zip(["net-tap-write", "net-tap-write", "net-passt-send"])
    {
        let matched = &column["matched"];
        assert!(
            number(&matched["joined"]) >= 0.99 * (2 * COUNT) as f64,
            "{}: {matched}",
            column["variant"]
        );
        assert_eq!(column["clock"]["violations"], 0);
        assert!(passes(column, own) > 0, "no {own} in {}", column["variant"]);
        let (traced, unexplained) = (
            number(&column["traced"]["mean_ns"]),
            number(&column["unexplained_ns"]),
        );
        assert!(
            unexplained < 0.1 * traced,
            "{}: {unexplained} of {traced}",
            column["variant"]
        );
    }
    assert_eq!(columns.len(), 3);
}

#[test]
#[ignore = "needs root"]
fn with_vhost_user_round_trips_pass_kvm_and_passt_alone() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let Some((_, path)) = passt_with_vhost_user() else {
        return;
    };
    for protocol in ["udp", "tcp"] {
        let place = Place::new();
        let words = format!("{VHOST_USER} count={COUNT} protocol={protocol} --json");
        let run = kvm(&place, &guest, "layers", &words).env("PATH", &path);
        let report = json(&run.start(120).outcome().exits(0).stdout);
        let column = &report["findings"]["columns"][0];
        let matched = &column["matched"];
        assert!(
            number(&matched["joined"]) >= 0.99 * (2 * COUNT) as f64,
            "{protocol}: {matched}"
        );
        assert_eq!(
            column["clock"]["violations"], 0,
            "{protocol}: {}",
            column["clock"]
        );
        for to in [
            "net-kvm-kick",
            "net-tx-wake",
            "net-passt-send",
            "net-passt-notify",
            "net-inject",
            "net-guest-return",
        ] {
            assert!(
                passes(column, to) > COUNT,
                "{to} is seldom passed over {protocol}: {:#?}",
                column["rows"]
            );
        }
        // No thread of QEMU's wakes: KVM itself passes on the kick and the interrupt.
        for to in ["net-tx", "net-rx", "net-stream-wake"] {
            assert_eq!(
                passes(column, to),
                0,
                "{to} is passed over {protocol}: {:#?}",
                column["rows"]
            );
        }
        let (traced, unexplained) = (
            number(&column["traced"]["mean_ns"]),
            number(&column["unexplained_ns"]),
        );
        assert!(
            unexplained < 0.1 * traced,
            "{protocol}: {unexplained} of {traced}"
        );
        is_corrected(column, &["guest", "host"]);
    }
}

/// The socket that waits for QEMU has a name to which any user can connect.
#[test]
#[ignore = "needs root"]
fn whoever_connects_before_qemu_is_turned_away() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let Some((_, path)) = passt_with_vhost_user() else {
        return;
    };
    let place = Place::new();
    let (go, real) = (place.path("go"), qemu().display());
    let late = fake_qemu(
        &place,
        &format!(
            "until [ -e {} ]; do sleep 0.05; done\nexec {real} \"$@\"",
            go.display()
        ),
    );
    let words = format!("{VHOST_USER} count=100 --qemu {}", late.display());
    let mut run = kvm(&place, &guest, "layers", &words)
        .env("PATH", path)
        .start(120);
    let prefix = format!("@vmtaxo{}-", run.pid());
    let name = run.until("QEMU is waited for", |_| {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        let mut names = sockets
            .lines()
            .filter_map(|line| line.split_whitespace().last());
        names.find_map(|name| name.starts_with(&prefix).then(|| name[1..].to_owned()))
    });
    let mut stranger =
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    stranger
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    assert_eq!(
        stranger.read(&mut [0; 64]).unwrap(),
        0,
        "the stranger is answered"
    );
    place.put("go", "");
    run.outcome().exits(0);
}

#[test]
#[ignore = "needs root"]
fn a_passt_that_ends_before_the_guest_has_booted_is_quoted() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let place = Place::new();
    let body = "case $* in *--print-capabilities*) exit 0;; esac\necho 'the guest cannot be mapped' >&2\nexit 1";
    place.script("bin/passt", body);
    let path = format!(
        "{}:{}",
        place.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let run = kvm(&place, &guest, "layers", &format!("{VHOST_USER} count=100"))
        .env("PATH", path)
        .start(120)
        .outcome();
    for text in [
        "passt ended with status 1 while the guest booted",
        "the guest cannot be mapped",
        "use backend=user",
    ] {
        assert!(run.stderr.contains(text), "no '{text}' in {}", run.stderr);
    }
}

#[test]
#[ignore = "needs root"]
fn round_trips_of_32_connections_are_each_followed() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    for protocol in ["udp", "tcp"] {
        let place = Place::new();
        let words = format!(
            "--device net --machine kvm --rounds 1 count={COUNT} connections=32 protocol={protocol} --json"
        );
        let report = json(
            &kvm(&place, &guest, "layers", &words)
                .start(180)
                .outcome()
                .exits(0)
                .stdout,
        );
        let column = &report["findings"]["columns"][0];
        let matched = &column["matched"];
        assert_eq!(matched["operations"], 2 * COUNT, "{protocol}");
        // Of events that a busy host's buffers dropped nobody can know: all others are followed, also then.
        assert!(
            number(&matched["joined"]) >= 0.99 * (2 * COUNT) as f64,
            "{protocol}: {matched}"
        );
        assert_eq!(
            column["clock"]["violations"], 0,
            "{protocol}: {}",
            column["clock"]
        );
        // The client copies what it receives: that tells whose a packet is.
        assert!(passes(column, "net-guest-read") > COUNT, "{protocol}");
    }
}

/// slirp and passt end the guest's connections: what of several cannot be followed is said, and the rest is.
#[test]
#[ignore = "needs root"]
fn of_several_connections_each_backend_shows_what_it_can() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let passt = passt().is_some();
    let backends = if passt { "tap,user,passt" } else { "tap,user" };
    let place = Place::new();
    let words = format!(
        "--device net --machine kvm --rounds 1 count={COUNT} connections=8 protocol=udp --vary backend={backends} --json"
    );
    let report = json(
        &kvm(&place, &guest, "layers", &words)
            .start(240)
            .outcome()
            .exits(0)
            .stdout,
    );
    let columns = report["findings"]["columns"].as_array().unwrap();
    assert_eq!(columns.len(), if passt { 3 } else { 2 });
    for column in columns {
        let (variant, matched) = (column["variant"].as_str().unwrap(), &column["matched"]);
        assert!(
            number(&matched["joined"]) >= 0.99 * (2 * COUNT) as f64,
            "{variant}: {matched}"
        );
        assert_eq!(column["clock"]["violations"], 0, "{variant}");
        let passes = |to: &str| passes(column, to) > 0;
        let is_whole = variant == "backend=tap";
        assert_eq!(passes("net-server-receive"), is_whole, "{variant}");
        assert_eq!(
            column["missing"]
                .to_string()
                .contains("8 connections at once"),
            !is_whole,
            "{variant}"
        );
        assert!(
            passes("net-tx") && passes("net-rx") && passes("net-guest-read"),
            "{variant}"
        );
        assert!(!passes("net-passt-send"), "{variant}");
    }
    // One doorbell and one interrupt serve several packets.
    let batching = columns[0]["packets"]["batching"].as_array().unwrap();
    let mean = |kind: &str| {
        let of = batching
            .iter()
            .find(|batching| batching["kind"] == kind)
            .unwrap_or_else(|| panic!("no {kind}"));
        number(&of["packets"]) / number(&of["batches"])
    };
    assert!(
        mean("doorbell") >= 1.0 && mean("interrupt") > 1.1 && mean("gro") >= 1.0,
        "{batching:?}"
    );
    assert!(
        (mean("write") - 1.0).abs() < 0.01 && (mean("tso") - 1.0).abs() < 0.01,
        "{batching:?}"
    );
    let text = place
        .vmtax("report")
        .arg(place.recording())
        .succeeds()
        .stdout;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("received per interrupt") && text.contains("lost requests 0"),
        "{text}"
    );
}
