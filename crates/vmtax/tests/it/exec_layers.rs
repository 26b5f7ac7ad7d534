//! A command's requests to its guest's scratch disk, and the packets of its guest: as many as it made, where their time goes, and
//! what is in the way.

use crate::common::{
    ELSEWHERE_NS, PACKET_DELAY_NS, PLANTED_NS, Place, fast_guest, interrupt_delaying_qemu, is_root,
    json, kernel, number, packet_delaying_qemu, passes, wrapped_qemu,
};
use crate::exec::{exec, report};
use crate::kvm_guest::kvm;
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use vmtax_model::testing::KvmGuest;

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

/// Datagrams that the command sends, one after the other, and receives.
const COUNT: u64 = 400;

/// A server on the host's loopback address that sends back each datagram; its port.
fn echo() -> u16 {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok((length, from)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(&datagram[..length], from);
        }
    });
    port
}

/// A command that does so, of datagrams of several lengths, of which it reads the first byte each; and what is no packet
/// of the card.
fn command(port: u16, count: u64) -> String {
    format!(
        "exec 3<>/dev/udp/10.0.2.2/{port} 4<>/dev/udp/127.0.0.1/9; text=$(printf '%060d' 7); \
         for ((i = 0; i < {count}; i++)); do printf %s \"${{text:0:i % 60 + 1}}\" >&3; printf x >&4 2>/dev/null; \
         read -r -t 9 -N 1 <&3 || exit 7; done"
    )
}

/// The findings of the only guest's card: its directions, each with its column; the first is what it sends.
fn directions(report: &Value) -> Vec<(&Value, &Value)> {
    let packets = &report["findings"]["packets"];
    let nics = packets["nics"]
        .as_array()
        .unwrap_or_else(|| panic!("no packets in {}", report["findings"]));
    assert_eq!(nics.len(), 1, "{packets}");
    let columns = packets["layers"]["columns"].as_array().unwrap();
    let all: Vec<(&Value, &Value)> = nics[0]["directions"]
        .as_array()
        .unwrap()
        .iter()
        .zip(columns)
        .collect();
    let kinds: Vec<&Value> = all.iter().map(|(used, _)| &used["kind"]).collect();
    assert_eq!(kinds, ["transmit", "receive"]);
    all
}

/// The sum of a column's rows that lead to a checkpoint, or of those in one state.
fn row(column: &Value, to: &str, state: Option<&str>, measure: &str) -> f64 {
    let rows = column["rows"].as_array().unwrap().iter();
    let of = rows.filter(|row| row["to"] == to && state.is_none_or(|state| row["state"] == state));
    of.map(|row| number(&row["time"][measure])).sum()
}

/// That as many were there, nearly all followed, and that their segments add up. ARP's are among them.
fn is_whole((used, column): (&Value, &Value), count: u64) {
    let (packets, matched) = (number(&used["packets"]), &column["matched"]);
    assert!(
        (count as f64..1.05 * count as f64 + 20.0).contains(&packets),
        "{used}"
    );
    assert_eq!(
        (&matched["operations"], &matched["joined"]),
        (&used["packets"], &used["followed"])
    );
    assert!(number(&matched["joined"]) >= 0.99 * packets, "{matched}");
    assert_eq!(column["clock"]["violations"], 0, "{}", column["clock"]);
    let rows = column["rows"].as_array().unwrap();
    let sum: f64 = rows.iter().map(|row| number(&row["time"]["mean_ns"])).sum();
    let (whole, unexplained) = (
        number(&column["traced"]["mean_ns"]),
        number(&column["unexplained_ns"]),
    );
    assert!(
        (sum + unexplained - whole).abs() < 1.0 && unexplained.abs() <= 0.02 * whole,
        "{sum}, {unexplained}: {whole}"
    );
}

/// A run of the command in that guest, its packets followed.
fn run(guest: &KvmGuest, qemu: Option<&Path>) -> Value {
    let place = Place::new();
    let qemu = qemu.map_or(String::new(), |qemu| format!("--qemu {}", qemu.display()));
    let words = format!(
        "--machine kvm --rounds 1 --net user --layers --scratch 64 --json {qemu} -- bash -c"
    );
    let run = kvm(&place, guest, "exec", &words).arg(command(echo(), COUNT));
    json(&run.start(200).outcome().exits(0).stdout)
}

#[test]
#[ignore = "needs root"]
fn each_packet_of_a_command_is_followed_in_a_kvm_guest() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let report = run(&guest, None);
    let [sent, received] = directions(&report)[..] else {
        panic!("two directions")
    };
    is_whole(sent, COUNT);
    is_whole(received, COUNT);
    for to in ["net-guest-xmit", "net-kvm-kick", "net-tx", "net-tap-write"] {
        assert!(
            passes(sent.1, to) >= COUNT * 9 / 10,
            "{to}: {:#}",
            sent.1["rows"]
        );
    }
    // A main loop that is awake needs no wake-up.
    assert!(
        passes(sent.1, "net-tx-wake") >= COUNT / 2,
        "{:#}",
        sent.1["rows"]
    );
    for to in [
        "net-rx-fill",
        "net-rx-notify",
        "net-inject",
        "net-guest-interrupt",
        "net-guest-poll",
        "net-guest-receive",
    ] {
        assert!(
            passes(received.1, to) >= COUNT * 9 / 10,
            "{to}: {:#}",
            received.1["rows"]
        );
    }
    // The disk's requests are another run's.
    assert_eq!(
        report["findings"]["disks"].as_array().map(Vec::len),
        Some(1)
    );
}

/// Checks that the planted delay is in its own row, and that no other row changed by more than a quarter of it.
fn is_found(late: &Value, plain: &Value, there: &str, direction: usize) -> Result<(), String> {
    for (number, (late, plain)) in directions(late)
        .into_iter()
        .zip(directions(plain))
        .enumerate()
    {
        for to in late.1["rows"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|row| row["to"].as_str())
        {
            let [is, was] =
                [late.1, plain.1].map(|column| row(column, to, Some("running"), "p50_ns"));
            let expected = match number == direction && to == there {
                true => PLANTED_NS,
                false => -ELSEWHERE_NS..ELSEWHERE_NS,
            };
            if !expected.contains(&(is - was)) {
                return Err(format!(
                    "{there}: {to} of direction {number} takes {is} ns, without a delay {was} ns"
                ));
            }
        }
    }
    Ok(())
}

#[test]
#[ignore = "needs root"]
fn a_delay_in_qemu_is_found_in_the_row_where_it_was_planted() {
    let Some(guest) = KvmGuest::given() else {
        return;
    };
    let plain = run(&guest, None);
    for (there, direction) in [("net-tap-write", 0), ("net-inject", 1)] {
        let place = Place::new();
        let planted = if direction == 0 {
            packet_delaying_qemu
        } else {
            interrupt_delaying_qemu
        };
        let qemu = planted(&place, PACKET_DELAY_NS as u64);
        let found = is_found(&run(&guest, Some(&qemu)), &plain, there, direction);
        found.unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
#[ignore = "needs root"]
fn each_packet_of_a_command_is_followed_under_tcg_and_exported() {
    let place = Place::new();
    let run = exec(
        &place,
        "--machine tcg --net user --layers",
        &["bash", "-c", &command(echo(), 200)],
    );
    let outcome = run.start(200).outcome().exits(0);
    outcome
        .says("Packets of the NIC on tcg")
        .says("transmitted per doorbell");
    let report = report(&place);
    directions(&report)
        .into_iter()
        .for_each(|direction| is_whole(direction, 200));
    let export = place
        .vmtax("export")
        .arg(place.recording())
        .words("--perfetto out.perfetto --parquet out.parquet");
    export.outcome().exits(0).says("of 2 trials");
    let page = std::fs::read_to_string(place.recording().join("report.html")).unwrap();
    assert!(page.contains("Packets of the NIC on tcg") && page.contains("tcg, received packets"));
}

#[test]
fn without_packets_that_is_said_and_without_rights_the_guests_part_remains() {
    let place = Place::new();
    let words = fast_guest().1 + " --kernel-arg ipv6.disable=1 --net user --layers";
    let outcome = exec(&place, &words, &["true"])
        .start(120)
        .outcome()
        .exits(0);
    outcome.says("No packet passed the NIC");
    let place = Place::new();
    let kernel = kernel().copy_with(
        &place,
        &[
            "9p",
            "netfs",
            "fscache",
            "overlay",
            "virtio_net",
            "net_failover",
            "failover",
        ],
        &[],
    );
    let start = place.vmtax_as_ordinary_user(
        "exec --rounds 1 --machine tcg --net user --layers --scratch 256 --dir",
    );
    let start = start
        .arg(place.runs())
        .words(&kernel.options())
        .words("-- bash -c")
        .arg(command(echo(), 100));
    start
        .start(120)
        .outcome()
        .exits(0)
        .says("Not observed")
        .says("as root");
    let report = report(&place);
    for (used, column) in directions(&report) {
        // One may be under way when the command ends.
        let [packets, followed] = ["packets", "followed"].map(|count| number(&used[count]));
        assert!(packets >= 100.0 && followed + 1.0 >= packets, "{used}");
        let rows = column["rows"].as_array().unwrap();
        assert!(
            !rows.is_empty() && rows.iter().all(|row| row["layer"] == "guest-kernel"),
            "{rows:?}"
        );
    }
}
