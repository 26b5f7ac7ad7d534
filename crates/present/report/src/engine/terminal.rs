//! A report for a terminal: no line is wider than it, nothing in it obeys what a guest sends.

use super::table::{Cell, Column, Row, Table, Tone};
use super::{Block, Figure, Notice, NoticeKind, Report, Section};
use crate::Style;
use crate::text::{
    Joined, Paint, cell as broken, columns, command_lines, fit, only_if, plain, section as listed,
    wrapped,
};

impl Report<'_> {
    /// The report for a terminal. With `details` everything, else what a reader takes in at once.
    pub fn terminal(&self, style: Style, details: bool) -> String {
        let width = style.width.max(40);
        let page = Page {
            width,
            paint: Paint(style.color),
            details,
        };
        let mut out = page.painted("1", self.headline());
        out += &page.painted("90", &self.titled_basis().join(" · "));
        for command in &self.next {
            out += &command_lines(command, width, "Next: ");
        }
        for tile in &self.tiles {
            let text = format!("{} {}", tile.text, tile.limits);
            out += &wrapped(text.trim(), width, "→ ", "  ");
        }
        let advice = page.paint.with("1;36", "Advice");
        listed(&mut out, &advice, &self.advice_texts(), "→ ", width);
        self.sections
            .iter()
            .for_each(|section| out += &page.section(section));
        self.notices
            .iter()
            .for_each(|notice| page.notice(&mut out, notice));
        if !self.method.is_empty() {
            out += &format!("\n{}\n", page.paint.bold("Method"));
        }
        self.method
            .iter()
            .for_each(|text| out += &wrapped(text, width, "", ""));
        out
    }
}

struct Page {
    width: usize,
    paint: Paint,
    details: bool,
}

impl Page {
    fn title(&self, title: &str) -> String {
        self.painted("1", title)
    }

    /// Text in lines of the colour with this SGR code; nothing for no text.
    fn painted(&self, code: &str, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let lines = wrapped(text, self.width, "", "");
        lines
            .lines()
            .map(|line| self.paint.with(code, line) + "\n")
            .collect()
    }

    fn notice(&self, out: &mut String, notice: &Notice) {
        let (colour, bullet) = match notice.kind {
            NoticeKind::Warning => ("1;33", "! "),
            NoticeKind::Missing => ("1;33", "– "),
            NoticeKind::Note => ("1", "· "),
        };
        let title = self.paint.with(colour, notice.title);
        listed(out, &title, &notice.items, bullet, self.width);
    }

    fn section(&self, section: &Section) -> String {
        if section.detail && !self.details {
            return String::new();
        }
        let body = self.blocks(&section.blocks);
        match body.is_empty() {
            true => body,
            false if section.title.is_empty() => format!("\n{body}"),
            false => format!("\n{}{body}", self.title(&section.title)),
        }
    }

    fn block(&self, block: &Block) -> String {
        match block {
            Block::Text(text) => wrapped(text, self.width, "", ""),
            Block::Lines(lines) => {
                let lines = lines.lines();
                lines.map(|line| format!("  {}\n", plain(line))).collect()
            }
            Block::Legend(_) => String::new(),
            Block::Facts(facts) => {
                let facts = facts.iter().map(|(name, value)| format!("{name}: {value}"));
                facts
                    .map(|fact| wrapped(&fact, self.width, "", "  "))
                    .collect()
            }
            Block::Table(table) => self.table(table),
            Block::Figure(figure) => self.figure(figure),
            Block::Figures(_, figures) => {
                figures.iter().map(|figure| self.figure(figure)).collect()
            }
            Block::Deferred(make) => self.blocks(&make()),
            Block::Folded(..) if !self.details => String::new(),
            Block::Folded(title, blocks) => {
                let body = self.blocks(blocks);
                only_if(!body.is_empty(), format!("\n{}{body}", self.title(title)))
            }
        }
    }

    fn blocks(&self, blocks: &[Block]) -> String {
        blocks.iter().map(|block| self.block(block)).collect()
    }

    fn figure(&self, figure: &Figure) -> String {
        let drawn = figure.chart.text(self.width, self.paint);
        let body = drawn.or_else(|| figure.table.as_ref().map(|table| self.table(table)));
        body.map_or(String::new(), |body| self.title(&figure.title) + &body)
    }

    fn table(&self, table: &Table) -> String {
        let table = &table.in_common_units();
        let rows: Vec<&Row> = if self.details {
            table.rows.iter().collect()
        } else {
            table.brief_rows()
        };
        let fitted = fitted(table, &rows, self.width, self.paint);
        let mut out = fitted.lines;
        if rows.len() < table.rows.len() {
            out += &format!("and {} more\n", table.rows.len() - rows.len());
        }
        if table.names_left_out && !fitted.left_out.is_empty() {
            let names = fitted.left_out.join(", ");
            let text = format!("Columns omitted ({} characters wide): {names}.", self.width);
            out += &wrapped(&text, self.width, "", "  ");
        }
        for note in table.notes_with(fitted.notes) {
            out += &wrapped(&note, self.width, "", "  ");
        }
        out
    }
}

/// A table as wide as fits.
struct Fitted<'a> {
    lines: String,
    /// The notes of the columns that are shown.
    notes: Vec<&'a str>,
    /// The columns that gave way and have figures.
    left_out: Vec<&'a str>,
}

/// Makes a table narrower step by step, then puts its last columns in a table below or, at the worst, cuts its lines.
fn fitted<'a>(table: &'a Table, rows: &[&Row], width: usize, paint: Paint) -> Fitted<'a> {
    let measured = Measured::all(table, rows);
    let steps = table
        .columns
        .iter()
        .map(|column| column.spare.max(column.shorten));
    let last = steps.max().unwrap_or(0);
    for step in 0..=last {
        let ways = [(false, 2), (false, 1), (true, 1)].into_iter();
        for (worst, gap) in ways.take(if step == last { 3 } else { 2 }) {
            let layout = Layout::fitting(&measured, step, worst, gap, width);
            if layout.width() <= width {
                return layout.fitted(table, layout.lines(rows, paint));
            }
        }
    }
    let layout = Layout::fitting(&measured, last, true, 1, width);
    let lines = if !table.parts || layout.columns.len() < 3 {
        let lines = layout.lines(rows, Paint(false));
        lines.lines().map(|line| fit(line, width) + "\n").collect()
    } else {
        layout.in_parts(rows, width, paint)
    };
    layout.fitted(table, lines)
}

/// A column in which a cell has text, with the width of its widest line.
struct Measured<'a> {
    position: usize,
    column: &'a Column,
    /// True if the cells are indented: those of the first column below groups.
    indented: bool,
    width: usize,
    /// With the cells' short forms.
    short_width: usize,
}

impl<'a> Measured<'a> {
    fn all(table: &'a Table, rows: &[&Row]) -> Vec<Measured<'a>> {
        let grouped = table.rows.iter().any(|row| matches!(row, Row::Group(_)));
        let columns = table.columns.iter().enumerate();
        let filled = columns.filter(|(position, _)| !table.is_empty(*position));
        let measured = filled.map(|(position, column)| {
            let indented = position == 0 && grouped;
            let unmeasured = Measured {
                position,
                column,
                indented,
                width: 0,
                short_width: 0,
            };
            Measured {
                width: unmeasured.widest(rows, false),
                short_width: unmeasured.widest(rows, column.shorten > 0),
                ..unmeasured
            }
        });
        measured.collect()
    }

    fn widest(&self, rows: &[&Row], short: bool) -> usize {
        let cells = rows.iter().filter_map(|row| match row {
            Row::Group(_) => None,
            Row::Cells(cells) | Row::First(cells) => cells.get(self.position),
        });
        let texts = cells.map(|cell| self.text(cell, short));
        let texts = texts.chain([head(self.column)]);
        let widths = texts.map(|text| text.lines().map(columns).max().unwrap_or(0));
        widths.max().unwrap_or(0)
    }

    fn text(&self, cell: &Cell, short: bool) -> String {
        let text = cell.short.as_ref().filter(|_| short).unwrap_or(&cell.text);
        let indent = only_if(self.indented && !text.is_empty(), "  ");
        format!("{indent}{}", plain(text))
    }
}

/// A column that is shown.
#[derive(Clone, Copy)]
struct Shown<'a> {
    measured: &'a Measured<'a>,
    width: usize,
    /// True if its cells are in their short forms.
    short: bool,
}

/// Columns that are shown, with their widths.
struct Layout<'a> {
    columns: Vec<Shown<'a>>,
    /// Blanks between columns.
    gap: usize,
}

impl<'a> Layout<'a> {
    /// As many columns as a step has; those that can give way so narrow that all fit, if that goes.
    fn fitting(
        measured: &'a [Measured<'a>],
        step: u8,
        worst: bool,
        gap: usize,
        width: usize,
    ) -> Layout<'a> {
        let is_kept = |column: &Column| column.spare == 0 || step < column.spare;
        let kept = measured.iter().filter(|measured| is_kept(measured.column));
        let columns = kept.map(|measured| {
            let short = measured.column.shorten > 0 && step >= measured.column.shorten;
            Shown {
                measured,
                width: if short {
                    measured.short_width
                } else {
                    measured.width
                },
                short,
            }
        });
        let mut layout = Layout {
            columns: columns.collect(),
            gap,
        };
        let floor = |column: &Column| {
            let (wanted, least) = column.least?;
            Some(if worst { least } else { wanted })
        };
        while layout.width() > width {
            let gives = |shown: &&mut Shown| {
                floor(shown.measured.column).is_some_and(|floor| shown.width > floor)
            };
            let giving = layout.columns.iter_mut().filter(gives);
            let Some(widest) = giving.max_by_key(|shown| shown.width) else {
                break;
            };
            widest.width -= 1;
        }
        layout
    }

    /// The first column with those from one to another.
    fn part(&self, from: usize, to: usize) -> Layout<'a> {
        Layout {
            columns: [&self.columns[..1], &self.columns[from..to]].concat(),
            gap: self.gap,
        }
    }

    /// The lines of several tables under the same first column, each with as many columns as fit.
    fn in_parts(&self, rows: &[&Row], width: usize, paint: Paint) -> String {
        let mut out = String::new();
        let mut from = 1;
        while from < self.columns.len() {
            let mut to = from + 1;
            while to < self.columns.len() && self.part(from, to + 1).width() <= width {
                to += 1;
            }
            let part = self.part(from, to);
            let lines = part.lines(rows, paint);
            let is_cut = part.width() > width && !paint.0;
            let cut = |line: &str| {
                if is_cut {
                    fit(line, width)
                } else {
                    line.to_owned()
                }
            };
            out += only_if(from > 1, "\n");
            out.extend(lines.lines().map(|line| cut(line) + "\n"));
            from = to;
        }
        out
    }

    /// Returns the lines of a table in this layout, with the notes of its columns and the names of those left out.
    fn fitted<'t>(&self, table: &'t Table, lines: String) -> Fitted<'t> {
        let shown = self.columns.iter().map(|shown| shown.measured.position);
        let shown: Vec<usize> = shown.collect();
        let all = || table.columns.iter().enumerate();
        let notes = all().filter(|(position, _)| shown.contains(position));
        let left = all().filter(|(position, _)| !shown.contains(position));
        let left = left.filter(|(position, _)| !table.is_unknown(*position));
        let mut left_out: Vec<&str> = left.map(|(_, column)| column.name.as_str()).collect();
        // The columns of a group may be called as those of another.
        left_out.dedup();
        Fitted {
            lines,
            notes: notes
                .filter_map(|(_, column)| column.note.as_deref())
                .collect(),
            left_out,
        }
    }

    fn width(&self) -> usize {
        let widths = self.columns.iter().map(|shown| shown.width + self.gap);
        widths.sum::<usize>().saturating_sub(self.gap)
    }

    fn lines(&self, rows: &[&Row], paint: Paint) -> String {
        let columns = self.columns.iter().map(|shown| shown.measured);
        let head: Vec<Cell> = columns.map(|column| head(column.column).into()).collect();
        let mut out = self.row(&|i| head.get(i), Paint(false), true);
        out += &format!("{}\n", "─".repeat(self.width()));
        for row in rows {
            out += &match row {
                Row::Group(name) => paint.bold(&fit(&plain(name), self.width())) + "\n",
                Row::Cells(cells) | Row::First(cells) => {
                    let cell = |i: usize| cells.get(self.columns.get(i)?.measured.position);
                    self.row(&cell, paint, false)
                }
            };
        }
        out
    }

    /// The lines of a row, as many as its longest cell has.
    fn row<'c>(
        &self,
        cell: &dyn Fn(usize) -> Option<&'c Cell>,
        paint: Paint,
        is_head: bool,
    ) -> String {
        let empty = Cell::default();
        let cells = self.columns.iter().enumerate().map(|(i, shown)| {
            let cell = cell(i).unwrap_or(&empty);
            (cell, cell_lines(cell, shown, is_head))
        });
        let cells: Vec<(&Cell, Vec<String>)> = cells.collect();
        let heights = cells.iter().map(|(_, lines)| lines.len());
        let height = heights.max().unwrap_or(0).max(1);
        let mut out = String::new();
        for at in 0..height {
            let mut line = String::new();
            for (i, (cell, lines)) in cells.iter().enumerate() {
                let Shown {
                    measured, width, ..
                } = self.columns[i];
                let text = lines.get(at).map_or("", String::as_str);
                let room = " ".repeat(width - columns(text).min(width));
                let text = painted(cell, text, paint);
                line += &" ".repeat(if i > 0 { self.gap } else { 0 });
                line += &match measured.column.figures {
                    true => room + &text,
                    false => text + &room,
                };
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

/// The lines of a cell in a column of this width, in its short form or not.
fn cell_lines(cell: &Cell, shown: &Shown, is_head: bool) -> Vec<String> {
    let Shown {
        measured,
        width,
        short,
    } = *shown;
    let text = match is_head {
        true => cell.text.clone(),
        false => measured.text(cell, short),
    };
    let lines = match measured.column.cut && !is_head {
        true => fit(&text, width),
        // An indent is kept when a text is broken.
        false if text.starts_with("  ") => {
            let lines = broken(text.trim_start(), width - 2);
            format!("  {}", lines.replace('\n', "\n  "))
        }
        false => text.lines().map(|line| broken(line, width)).joined("\n"),
    };
    lines.lines().map(|line| fit(line, width)).collect()
}

/// A column's head; it may have several lines.
fn head(column: &Column) -> String {
    column.name.lines().map(plain).joined("\n")
}

fn painted(cell: &Cell, text: &str, paint: Paint) -> String {
    let code = match (cell.tone, cell.strong) {
        _ if text.is_empty() => "",
        (Tone::Plain, false) => "",
        (Tone::Plain, true) => "1",
        (Tone::Good, false) => "32",
        (Tone::Good, true) => "1;32",
        (Tone::Bad, false) => "31",
        (Tone::Bad, true) => "1;31",
        (Tone::Warn, false) => "33",
        (Tone::Warn, true) => "1;33",
        (Tone::Soft, _) => "90",
    };
    match code {
        "" => text.to_owned(),
        code => paint.with(code, text),
    }
}
