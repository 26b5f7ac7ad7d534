//! Each kind of entry of a page, made by hand.

use crate::Counts;
use crate::testing::{Collected, Page, layout, read, record};
use Collected::{Lost, Number};
use proptest::prelude::*;

fn one(page: Page) -> (Vec<Collected>, Counts) {
    read(&[&page.bytes()])
}

#[test]
fn deltas_add_up_from_the_pages_stamp() {
    let longest = (1 << 27) - 1;
    let (got, counts) = one(Page::new(1000)
        .number(0, 1)
        .number(5, 2)
        .number(0, 3)
        .number(longest, 4));
    let last = 1005 + u64::from(longest);
    assert_eq!(
        got,
        [
            Number(1000, 1),
            Number(1005, 2),
            Number(1005, 3),
            Number(last, 4)
        ]
    );
    assert_eq!(
        counts,
        Counts {
            events: 4,
            ..Counts::default()
        }
    );
}

#[test]
fn a_time_extend_adds_to_the_event_behind_it() {
    let (got, _) = one(Page::new(1000)
        .number(0, 1)
        .extend(1 << 30 | 3)
        .number(0, 2)
        .extend(1 << 27)
        .number(4, 3));
    let second = 1003 + (1 << 30);
    assert_eq!(
        got,
        [
            Number(1000, 1),
            Number(second, 2),
            Number(second + (1 << 27) + 4, 3)
        ]
    );
}

#[test]
fn an_absolute_stamp_replaces_the_time_but_its_highest_bits() {
    let (got, _) = one(Page::new(1000)
        .absolute(77_777_777_777)
        .number(0, 1)
        .number(2, 2));
    assert_eq!(got, [Number(77_777_777_777, 1), Number(77_777_777_779, 2)]);

    let high = 0b10110 << 59;
    let (got, counts) = one(Page::new(high | 1000)
        .absolute(high | 5000)
        .number(0, 1)
        .absolute(high | 6000)
        .number(1, 2));
    assert_eq!(got, [Number(high | 5000, 1), Number(high | 6001, 2)]);
    assert_eq!(counts.backwards + counts.leaps, 0);
    // A clock without high bits that was set back is no overflow.
    let (got, counts) = one(Page::new(5000).number(0, 1).absolute(4000).number(0, 2));
    assert_eq!(
        (got, counts.backwards),
        (vec![Number(5000, 1), Number(4000, 2)], 1)
    );
    // The 59 bits overflowed since the time before.
    let before = high | ((1 << 59) - 10);
    let (got, _) = one(Page::new(before).number(0, 1).absolute(3).number(0, 2));
    assert_eq!(got, [Number(before, 1), Number(high + (1 << 59) + 3, 2)]);
}

#[test]
fn an_event_thrown_away_still_moves_the_time() {
    let (got, _) = one(Page::new(1000).number(0, 1).discarded(10, 4).number(5, 2));
    assert_eq!(got, [Number(1000, 1), Number(1015, 2)]);
    // The kernel writes 1 for 0, since 0 would be the end of the page.
    let (got, _) = one(Page::new(1000).number(0, 1).discarded(1, 4).number(5, 2));
    assert_eq!(got, [Number(1000, 1), Number(1005, 2)]);
}

#[test]
fn padding_without_a_delta_ends_the_page() {
    let (got, counts) = one(Page::new(1000).number(0, 1).header(29, 0).number(5, 2));
    assert_eq!(got, [Number(1000, 1)]);
    assert_eq!(counts.damaged_pages, 0);
}

#[test]
fn long_records_carry_their_length() {
    let mut long = record(9);
    long.resize(2000, 0xaa);
    let mut longer = record(10);
    longer.resize(28 * 4, 0xbb);
    let (got, counts) = one(Page::new(0).event(1, &long).event(1, &longer).number(1, 11));
    assert_eq!(got, [Number(1, 9), Number(2, 10), Number(3, 11)]);
    assert_eq!(counts.damaged_pages, 0);
}

#[test]
fn missed_events_are_told_before_the_page_that_follows_them() {
    let mut pages = Page::new(10).number(0, 1).bytes();
    pages.extend(Page::new(20).number(0, 2).missed(Some(204)).bytes());
    pages.extend(Page::new(30).number(1, 3).missed(None).bytes());
    pages.extend(Page::new(40).number(0, 4).missed(Some(u64::MAX)).bytes());
    let (got, counts) = read(&[&pages]);
    let expected = [
        Number(10, 1),
        Lost(20, Some(204)),
        Number(20, 2),
        Lost(30, None),
        Number(31, 3),
        Lost(40, None),
        Number(40, 4),
    ];
    assert_eq!(got, expected);
    assert_eq!(
        counts,
        Counts {
            events: 4,
            losses: 3,
            lost: 204,
            ..Counts::default()
        }
    );
}

#[test]
fn a_page_that_makes_no_sense_is_a_loss_and_the_next_is_read() {
    let good = |n| Page::new(100 * n).number(0, n);
    let damaged = [
        good(2).commit(4081).bytes(),
        good(2).commit(1 << 40).bytes(),
        good(2).commit(3 << 30 | 4081).bytes(),
        Page::new(200).header(28, 0).number(0, 2).commit(8).bytes(), // a record over the end
        Page::new(200).header(0, 0).word(3).bytes(), // a length without its own four bytes
        Page::new(200).header(0, 0).word(u32::MAX).bytes(),
        Page::new(200).header(29, 5).word(u32::MAX).bytes(),
        Page::new(200).header(29, 5).bytes(),
        Page::new(200).header(30, 5).bytes(),
        Page::new(200).header(31, 5).bytes(),
        Page::new(200).header(0, 5).bytes(),
        Page::new(200).word(0).commit(3).bytes(),
    ];
    for (n, middle) in damaged.iter().enumerate() {
        let pages = [good(1).bytes(), middle.clone(), good(3).bytes()].concat();
        let (got, counts) = read(&[&pages]);
        assert_eq!(
            got,
            [Number(100, 1), Lost(100, None), Number(300, 3)],
            "damage {n}"
        );
        assert_eq!(
            counts,
            Counts {
                events: 2,
                losses: 1,
                damaged_pages: 1,
                ..Counts::default()
            },
            "damage {n}"
        );
    }
}

#[test]
fn what_is_before_a_damage_in_a_page_stays() {
    let (got, counts) = one(Page::new(100).number(0, 1).header(0, 0).word(0));
    assert_eq!(got, [Number(100, 1), Lost(100, None)]);
    assert_eq!(counts.damaged_pages, 1);
}

#[test]
fn a_cut_page_is_a_loss() {
    let pages = [
        Page::new(100).number(0, 1).bytes(),
        Page::new(200).number(0, 2).bytes(),
    ]
    .concat();
    for cut in [4097, 4096 + 15, 4096 + 40, 8191] {
        let (got, counts) = read(&[&pages[..cut]]);
        assert_eq!(got, [Number(100, 1), Lost(100, None)]);
        assert_eq!(counts.damaged_pages, 1);
    }
    assert_eq!(read(&[&pages[..4096]]).0, [Number(100, 1)]);
    assert_eq!(read(&[&[]]), (vec![], Counts::default()));
}

#[test]
fn the_layout_says_where_things_are() {
    use crate::PageLayout;
    let text = crate::testing::HEADER_PAGE;
    // A 32-bit kernel, and one with larger sub-buffers.
    let narrow = text
        .replace("commit;\toffset:8;\tsize:8", "commit;\toffset:8;\tsize:4")
        .replace("16;\tsize:4080", "12;\tsize:4084");
    assert_eq!(PageLayout::parse(&narrow).unwrap().size(), 4096);
    assert_eq!(
        PageLayout::parse(&text.replace("4080", "16368"))
            .unwrap()
            .size(),
        16384
    );
    for (from, to) in [
        ("timestamp", "time"),
        ("size:8;\tsigned:0", "size:4;\tsigned:0"),
        ("size:4080", "size:4294967295"),
        ("size:4080", "size:0"),
        ("offset:16", "offset:9"),
        ("offset:16", "offset:"),
        ("commit;\toffset:8;\tsize:8", "commit;\toffset:8;\tsize:2"),
    ] {
        assert!(PageLayout::parse(&text.replace(from, to)).is_err(), "{to}");
    }
    assert!(PageLayout::parse("").is_err());
}

#[test]
fn a_narrow_commit_field_holds_flags_and_count_too() {
    let text = crate::testing::HEADER_PAGE
        .replace("commit;\toffset:8;\tsize:8", "commit;\toffset:8;\tsize:4")
        .replace("16;\tsize:4080", "12;\tsize:4084");
    let layout = crate::PageLayout::parse(&text).unwrap();
    let mut page = vec![0; 4096];
    page[8..12].copy_from_slice(&(3_u32 << 30 | 20).to_le_bytes());
    page[32..36].copy_from_slice(&99_u32.to_le_bytes());
    assert_eq!(layout.begin(&page).unwrap().missed, Some(Some(99)));
    page[32..36].fill(0xff);
    assert_eq!(layout.begin(&page).unwrap().missed, Some(None));
}

proptest! {
    /// Events of any spacing come back with their times, whichever way the kernel had to write them.
    #[test]
    fn times_come_back(start in any::<u64>().prop_map(|t| t >> 2), gaps in proptest::collection::vec((0..63u32, any::<u64>(), 0..3u8), 1..80)) {
        let mut page = Page::new(start);
        let (mut now, mut expected) = (start, Vec::new());
        for (n, (bits, gap, absolute)) in (0..).zip(gaps) {
            let gap = (gap & ((1 << bits) - 1)) >> 4;
            let Some(then) = now.checked_add(gap) else { break };
            // Like the kernel, which takes highest bits of 0 for a clock that has none.
            let fits = gap < 1 << 59 && (now >> 59 != 0 || then >> 59 == 0);
            now = then;
            page = if absolute == 0 && fits {
                page.absolute(now).number(0, n)
            } else if gap < 1 << 27 {
                page.number(gap as u32, n)
            } else {
                page.extend(gap).number(0, n)
            };
            expected.push(Number(now, n));
        }
        let (got, counts) = one(page);
        prop_assert_eq!(got, expected);
        prop_assert_eq!(counts.backwards, 0);
    }

    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..9000), commit in 0..4081u64) {
        let _ = read(&[&bytes]);
        // With a sound header, so that what is behind it is read.
        let mut page = Page::new(0).bytes();
        page[8..16].copy_from_slice(&commit.to_le_bytes());
        let body = bytes.len().min(4080);
        page[16..16 + body].copy_from_slice(&bytes[..body]);
        let (got, counts) = read(&[&page]);
        prop_assert!(got.len() as u64 == counts.events + counts.losses);
        prop_assert!(got.len() <= 4080 / 4);
        let _ = layout();
    }

    /// Cut anywhere, whole pages stay and at most one is lost.
    #[test]
    fn cut_anywhere(pages in 1..5usize, cut in any::<prop::sample::Index>()) {
        let bytes: Vec<u8> = (0..pages as u64).flat_map(|n| Page::new(n * 10).number(0, n).bytes()).collect();
        let cut = cut.index(bytes.len() + 1);
        let (got, counts) = read(&[&bytes[..cut]]);
        prop_assert_eq!(counts.events, cut as u64 / 4096);
        prop_assert_eq!(counts.damaged_pages, u64::from(cut % 4096 != 0));
        prop_assert_eq!(got.len() as u64, counts.events + counts.losses);
    }
}
