//! The request of a round trip: a UDP datagram to the echo server in an Ethernet frame.

use crate::micro_guest::layout::{KEY, NET_HEADER};
use crate::network::{HOST_MAC, mac_bytes};
use std::net::SocketAddrV4;
use vmtax_model::round_trip_key;
use vmtax_wire::{NET_ADDRESS, NET_MAC};

/// The guest's only thread.
pub(super) const THREAD: i32 = 1;
/// The guest's port: any.
const PORT: u16 = 40_000;
/// Ethernet protocol number of IPv4 (`ETH_P_IP`).
const IPV4: [u8; 2] = [8, 0];
const UDP: u8 = 17;

/// The frame to `echo` with `size` bytes of payload, behind the card's header; its key is that of number 0.
pub(super) fn request(echo: SocketAddrV4, size: u16) -> Vec<u8> {
    let mut frame = vec![0; NET_HEADER];
    frame.extend(mac_bytes(HOST_MAC));
    frame.extend(mac_bytes(NET_MAC));
    frame.extend(IPV4);
    let (of_udp, of_ip) = (8 + size, 20 + 8 + size);
    // Version 4, five words; no fragments (RFC 791).
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&of_ip.to_be_bytes());
    header[6] = 0x40;
    header[8..10].copy_from_slice(&[64, UDP]);
    header[12..16].copy_from_slice(&NET_ADDRESS.octets());
    header[16..20].copy_from_slice(&echo.ip().octets());
    let sum: u32 = header
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    header[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame.extend(header);
    frame.extend(PORT.to_be_bytes());
    frame.extend(echo.port().to_be_bytes());
    frame.extend(of_udp.to_be_bytes());
    // No checksum (RFC 768).
    frame.extend([0; 2]);
    debug_assert_eq!(frame.len(), KEY);
    frame.extend(round_trip_key(THREAD, 0).to_le_bytes());
    frame.resize(KEY + usize::from(size), 0x5a);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_wire::ECHO;

    #[test]
    fn a_request_is_a_datagram_with_its_key_where_the_guest_writes_it() {
        let frame = request(ECHO, 64);
        let found = vmtax_trace::payload(&frame).unwrap();
        assert_eq!((found.at, found.length, frame.len()), (KEY, 64, KEY + 64));
        assert_eq!(
            vmtax_trace::payload_word(&frame, None, None),
            Some(round_trip_key(THREAD, 0))
        );
    }
}
