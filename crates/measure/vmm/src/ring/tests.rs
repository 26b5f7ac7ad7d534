use super::*;
use proptest::prelude::*;
use std::time::Duration;

/// Where the bytes of tests lie in the process, as in [`read_bytes`].
const GUEST: u64 = 1 << 20;
/// Addresses of the guest in these tests: the table, and the header of a request in each slot.
const TABLE: u64 = 0x1000;
const HEADERS: u64 = 0x4000;
const SIZE: u16 = 128;

/// A guest with a split queue of a disk and its VMM.
#[derive(Clone)]
struct Guest {
    bytes: Vec<u8>,
    available: u16,
    used: u16,
}

impl Guest {
    const DRIVER: u64 = TABLE + 16 * SIZE as u64;
    const DEVICE: u64 = (Self::DRIVER + 6 + 2 * SIZE as u64).next_multiple_of(64);

    fn new() -> Guest {
        Guest {
            bytes: vec![0; 64 << 10],
            available: 0,
            used: 0,
        }
    }

    fn put(&mut self, address: u64, bytes: &[u8]) {
        let from = address as usize;
        self.bytes[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn descriptor(&mut self, slot: u64, address: u64, length: u32, flags: u16, next: u16) {
        let descriptor = u128::from(address)
            | u128::from(length) << 64
            | u128::from(flags) << 96
            | u128::from(next) << 112;
        self.put(TABLE + 16 * slot, &descriptor.to_le_bytes());
    }

    /// The guest reads 4 KiB of this sector: slots `head` to `head + 2`.
    fn ask(&mut self, head: u16, sector: u64) {
        let slot = u64::from(head);
        let header = HEADERS + 16 * slot;
        self.put(header, &(u128::from(sector) << 64).to_le_bytes());
        self.descriptor(slot, header, 16, 1, head + 1);
        self.descriptor(slot + 1, 0x8000, 4096, 3, head + 2);
        self.descriptor(slot + 2, 0x9000, 1, 2, 0);
        let slot = u64::from(self.available % SIZE);
        self.put(Self::DRIVER + 4 + 2 * slot, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.put(Self::DRIVER + 2, &self.available.to_le_bytes());
    }

    /// The VMM completes a request.
    fn complete(&mut self, head: u16) {
        let slot = u64::from(self.used % SIZE);
        self.put(Self::DEVICE + 4 + 8 * slot, &u64::from(head).to_le_bytes());
        self.used = self.used.wrapping_add(1);
        self.put(Self::DEVICE + 2, &self.used.to_le_bytes());
        let found_empty = self.available.to_le_bytes();
        self.put(Self::DEVICE + 4 + 8 * u64::from(SIZE), &found_empty);
    }

    /// One with so many requests that were served, two at a time.
    fn served(pairs: u16) -> Guest {
        let mut guest = Guest::new();
        for pair in 0..pairs {
            guest.ask(0, 8 * u64::from(pair) + 1);
            guest.ask(3, 8);
            guest.complete(3);
            guest.complete(0);
        }
        guest
    }

    /// A VMM's memory with the queue's addresses.
    fn vmm() -> Vec<u8> {
        let words = [7, TABLE, Self::DRIVER, Self::DEVICE, 7];
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

#[test]
fn a_queue_is_found_and_its_requests_in_flight_are_read() {
    let before = Guest::served(60);
    let mut after = before.clone();
    after.ask(6, 4711);
    after.ask(0, 42);
    let found = read_bytes(&Guest::vmm(), &before.bytes, &after.bytes);
    let [queue] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((queue.format, queue.size), (Format::Split, 128));
    assert_eq!(queue.areas, [TABLE, Guest::DRIVER, Guest::DEVICE]);
    assert_eq!((queue.available, queue.used), (122, 120));
    assert_eq!((queue.in_flight, queue.since_empty), (2, Some(2)));
    let read = |sector| BlockRequest {
        operation: Operation::Read,
        sector,
        bytes: 4096,
    };
    assert_eq!(queue.requests, Some(vec![read(42), read(4711)]));
    assert!(queue.is_disk);
}

#[test]
fn a_queue_of_few_requests_or_of_no_vmm_is_not_confirmed() {
    let found = |vmm: &[u8], pairs, more| {
        let before = Guest::served(pairs);
        read_bytes(vmm, &before.bytes, &Guest::served(pairs + more).bytes).len()
    };
    assert_eq!(found(&Guest::vmm(), 20, 29), 0, "98 requests");
    assert_eq!(found(&Guest::vmm(), 20, 30), 1);
    let of_another_kernel = Guest::vmm()[..24].to_vec();
    assert_eq!(found(&of_another_kernel, 60, 10), 0);
}

/// Name of a forgery, and the function by which a guest writes it into its rings.
type Forgery<'a> = (&'static str, &'a dyn Fn(&mut Guest));

#[test]
fn forged_rings_are_no_queues() {
    let good = Guest::served(60);
    let confirmed = |change: &dyn Fn(&mut Guest)| {
        let mut after = good.clone();
        change(&mut after);
        read_bytes(&Guest::vmm(), &good.bytes, &after.bytes)
    };
    assert_eq!(confirmed(&|_| {}).len(), 1);
    let contradictions: [Forgery; 5] = [
        ("more used than available", &|guest| {
            guest.put(Guest::DEVICE + 2, &[130, 0]);
        }),
        ("an index that jumps", &|guest| {
            guest.put(Guest::DRIVER + 2, &[0, 90]);
        }),
        ("a head outside of the table", &|guest| {
            guest.ask(SIZE, 1);
        }),
        ("a head that is used twice", &|guest| {
            guest.ask(0, 1);
            guest.ask(3, 1);
            guest.complete(0);
            guest.complete(0);
        }),
        ("a head that is available twice", &|guest| {
            guest.ask(0, 1);
            guest.ask(0, 1);
        }),
    ];
    for (what, change) in contradictions {
        assert_eq!(confirmed(change), [], "{what}");
    }
    let not_requests: [Forgery; 4] = [
        ("a chain that loops", &|guest| {
            guest.descriptor(8, 0x9000, 1, 3, 6);
        }),
        ("a header outside of memory", &|guest| {
            guest.descriptor(6, 1 << 50, 16, 1, 7);
        }),
        ("a header at the end of the address space", &|guest| {
            guest.descriptor(6, u64::MAX - 4, 16, 1, 7);
        }),
        ("an indirect table that is too long", &|guest| {
            guest.descriptor(6, 0, u32::MAX - 15, 4, 0);
        }),
    ];
    for (what, change) in not_requests {
        let found = confirmed(&|guest| {
            guest.ask(6, 4711);
            change(guest);
        });
        let [queue] = &found[..] else {
            panic!("{what}: {found:?}")
        };
        let read = (queue.in_flight, queue.is_disk, &queue.requests);
        assert_eq!(read, (1, false, &None), "{what}");
    }
}

/// Two requests stay in flight, while others are served or not.
#[test]
fn a_stall_begins_when_the_last_request_was_used() {
    let mut guest = Guest::served(60);
    let memory = |guest: &Guest| Bytes(vec![(GUEST, guest.bytes.clone()), (0, Guest::vmm())]);
    let range = |start, length| Range { start, length };
    let (mut queues, searched) = find(
        &memory(&guest),
        &[range(0, 40)],
        &[range(GUEST, guest.bytes.len() as u64)],
    );
    assert!(searched.is_complete && searched.bytes == 40, "{searched:?}");
    let begin = Instant::now();
    let mut stall = |guest: &Guest, seconds: u64| {
        let now = begin + Duration::from_secs(seconds);
        queues[0].sample(&memory(guest), now, now + MAX_SAMPLE);
        queues[0].confirmed(now).unwrap().stall
    };
    assert_eq!(stall(&guest, 0), None, "it is empty");
    guest.ask(0, 1);
    guest.ask(3, 1);
    assert_eq!(stall(&guest, 1), Some((Duration::ZERO, 2)));
    guest.ask(6, 1);
    let two = Some((Duration::from_secs(3), 2));
    assert_eq!(stall(&guest, 4), two, "the third is newer");
    guest.complete(3);
    assert_eq!(stall(&guest, 5), Some((Duration::ZERO, 2)));
    guest.complete(0);
    guest.complete(6);
    assert_eq!(stall(&guest, 6), None);
}

/// A packed queue of 8 descriptors, all of which were written, at these positions of its driver and its device.
fn packed(available: u32, used: u32) -> Vec<u8> {
    let mut bytes = vec![0; 16 << 10];
    for slot in 0..8_u32 {
        let lap = |position: u32| (position + 7 - slot) / 8 % 2 == 1;
        let flags = u16::from(lap(available)) << 7 | u16::from(lap(used)) << 15;
        let at = (TABLE + 16 * u64::from(slot)) as usize;
        bytes[at..at + 8].copy_from_slice(&HEADERS.to_le_bytes());
        bytes[at + 14..at + 16].copy_from_slice(&flags.to_le_bytes());
    }
    bytes
}

#[test]
fn positions_of_a_packed_queue_are_those_of_its_bits() {
    let ring = Ring {
        format: Format::Packed,
        size: 8,
        areas: [GUEST + TABLE, GUEST + 0x2000, GUEST + 0x3000],
    };
    for used in 8..40 {
        for in_flight in 0..=8 {
            let memory = Bytes(vec![(GUEST, packed(used + in_flight, used))]);
            let read = ring.read(&memory).unwrap();
            let expected = ((used + in_flight) % 16, used % 16, in_flight);
            assert_eq!((read.available, read.used, read.in_flight()), expected);
            let slots: Vec<u16> = (used..used + in_flight).map(|at| (at % 8) as u16).collect();
            assert_eq!(read.slots, slots);
        }
    }
    let mut torn = packed(12, 9);
    torn[TABLE as usize + 16 * 5 + 14] ^= 1 << 7;
    let read = ring.read(&Bytes(vec![(GUEST, torn)]));
    assert_eq!(read, Err(Fault::Malformed));
}

proptest! {
    /// A guest that writes anything into its rings, also while they are read.
    #[test]
    fn any_bytes_are_survived(changes in proptest::collection::vec((0_usize..0x6000, any::<u8>()), 0..40), pairs in 0_u16..70, is_first in any::<bool>()) {
        let mut before = Guest::served(pairs);
        let mut after = before.clone();
        after.ask(6, 4711);
        for (at, value) in changes {
            after.bytes[at] = value;
            if is_first {
                before.bytes[at] = value;
            }
        }
        for queue in read_bytes(&Guest::vmm(), &before.bytes, &after.bytes) {
            prop_assert!(queue.in_flight <= queue.size);
            prop_assert!(queue.requests.is_none_or(|requests| requests.len() <= queue.size as usize));
        }
    }

    /// Requests of any order: those in flight are the ones that were not completed.
    #[test]
    fn the_requests_in_flight_are_the_guests(steps in proptest::collection::vec(0_u16..20, 150..300)) {
        let mut guest = Guest::new();
        let mut snapshots = Vec::new();
        let mut in_flight: Vec<u16> = Vec::new();
        let ring = Ring {
            format: Format::Split,
            size: u32::from(SIZE),
            areas: [TABLE, Guest::DRIVER, Guest::DEVICE].map(|area| GUEST + area),
        };
        for step in steps {
            let head = 3 * step;
            match in_flight.iter().position(|other| *other == head) {
                Some(at) => {
                    in_flight.remove(at);
                    guest.complete(head);
                }
                None => {
                    in_flight.push(head);
                    guest.ask(head, 1);
                }
            }
            in_flight.sort();
            let read = ring.read(&Bytes(vec![(GUEST, guest.bytes.clone())]));
            snapshots.push((read.unwrap(), in_flight.clone()));
        }
        let mut followed = heads::Heads::new(u32::from(SIZE), &snapshots[0].0).unwrap();
        for (at, (snapshot, truth)) in snapshots.iter().enumerate() {
            // By all samples, and by this one alone.
            if at % 7 == 0 && at > 0 {
                prop_assert!(followed.advance(snapshot).is_ok());
            }
            let alone = heads::Heads::new(u32::from(SIZE), snapshot).unwrap();
            for known in [(at % 7 == 0).then(|| followed.in_flight(snapshot)).flatten(), alone.in_flight(snapshot)].into_iter().flatten() {
                prop_assert_eq!(&known, truth);
            }
        }
    }
}
