//! Format files and the fields they describe.

use crate::testing::format;
use crate::{EventId, Field, Formats};
use proptest::prelude::*;

/// A field declared so, at `offset` with `size`.
fn field(declaration: &str, offset: u32, size: u32, signed: bool) -> Field {
    let line = format!(
        "field:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{};",
        u8::from(signed)
    );
    let mut formats = Formats::default();
    formats.add("test", &format("event", 1, &[&line])).unwrap();
    formats.field(EventId(1), "x").expect("declared as x")
}

#[test]
fn a_kernels_own_text_is_understood() {
    let mut formats = Formats::default();
    formats
        .add(
            "sched",
            include_str!("../../tests/data/host/formats/sched.sched_switch"),
        )
        .unwrap();
    let id = formats.event("sched", "sched_switch").unwrap();
    assert_eq!(formats.get(id).unwrap().name, "sched_switch");
    let names: Vec<&str> = formats
        .get(id)
        .unwrap()
        .fields
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let common = [
        "common_type",
        "common_flags",
        "common_preempt_count",
        "common_pid",
    ];
    let own = [
        "prev_comm",
        "prev_pid",
        "prev_prio",
        "prev_state",
        "next_comm",
        "next_pid",
        "next_prio",
    ];
    assert_eq!(names, [common.as_slice(), &own].concat());
    assert_eq!(formats.event("sched", "sched_wakeup"), None);
    assert_eq!(formats.event("raw", "sched_switch"), None);
    assert_eq!(formats.field(id, "state"), None);
    assert_eq!(formats.field(EventId(1), "prev_state"), None);
}

#[test]
fn numbers_of_each_size() {
    let data = [0xff; 16];
    for (size, unsigned) in [(1, 0xff), (2, 0xffff), (4, 0xffff_ffff), (8, u64::MAX)] {
        let x = field("int x", 8, size, true);
        assert_eq!(
            (x.unsigned(&data), x.signed(&data)),
            (Some(unsigned), Some(-1))
        );
        let x = field("unsigned x", 8, size, false);
        assert_eq!(
            (x.unsigned(&data), x.signed(&data)),
            (Some(unsigned), Some(unsigned as i64))
        );
        assert_eq!(x.unsigned(&data[..7 + size as usize]), None);
        assert_eq!(x.text(&data), None);
    }
    assert_eq!(field("struct s x", 8, 3, false).unsigned(&data), None);
    assert_eq!(
        field("const char * x", 8, 8, false).unsigned(&data),
        Some(u64::MAX)
    );
    assert_eq!(
        field("unsigned long *x", 8, 8, false).unsigned(&data),
        Some(u64::MAX)
    );
}

#[test]
fn arrays_and_their_elements() {
    let args = field("unsigned long x[6]", 8, 48, false);
    let mut data = vec![0; 8];
    (1..=8_u64).for_each(|n| data.extend_from_slice(&n.to_le_bytes()));
    assert_eq!(args.unsigned(&data), None);
    let elements: Vec<_> = (0..7)
        .map(|i| args.element(i).and_then(|f| f.unsigned(&data)))
        .collect();
    assert_eq!(
        elements,
        [Some(1), Some(2), Some(3), Some(4), Some(5), Some(6), None]
    );
    assert_eq!(args.element(u32::MAX), None);
    // Without a length: what the record has.
    data.truncate(56);
    let open = field("unsigned long x[]", 8, 0, false);
    assert_eq!(open.element(5).and_then(|f| f.unsigned(&data)), Some(6));
    assert_eq!(open.element(6).and_then(|f| f.unsigned(&data)), None);
    assert_eq!(open.bytes(&data).map(<[u8]>::len), Some(48));
    assert_eq!(field("int x", 8, 4, true).element(0), None);
}

#[test]
fn text_inside_and_outside_the_fixed_part() {
    let comm = field("char x[16]", 8, 16, false);
    let mut data = vec![0; 8];
    data.extend_from_slice(b"kworker/0:1\0left");
    assert_eq!(comm.text(&data).as_deref(), Some("kworker/0:1"));
    assert_eq!(comm.text(&data[..23]), None);
    assert_eq!(
        field("char x[TASK_COMM_LEN]", 8, 16, false)
            .text(&data)
            .as_deref(),
        Some("kworker/0:1")
    );
    assert_eq!(
        field("char x[]", 8, 0, false).text(&data).as_deref(),
        Some("kworker/0:1")
    );

    let located = |place: u32| [&[0; 8], place.to_le_bytes().as_slice(), b"vda\0\xffz"].concat();
    let data_loc = field("__data_loc char[] x", 8, 4, false);
    assert_eq!(
        data_loc.text(&located(4 << 16 | 12)).as_deref(),
        Some("vda")
    );
    assert_eq!(
        data_loc.text(&located(2 << 16 | 16)).as_deref(),
        Some("\u{fffd}z")
    );
    assert_eq!(data_loc.text(&located(0)).as_deref(), Some(""));
    assert_eq!(data_loc.text(&located(7 << 16 | 12)), None);
    assert_eq!(data_loc.text(&located(u32::MAX)), None);
    assert_eq!(data_loc.unsigned(&located(0)), None);
    assert_eq!(
        field("__rel_loc char[] x", 8, 4, false)
            .text(&located(4 << 16))
            .as_deref(),
        Some("vda")
    );
}

#[test]
fn what_is_no_format_is_told() {
    let good = format("event", 1, &["field:int x;\toffset:8;\tsize:4;\tsigned:1;"]);
    assert!(Formats::default().add("s", &good).is_ok());
    for (from, to) in [
        ("name: event", "name:"),
        ("ID: 1", ""),
        ("ID: 1", "ID: 65536"),
        ("ID: 1", "ID: -1"),
        ("offset:8", "offset:-8"),
        ("offset:8;", ""),
        ("size:4;\tsigned:1;\n\nprint", "size:99999999;\n\nprint"),
        ("int x", "int (*)(int)"),
        ("common_pid", "common_tid"),
        ("common_pid;\toffset:4", "common_pid;\toffset:8"),
    ] {
        let text = good.replace(from, to);
        assert!(
            text != good && Formats::default().add("s", &text).is_err(),
            "{from} {to}"
        );
    }
    let mut formats = Formats::default();
    formats.add("s", &good).unwrap();
    assert_eq!(
        formats.add("t", &good.replace("event", "b")),
        Err("duplicate ID 1, also of s.event".to_owned())
    );
}

proptest! {
    #[test]
    fn any_text_is_survived(text in ".{0,300}", line in "(field|ID|name|print fmt): ?[a-z_\\[\\]0-9 ]{0,30};(\\toffset:[0-9]{1,11};)?(\\tsize:[0-9]{1,11};)?") {
        let mut formats = Formats::default();
        let _ = formats.add("s", &text);
        let _ = formats.add("s", &format("event", 1, &[&line]));
        let _ = crate::PageLayout::parse(&line);
    }

    /// No place and no record makes a field read outside.
    #[test]
    fn any_record_is_survived(
        kind in prop::sample::select(vec!["int x", "char x[3]", "long x[]", "__data_loc char[] x", "__rel_loc u8[] x", "long x[2]"]),
        offset in 0..40u32, size in 0..40u32, data in proptest::collection::vec(any::<u8>(), 0..40), index in any::<u32>(),
    ) {
        let x = field(kind, offset, size, true);
        let _ = (x.unsigned(&data), x.signed(&data), x.text(&data), x.bytes(&data));
        let _ = x.element(index).and_then(|f| f.signed(&data));
        let _ = x.element(index % 8).and_then(|f| f.signed(&data));
    }
}
