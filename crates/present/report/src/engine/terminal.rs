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
        self.next
            .iter()
            .for_each(|command| out += &command_lines(command, width, "Next: "));
        for tile in &self.tiles {
            out += &wrapped(
                format!("{} {}", tile.text, tile.limits).trim(),
                width,
                "→ ",
                "  ",
            );
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
        wrapped(text, self.width, "", "")
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
        listed(
            out,
            &self.paint.with(colour, notice.title),
            &notice.items,
            bullet,
            self.width,
        );
    }

    fn section(&self, section: &Section) -> String {
        if section.detail && !self.details {
            return String::new();
        }
        let body: String = section
            .blocks
            .iter()
            .map(|block| self.block(block))
            .collect();
        match body.is_empty() {
            true => body,
            false if section.title.is_empty() => format!("\n{body}"),
            false => format!("\n{}{body}", self.title(&section.title)),
        }
    }

    fn block(&self, block: &Block) -> String {
        match block {
            Block::Text(text) => wrapped(text, self.width, "", ""),
            Block::Lines(lines) => lines
                .lines()
                .map(|line| format!("  {}\n", plain(line)))
                .collect(),
            Block::Legend(_) => String::new(),
            Block::Facts(facts) => facts
                .iter()
                .map(|(name, value)| wrapped(&format!("{name}: {value}"), self.width, "", "  "))
                .collect(),
            Block::Table(table) => self.table(table),
            Block::Figure(figure) => self.figure(figure),
            Block::Figures(_, figures) => {
                figures.iter().map(|figure| self.figure(figure)).collect()
            }
            Block::Deferred(make) => make().iter().map(|block| self.block(block)).collect(),
            Block::Folded(..) if !self.details => String::new(),
            Block::Folded(title, blocks) => {
                let body: String = blocks.iter().map(|block| self.block(block)).collect();
                if body.is_empty() {
                    body
                } else {
                    format!("\n{}{body}", self.title(title))
                }
            }
        }
    }

    fn figure(&self, figure: &Figure) -> String {
        let drawn = figure.chart.text(self.width, self.paint);
        let Some(body) = drawn.or_else(|| figure.table.as_ref().map(|table| self.table(table)))
        else {
            return String::new();
        };
        if figure.title.is_empty() {
            body
        } else {
            self.title(&figure.title) + &body
        }
    }

    fn table(&self, table: &Table) -> String {
        let shown = if table.most == 0 || self.details {
            table.rows.len()
        } else {
            table.most
        };
        let rows: Vec<&Row> = table.rows.iter().take(shown).collect();
        let fitted = fitted(table, &rows, self.width, self.paint);
        let mut out = fitted.lines;
        if rows.len() < table.rows.len() {
            out += &format!("and {} more\n", table.rows.len() - rows.len());
        }
        if table.names_left_out && !fitted.left_out.is_empty() {
            out += &wrapped(
                &format!("Too narrow for: {}.", fitted.left_out.join(", ")),
                self.width,
                "",
                "  ",
            );
        }
        table
            .notes_with(fitted.notes)
            .for_each(|note| out += &wrapped(&note, self.width, "", "  "));
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
    let fitted_with = |lines: String, layout: &Layout<'_>| {
        let is_shown = |position: &usize| {
            layout
                .columns
                .iter()
                .any(|(shown, ..)| shown.position == *position)
        };
        let (shown, left): (Vec<usize>, Vec<usize>) = (0..table.columns.len()).partition(is_shown);
        let has_figures = |position: &usize| !table.is_unknown(*position);
        let mut left_out: Vec<&str> = left
            .into_iter()
            .filter(has_figures)
            .map(|position| table.columns[position].name.as_str())
            .collect();
        // The columns of a group may be called as those of another.
        left_out.dedup();
        Fitted {
            lines,
            notes: shown
                .iter()
                .filter_map(|position| table.columns[*position].note.as_deref())
                .collect(),
            left_out,
        }
    };
    let measured = Measured::all(table, rows);
    let last = table
        .columns
        .iter()
        .map(|c| c.spare.max(c.shorten))
        .max()
        .unwrap_or(0);
    for step in 0..=last {
        for (worst, gap) in [(false, 2), (false, 1), (true, 1)]
            .into_iter()
            .take(if step == last { 3 } else { 2 })
        {
            let layout = Layout::of(&measured, step, worst, gap, width);
            if layout.width() <= width {
                return fitted_with(layout.lines(rows, paint), &layout);
            }
        }
    }
    let layout = Layout::of(&measured, last, true, 1, width);
    if !table.parts || layout.columns.len() < 3 {
        let cut = layout
            .lines(rows, Paint(false))
            .lines()
            .map(|line| fit(line, width) + "\n")
            .collect();
        return fitted_with(cut, &layout);
    }
    let mut out = String::new();
    let mut from = 1;
    while from < layout.columns.len() {
        let mut part = layout.part(from, from + 1);
        let mut to = from + 1;
        while to < layout.columns.len() && layout.part(from, to + 1).width() <= width {
            to += 1;
            part = layout.part(from, to);
        }
        let lines = part.lines(rows, paint);
        let wide = part.width() > width;
        let cut = |line: &str| {
            if wide && !paint.0 {
                fit(line, width)
            } else {
                line.to_owned()
            }
        };
        out += only_if(from > 1, "\n");
        out.extend(lines.lines().map(|line| cut(line) + "\n"));
        from = to;
    }
    fitted_with(out, &layout)
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
        let filled = table
            .columns
            .iter()
            .enumerate()
            .filter(|(position, _)| !table.is_empty(*position));
        let measured = filled.map(|(position, column)| {
            let indented = position == 0 && grouped;
            let unmeasured = Measured {
                position,
                column,
                indented,
                width: 0,
                short_width: 0,
            };
            let width = unmeasured.widest(rows, false);
            let short_width = if column.shorten > 0 {
                unmeasured.widest(rows, true)
            } else {
                width
            };
            Measured {
                width,
                short_width,
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
        let texts = cells
            .map(|cell| self.text(cell, short))
            .chain([head(self.column)]);
        texts
            .map(|text| text.lines().map(columns).max().unwrap_or(0))
            .max()
            .unwrap_or(0)
    }

    fn text(&self, cell: &Cell, short: bool) -> String {
        let text = cell.short.as_ref().filter(|_| short).unwrap_or(&cell.text);
        let indent = only_if(self.indented && !text.is_empty(), "  ");
        format!("{indent}{}", plain(text))
    }
}

/// Columns that are shown, with their widths.
struct Layout<'a> {
    /// Column, width, whether in its short form.
    columns: Vec<(&'a Measured<'a>, usize, bool)>,
    /// Blanks between columns.
    gap: usize,
}

impl<'a> Layout<'a> {
    /// As many columns as a step has; those that can give way so narrow that all fit, if that goes.
    fn of(
        measured: &'a [Measured<'a>],
        step: u8,
        worst: bool,
        gap: usize,
        width: usize,
    ) -> Layout<'a> {
        let kept = measured
            .iter()
            .filter(|m| m.column.spare == 0 || step < m.column.spare);
        let columns = kept.map(|measured| {
            let short = measured.column.shorten > 0 && step >= measured.column.shorten;
            (
                measured,
                if short {
                    measured.short_width
                } else {
                    measured.width
                },
                short,
            )
        });
        let mut layout = Layout {
            columns: columns.collect(),
            gap,
        };
        let floor = |column: &Column| {
            column
                .least
                .map(|(wanted, least)| if worst { least } else { wanted })
        };
        while layout.width() > width {
            let gives = |c: &&mut (&Measured, usize, bool)| {
                floor(c.0.column).is_some_and(|floor| c.1 > floor)
            };
            let Some(widest) = layout.columns.iter_mut().filter(gives).max_by_key(|c| c.1) else {
                break;
            };
            widest.1 -= 1;
        }
        layout
    }

    /// The first column with those from one to another.
    fn part(&self, from: usize, to: usize) -> Layout<'a> {
        let columns = self.columns[..1]
            .iter()
            .chain(&self.columns[from..to])
            .copied()
            .collect();
        Layout {
            columns,
            gap: self.gap,
        }
    }

    fn width(&self) -> usize {
        self.columns
            .iter()
            .map(|c| c.1 + self.gap)
            .sum::<usize>()
            .saturating_sub(self.gap)
    }

    fn lines(&self, rows: &[&Row], paint: Paint) -> String {
        let head: Vec<Cell> = self
            .columns
            .iter()
            .map(|c| Cell::from(head(c.0.column)))
            .collect();
        let mut out = self.row(&|i| head.get(i), Paint(false), true);
        out += &format!("{}\n", "─".repeat(self.width()));
        for row in rows {
            out += &match row {
                Row::Group(name) => paint.bold(&fit(&plain(name), self.width())) + "\n",
                Row::Cells(cells) | Row::First(cells) => self.row(
                    &|i| self.columns.get(i).and_then(|c| cells.get(c.0.position)),
                    paint,
                    false,
                ),
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
        let cells: Vec<(&Cell, Vec<String>)> = self
            .columns
            .iter()
            .enumerate()
            .map(|(i, (measured, width, short))| {
                let cell = cell(i).unwrap_or(&empty);
                let text = if is_head {
                    cell.text.clone()
                } else {
                    measured.text(cell, *short)
                };
                let lines = match measured.column.cut && !is_head {
                    true => fit(&text, *width),
                    // An indent is kept when a text is broken.
                    false if text.starts_with("  ") => {
                        format!(
                            "  {}",
                            broken(text.trim_start(), width - 2).replace('\n', "\n  ")
                        )
                    }
                    false => text.lines().map(|line| broken(line, *width)).joined("\n"),
                };
                (cell, lines.lines().map(|line| fit(line, *width)).collect())
            })
            .collect();
        let height = cells
            .iter()
            .map(|(_, lines)| lines.len())
            .max()
            .unwrap_or(0)
            .max(1);
        let mut out = String::new();
        for at in 0..height {
            let mut line = String::new();
            for (i, (cell, lines)) in cells.iter().enumerate() {
                let (measured, width, _) = self.columns[i];
                let text = lines.get(at).map_or("", String::as_str);
                let room = " ".repeat(width - columns(text).min(width));
                let text = painted(cell, text, paint);
                line += &" ".repeat(if i > 0 { self.gap } else { 0 });
                line += &if measured.column.figures {
                    room + &text
                } else {
                    text + &room
                };
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
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
    if code.is_empty() {
        text.to_owned()
    } else {
        paint.with(code, text)
    }
}
