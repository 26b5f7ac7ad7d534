//! A report as one self-contained page: no script, no font, no image, no request to anywhere. Pictures are SVG whose
//! horizontal places are percentages, so that they follow the width of the page while their text keeps its size.

use super::table::{Cell, Column, Row, Table, Tone};
use super::{Block, Figure, NoticeKind, Report, Section, Tile};
use crate::text::{Joined, only_if, parts, printable, when, with_lines};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");
/// Even if an escape were forgotten, the page could load and run nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Flame graphs are documents of their own inside the page, and bring their script for zoom and search: inferno's, as
/// crates/analyze/profile draws it, with the call that starts it. No other script runs.
const FRAMES: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-src data:; script-src 'unsafe-hashes' \
                      'sha256-WiAVSnuYekflqQvM3Bgx4QYmF4g+iml28eRUaqE8Qeo=' \
                      'sha256-1yF/ndTHkiZmobY4kENy7pQ/1lZ2JQrc9k9nAHSGevY='";

impl Report<'_> {
    /// The report as one HTML file.
    pub fn html(&self) -> String {
        let (style, policy) = self.own();
        let origin = &self.origin;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(policy);
                    meta name="color-scheme" content="light dark";
                    meta name="generator" content={ "vmtax " (origin.vmtax) };
                    title { (self.title.replace('`', "")) @if let Some(first) = self.basis.first() { ": " (first) } }
                    style { (PreEscaped(STYLE)) (PreEscaped(style)) }
                }
                body {
                    main { (self.body()) }
                    footer { "vmtax " (origin.vmtax) " · " (when(&origin.started)) " · " code { (origin.command) } }
                }
            }
        };
        printable(&page.into_string())
    }

    /// Returns the CSS of a study's page beside the style that all pages share, and the policy for content that the
    /// page may load and run.
    fn own(&self) -> (&'static str, &'static str) {
        let style = match self.study {
            "compare" => concat!(
                include_str!("../charts/layers.css"),
                include_str!("../charts/compare.css")
            ),
            "profile" => return (include_str!("../charts/profile.css"), FRAMES),
            "shares" => include_str!("../charts/shares.css"),
            "fleet" => include_str!("../charts/fleet.css"),
            "history" => include_str!("../charts/history.css"),
            "layers" | "exec" => include_str!("../charts/layers.css"),
            "growth" => include_str!("../charts/growth.css"),
            _ => "",
        };
        (style, POLICY)
    }

    fn body(&self) -> Markup {
        let class = |kind| match kind {
            NoticeKind::Note => "effects",
            NoticeKind::Warning | NoticeKind::Missing => "warnings",
        };
        let mut notes = self
            .notices
            .iter()
            .filter(|notice| !notice.items.is_empty())
            .peekable();
        html! {
            header {
                @if !self.answer.is_empty() { p.kicker { (prose(&self.title)) } }
                h1 { (prose(self.headline())) }
                p.where { (prose(&self.basis.join(" · "))) }
                @for command in &self.next { p.next { "Next: " code { (command) } } }
            }
            @if !self.tiles.is_empty() { div.tiles { @for one in &self.tiles { (tile(one)) } } }
            (list("Advice", "advice", &self.advice_texts()))
            @for section in &self.sections { (self.section(section)) }
            @if notes.peek().is_some() { div.notices { @for one in notes { (list(one.title, class(one.kind), &one.items)) } } }
            @for (i, text) in self.method.iter().enumerate() { p.method { @if i == 0 { b { "Method. " } } (prose(text)) } }
        }
    }

    fn section(&self, section: &Section) -> Markup {
        html! {
            section {
                @if !section.title.is_empty() { h2 { (prose(&section.title)) } }
                @for one in &section.blocks { (self.block(one)) }
            }
        }
    }

    fn block(&self, block: &Block) -> Markup {
        html! {
            @match block {
                Block::Text(text) => { p.intro { (prose(text)) } }
                Block::Lines(lines) => { pre { (lines) } }
                Block::Legend(keys) => { p.legend { @for (class, name) in keys { span.key.(class) { (name) } } } }
                Block::Facts(facts) => { dl { @for (name, value) in facts { dt { (name) } dd { (prose(value)) } } } }
                Block::Table(one) => { (table(one)) }
                Block::Figure(one) => { (self.figure(one, "")) }
                Block::Figures(class, all) => { div.multiples.(class) { @for one in all { (self.figure(one, "card")) } } }
                Block::Deferred(make) => { @for one in &make() { (self.block(one)) } }
                Block::Folded(title, blocks) => { details { summary { (prose(title)) } @for one in blocks { (self.block(one)) } } }
            }
        }
    }

    fn figure(&self, figure: &Figure, class: &str) -> Markup {
        html! {
            figure class=[(!class.is_empty()).then_some(class)] {
                @if !figure.title.is_empty() { h3 { (figure.title) } }
                (figure.chart.svg())
                @if !figure.caption.is_empty() { figcaption { (prose(&figure.caption)) } }
                @if let Some(one) = figure.table.as_ref().filter(|_| figure.below) { (table(one)) }
            }
        }
    }
}

/// A sentence whose commands stand between backticks.
pub fn prose(text: &str) -> Markup {
    html! {
        @for (is_command, part) in parts(text) {
            @if is_command { code { (breakable(part)) } } @else { (breakable(part)) }
        }
    }
}

/// Text that a narrow column breaks after its commas and the slashes of its paths: options and the names of variants have no blanks.
fn breakable(text: &str) -> Markup {
    let parts: Vec<&str> = text.split_inclusive([',', '/']).collect();
    // Not within a figure, "9,994" or "622/s", and not behind the first slash of a path.
    let breaks = |i: usize| {
        let next = parts.get(i + 1);
        next.is_some_and(|next| match parts[i] {
            part if part.ends_with(',') => !next.starts_with(|c: char| c.is_ascii_digit()),
            part => part.len() > 4 && next.len() > 4 && !part.contains(' '),
        })
    };
    html! { @for (i, part) in parts.iter().enumerate() { (part) @if breaks(i) { wbr; } } }
}

fn tile(tile: &Tile) -> Markup {
    html! {
        div.tile.(tile.class) {
            @if !tile.figure.is_empty() { p.figure { (tile.figure) } }
            p { (prose(&tile.text)) }
            @if !tile.limits.is_empty() { p.counts { (prose(&tile.limits)) } }
        }
    }
}

fn list(title: &str, class: &str, items: &[String]) -> Markup {
    let item = |item: &String| {
        let (sentence, lines) = with_lines(item);
        html! { li { (prose(sentence)) @if !lines.is_empty() { pre { (lines) } } } }
    };
    html! {
        @if !items.is_empty() {
            section.list.(class) { h2 { (title) } ul { @for one in items { (item(one)) } } }
        }
    }
}

/// Columns of a table that fit a phone.
const NARROW: usize = 4;

/// A table that scrolls by itself where the page is too narrow for it.
fn table(table: &Table) -> Markup {
    let table = &table.in_common_units();
    let shown = || {
        let columns = table.columns.iter().enumerate();
        columns.filter(|(i, _)| !table.is_empty(*i))
    };
    let empty = Cell::default();
    // In a narrow window its cells stand below each other, each behind its head.
    let is_wide = shown().count() > NARROW;
    let row = |cells: &[Cell], class: Option<&str>| {
        html! { tr class=[class] { @for (i, column) in shown() { (self::cell(i, column, cells.get(i).unwrap_or(&empty), is_wide)) } } }
    };
    html! {
        div.scroll tabindex="0" role="region" aria-label=(table.label) {
            table.overheads.wide[is_wide] {
                caption.hidden { (table.label) }
                thead { tr {
                    @for (_, column) in shown() {
                        th.number[column.figures] scope="col" {
                            @for (i, line) in column.name.lines().enumerate() { @if i > 0 { br; } (line) }
                        }
                    }
                } }
                tbody {
                    @for one in &table.rows {
                        @match one {
                            Row::Group(name) => { tr.workload { th colspan=(table.columns.len()) scope="rowgroup" { (name) } } }
                            Row::Cells(cells) => { (row(cells, None)) }
                            Row::First(cells) => { (row(cells, Some("first"))) }
                        }
                    }
                }
            }
        }
        @for note in table.all_notes() { p.intro { (prose(&note)) } }
    }
}

/// A cell of the column at this place; the first is the head of its row. With the head of its column where that may be hidden.
fn cell(place: usize, column: &Column, cell: &Cell, is_headed: bool) -> Markup {
    let text = html! {
        @for (i, line) in cell.text.lines().enumerate() {
            @if i > 0 { br; }
            @if cell.key.is_empty() { (prose(line)) } @else { span.key.(cell.key) { (prose(line)) } }
        }
    };
    let hint = (!cell.hint.is_empty()).then_some(&cell.hint);
    let class = class(column, cell);
    let head = (is_headed && !cell.text.is_empty()).then(|| column.name.lines().joined(" "));
    html! {
        @if place == 0 { th class=[class] scope="row" title=[hint] { (text) } } @else { td class=[class] title=[hint] data-head=[head] { (text) } }
    }
}

fn class(column: &Column, cell: &Cell) -> Option<String> {
    let tone = match cell.tone {
        Tone::Plain => "",
        Tone::Good => "gains",
        Tone::Bad => "costs",
        Tone::Warn => "notable",
        Tone::Soft => "open",
    };
    let classes = [
        only_if(column.figures, "number"),
        only_if(cell.strong, "median"),
        tone,
    ];
    let classes = classes
        .into_iter()
        .filter(|class| !class.is_empty())
        .joined(" ");
    (!classes.is_empty()).then_some(classes)
}
