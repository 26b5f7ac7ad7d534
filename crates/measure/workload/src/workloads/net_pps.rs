//! `net-pps`: small packets over the network, as many as go through.
//!
//! Reference: netperf's UDP_STREAM with small messages. Datagrams of `size` bytes are sent one after the other, without a wait; the
//! server counts those that arrive, and is asked for their number. The figures are packets sent and packets received per second;
//! what the kernel of either side drops is the difference.

use crate::descriptor::{Workload, Yield, workload};
use crate::net_server::COUNT_QUESTION;
use crate::options::{self, nanoseconds, seconds, size};
use crate::workloads::net_rr::{
    MAX_BYTES, MIN_BYTES, RESPONSE_TIMEOUT, bulk_server, is_timeout, no_answer,
};
use crate::{Clock, WorkloadError};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use vmtax_model::{Metric, Places, WorkloadName};

/// Number of times that the server is asked: it may have had no room for the question.
const QUESTIONS: u32 = 5;

workload! {
    NetPps: "small packets over the network, like netperf's UDP_STREAM",
        quick [("time", "1")], default [("time", "2")], full [("time", "10")];
    size: u64 = size("size", "64", MIN_BYTES..=MAX_BYTES, 1, "bytes of a datagram");
    time: f64 = seconds(options::TIME, "10", 0.001..=86_400.0, "seconds after which nothing more is sent");
}

impl NetPps {
    /// Packets sent, and how long that took, ns.
    fn send(&self, socket: &UdpSocket, clock: &Clock) -> io::Result<(u64, u64)> {
        let (time_ns, data) = (nanoseconds(self.time), vec![0x5a; self.size as usize]);
        let mut sent = 0;
        let start = clock.start();
        loop {
            match socket.send(&data) {
                Ok(_) => sent += 1,
                // The device's queue is full: nothing was sent.
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(e) => return Err(e),
            }
            let ns = clock.ns(start, clock.stop());
            if ns >= time_ns {
                return Ok((sent, ns));
            }
        }
    }
}

/// Returns the number of packets that the server received; `None` without an answer.
fn received(socket: &UdpSocket) -> io::Result<Option<u64>> {
    for _ in 0..QUESTIONS {
        socket.send(COUNT_QUESTION)?;
        let mut answer = [0; 8];
        match socket.recv(&mut answer) {
            Ok(8) => return Ok(Some(u64::from_le_bytes(answer))),
            Ok(_) => {}
            Err(e) if is_timeout(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

impl Workload for NetPps {
    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        let server = bulk_server(WorkloadName::NetPps, places)?;
        let failed = |source| no_answer(server, "udp", Some(source));
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed)?;
        socket.connect(server).map_err(failed)?;
        socket
            .set_read_timeout(Some(RESPONSE_TIMEOUT))
            .map_err(failed)?;
        let ask_received = || {
            let received = received(&socket).map_err(failed)?;
            received.ok_or_else(|| no_answer(server, "udp", None))
        };
        // Addresses are resolved, and there is a server.
        ask_received()?;
        let (sent, ns) = self.send(&socket, clock).map_err(failed)?;
        let received = ask_received()?;
        let mut found = Yield::of_ns(ns);
        found.measure(Metric::NetPpsSent, sent as f64 / found.total_s);
        found.measure(Metric::NetPpsReceived, received as f64 / found.total_s);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use crate::net_server::in_this_process;
    use crate::run;
    use vmtax_model::{Places, WorkloadName, WorkloadSpec};

    #[test]
    fn what_arrives_is_counted_and_is_not_more_than_what_was_sent() {
        let places = Places {
            echo: Some(in_this_process()),
            ..Places::default()
        };
        let spec = WorkloadSpec::new(WorkloadName::NetPps).with("time", "0.2");
        // The second sender is counted from zero.
        for _ in 0..2 {
            let result = run(&spec, &places).unwrap();
            let [sent, received] = [0, 1].map(|number: usize| result.measures[number].value);
            assert!(received > 100.0 && received <= sent, "{received} of {sent}");
        }
    }
}
