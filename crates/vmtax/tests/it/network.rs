//! Round trips over the network, followed through a real guest, QEMU, each backend and the host's stack.

use crate::common::{
    ELSEWHERE_NS, PACKET_DELAY_NS, PLANTED_NS, Place, Signal, fast_guest, json, kernel, number,
    packet_delaying_qemu, passes, passt, passt_with_vhost_user, path_with_delaying_passt, trials,
    until,
};
use crate::matrix::fetched;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Round trips of a trial.
const COUNT: u64 = 300;

fn column<'a>(report: &'a Value, variant: &str) -> &'a Value {
    let columns = report["findings"]["columns"].as_array().unwrap();
    columns
        .iter()
        .find(|c| c["variant"] == variant)
        .unwrap_or_else(|| panic!("no column {variant}"))
}

/// A row's figure, ns; of one row for each state.
fn row(column: &Value, to: &str, measure: &str) -> f64 {
    let rows = column["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["to"] == to);
    rows.map(|row| number(&row["time"][measure])).sum()
}

/// Nearly all are followed, in the order of cause and effect, and each nanosecond is in one row or unexplained.
fn is_whole(column: &Value, operations: u64) {
    let matched = &column["matched"];
    assert_eq!(matched["operations"], operations);
    assert!(
        number(&matched["joined"]) >= 0.999 * operations as f64,
        "{matched}"
    );
    assert_eq!(column["clock"]["violations"], 0);
    let sum: f64 = column["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| number(&row["time"]["mean_ns"]))
        .sum();
    let (traced, unexplained) = (
        number(&column["traced"]["mean_ns"]),
        number(&column["unexplained_ns"]),
    );
    assert!(
        (sum + unexplained - traced).abs() < 0.002 * traced,
        "{sum} + {unexplained} of {traced}"
    );
}

/// The round trips of a plan's variants under TCG, observed once.
fn observed(place: &Place, name: &str, variants: &str, path: Option<&str>) -> Value {
    let plan = format!(
        "study = 'layers'\nrounds = 1\nmachines = ['tcg']\nprobes = ['none', 'network']\n[[workload]]\nname = 'net-rr'\n\
         options = {{ count = {COUNT}, time = 0 }}\n{variants}"
    );
    let run = place
        .vmtax("layers --json --dir")
        .arg(place.path(name))
        .arg(place.put("plan.toml", plan));
    let run = if let Some(path) = path {
        run.env("PATH", path)
    } else {
        run
    };
    json(&run.start(300).outcome().exits(0).stdout)
}

/// The network namespaces that processes are in.
fn namespaces() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read_link(process.path().join("ns/net")).ok())
        .collect()
}

/// Fails unless no process is in a namespace that is new; those of other tests come and go meanwhile.
fn no_namespace_is_left(before: &BTreeSet<PathBuf>, of: &str) {
    until(&format!("the network namespaces are gone: {of}"), || {
        namespaces().is_subset(before).then_some(())
    });
}

#[test]
#[ignore = "needs root"]
fn the_micro_guests_round_trips_pass_every_layer_of_the_host() {
    let place = Place::new();
    let words =
        format!("layers --device net --machine micro-tcg --rounds 1 count={COUNT} size=200 --json");
    let report = json(&place.vmtax(&words).start(120).outcome().exits(0).stdout);
    let column = &report["findings"]["columns"][0];
    is_whole(column, 2 * COUNT);
    let rows = column["rows"].as_array().unwrap();
    for checkpoint in [
        "net-tx",
        "net-tap-receive",
        "net-server-receive",
        "net-host-xmit",
        "net-rx",
        "net-inject",
    ] {
        assert!(
            passes(column, checkpoint) > COUNT,
            "{checkpoint} is seldom passed: {rows:#?}"
        );
    }
    // Its driver's stamps are the first and the last of each.
    assert!(
        number(&column["unexplained_ns"]).abs() < 1.0,
        "{}",
        column["unexplained_ns"]
    );
    for refused in ["protocol=tcp", "connections=2"] {
        let start = place
            .vmtax("run --machine micro-tcg -- net-rr")
            .words(refused);
        start.fails(&["round trips over UDP on one connection"]);
    }
    place.nothing_is_left();
}

#[test]
#[ignore = "needs root"]
fn a_delay_in_qemus_way_to_the_tap_is_found_there_and_each_round_trip_is_followed() {
    kernel();
    let place = Place::new();
    let before = namespaces();
    let plan = format!(
        "study = 'layers'\nrounds = 1\nmachines = ['native', 'tcg']\nprobes = ['none', 'network']\n[[workload]]\nname = 'net-rr'\n\
         options = {{ count = {COUNT}, time = 0 }}\n[[variant]]\nname = 'plain'\n[[variant]]\nname = 'late'\n\
         set = {{ qemu = '{}' }}\n",
        packet_delaying_qemu(&place, PACKET_DELAY_NS as u64).display()
    );
    let plan = place.put("plan.toml", plan);
    let run = place
        .vmtax("layers --json --dir")
        .arg(place.runs())
        .arg(plan);
    let report = json(&run.start(180).outcome().exits(0).stdout);
    let [plain, late] = ["plain", "late"].map(|variant| column(&report, variant));
    is_whole(plain, COUNT);
    is_whole(late, COUNT);
    // Natively it crosses no virtqueue.
    assert!(number(&report["findings"]["host"]["p50_ns"]) < number(&plain["control"]["p50_ns"]));
    let grown = |to| row(late, to, "p50_ns") - row(plain, to, "p50_ns");
    let there = grown("net-tap-write");
    assert!(
        PLANTED_NS.contains(&there),
        "{there} ns of {PACKET_DELAY_NS} before the write to the tap"
    );
    let both_ways = [
        "net-guest-queue",
        "net-tap-receive",
        "net-host-queue",
        "net-tap-read",
        "net-guest-receive",
    ];
    for to in both_ways {
        assert!(
            row(plain, to, "mean_ns") > 0.0 && grown(to).abs() < ELSEWHERE_NS,
            "{to}: {} ns more",
            grown(to)
        );
    }
    let text = place
        .vmtax("report")
        .arg(place.recording())
        .succeeds()
        .stdout;
    assert!(
        text.contains("write to tap or socket") && text.contains("unexplained"),
        "{text}"
    );
    let parquet = place.path("requests.parquet");
    place
        .vmtax("export")
        .arg(place.recording())
        .arg("--parquet")
        .arg(&parquet)
        .succeeds();
    no_namespace_is_left(&before, "layers");
}

#[test]
#[ignore = "needs root"]
fn each_backend_is_followed_and_a_delay_is_found_in_its_own_segment() {
    kernel();
    let Some(passt) = passt() else { return };
    let place = Place::new();
    let before = namespaces();
    let late = packet_delaying_qemu(&place, PACKET_DELAY_NS as u64);
    let variant =
        |name: &str, set: &str| format!("[[variant]]\nname = '{name}'\nset = {{ {set} }}\n");
    let variants = [
        variant("tap", "backend = 'tap'"),
        variant("user", "backend = 'user'"),
        variant(
            "user late",
            &format!("backend = 'user', qemu = '{}'", late.display()),
        ),
        variant("passt", "backend = 'passt'"),
    ];
    let report = observed(&place, "runs", &variants.concat(), None);
    let [tap, user, user_late, passt_in_time] =
        ["tap", "user", "user late", "passt"].map(|variant| column(&report, variant));
    [tap, user, user_late, passt_in_time]
        .into_iter()
        .for_each(|column| is_whole(column, COUNT));
    for (column, by_passt) in [(tap, false), (user, false), (passt_in_time, true)] {
        for to in [
            "net-stream-write",
            "net-passt-send",
            "net-passt-read",
            "net-passt-write",
            "net-stream-read",
        ] {
            assert_eq!(
                passes(column, to) > 0,
                by_passt,
                "{to} of {}",
                column["variant"]
            );
        }
        for to in ["net-tap-write", "net-tap-read"] {
            assert_eq!(
                passes(column, to) > 0,
                !by_passt,
                "{to} of {}",
                column["variant"]
            );
        }
        assert_eq!(
            column["missing"].as_array().map(Vec::len),
            Some(0),
            "{}",
            column["missing"]
        );
    }
    let is_there = |late: &Value, plain: &Value, to: &str| {
        let there = row(late, to, "p50_ns") - row(plain, to, "p50_ns");
        assert!(
            PLANTED_NS.contains(&there),
            "{there} ns of {PACKET_DELAY_NS} before {to}"
        );
        for other in [
            "net-guest-queue",
            "net-tap-receive",
            "net-host-queue",
            "net-guest-receive",
        ] {
            let grown = row(late, other, "p50_ns") - row(plain, other, "p50_ns");
            assert!(grown.abs() < ELSEWHERE_NS, "{other}: {grown} ns more");
        }
    };
    is_there(user_late, user, "net-tap-write");
    let path = path_with_delaying_passt(&place, &passt, PACKET_DELAY_NS as u64);
    let report = observed(&place, "late", &variants[3], Some(&path));
    is_whole(column(&report, "passt"), COUNT);
    // Of another run, on a host that may be as busy as it likes: what was planted is there, and not twice.
    let there = row(column(&report, "passt"), "net-passt-send", "p50_ns");
    assert!(PLANTED_NS.contains(&there), "{there} ns before passt sends");
    assert!(row(passt_in_time, "net-passt-send", "p50_ns") < PACKET_DELAY_NS / 2.0);
    no_namespace_is_left(&before, "layers");
}

#[test]
#[ignore = "needs root"]
fn with_vhost_user_packets_go_past_qemu_and_a_delay_is_found_in_passt() {
    kernel();
    let Some((passt, path)) = passt_with_vhost_user() else {
        return;
    };
    // Without KVM older ones crash.
    if fetched("qemu", "10.0").is_none() {
        return;
    }
    let place = Place::new();
    let before = namespaces();
    let variants =
        "[[variant]]\nname = 'vhost-user'\nset = { backend = 'vhost-user', qemu = '10.0' }\n";
    let in_time = observed(&place, "runs", variants, Some(&path));
    let late = path_with_delaying_passt(&place, &passt, PACKET_DELAY_NS as u64);
    let late = observed(&place, "late", variants, Some(&late));
    let [in_time, late] = [&in_time, &late].map(|report| column(report, "vhost-user"));
    for column in [in_time, late] {
        is_whole(column, COUNT);
        for to in [
            "net-tx-wake",
            "net-passt-send",
            "net-tap-receive",
            "net-passt-read",
            "net-passt-notify",
            "net-inject",
        ] {
            assert!(
                passes(column, to) > COUNT / 2,
                "{to} is seldom passed: {:#?}",
                column["rows"]
            );
        }
        for to in [
            "net-tx",
            "net-tap-write",
            "net-stream-write",
            "net-passt-write",
            "net-stream-read",
            "net-rx",
        ] {
            assert_eq!(
                passes(column, to),
                0,
                "{to} is passed: {:#?}",
                column["rows"]
            );
        }
        assert_eq!(
            column["missing"].as_array().map(Vec::len),
            Some(0),
            "{}",
            column["missing"]
        );
    }
    let there = row(late, "net-passt-send", "p50_ns");
    assert!(PLANTED_NS.contains(&there), "{there} ns before passt sends");
    assert!(row(in_time, "net-passt-send", "p50_ns") < PACKET_DELAY_NS / 2.0);
    no_namespace_is_left(&before, "layers");
    // Debian 12's passt has no vhost-user.
    place.script(
        "bin/passt",
        "echo \"unrecognized option '--vhost-user'\" >&2; exit 1",
    );
    let path = format!("{}:{path}", place.path("bin").display());
    let words = "layers --device net count=100 --machine tcg --rounds 1 --qemu 10.0 --set backend=vhost-user --dir";
    let run = place
        .vmtax(words)
        .arg(place.path("old"))
        .env("PATH", path)
        .start(120)
        .outcome();
    let text = "backend=vhost-user needs a passt of December 2024 or later";
    assert!(run.stderr.contains(text), "no '{text}' in {}", run.stderr);
}

#[test]
#[ignore = "needs root"]
fn a_backend_that_does_not_start_is_named_and_the_others_are_measured() {
    kernel();
    let place = Place::new();
    place.script(
        "bin/passt",
        "echo 'user namespaces are forbidden' >&2; exit 1",
    );
    let path = format!(
        "{}:{}",
        place.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let guest = fast_guest().1;
    let words =
        format!("layers --device net count=100 --rounds 1 {guest} --vary backend=tap,passt --dir");
    let run = place
        .vmtax(&words)
        .arg(place.runs())
        .env("PATH", path)
        .start(120)
        .outcome();
    let said = format!("{}{}", run.stdout, run.stderr);
    for text in [
        "passt does not answer",
        "user namespaces are forbidden",
        "use backend=user",
        "host stack receives",
    ] {
        assert!(said.contains(text), "no '{text}' in {said}");
    }
    place
        .vmtax("layers --device net --set backend=slirp")
        .fails(&["unknown backend 'slirp'", "tap, user, passt"]);
    if !Path::new("/dev/vhost-net").exists() {
        let words =
            "layers --device net count=100 --machine tcg --rounds 1 --set netdev.vhost=on --dir";
        let run = place
            .vmtax(words)
            .arg(place.path("vhost"))
            .start(60)
            .outcome();
        assert!(
            run.stderr.contains("netdev.vhost=on needs /dev/vhost-net"),
            "{}",
            run.stderr
        );
    }
    place
        .vmtax("layers --set backend=tap")
        .fails(&["backend is of the NIC"]);
    let vhost_user = |words: &str| {
        place
            .vmtax("layers --device net --set backend=vhost-user")
            .words(words)
    };
    vhost_user("connections=2")
        .fails(&["with vhost-user the round trips of one connection only are traced"]);
    vhost_user("--set memory-backend.share=off").fails(&["vhost-user shares the guest's memory"]);
}

#[test]
#[ignore = "needs root"]
fn a_tap_and_its_card_have_the_queues_that_were_asked_for() {
    kernel();
    let place = Place::new();
    let words = format!(
        "layers --device net count={COUNT} --machine tcg --rounds 1 --cpus 2 --set netdev.queues=2 --json"
    );
    let run = place
        .vmtax(&words)
        .arg("--dir")
        .arg(place.runs())
        .start(180);
    let mut run = run;
    let queues = run.until("QEMU has the tap", |place| {
        let qemu = place
            .processes()
            .into_iter()
            .find(|p| p.is_qemu() && p.command.contains("mq=on,vectors=6"))?;
        let folder = fs::read_dir(format!("/proc/{}/fdinfo", qemu.pid)).ok()?;
        let is_tap = |text: &String| text.lines().any(|line| line.starts_with("iff:"));
        let infos = folder
            .flatten()
            .filter_map(|entry| fs::read_to_string(entry.path()).ok());
        Some(infos.filter(is_tap).count()).filter(|queues| *queues > 0)
    });
    assert_eq!(queues, 2);
    let report = json(&run.outcome().exits(0).stdout);
    is_whole(&report["findings"]["columns"][0], 2 * COUNT);
    place
        .vmtax("layers --device net --set netdev.queues=99")
        .fails(&["netdev.queues=99: choose 1 to 16"]);
    place
        .vmtax("layers --device net --set netdev.queues=2 --set backend=user")
        .fails(&["netdev.queues is of a tap"]);
}

#[test]
#[ignore = "needs root"]
fn every_workload_of_the_network_goes_through_each_backend() {
    kernel();
    let place = Place::new();
    let workload = |name: &str, options: &str| {
        format!("[[workload]]\nname = '{name}'\noptions = {{ {options} }}\n")
    };
    let variant = |backend: &&str| {
        format!("[[variant]]\nname = '{backend}'\nset = {{ backend = '{backend}' }}\n")
    };
    let backends: &[&str] = if passt().is_some() {
        &["tap", "user", "passt"]
    } else {
        &["tap", "user"]
    };
    let plan = [
        "rounds = 1\nmachines = ['native', 'tcg']\n".to_owned(),
        workload(
            "net-rr",
            "protocol = 'tcp', connect = 'each', connections = 4, count = 400, time = 0",
        ),
        workload("net-stream", "direction = 'receive', time = 0.5"),
        workload("net-pps", "time = 0.5"),
        backends.iter().map(variant).collect(),
    ];
    let plan = place.put("plan.toml", plan.concat());
    place
        .run(&format!("--machine native {}", fast_guest().1))
        .arg(plan)
        .start(240)
        .outcome()
        .exits(0);
    let report = json(
        &place
            .vmtax("report --json")
            .arg(place.recording())
            .succeeds()
            .stdout,
    );
    for backend in ["", "tap", "user", "passt"]
        .iter()
        .filter(|backend| backend.is_empty() || backends.contains(backend))
    {
        for (workload, least) in [("net-rr", 50.0), ("net-stream", 1.0), ("net-pps", 100.0)] {
            let mut of_backend = trials(&report)
                .iter()
                .filter(|trial| trial["variant"].as_str().unwrap_or_default() == *backend);
            let trial = of_backend
                .find(|trial| trial["workload"]["name"] == workload)
                .unwrap();
            let measures = trial["result"]["measures"]
                .as_array()
                .unwrap_or_else(|| panic!("{backend}: {trial}"));
            assert!(
                number(&measures.last().unwrap()["value"]) > least,
                "{backend}: {measures:?}"
            );
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_killed_run_leaves_no_namespace_and_no_process() {
    kernel();
    let place = Place::new();
    let before = namespaces();
    let backends: &[&str] = if passt().is_some() {
        &["tap", "user", "passt"]
    } else {
        &["tap", "user"]
    };
    let native = "run net-rr time=60 --rounds 1 --machine native --dir".to_owned();
    let guest = fast_guest().1;
    let guests = backends.iter().map(|backend| {
        format!(
            "layers --device net time=60 count=0 --rounds 1 {guest} --set backend={backend} --dir"
        )
    });
    for words in [native].into_iter().chain(guests) {
        let mut run = place.vmtax(&words).arg(place.runs()).start(60);
        run.until("the echo server", |place| {
            place
                .processes()
                .iter()
                .any(|process| process.command.contains("agent echo"))
                .then_some(())
        });
        run.settled();
        run.signal(Signal::KILL);
        drop(run);
        place.nothing_is_left();
        no_namespace_is_left(&before, &words);
    }
}

#[test]
fn without_rights_guests_have_qemus_own_network_and_it_is_said() {
    let place = Place::new();
    let kernel = kernel().copy_with(&place, &["net_failover", "failover"], &[]);
    let run = |words: &str| {
        let run = place.vmtax_as_ordinary_user(words).arg(place.runs());
        run.words(&kernel.options()).env("HOME", place.path("home"))
    };
    let words = "run net-rr time=0.3 --rounds 1 --machine native,tcg --dir";
    let said = run(words).start(120).outcome().exits(0).stdout;
    assert!(
        said.contains("host's loopback device") && said.contains("Run vmtax as root"),
        "{said}"
    );
    let report = json(
        &place
            .vmtax("report --json")
            .arg(place.recording())
            .succeeds()
            .stdout,
    );
    let made = |trial: &Value| trial["result"]["operations"][0]["latency"].is_null();
    assert!(!trials(&report).iter().any(made), "{report:#}");
    let refused = "layers --device net count=10 --rounds 1 --machine tcg --set backend=tap --dir";
    let said = run(refused).start(120).outcome().stderr;
    assert!(
        said.contains("Run vmtax as root, or set backend=user"),
        "{said}"
    );
}
