//! Requests of every shape, on every back end.

use crate::guest::{DISK_SECTORS, DiskFile, Guest, disk_arguments, per_us, percentile, summary};
use std::sync::atomic::Ordering;
use vmtax_model::testing::accelerators;
use vmtax_model::testing::skipped;
use vmtax_vm::micro_guest::{
    Completion, Direction, MicroRequest, Order, Pattern, Run, layout, qemu,
};

pub const COMPLETIONS: [Completion; 3] = [Completion::Polled, Completion::Msix, Completion::Intx];

pub fn reads(count: u32, completion: Completion) -> Run {
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
