//! QEMU's traces, made by hand.

use super::{QemuEvents, Template};
use crate::import::{ArgumentKind, Record, argument_field};
use crate::{Counts, Entry, Event, EventId, Events, Lost, TraceError};
use proptest::prelude::*;
use std::path::Path;

const LIST: &str = r#"
# A comment
notify(void *vdev, int n, const char *name) "vdev %p n %d name \"%s\""
disable done(void) ""
vcpu syscall(uint64_t num, int64_t ret) "num=0x%016"PRIx64" ret=%" PRId64
"#;

fn list() -> QemuEvents {
    QemuEvents::parse(LIST).unwrap()
}

#[test]
fn the_list_says_what_events_hold() {
    let qemu = list();
    let formats = qemu.formats();
    let fields = |name: &str| {
        let id = formats.event("qemu", name).unwrap();
        let names = formats
            .get(id)
            .unwrap()
            .fields
            .iter()
            .map(|(name, _)| name.as_str());
        names
            .filter(|name| !name.starts_with("common_"))
            .collect::<Vec<_>>()
    };
    assert_eq!(fields("notify"), ["vdev", "n", "name"]);
    assert_eq!(fields("done"), [""; 0]);
    assert_eq!(fields("syscall"), ["__cpu", "num", "ret"]);
    for wrong in [
        "",
        "# nothing",
        "a(int)",
        "no event",
        "a(int b",
        "a-b(void)",
        "a(void)\na(void)",
    ] {
        assert!(QemuEvents::parse(wrong).is_err(), "{wrong:?}");
    }
    let eleven = format!("a({})", ["int a"; 11].join(", "));
    assert!(QemuEvents::parse(&eleven).is_err());
}

/// The arguments that a line gives under a format: numbers, and texts as they are.
fn read(format: &str, line: &str) -> Option<Vec<(u64, String)>> {
    let mut record = Record::default();
    record.begin(EventId(1), 2, 4);
    Template::parse(format, 4).read(line, &mut record)?;
    let bytes = record.bytes();
    Some(
        (0..4)
            .map(|n| {
                let number = argument_field(n, ArgumentKind::Unsigned)
                    .unsigned(bytes)
                    .unwrap();
                let text = argument_field(n, ArgumentKind::Text).text(bytes);
                (
                    number,
                    text.filter(|_| number > 0xffff)
                        .unwrap_or_default()
                        .into_owned(),
                )
            })
            .collect(),
    )
}

#[test]
fn a_format_is_read_backwards() {
    let numbers = |format: &str, line: &str| {
        read(format, line).map(|v| v.into_iter().map(|(n, _)| n).collect::<Vec<_>>())
    };
    assert_eq!(
        numbers(r#""a %d b %u""#, "a -1 b 7"),
        Some(vec![u64::MAX, 7, 0, 0])
    );
    assert_eq!(
        numbers(r#""p %p q %p""#, "p 0x7f00 q (nil)"),
        Some(vec![0x7f00, 0, 0, 0])
    );
    assert_eq!(
        numbers(r#""x 0x%" PRIx64 " %08x %#x""#, "x 0xff 0000001f 0x10"),
        Some(vec![255, 31, 16, 0])
    );
    assert_eq!(
        numbers(r#""%02x%02x:%o %c""#, "0aff:17 x"),
        Some(vec![10, 255, 15, 120])
    );
    assert_eq!(numbers(r#""%3d%% %zu""#, "  5% 6"), Some(vec![5, 6, 0, 0]));
    // A width from an argument: that argument is not available.
    assert_eq!(
        numbers(r#""%0*"PRIx64 " end""#, "00ff end"),
        Some(vec![0, 255, 0, 0])
    );
    assert_eq!(numbers(r#""a %d""#, "a x"), None);
    assert_eq!(numbers(r#""a %d""#, "a 1 more"), None);
    assert_eq!(numbers(r#""a %d""#, "b 1"), None);
    assert_eq!(numbers(r#""a %d""#, "a 99999999999999999999"), None);
    assert_eq!(numbers("", ""), Some(vec![0; 4]));
    // What QEMU's log has at the end of a line is cut off with it.
    assert_eq!(numbers(r#""a %d ""#, "a 1"), Some(vec![1, 0, 0, 0]));

    let texts = |format: &str, line: &str| {
        read(format, line).map(|v| v.into_iter().map(|(_, t)| t).collect::<Vec<_>>())
    };
    assert_eq!(
        texts(r#""name '%s' of %s""#, "name 'a b' of c d").unwrap()[..2],
        ["a b", "c d"]
    );
    assert_eq!(texts(r#""%s: %s""#, "x: y: z").unwrap()[..2], ["x", "y: z"]);
    assert_eq!(texts(r#""%s""#, "").unwrap()[0], "");
}

/// The time of each entry, and whether it is an event.
fn all(events: &mut Events<'_>) -> (Vec<(u64, bool)>, Counts) {
    let mut got = Vec::new();
    while let Some(entry) = events.next().unwrap() {
        got.push(match entry {
            Entry::Event(Event { ticks, .. }) => (ticks, true),
            Entry::Lost(Lost { ticks, .. }) => (ticks, false),
        });
    }
    let after = events.next().unwrap();
    assert_eq!(after, None);
    (got, *events.counts())
}

/// A file of the simple backend.
struct File(Vec<u8>);

impl File {
    fn new() -> File {
        File(
            [u64::MAX, 0xf2b1_77cb_0aa4_29b4, 4]
                .into_iter()
                .flat_map(u64::to_le_bytes)
                .collect(),
        )
    }

    fn mapping(mut self, number: u64, name: &str) -> File {
        self.0
            .extend([0, number].into_iter().flat_map(u64::to_le_bytes));
        self.0.extend((name.len() as u32).to_le_bytes());
        self.0.extend(name.as_bytes());
        self
    }

    fn event(mut self, number: u64, ticks: u64, arguments: &[u8]) -> File {
        self.0
            .extend([1, number, ticks].into_iter().flat_map(u64::to_le_bytes));
        self.0.extend((24 + arguments.len() as u32).to_le_bytes());
        self.0.extend(77_u32.to_le_bytes());
        self.0.extend(arguments);
        self
    }

    fn notify(self, ticks: u64, vdev: u64, n: i32, name: &str) -> File {
        let mut arguments = [vdev, n as u64]
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .collect::<Vec<_>>();
        arguments.extend((name.len() as u32).to_le_bytes());
        arguments.extend(name.as_bytes());
        self.event(9, ticks, &arguments)
    }
}

#[test]
fn a_simple_file_gives_its_events() {
    let qemu = list();
    let file = File::new()
        .mapping(9, "notify")
        .mapping(3, "done")
        .mapping(4, "elsewhere");
    let file = file.notify(100, 0x55, -1, "vda").event(3, 120, &[]).event(
        u64::MAX - 1,
        130,
        &5_u64.to_le_bytes(),
    );
    let file = file
        .event(4, 140, &[])
        .event(5, 140, &[])
        .event(3, 150, &[0; 8])
        .event(9, 150, &[0; 8])
        .notify(150, 1, 2, "");

    let mut events = qemu.simple_from(file.0.as_slice(), Path::new("t")).unwrap();
    let id = qemu.formats().event("qemu", "notify").unwrap();
    let field = |name: &str| qemu.formats().field(id, name).unwrap();
    let Some(Entry::Event(event)) = events.next().unwrap() else {
        panic!("no event")
    };
    assert_eq!((event.ticks, event.id, event.pid), (100, id, 77));
    assert_eq!(
        (
            field("vdev").unsigned(event.data),
            field("n").signed(event.data)
        ),
        (Some(0x55), Some(-1))
    );
    assert_eq!(field("name").text(event.data).as_deref(), Some("vda"));
    assert_eq!(field("common_pid").signed(event.data), Some(77));

    let (rest, counts) = all(&mut events);
    assert_eq!(rest, [(120, true), (130, false), (150, true)]);
    assert_eq!(
        counts,
        Counts {
            events: 3,
            losses: 1,
            lost: 5,
            unknown: 2,
            short: 2,
            ..Counts::default()
        }
    );
}

#[test]
fn a_damaged_simple_file_ends_with_a_loss() {
    let qemu = list();
    let whole = File::new().mapping(9, "notify").notify(100, 1, 2, "vda").0;
    let (mapped, good) = (File::new().mapping(9, "notify").0.len(), whole.len());
    for cut in mapped..good {
        let (got, counts) = all(&mut qemu.simple_from(&whole[..cut], Path::new("t")).unwrap());
        let damaged = cut > mapped;
        assert_eq!(
            (got.len(), counts.damaged_pages),
            (usize::from(damaged), u64::from(damaged)),
            "{cut}"
        );
    }
    let mut length = whole.clone();
    for wrong in [0_u32, 23, u32::MAX] {
        length[mapped + 24..mapped + 28].copy_from_slice(&wrong.to_le_bytes());
        assert_eq!(
            all(&mut qemu.simple_from(length.as_slice(), Path::new("t")).unwrap())
                .1
                .damaged_pages,
            1
        );
    }
    let kind = [whole.as_slice(), &2_u64.to_le_bytes()].concat();
    let (got, counts) = all(&mut qemu.simple_from(kind.as_slice(), Path::new("t")).unwrap());
    assert_eq!((got.len(), counts.events, counts.losses), (2, 1, 1));

    for (file, says) in [
        (&whole[..23], "not a file of QEMU's simple"),
        (b"".as_slice(), "not a file of QEMU's simple"),
    ] {
        let error = qemu.simple_from(file, Path::new("the-file")).err().unwrap();
        assert!(
            matches!(error, TraceError::Damaged { .. }) && error.to_string().contains(says),
            "{error}"
        );
    }
    let mut old = whole;
    old[16] = 3;
    assert!(
        qemu.simple_from(old.as_slice(), Path::new("t"))
            .err()
            .unwrap()
            .to_string()
            .contains("version 3")
    );
}

#[test]
fn lines_of_a_log_give_events() {
    let qemu = list();
    let log = "\
qemu: warning: something else
12@1700000000.000123:notify vdev 0x55 n -1 name \"a b\"
13@1700000000.000125:done 
12@1700000000.000125:unheard of
12@1700000000.000125:notify vdev gone
12@1700000000.25:done
12@99999999999999999999.000125:done
12@1700000000.000129:syscall cpu=0x7f num=0x0000000000000010 ret=-2\r\n";
    let mut events = qemu.log_from(log.as_bytes(), Path::new("t"));
    let Some(Entry::Event(event)) = events.next().unwrap() else {
        panic!("no event")
    };
    let id = qemu.formats().event("qemu", "notify").unwrap();
    let field = |name: &str| qemu.formats().field(id, name).unwrap();
    assert_eq!(
        (event.ticks, event.id, event.pid),
        (1_700_000_000_000_123_000, id, 12)
    );
    assert_eq!(
        (
            field("vdev").unsigned(event.data),
            field("n").signed(event.data)
        ),
        (Some(0x55), Some(-1))
    );
    assert_eq!(field("name").text(event.data).as_deref(), Some("a b"));
    let (rest, counts) = all(&mut events);
    assert_eq!(
        rest.iter()
            .map(|(ticks, _)| ticks % 1_000_000)
            .collect::<Vec<_>>(),
        [125_000, 129_000]
    );
    assert_eq!(
        counts,
        Counts {
            events: 3,
            unknown: 4,
            short: 1,
            ..Counts::default()
        }
    );
}

#[test]
fn a_log_without_times_is_told() {
    let qemu = list();
    let error = qemu
        .log_from(
            "notify vdev 0x55 n 1 name \"a\"\n".as_bytes(),
            Path::new("q.log"),
        )
        .next()
        .unwrap_err();
    assert!(
        error.to_string().contains("q.log") && error.to_string().contains("-msg timestamp=on"),
        "{error}"
    );
}

#[test]
fn a_line_without_end_takes_no_memory() {
    let qemu = list();
    let endless = std::io::Read::chain(
        std::io::Read::take(std::io::repeat(b'x'), 10 << 20),
        "\n1@1.000000:done".as_bytes(),
    );
    let (got, counts) = all(&mut qemu.log_from(endless, Path::new("t")));
    assert_eq!(
        got.iter().map(|(_, event)| *event).collect::<Vec<_>>(),
        [false, true]
    );
    assert_eq!((counts.damaged_pages, counts.losses), (1, 1));
}

proptest! {
    #[test]
    fn any_simple_file_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400), changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)) {
        let qemu = list();
        let mut file = File::new().mapping(9, "notify").notify(1, 2, 3, "name").notify(2, 2, 3, "name").0;
        for (at, with) in changes {
            let at = at.index(file.len() - 24) + 24;
            file[at] = with;
        }
        file.extend(&bytes);
        if let Ok(mut events) = qemu.simple_from(file.as_slice(), Path::new("t")) {
            let (got, counts) = all(&mut events);
            prop_assert_eq!(got.len() as u64, counts.events + counts.losses);
        }
        let _ = qemu.simple_from(bytes.as_slice(), Path::new("t"));
    }

    #[test]
    fn any_log_and_list_are_survived(line in ".{0,80}", format in "[%0-9.*a-zA-Z \"\\\\]{0,40}") {
        let qemu = list();
        let _ = qemu.log_from(line.as_bytes(), Path::new("t")).next();
        let stamped = format!("1@1.000000:notify {line}\n1@2.000000:{line}");
        let _ = all(&mut qemu.log_from(stamped.as_bytes(), Path::new("t")));
        let _ = QemuEvents::parse(&line);
        let _ = read(&format, &line);
        let _ = QemuEvents::parse(&format!("name(int a, char *b) {format}"));
    }

    /// Numbers that printf printed are read back.
    #[test]
    fn numbers_come_back(a in any::<i64>(), b in any::<u64>(), c in any::<u8>(), d in any::<u64>()) {
        let line = format!("a {a} b 0x{b:x} {c:02x}{d:#x}.");
        let got = read(r#""a %" PRId64 " b 0x%" PRIx64 " %02x%#lx.""#, &line).unwrap();
        prop_assert_eq!(got.into_iter().map(|(n, _)| n).collect::<Vec<_>>(), vec![a as u64, b, u64::from(c), d]);
    }
}

#[test]
fn the_list_of_block_requests_is_sound() {
    assert_eq!(QemuEvents::block_requests().formats().iter().count(), 5);
}
