//! The reports of exits.

use crate::common::exits::exits;
use crate::well_formed::{assert_balanced, assert_within};
use vmtax_model::ExitFindings;
use vmtax_report::{Style, exits, findings_json};

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [40, 60, 80, 120] {
        for color in [false, true] {
            let text = exits::report(&exits()).terminal(Style { width, color }, false);
            assert_within(&text, width);
            assert_eq!(color, text.contains('\u{1b}'));
        }
    }
}

#[test]
fn json_and_html_hold_all_and_obey_nothing() {
    let mut f = exits();
    assert_eq!(
        serde_json::from_str::<ExitFindings>(&findings_json(&f).unwrap()).unwrap(),
        f
    );
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
    let text = exits::report(&f).terminal(
        Style {
            width: 80,
            color: false,
        },
        false,
    );
    assert!(
        !text
            .chars()
            .any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'),
        "{text:?}"
    );
}
