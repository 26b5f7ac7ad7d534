//! Requests of real guests.

mod guest;
use guest::*;
use vmtax_micro::*;

fn reads(count: u32, completion: Completion) -> Run {
    Run {
        count,
        block: 4096,
        direction: Direction::Read,
        pattern: Pattern::Sequential,
        sectors: DISK_SECTORS,
        completion,
        timeout: 30_000_000_000,
    }
}

#[test]
fn smoke() {
    let disk = DiskFile::new();
    for accelerator in accelerators() {
        let mut guest = Guest::start(accelerator, &disk.arguments("native", ""));
        println!("{accelerator} start {:?}", guest.start);
        for completion in [Completion::Polled, Completion::Msix, Completion::Intx] {
            assert_eq!(guest.carry_out(Order::Run(reads(2000, completion))), State::Done);
            let r = guest.mailbox().requests().unwrap();
            let mut t: Vec<u64> = r.iter().map(|r| r.seen - r.begin).collect();
            t.sort();
            println!("{accelerator} {completion:?} {} p50 {} p99 {}", t.len(), t[1000], t[1980]);
        }
        for kind in ExitKind::ALL {
            assert_eq!(guest.carry_out(Order::Exits { kind, count: 500 }), State::Done, "{kind:?}");
            let mut t = guest.mailbox().exits(kind).unwrap().ticks;
            t.sort();
            println!("{accelerator} {kind:?} p50 {} p99 {}", t[250], t[495]);
        }
        assert_eq!(guest.leave(), Some(qemu::LEFT));
    }
}
