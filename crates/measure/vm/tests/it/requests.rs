//! Requests of every shape, on every back end; and orders: the exchange of stamps, and what the micro-guest cannot do, which it reports
//! before it goes on.

use crate::guest::{DISK_SECTORS, DiskFile, Guest, disk_arguments, per_us, percentile, summary};
use std::sync::atomic::Ordering;
use std::time::Duration;
use vmtax_clock::exchange;
use vmtax_model::Ping;
use vmtax_model::testing::{accelerators, skipped};
use vmtax_vm::micro_guest::layout::{self, MAILBOX, words};
use vmtax_vm::micro_guest::{
    Completion, Direction, ExitKind, Failure, MicroError, MicroRequest, Order, Pattern, Run, State,
    qemu,
};

const COMPLETIONS: [Completion; 3] = [Completion::Polled, Completion::Msix, Completion::Intx];

fn reads(count: u32, completion: Completion) -> Run {
    Run {
        count,
        block: 4096,
        direction: Direction::Read,
        pattern: Pattern::Sequential,
        sectors: DISK_SECTORS,
        completion,
        timeout: 1 << 36,
    }
}

fn carry_out(guest: &mut Guest, run: Run) -> Vec<MicroRequest> {
    guest.carry_out(Order::Run(run)).unwrap();
    let requests = guest.mailbox().requests().unwrap();
    assert_eq!(requests.len(), run.count as usize);
    assert!(
        requests
            .iter()
            .all(|r| r.interrupt.is_some() == (run.completion != Completion::Polled))
    );
    assert_eq!(
        requests.iter().map(|r| r.place).collect::<Vec<_>>(),
        sectors(&run)
    );
    requests
}

/// Returns the sectors that the run should access, calculated without the crate.
fn sectors(run: &Run) -> Vec<u64> {
    let sectors = u64::from(run.block / 512);
    let blocks = run.sectors / sectors;
    let mut draw = 0u64;
    let block = |request: u64| match run.pattern {
        Pattern::Sequential => request % blocks,
        Pattern::Stride(stride) => request * stride % blocks,
        Pattern::Random { seed } => {
            draw = if request == 0 { seed } else { draw };
            draw = draw
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            ((u128::from(draw >> 32) * u128::from(blocks)) >> 32) as u64
        }
    };
    (0..u64::from(run.count))
        .map(block)
        .map(|block| block * sectors)
        .collect()
}

/// 400 reads a cell: every way of asynchronous I/O that QEMU has, where its work is done, and how the notification gets
/// there.
#[test]
fn reads_on_every_back_end() {
    let disk = DiskFile::new();
    println!(
        "{:44} {:>10} {:>10} {:>10} {:>10}",
        "begin to seen", "p50", "p90", "p99", "max"
    );
    for accelerator in accelerators() {
        for (place, device, object) in [
            ("", "", ""),
            (" iothread", ",iothread=io0", "iothread,id=io0"),
            (" no ioeventfd", ",ioeventfd=off", ""),
        ] {
            for aio in ["threads", "native", "io_uring"] {
                if aio == "io_uring" && !io_uring() {
                    skipped("aio=io_uring: the kernel does not allow it");
                    continue;
                }
                let mut arguments = disk.arguments(&format!(",aio={aio}"), device);
                if !object.is_empty() {
                    arguments.splice(0..0, ["-object".to_owned(), object.to_owned()]);
                }
                let mut guest = Guest::start(accelerator, &arguments);
                println!("{accelerator} {aio}{place}: ready after {:?}", guest.start);
                for completion in COMPLETIONS {
                    let requests = carry_out(&mut guest, reads(400, completion));
                    let total: Vec<u64> = requests.iter().map(|r| r.seen - r.begin).collect();
                    let notify: Vec<u64> = requests.iter().map(|r| r.notified - r.begin).collect();
                    let name = format!("{accelerator} {aio}{place} {completion:?}");
                    println!("{name:44} {}", summary(&total));
                    println!("{:44} {}", "  of which to notified", summary(&notify));
                    let us = |ticks: u64| ticks as f64 / per_us();
                    let (total, notify) = (percentile(&total, 50), percentile(&notify, 50));
                    assert!(
                        (1.0..100_000.0).contains(&us(total)) && notify > 0,
                        "{name}: {total} {notify} ticks"
                    );
                    let interrupts = requests
                        .iter()
                        .filter(|r| r.interrupt > Some(r.begin))
                        .count();
                    assert_eq!(
                        interrupts,
                        if completion == Completion::Polled {
                            0
                        } else {
                            requests.len()
                        }
                    );
                }
                assert_eq!(guest.leave(), Some(qemu::LEFT));
            }
        }
    }
}

/// A container may forbid it, a kernel may be without it.
fn io_uring() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .is_ok_and(|said| said.trim() == "0")
}

#[test]
fn every_pattern_reads_the_blocks_it_should() {
    let disk = DiskFile::new();
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &disk.arguments("", ""));
        for block in [512, 4096, 12 << 10, 64 << 10] {
            for (pattern, sectors) in [
                (Pattern::Sequential, 300 * 8),
                (Pattern::Sequential, u64::from(block / 512)),
                (Pattern::Stride(7), DISK_SECTORS),
                (Pattern::Stride(200), DISK_SECTORS - 1),
                (Pattern::Random { seed: 5 }, DISK_SECTORS),
                (Pattern::Random { seed: u64::MAX }, 3 * 128),
            ] {
                let run = Run {
                    block,
                    pattern,
                    sectors,
                    ..reads(500, Completion::Polled)
                };
                let requests = carry_out(&mut guest, run);
                // The buffer holds what the last request read: words that each name their sector.
                let last = requests.last().unwrap().place;
                let read = guest.memory.words()[layout::BUFFER / 8..]
                    .iter()
                    .map(|word| word.load(Ordering::Acquire));
                let on_disk = (0..u64::from(block) / 8).map(|word| last + word / 64);
                assert!(
                    read.take(block as usize / 8).eq(on_disk),
                    "{run:?}: the data is not sector {last}'s"
                );
            }
        }
    }
}

#[test]
fn writes_land_on_the_disk_and_nowhere_else() {
    for accelerator in accelerators() {
        for completion in COMPLETIONS {
            let disk = DiskFile::new();
            let mut guest = Guest::start(accelerator, &disk.arguments("", ""));
            let pattern = Pattern::Stride(5);
            let run = Run {
                direction: Direction::Write,
                pattern,
                block: 8192,
                ..reads(100, completion)
            };
            let requests = carry_out(&mut guest, run);
            let mut expected: Vec<u64> =
                (0..DISK_SECTORS).flat_map(|sector| [sector; 64]).collect();
            for MicroRequest { place: sector, .. } in requests {
                let at = sector as usize * 64;
                expected[at..at + 1024].fill(layout::WRITE_MARK);
                expected[at] = sector;
            }
            assert_eq!(guest.leave(), Some(qemu::LEFT));
            assert!(
                disk.words() == expected,
                "{accelerator} {completion:?}: other bytes than were written"
            );
        }
    }
}

/// A disk that cannot flush: QEMU flushes after each write for a driver that does not say it can do so itself.
#[test]
fn writes_do_not_wait_for_a_flush() {
    let disk = DiskFile::new();
    let path = disk.path.display();
    let drive = format!(
        "driver=raw,file.driver=blkdebug,file.image.driver=file,file.image.filename={path}"
    );
    let drive = format!("{drive},file.inject-error.0.event=flush_to_disk");
    let mut guest = Guest::start("tcg", &disk_arguments(&drive, ""));
    carry_out(
        &mut guest,
        Run {
            direction: Direction::Write,
            ..reads(10, Completion::Polled)
        },
    );
}

/// The most that one order may ask for, and queues of other sizes than QEMU's own.
#[test]
fn many_requests_and_other_queues() {
    let drive = "file.driver=null-co,file.size=1G,format=raw";
    for queue in ["4", "128", "1024"] {
        let arguments = disk_arguments(drive, &format!(",queue-size={queue}"));
        let mut guest = Guest::start(accelerators()[0], &arguments);
        // Each place of the ring is used again.
        carry_out(&mut guest, reads(3_000, Completion::Polled));
    }
    // More than the rings' indices of 16 bits can distinguish.
    const { assert!(layout::MAX_COUNT > 1 << 16) };
    // A thread of its own polls, where the main loop would be woken for each.
    let mut arguments = vec!["-object".to_owned(), "iothread,id=io0".to_owned()];
    arguments.extend(disk_arguments(drive, ",iothread=io0"));
    let mut guest = Guest::start(accelerators()[0], &arguments);
    carry_out(&mut guest, reads(layout::MAX_COUNT, Completion::Polled));
}

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
