//! A whole report as Markdown: its tables, and its pictures as far as characters draw them.

use super::table::{Cell, Row, Table};
use super::{Block, Figure, Notice, NoticeKind, Report, Section};
use crate::text::{Joined, only_if, parts, plain, printable, with_lines};

/// Columns of pictures.
const WIDTH: usize = 100;

impl Report<'_> {
    /// The whole report as GitHub's Markdown.
    pub fn markdown_details(&self) -> String {
        let mut out = format!("**{}**\n", escaped(self.headline()));
        let basis = self.titled_basis().into_iter().map(escaped).joined(" · ");
        if !basis.is_empty() {
            out += &format!("\n{basis}\n");
        }
        self.next
            .iter()
            .for_each(|command| out += &format!("\nNext: {}\n", escaped(&format!("`{command}`"))));
        for tile in &self.tiles {
            let limits = only_if(
                !tile.limits.is_empty(),
                format!(" {}", escaped(&tile.limits)),
            );
            out += &format!("\n- {}{limits}", escaped(&tile.text));
        }
        if !self.tiles.is_empty() {
            out.push('\n');
        }
        out += &list("Advice", &self.advice_texts());
        self.sections.iter().for_each(|one| out += &section(one));
        for Notice { title, kind, items } in &self.notices {
            let mark = only_if(*kind == NoticeKind::Warning, "⚠ ");
            out += &list(&format!("{mark}{title}"), items);
        }
        if !self.method.is_empty() {
            let method = self.method.iter().map(|text| escaped(text));
            out += &format!("\n**Method.** {}\n", method.joined("\n\n"));
        }
        let origin = format!("vmtax {} · `{}`", self.origin.vmtax, self.origin.command);
        out + &format!("\n{}\n", escaped(&origin))
    }
}

fn list(title: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let item = |item: &String| {
        let (sentence, lines) = with_lines(item);
        let lines = only_if(!lines.is_empty(), format!("\n{}", fenced(lines)));
        format!(
            "- {}{}\n",
            escaped(sentence),
            lines.replace('\n', "\n  ").trim_end()
        )
    };
    let items: String = items.iter().map(item).collect();
    format!("\n## {title}\n\n{items}")
}

fn section(section: &Section) -> String {
    let body: String = section.blocks.iter().map(block).collect();
    match (section.title.is_empty(), body.is_empty()) {
        (_, true) => String::new(),
        (true, false) => body,
        (false, false) => format!("\n## {}\n{body}", escaped(&section.title)),
    }
}

fn block(one: &Block) -> String {
    match one {
        Block::Text(text) => format!("\n{}\n", escaped(text)),
        Block::Lines(lines) => format!("\n{}", fenced(lines)),
        Block::Legend(_) => String::new(),
        Block::Facts(facts) => {
            let facts = facts
                .iter()
                .map(|(name, value)| format!("- {}: {}\n", escaped(name), escaped(value)));
            format!("\n{}", facts.collect::<String>())
        }
        Block::Table(table) => self::table(table),
        Block::Figure(figure) => self::figure(figure),
        Block::Figures(_, figures) => {
            let titled = |figure: &Figure| {
                let body = self::figure(figure);
                let title = escaped(&figure.title);
                only_if(!body.is_empty(), format!("\n**{title}**\n{body}"))
            };
            figures.iter().map(titled).collect()
        }
        Block::Deferred(make) => make().iter().map(block).collect(),
        Block::Folded(title, blocks) => {
            let body: String = blocks.iter().map(block).collect();
            let title = escaped(title);
            if body.is_empty() {
                body
            } else {
                format!("\n<details><summary>{title}</summary>\n{body}\n</details>\n")
            }
        }
    }
}

/// A picture as far as characters draw it, and its table.
fn figure(figure: &Figure) -> String {
    let drawn = figure.chart.sketch(WIDTH);
    let drawn = drawn.map_or(String::new(), |lines| format!("\n{}", fenced(&lines)));
    drawn + &figure.table.as_ref().map_or(String::new(), table)
}

/// Lines behind a fence that none of them ends.
pub fn fenced(lines: &str) -> String {
    let longest = lines.split(|c| c != '`').map(str::len).max();
    let fence = "`".repeat(2 + longest.unwrap_or(0).max(1));
    format!("{fence}text\n{}\n{fence}\n", printable(lines).trim_end())
}

fn table(table: &Table) -> String {
    let table = table.in_common_units();
    let mut out = format!("\n{}\n", table_head(&table).join("\n"));
    for row in &table.rows {
        out += &(table_row(&table, row) + "\n");
    }
    table
        .all_notes()
        .for_each(|note| out += &format!("\n{}\n", escaped(&note)));
    out
}

/// The first two lines of a table: the heads of its columns, and their alignment.
pub fn table_head(table: &Table) -> [String; 2] {
    let names = table.columns.iter().map(|column| escaped(&column.name));
    let aligned = table
        .columns
        .iter()
        .map(|column| if column.figures { "--:" } else { "---" }.to_owned());
    [line(names), line(aligned)]
}

/// The line of a row.
pub fn table_row(table: &Table, row: &Row) -> String {
    match row {
        Row::Group(name) => line(
            [format!("**{}**", escaped(name))]
                .into_iter()
                .chain(empty(table, 1)),
        ),
        Row::Cells(cells) | Row::First(cells) => {
            let text = |cell: &Cell| match escaped(&cell.text) {
                text if cell.strong && !text.is_empty() => format!("**{text}**"),
                text => text,
            };
            line(cells.iter().map(text).chain(empty(table, cells.len())))
        }
    }
}

fn empty(table: &Table, from: usize) -> impl Iterator<Item = String> {
    (from..table.columns.len()).map(|_| String::new())
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |", cells.joined(" | "))
}

/// Text for Markdown: nothing in it is a mark, a tag or a column's end.
pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    for (is_command, part) in parts(&plain(text)) {
        if is_command {
            out.push_str(&format!("`{}`", part.replace('|', "\\|")));
            continue;
        }
        for c in part.chars() {
            match c {
                '<' => out.push_str("&lt;"),
                '\\' | '|' | '*' | '[' => out.extend(['\\', c]),
                c => out.push(c),
            }
        }
    }
    if out.starts_with(['#', '+', '-', '>', '=']) {
        out.insert(0, '\\');
    }
    out
}
