//! Orders of the micro-guest: the exchange of stamps, and what it cannot do, which it reports before it goes on.

use crate::guest::{DISK_SECTORS, DiskFile, Guest, disk_arguments, per_us};
use crate::requests::{COMPLETIONS, reads};
use std::sync::atomic::Ordering;
use std::time::Duration;
use vmtax_clock::exchange;
use vmtax_model::Ping;
use vmtax_model::testing::accelerators;
use vmtax_vm::micro_guest::layout::{MAILBOX, words};
use vmtax_vm::micro_guest::{
    Completion, Direction, ExitKind, Failure, MicroError, Order, Run, State,
};

#[test]
fn a_missing_disk_is_said_and_exits_need_none() {
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &[]);
        assert_eq!(
            guest.carry_out(Order::Run(reads(10, Completion::Polled))),
            Err(Failure::NoDisk)
        );
        assert_eq!(
            guest.mailbox().requests(),
            Err(MicroError::Failed(Failure::NoDisk))
        );
        assert_eq!(
            guest.carry_out(Order::Exits {
                kind: ExitKind::Cpuid,
                count: 10
            }),
            Ok(())
        );
        assert!(matches!(
            guest.mailbox().requests(),
            Err(MicroError::NotDone { .. })
        ));
        assert!(matches!(
            guest.mailbox().exits(ExitKind::Eoi),
            Err(MicroError::NotDone { .. })
        ));
        assert_eq!(guest.mailbox().exits(ExitKind::Cpuid).unwrap().len(), 10);
    }
}

#[test]
fn a_range_larger_than_the_disk_is_refused_whole() {
    let disk = DiskFile::new();
    let mut guest = Guest::start("tcg", &disk.arguments("", ""));
    for completion in COMPLETIONS {
        let run = Run {
            sectors: DISK_SECTORS + 8,
            ..reads(10, completion)
        };
        assert_eq!(
            guest.carry_out(Order::Run(run)),
            Err(Failure::SmallDisk {
                sectors: DISK_SECTORS
            })
        );
        let run = Run {
            sectors: DISK_SECTORS + 7,
            ..run
        };
        assert_eq!(
            guest.carry_out(Order::Run(run)),
            Ok(()),
            "what fills no block is not used"
        );
    }
}

#[test]
fn an_error_of_the_disk_is_said_with_its_request() {
    let disk = DiskFile::new();
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &disk.arguments(",readonly=on", ""));
        for completion in COMPLETIONS {
            let run = Run {
                direction: Direction::Write,
                ..reads(10, completion)
            };
            assert_eq!(
                guest.carry_out(Order::Run(run)),
                Err(Failure::Io {
                    request: 0,
                    status: 1
                })
            );
            assert_eq!(guest.carry_out(Order::Run(reads(10, completion))), Ok(()));
        }
    }
}

#[test]
fn without_msix_there_are_the_other_ways() {
    let disk = DiskFile::new();
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &disk.arguments("", ",vectors=0"));
        assert_eq!(
            guest.carry_out(Order::Run(reads(10, Completion::Msix))),
            Err(Failure::NoMsix)
        );
        assert_eq!(
            guest.carry_out(Order::Run(reads(10, Completion::Intx))),
            Ok(())
        );
        assert_eq!(
            guest.carry_out(Order::Run(reads(10, Completion::Polled))),
            Ok(())
        );
    }
}

/// A disk that takes 0.5 s, and a guest that waits for 0.05 s: the late completion, and its interrupt, disturb nothing,
/// whether they come before the next order or because of it.
#[test]
fn a_completion_that_does_not_come_is_given_up() {
    let disk = disk_arguments(
        "file.driver=null-co,file.size=1G,file.latency-ns=500000000,format=raw",
        "",
    );
    let ms = |ms: f64| (ms * 1000.0 * per_us()) as u64;
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &disk);
        for (completion, pause) in COMPLETIONS.into_iter().flat_map(|c| [(c, 0), (c, 600)]) {
            let short = Run {
                timeout: ms(50.0),
                ..reads(3, completion)
            };
            assert_eq!(
                guest.carry_out(Order::Run(short)),
                Err(Failure::Timeout { number: 0 }),
                "{completion:?}"
            );
            std::thread::sleep(Duration::from_millis(pause));
            assert_eq!(
                guest.carry_out(Order::Exits {
                    kind: ExitKind::Inject,
                    count: 100
                }),
                Ok(()),
                "{completion:?}"
            );
            assert_eq!(
                guest.carry_out(Order::Run(reads(1, completion))),
                Ok(()),
                "{completion:?}"
            );
            let took = guest.mailbox().requests().unwrap()[0];
            assert!(took.seen - took.begin > ms(450.0), "{took:?}");
        }
    }
}

#[test]
fn orders_wait_for_one_another() {
    let disk = DiskFile::new();
    let mut guest = Guest::start("tcg", &disk.arguments("", ""));
    guest.mailbox().order(&Order::Ping).unwrap();
    assert!(matches!(
        guest.mailbox().order(&Order::Leave),
        Err(MicroError::Busy { .. })
    ));
    guest
        .mailbox()
        .stamps()
        .0
        .store(u64::MAX, Ordering::Release);
    guest.wait();
    assert_eq!(guest.leave(), Some(0));
}

/// The ROM's page tables are in memory that the host has too.
#[test]
fn a_crash_is_said_with_its_place() {
    let mut guest = Guest::start("tcg", &[]);
    guest
        .memory
        .cell(0x13008)
        .unwrap()
        .store(0, Ordering::Release); // where devices are mapped
    let order = Order::Exits {
        kind: ExitKind::MmioUserRead,
        count: 10,
    };
    let Err(
        crash @ Failure::Trap {
            vector: 14,
            address: 0xf_0000..0x10_0000,
        },
    ) = guest.carry_out(order)
    else {
        panic!("{:?}", guest.mailbox().state());
    };
    assert_eq!(
        guest.mailbox().order(&Order::Leave),
        Err(MicroError::Failed(crash))
    );
}

#[test]
fn stamps_are_exchanged_and_bound_the_offset() {
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &[]);
        // QEMU moves a translated guest's counter by the little that the host's CPUs' counters may differ.
        let held = (0..3).any(|_| {
            let pings = [0, 1, 2].map(|_| ping(&mut guest, accelerator));
            let low = pings.iter().map(|ping| ping.low).max().unwrap();
            let high = pings.iter().map(|ping| ping.high).min().unwrap();
            low <= high
        });
        assert!(held, "{accelerator}: three times the offset moved");
    }
}

fn ping(guest: &mut Guest, accelerator: &str) -> Ping {
    guest.mailbox().order(&Order::Ping).unwrap();
    let (host, guests) = (MAILBOX + words::HOST_STAMP, MAILBOX + words::GUEST_STAMP);
    let ping = exchange(&guest.memory, host, guests, Duration::from_millis(200)).unwrap();
    assert_eq!(guest.wait(), State::Done);
    let width = (ping.high - ping.low) as f64 / per_us() * 1000.0;
    println!(
        "{accelerator}: {} exchanges, offset known to {width:.0} ns",
        ping.exchanges
    );
    assert!(ping.exchanges > 0 && ping.low <= ping.high);
    ping
}
