//! The headers of a network packet, as far as they say where its payload is: Ethernet, IPv4 (RFC 791), UDP and TCP.

/// Bytes before the Ethernet header: that of virtio-net with and without merged buffers, or none.
const BEFORE: [usize; 3] = [12, 10, 0];
/// Bytes of an Ethernet header, and where its type is.
const ETHERNET: usize = 14;
const TYPE: usize = 12;
/// Type of an IPv4 frame: `ETH_P_IP`.
const IPV4: [u8; 2] = [8, 0];
/// `ETH_P_IPV6`, and the bytes of its header, which the length in it does not count (RFC 8200).
const IPV6: [u8; 2] = [0x86, 0xdd];
const IPV6_HEADER: usize = 40;
/// `ETH_P_ARP`; how it begins for Ethernet and IPv4, and its bytes then (RFC 826).
const ARP: [u8; 2] = [8, 6];
const ARP_OF_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_BYTES: usize = 28;
/// Least bytes of an IPv4 header.
const LEAST_IP: usize = 20;
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
const TCP: u8 = 6;
const LEAST_TCP: usize = 20;

/// Where a packet's payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// From the first of the bytes that were read; they may be fewer.
    pub at: usize,
    /// Bytes of it.
    pub length: usize,
}

/// Bytes of a word.
const WORD: usize = 8;

/// The first eight bytes of a packet's payload, little endian. `head` are the packet's first bytes. Of a packet in several pieces
/// `piece` is the length of the first, and `next` what the second begins with.
pub fn payload_word(head: &[u8], piece: Option<u64>, next: Option<u64>) -> Option<u64> {
    let Payload { at, length } = payload(head)?;
    if length < WORD {
        return None;
    }
    // Bytes behind the end of a piece are another's.
    match piece.and_then(|piece| usize::try_from(piece).ok()) {
        Some(piece) if piece == at => next,
        Some(piece) if piece < at + WORD => None,
        _ => head
            .get(at..at + WORD)
            .and_then(|word| word.try_into().ok())
            .map(u64::from_le_bytes),
    }
}

/// Returns the length of the frame that begins with these bytes, from its Ethernet header on, bytes: by the length in
/// its header of IP, or as ARP's are. With or without a header of virtio-net before it. `None` for any other.
pub fn frame_length(bytes: &[u8]) -> Option<u64> {
    BEFORE.into_iter().find_map(|before| {
        let frame = bytes.get(before..)?;
        let within = frame.get(ETHERNET..)?;
        let word = |at: usize| {
            within
                .get(at..at + 2)
                .map(|two| usize::from(u16::from_be_bytes([two[0], two[1]])))
        };
        let length = match [*frame.get(TYPE)?, *frame.get(TYPE + 1)?] {
            IPV4 => {
                let first = *within.first().filter(|first| **first >> 4 == 4)?;
                let header = within.get(..usize::from(first & 0xf) * 4);
                header.filter(|header| header.len() >= LEAST_IP && is_whole(header))?;
                word(2)?
            }
            IPV6 => {
                IPV6_HEADER
                    + within
                        .first()
                        .filter(|first| **first >> 4 == 6)
                        .and_then(|_| word(4))?
            }
            ARP => within
                .get(..ARP_OF_IPV4.len())
                .filter(|begin| **begin == ARP_OF_IPV4)
                .map(|_| ARP_BYTES)?,
            _ => return None,
        };
        Some((ETHERNET + length) as u64)
    })
}

/// Finds the payload of a packet whose first bytes these are, with or without a header of virtio-net. `None` for any other than
/// UDP or TCP by IPv4 in one fragment, or where the checksum of the IPv4 header is wrong.
pub fn payload(bytes: &[u8]) -> Option<Payload> {
    BEFORE
        .into_iter()
        .find_map(|before| payload_behind(before, bytes.get(before..)?))
}

fn payload_behind(before: usize, frame: &[u8]) -> Option<Payload> {
    let ip = frame
        .get(ETHERNET..)
        .filter(|_| frame.get(TYPE..ETHERNET) == Some(&IPV4))?;
    let first = *ip.first().filter(|first| **first >> 4 == 4)?;
    let header = usize::from(first & 0xf) * 4;
    let of_ip = ip
        .get(..header)
        .filter(|header| header.len() >= LEAST_IP && is_whole(header))?;
    let total = usize::from(u16::from_be_bytes([of_ip[2], of_ip[3]]));
    // More fragments, or not the first.
    if u16::from_be_bytes([of_ip[6], of_ip[7]]) & 0x3fff != 0 {
        return None;
    }
    let transport = match of_ip[9] {
        UDP => UDP_HEADER,
        TCP => usize::from(ip.get(header + 12)? >> 4) * 4,
        _ => return None,
    };
    if of_ip[9] == TCP && transport < LEAST_TCP {
        return None;
    }
    let length = total.checked_sub(header + transport)?;
    Some(Payload {
        at: before + ETHERNET + header + transport,
        length,
    })
}

/// Returns true if the sum of a header's words, its checksum among them, is right (RFC 1071).
fn is_whole(header: &[u8]) -> bool {
    let sum: u32 = header
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    (folded & 0xffff) + (folded >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet of the kernel's: UDP from 10.0.3.15 to 10.0.3.2, eight bytes of payload, behind so many bytes.
    fn datagram(before: usize) -> Vec<u8> {
        let mut packet = vec![0; before];
        packet.extend([
            0x52, 0x54, 0, 0x76, 0x6d, 0x79, 0x52, 0x54, 0, 0x76, 0x6d, 0x7a, 8, 0,
        ]);
        let mut ip = vec![
            0x45, 0, 0, 36, 0x12, 0x34, 0x40, 0, 64, UDP, 0, 0, 10, 0, 3, 15, 10, 0, 3, 2,
        ];
        let sum: u32 = ip
            .chunks_exact(2)
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(ip);
        packet.extend([0x80, 0, 0, 7, 0, 16, 0, 0]);
        packet.extend(*b"payload!");
        packet
    }

    #[test]
    fn the_payload_is_found_behind_each_header_and_not_of_a_damaged_packet() {
        for before in BEFORE {
            let packet = datagram(before);
            let Payload { at, length } = payload(&packet).unwrap();
            assert_eq!(&packet[at..at + length], b"payload!");
            for byte in before + TYPE..before + ETHERNET + LEAST_IP {
                let mut damaged = packet.clone();
                damaged[byte] ^= 0x11;
                assert_eq!(payload(&damaged), None, "byte {byte}");
            }
        }
    }

    #[test]
    fn a_payload_begins_in_the_first_piece_or_in_the_second() {
        let (packet, word) = (datagram(12), u64::from_le_bytes(*b"payload!"));
        assert_eq!(payload_word(&packet, None, None), Some(word));
        assert_eq!(payload_word(&packet, Some(62), Some(7)), Some(word));
        assert_eq!(payload_word(&packet[..54], Some(54), Some(7)), Some(7));
        // What stands behind a piece is not the packet's.
        assert_eq!(payload_word(&packet, Some(58), Some(7)), None);
        assert_eq!(payload_word(&packet[..58], None, Some(7)), None);
    }

    #[test]
    fn a_frame_is_as_long_as_its_headers_say() {
        for before in BEFORE {
            let packet = datagram(before);
            assert_eq!(frame_length(&packet), Some((packet.len() - before) as u64));
            // Headers alone, as probes read them.
            assert_eq!(
                frame_length(&packet[..before + ETHERNET + LEAST_IP]),
                Some(50)
            );
            let mut arp = packet[..before + TYPE].to_vec();
            arp.extend(ARP);
            arp.extend(ARP_OF_IPV4);
            assert_eq!(frame_length(&arp), Some(42));
            let mut ipv6 = packet[..before + TYPE].to_vec();
            ipv6.extend(IPV6);
            ipv6.extend([0x60, 0, 0, 0, 1, 2]);
            assert_eq!(frame_length(&ipv6), Some(14 + 40 + 0x102));
            ipv6[before + ETHERNET] = 0x40;
            assert_eq!(frame_length(&ipv6), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..100), cut in 0..70_usize) {
            let _ = frame_length(&bytes);
            let _ = payload_word(&bytes, Some(cut as u64), None);
            let packet = datagram(12);
            if let Some(Payload { at, length }) = payload(&packet[..cut.min(packet.len())]) {
                prop_assert_eq!((at, length), (54, 8));
            }
        }
    }
}
