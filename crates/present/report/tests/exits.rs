//! The reports of exits.

#![allow(clippy::unwrap_used)]

mod common;

use common::assert_balanced;
use common::exits::exits;
use vmtax_model::ExitFindings;
use vmtax_report::{Style, exits, findings_json};

#[test]
fn every_kind_has_a_line_that_fits() {
    let f = exits();
    for width in [40, 60, 80, 120] {
        for color in [false, true] {
            let text = exits::report(&f).terminal(Style { width, color }, false);
            for line in text.lines().filter(|_| !color) {
                let columns = textwrap::core::display_width(line);
                assert!(columns <= width && !line.ends_with(' '), "{columns} of {width}: {line:?}");
            }
            assert_eq!(color, text.contains('\u{1b}'));
        }
    }
    let text = exits::report(&f).terminal(Style { width: 120, color: false }, false);
    for kind in f.machines.iter().flat_map(|m| &m.kinds) {
        let line =
            text.lines().find(|l| l.starts_with(&kind.label)).unwrap_or_else(|| panic!("{}\n{text}", kind.label));
        assert_eq!(kind.emulated, line.contains('‡'), "{line}");
    }
    let line = text.lines().find(|l| l.starts_with("port write, handled in QEMU")).unwrap();
    for figure in ["20,000", "23.9 µs", "25.8 µs", "27.1 µs", "41.0 µs", "3.10 ms", "26.4 µs"] {
        assert!(line.contains(figure), "{figure}: {line}");
    }
    let answer =
        "On micro-kvm a port or MMIO access handled in KVM takes 2.70 µs, one handled in QEMU takes 25.8 µs to 26.8 µs";
    assert!(text.replace(['\u{a0}', '\n'], " ").contains(answer), "{text}");
    let stamp = text.find("a pair of stamps").unwrap();
    assert!(stamp < text.find("port write,").unwrap(), "the stamps' cost comes first");
    for said in [
        "‡ guest CPL 0, which this host's KVM emulates",
        "real APIC: no hardware here",
        "HLT and wake-up (micro-tcg): ",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

#[test]
fn json_and_html_hold_all_and_obey_nothing() {
    let mut f = exits();
    assert_eq!(serde_json::from_str::<ExitFindings>(&findings_json(&f).unwrap()).unwrap(), f);
    let page = exits::report(&f).html();
    assert_balanced(&page);
    let kinds: usize = f.machines.iter().map(|m| m.kinds.len() + 1).sum();
    assert_eq!(page.matches("class=\"to-p99\"").count(), kinds);
    assert!(!page.contains("NaN") && !page.contains("http:"));
    let hostile = "<script>x</script>\u{1b}[2J\u{202e}\n\"".to_owned();
    f.machines[0].kinds[0].label = hostile.clone();
    f.machines[0].qemu = hostile.clone();
    f.kvm = hostile;
    f.machines[0].kinds[1].time.p50_ns = f64::NAN;
    let page = exits::report(&f).html();
    assert_balanced(&page);
    assert!(!page.contains("<script") && !page.contains("NaN%"));
    let text = exits::report(&f).terminal(Style { width: 80, color: false }, false);
    assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
    f.machines.clear();
    assert!(exits::report(&f).terminal(Style { width: 80, color: false }, false).contains("No machine was measured"));
}
