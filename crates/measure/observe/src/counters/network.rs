//! Counters of network interfaces.

use procfs::net::DeviceStatus;
use procfs::process::Process;
use vmtax_model::NicCounters;

/// The counters of these tap devices, as a process's network namespace has them. A tap receives what the guest sends: the
/// result is the guest's view. One that is not in that namespace is left out.
pub fn interfaces(pid: i32, taps: &[String]) -> Vec<NicCounters> {
    if taps.is_empty() {
        return Vec::new();
    }
    let Ok(all) = Process::new(pid).and_then(|process| process.dev_status()) else {
        return Vec::new();
    };
    taps.iter()
        .filter_map(|tap| all.get(tap))
        .map(from_guest)
        .collect()
}

fn from_guest(tap: &DeviceStatus) -> NicCounters {
    NicCounters {
        tap: tap.name.clone(),
        rx_packets: tap.sent_packets,
        rx_bytes: tap.sent_bytes,
        rx_dropped: tap.sent_drop,
        tx_packets: tap.recv_packets,
        tx_bytes: tap.recv_bytes,
        tx_dropped: tap.recv_drop,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_those_of_the_process() {
        let own = std::process::id() as i32;
        let found = interfaces(own, &["lo".to_owned(), "no-such-tap".to_owned()]);
        assert_eq!(
            found.iter().map(|nic| nic.tap.as_str()).collect::<Vec<_>>(),
            ["lo"]
        );
        assert_eq!(interfaces(i32::MAX, &["lo".to_owned()]), []);
    }
}
