//! The engine: tables give way until they fit, and no text is a mark of Markdown.

use crate::terminal::assert_within;
use vmtax_report::{Block, Cell, Notice, Report, Section, Style, Table, figures, words};

fn report_with(table: Table) -> Report<'static> {
    Report {
        title: "A report".into(),
        sections: vec![Section::new("", vec![Block::Table(table)])],
        ..Report::default()
    }
}

fn text(report: &Report, width: usize) -> String {
    let text = report.terminal(
        Style {
            width,
            color: false,
        },
        false,
    );
    assert_within(&text, width);
    text
}

fn table() -> Table {
    let columns = vec![
        words("name").broken(14, 8),
        figures("median"),
        figures("interval").shorten(1).spare(3),
        figures("spread").spare(2),
    ];
    let interval = Cell::from("10.00 to 12.00 µs").short("±9 %");
    let row = vec![
        "a name of some length".into(),
        "11.00 µs".into(),
        interval,
        Cell::from("±1.2 %"),
    ];
    Table::new("A table", columns).rows([row])
}

#[test]
fn columns_shorten_and_leave_step_by_step() {
    let report = report_with(table());
    let wide = text(&report, 80);
    assert!(
        wide.contains("10.00 to 12.00 µs") && wide.contains("±1.2 %") && wide.contains("length  "),
        "{wide}"
    );
    let narrower = text(&report, 42);
    assert!(
        narrower.contains("±9 %") && narrower.contains("±1.2 %"),
        "{narrower}"
    );
    // All that is left, though the name is broken.
    let narrow = text(&report, 40);
    assert!(
        narrow.contains("11.00 µs") && narrow.contains("a name"),
        "{narrow}"
    );
}

#[test]
fn a_table_names_the_columns_that_left_with_their_figures() {
    let table_with_interval = |interval: &str| {
        let mut table = table().naming_left_out();
        table.rows.clear();
        report_with(table.rows([vec!["a name of some length", "11.00 µs", interval, "–"]]))
    };
    assert!(
        text(&table_with_interval("10.00 to 12.00 µs"), 40)
            .ends_with("\nToo narrow for: interval.\n")
    );
    let unknown = [table_with_interval("–"), report_with(table())];
    assert!(
        unknown
            .iter()
            .all(|report| !text(report, 40).contains("narrow")),
        "no figure is left out, or none is named"
    );
    assert!(!text(&table_with_interval("10.00 to 12.00 µs"), 80).contains("narrow"));
}

#[test]
fn columns_that_do_not_fit_follow_below_under_the_same_names() {
    let columns = (0..12).map(|i| figures(format!("column {i}")));
    let columns = [words("row")].into_iter().chain(columns).collect();
    let cells = ["x".to_owned()]
        .into_iter()
        .chain((0..12).map(|i| format!("figure {i}")))
        .collect();
    let report = report_with(
        Table {
            parts: true,
            ..Table::new("A table", columns)
        }
        .rows([cells]),
    );
    let shown = text(&report, 40);
    assert!(
        (0..12).all(|i| shown.contains(&format!("figure {i}"))),
        "{shown}"
    );
    assert!(
        shown.lines().filter(|l| l.starts_with("row ")).count() > 2,
        "{shown}"
    );
}

#[test]
fn rows_beyond_the_most_are_counted() {
    let rows = (0..30).map(|i| vec![format!("row {i}")]);
    let report = report_with(
        Table::new("A table", vec![words("name")])
            .rows(rows)
            .most(20),
    );
    assert!(
        text(&report, 80).ends_with("row 19\nand 10 more\n"),
        "{}",
        text(&report, 80)
    );
    assert!(
        report
            .terminal(
                Style {
                    width: 80,
                    color: false
                },
                true
            )
            .contains("row 29")
    );
}

#[test]
fn the_answer_comes_first_in_every_format() {
    let mut report = report_with(table());
    report.answer = "It costs ×2.".into();
    report.basis = vec!["n = 6 rounds".into()];
    report.next = vec!["vmtax layers".into()];
    report.notices = vec![Notice::warnings(vec!["a warning".into()])];
    report.method = vec!["a method".into()];
    let page = report.html();
    for text in [
        text(&report, 80),
        report.markdown(),
        page.split_once("<body>").unwrap().1.to_owned(),
    ] {
        let order = [
            "It costs ×2.",
            "n = 6 rounds",
            "vmtax layers",
            "11.00 µs",
            "a warning",
            "a method",
        ];
        let places: Vec<usize> = order.iter().map(|part| text.find(part).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?}\n{text}");
        assert_eq!(text.matches("A report").count(), 1, "{text}");
    }
    assert!(
        text(&report, 80)
            .starts_with("It costs ×2.\nA report · n = 6 rounds\nNext: vmtax layers\n")
    );
    assert!(
        text(&report_with(table()), 80).starts_with("A report\n\n"),
        "without an answer the title comes first"
    );
}

#[test]
fn markdown_has_the_tables_and_obeys_nothing() {
    let hostile = "<script>|*x*\u{1b}[2J\n# title".to_owned();
    let mut table = table();
    table.row(vec![hostile.clone()]);
    let mut report = report_with(table);
    report.answer = hostile.clone();
    report.notices = vec![Notice::warnings(vec![format!("{hostile}\n```\nrm")])];
    let markdown = report.markdown();
    assert!(
        !markdown.contains("<script") && !markdown.contains('\u{1b}'),
        "{markdown}"
    );
    assert!(
        markdown.contains("| a name of some length | 11.00 µs | 10.00 to 12.00 µs | ±1.2 % |"),
        "{markdown}"
    );
    let rows: Vec<&str> = markdown.lines().filter(|l| l.starts_with('|')).collect();
    let columns = |l: &str| l.replace("\\|", "").matches('|').count();
    assert!(rows.iter().all(|l| columns(l) == 5), "{rows:?}");
    assert!(
        markdown.contains("````text"),
        "a fence that its lines do not end: {markdown}"
    );
}
