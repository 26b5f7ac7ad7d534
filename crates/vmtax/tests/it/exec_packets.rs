//! The packets of a command's guest: as many as it sent and received, and where their time goes.

use crate::common::{
    ELSEWHERE_NS, PACKET_DELAY_NS, PLANTED_NS, Place, fast_guest, interrupt_delaying_qemu, json,
    kernel, number, packet_delaying_qemu, passes,
};
use crate::exec::{exec, report};
use crate::kvm_guest::kvm;
use serde_json::Value;
use std::net::UdpSocket;
use std::path::Path;
use vmtax_model::testing::KvmGuest;

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
