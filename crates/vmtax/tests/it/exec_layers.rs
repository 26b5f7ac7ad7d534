//! A command's requests to its guest's scratch disk: as many as it made, where their time goes, and what is in the way.

use crate::common::{Place, fast_guest, is_root, kernel, wrapped_qemu};
use crate::exec::{exec, report};
use serde_json::Value;
use std::fs;

/// 48 writes of 4 KiB and 16 reads of 64 KiB past the guest's page cache, and a flush at least.
const COMMAND: &str = "dd if=/dev/zero of=big bs=64k count=16 conv=fsync 2>/dev/null; \
                       dd if=/dev/zero of=small bs=4k count=48 oflag=direct conv=fsync 2>/dev/null; \
                       dd if=big of=/dev/null bs=64k iflag=direct 2>/dev/null; cat";

fn kind<'a>(report: &'a Value, kind: &str) -> &'a Value {
    let disks = report["findings"]["disks"].as_array().unwrap();
    assert_eq!(disks.len(), 1, "{disks:#?}");
    let kinds = disks[0]["kinds"].as_array().unwrap();
    kinds
        .iter()
        .find(|k| k["kind"] == kind)
        .unwrap_or_else(|| panic!("no {kind} in {kinds:#?}"))
}

/// Returns the number of requests of this length, in bytes.
fn of_size(kind: &Value, bytes: u64) -> u64 {
    let sizes = kind["sizes"].as_array().unwrap();
    sizes
        .iter()
        .filter(|s| s[0].as_u64() == Some(bytes))
        .map(|s| s[1].as_u64().unwrap())
        .sum()
}

fn column<'a>(report: &'a Value, variant: &str) -> &'a Value {
    let columns = report["findings"]["layers"]["columns"].as_array().unwrap();
    columns
        .iter()
        .find(|c| c["variant"] == variant)
        .unwrap_or_else(|| panic!("no {variant} in {columns:#?}"))
}

/// The command made them; the file system's own may be among them, except the reads.
fn all_are_there(report: &Value) {
    let (reads, writes, flushes) = (
        kind(report, "read"),
        kind(report, "write"),
        kind(report, "flush"),
    );
    assert_eq!(of_size(reads, 65_536), 16, "{reads}");
    assert!((48..100).contains(&of_size(writes, 4096)), "{writes}");
    assert!(
        flushes["requests"].as_u64() >= Some(1) && flushes["bytes"] == 0,
        "{flushes}"
    );
    for kind in [reads, writes, flushes] {
        let sum = |of: fn(u64, u64) -> u64| {
            let sizes = kind["sizes"].as_array().unwrap().iter();
            sizes
                .map(|s| of(s[0].as_u64().unwrap(), s[1].as_u64().unwrap()))
                .sum::<u64>()
        };
        let (bytes, requests) = (
            kind["bytes"].as_u64().unwrap(),
            kind["requests"].as_u64().unwrap(),
        );
        assert_eq!(
            (sum(|bytes, n| bytes * n), sum(|_, n| n)),
            (bytes, requests),
            "{kind}"
        );
        assert!(kind["followed"].as_u64().unwrap() <= requests, "{kind}");
    }
    let disk = &report["findings"]["disks"][0];
    let seconds = |name: &str| disk[name].as_f64().unwrap();
    assert!(
        seconds("under_way_s") > 0.0 && seconds("under_way_s") < seconds("wall_s"),
        "{disk}"
    );
    // All of it, unless so much else went on that a buffer was full.
    assert!(
        seconds("observed_s") > 0.0 && seconds("observed_s") <= seconds("wall_s"),
        "{disk}"
    );
}

#[test]
fn a_commands_requests_are_counted_followed_and_in_no_figure() {
    let place = Place::new();
    let (machine, guest) = fast_guest();
    let words = format!("--machine native {guest} --layers");
    let start = exec(&place, &words, &["sh", "-c", COMMAND]);
    let outcome = start
        .stdin(fs::File::open(place.put("input", "typed\n")).unwrap())
        .start(120)
        .outcome()
        .exits(0);
    // Natively, in the guest, and there once more.
    assert_eq!(outcome.stdout, "typed\n".repeat(3), "{outcome}");
    outcome
        .says(&format!("Requests to the scratch disk on {machine}"))
        .says("in flight")
        .says("by layer: ");
    let report = report(&place);
    all_are_there(&report);
    assert_eq!(report["findings"]["rounds_complete"], 1);
    let rows = report["findings"]["rows"].as_array().unwrap();
    let wall = rows
        .iter()
        .find(|row| row["metric"] == "exec.wall")
        .unwrap();
    assert!(
        wall["machines"]
            .as_array()
            .unwrap()
            .iter()
            .all(|m| m["spread"]["n"] == 1),
        "{wall}"
    );
    for (name, kind_name) in [("reads", "read"), ("writes", "write"), ("flushes", "flush")] {
        let (column, kind) = (column(&report, name), kind(&report, kind_name));
        assert_eq!(column["matched"]["operations"], kind["requests"], "{name}");
        assert_eq!(column["matched"]["joined"], kind["followed"], "{name}");
        let rows = column["rows"].as_array().unwrap();
        let sum: f64 = rows
            .iter()
            .map(|r| r["time"]["mean_ns"].as_f64().unwrap())
            .sum();
        let whole = column["traced"]["mean_ns"].as_f64().unwrap();
        // The clocks' bound at most is nowhere.
        assert!(
            (sum - whole).abs() <= whole * 0.05 + 1000.0,
            "{name}: {sum} of {whole}"
        );
        if is_root() {
            let joined = column["matched"]["joined"].as_u64().unwrap();
            // One of a handful may be lost on a busy machine.
            assert!(
                (joined + 1) * 10 >= column["matched"]["operations"].as_u64().unwrap() * 9,
                "{}",
                column["matched"]
            );
            let has = |layer: &str| rows.iter().any(|r| r["layer"] == layer);
            assert!(
                has("guest-kernel") && has("qemu") && has("host-kernel") && has("interrupt"),
                "{rows:?}"
            );
            assert_eq!(has("device"), name != "flushes", "{rows:?}");
        }
    }
    let pages = ["report.html", "report.layers.html"].map(|page| place.recording().join(page));
    let [page, of_layers] = pages.map(|page| fs::read_to_string(page).unwrap());
    assert!(
        page.contains("its upper layer is on the scratch disk (4096 MiB)")
            && page.contains("Requests to the scratch disk")
    );
    assert!(of_layers.contains(&format!("{machine}, writes")));
    let export = place
        .vmtax("export")
        .arg(place.recording())
        .words("--perfetto out.perfetto --parquet out.parquet");
    export.outcome().exits(0).says("of 1 trials");
    let outcome = place
        .vmtax("report --details")
        .arg(place.recording())
        .outcome()
        .exits(0);
    assert!(
        outcome.stdout.contains("The path of a request, medians"),
        "{outcome}"
    );
}

/// Requests a second that QEMU lets through.
const LIMIT: u64 = 20;

#[test]
#[ignore = "needs root"]
fn a_limit_of_qemus_is_found_in_qemu() {
    let mut missed = String::new();
    // Other load of the host may strike the same requests, but hardly three times.
    for _ in 0..3 {
        let place = Place::new();
        let folder = place.path("");
        let plan = format!(
            "rounds = 1\nmachines = ['tcg']\n[command]\nargv = ['dd', 'if=/dev/zero', 'of=x', 'bs=4k', 'count=20', \
             'oflag=direct']\ndirectory = '{}'\nscratch-mib = 256\nlayers = true\n[[variant]]\nname = ''\n\
             set = {{ share = '9p', aio = 'threads', 'throttling.iops-total' = '{LIMIT}' }}\n[[workload]]\nname = 'exec'\n",
            folder.display()
        );
        place
            .run(&fast_guest().1)
            .arg(place.put("plan.toml", plan))
            .start(120)
            .outcome()
            .exits(0);
        let report = report(&place);
        let writes = column(&report, "writes");
        let waits = |r: &&Value| r["layer"] == "qemu" && r["state"] == "waiting";
        let rows = writes["rows"].as_array().unwrap().iter();
        let there: f64 = rows
            .filter(waits)
            .map(|r| r["time"]["mean_ns"].as_f64().unwrap())
            .sum();
        let (whole, period) = (
            writes["traced"]["mean_ns"].as_f64().unwrap(),
            1e9 / LIMIT as f64,
        );
        // Some of a request's own way lies in the limit's time, and the first ones are let through.
        if there > 0.6 * period && there > 0.6 * whole && whole < 1.6 * period {
            return;
        }
        missed += &format!(
            "{there} of {whole} ns in QEMU, {period} ns are between requests: {}\n",
            writes["rows"]
        );
    }
    panic!("{missed}");
}

#[test]
fn without_rights_the_guests_requests_are_counted_and_what_is_missing_is_named() {
    let place = Place::new();
    let kernel = kernel().copy_with(&place, &["9p", "netfs", "fscache", "overlay"], &[]);
    let start =
        place.vmtax_as_ordinary_user("exec --rounds 1 --machine tcg --layers --scratch 256 --dir");
    let start = start
        .arg(place.runs())
        .words(&kernel.options())
        .words("-- sh -c")
        .arg(COMMAND);
    start
        .start(120)
        .outcome()
        .exits(0)
        .says("Not observed")
        .says("as root");
    let report = report(&place);
    all_are_there(&report);
    let rows = column(&report, "writes")["rows"].as_array().unwrap();
    assert!(
        rows.iter().any(|r| r["layer"] == "guest-kernel")
            && rows.iter().all(|r| r["layer"] != "device"),
        "{rows:?}"
    );
}

#[test]
fn what_cannot_be_followed_is_said() {
    let place = Place::new();
    exec(&place, "--machine native --layers", &["true"])
        .outcome()
        .exits(125)
        .says("natively there is nothing");
    exec(&place, "-t --layers", &["true"])
        .outcome()
        .exits(2)
        .says("--terminal");
    exec(&place, "--machine tcg --layers --root erofs", &["true"])
        .outcome()
        .exits(125)
        .says("9p or virtiofs");
    // What the command cost is told all the same.
    let qemu_blind = wrapped_qemu(
        &place,
        "-append 'console=ttyS0 panic=-1 no_timer_check cryptomgr.notests quiet lockdown=confidentiality'",
    );
    let words = format!(
        "--machine tcg --layers --root 9p --ignore-failure --qemu {}",
        qemu_blind.display()
    );
    let outcome = exec(&place, &words, &["sh", "-c", "echo out; exit 3"])
        .outcome()
        .exits(3)
        .says("wall time");
    outcome
        .says("requests were not traced")
        .says("vmtax get kernel");
    let place = Place::new();
    let words = fast_guest().1 + " --layers --timeout 2 --ignore-failure";
    let outcome = exec(&place, &words, &["sleep", "1000"])
        .outcome()
        .exits(124);
    outcome.says("was killed after 2 s");
    place.nothing_is_left();
}
