//! `net-stream`: bulk data over one TCP connection, in either direction.
//!
//! Reference: netperf's TCP_STREAM and TCP_MAERTS. The sender sends pieces of `size` bytes one after the other; the throughput is
//! what the other side received over the time from the first send to when all of it was there: the server ends the connection when
//! it has read the last byte. Size and figures are those of iperf3's default, one stream.

use crate::descriptor::{Workload, Yield, workload};
use crate::net_server::{Direction, header};
use crate::options::{self, Word, nanoseconds, one_of, seconds, size};
use crate::workloads::net_rr::{RESPONSE_TIMEOUT, bulk_server, no_answer};
use crate::{Clock, WorkloadError};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use vmtax_model::{Metric, Places, WorkloadName};

/// Bytes received at once.
const RECEIVED: usize = 128 << 10;

workload! {
    NetStream: "bulk data over a TCP connection, like netperf's TCP_STREAM and TCP_MAERTS",
        quick [("time", "1")], default [("time", "2")], full [("time", "10")];
    direction: Word = one_of(
        "direction", "send", &["send", "receive"], "send: to the server (TCP_STREAM); receive: from it (TCP_MAERTS)",
    );
    size: u64 = size("size", "128K", 1..=1 << 20, 1, "bytes of each send");
    time: f64 = seconds(options::TIME, "10", 0.001..=86_400.0, "seconds after which nothing more is sent");
}

impl NetStream {
    /// Bytes that arrived, and how long they took, ns.
    fn transfer(&self, mut stream: &TcpStream, clock: &Clock) -> io::Result<(u64, u64)> {
        let (time_ns, size) = (nanoseconds(self.time), self.size as usize);
        let mut bytes = 0;
        if self.direction == "send" {
            stream.write_all(&header(Direction::ToServer, 0))?;
            let data = vec![0x5a; size];
            let start = clock.start();
            while clock.ns(start, clock.stop()) < time_ns {
                stream.write_all(&data)?;
                bytes += self.size;
            }
            stream.shutdown(Shutdown::Write)?;
            // Its end: there is nothing to read.
            let _ = stream.read(&mut [0])?;
            return Ok((bytes, clock.ns(start, clock.stop())));
        }
        stream.write_all(&header(Direction::FromServer, self.size as u32))?;
        let mut data = vec![0; RECEIVED];
        stream.read_exact(&mut data[..1])?;
        let start = clock.start();
        loop {
            match stream.read(&mut data)? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                received => bytes += received as u64,
            }
            let ns = clock.ns(start, clock.stop());
            if ns >= time_ns {
                return Ok((bytes, ns));
            }
        }
    }
}

impl Workload for NetStream {
    fn run(&self, clock: &Clock, places: &Places) -> Result<Yield, WorkloadError> {
        let server = bulk_server(WorkloadName::NetStream, places)?;
        let failed = |source| no_answer(server, "tcp", Some(source));
        let stream =
            TcpStream::connect_timeout(&server.into(), RESPONSE_TIMEOUT).map_err(failed)?;
        stream
            .set_read_timeout(Some(RESPONSE_TIMEOUT))
            .map_err(failed)?;
        stream
            .set_write_timeout(Some(RESPONSE_TIMEOUT))
            .map_err(failed)?;
        let (bytes, ns) = self.transfer(&stream, clock).map_err(failed)?;
        let mut found = Yield::of_ns(ns);
        found.measure(
            Metric::NetStreamThroughput,
            bytes as f64 / f64::from(1 << 20) / found.total_s,
        );
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use crate::net_server::in_this_process;
    use crate::run;
    use vmtax_model::{Places, WorkloadName, WorkloadSpec};

    #[test]
    fn data_goes_either_way() {
        let places = Places {
            echo: Some(in_this_process()),
            ..Places::default()
        };
        for (direction, size) in [("send", "128K"), ("receive", "1000")] {
            let spec = WorkloadSpec::new(WorkloadName::NetStream)
                .with("direction", direction)
                .with("size", size);
            let result = run(&spec.with("time", "0.2"), &places).unwrap();
            assert!(
                result.measures[0].value > 1.0 && (0.2..5.0).contains(&result.total_s),
                "{direction}: {result:?}"
            );
        }
    }
}
