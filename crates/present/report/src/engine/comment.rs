//! A report as a comment in an issue: Markdown of few lines, the answer first, its picture as text. The rest is in the
//! whole report.

use super::markdown::{escaped, fenced, table_head, table_row};
use super::table::{Row, Table};
use super::{Block, Figure, NoticeKind, Report, Section};
use crate::text::{Joined, fit, only_if, plain, with_lines};

/// The most lines of a comment: it fits a screen.
pub const COMMENT_LINES: usize = 40;
/// Columns of its pictures: what GitHub shows of a block without scrolling.
const WIDTH: usize = 88;
/// Longer notes of tables are definitions, which the whole report has.
const MAX_NOTE: usize = 200;
/// Commands, tiles, findings and notices that it has.
const MAX_NEXT: usize = 2;
const MAX_TILES: usize = 5;
const MAX_ADVICE: usize = 3;
const MAX_NOTICES: usize = 4;
/// Rows of a further table that are worth their heading.
const FEWEST_ROWS: usize = 4;

impl Report<'_> {
    /// The report as GitHub's Markdown for a comment, of at most [`COMMENT_LINES`] lines.
    pub fn markdown(&self) -> String {
        let tail = self.comment_end();
        let mut comment = Comment {
            lines: self.comment_beginning(),
            most: COMMENT_LINES - tail.len(),
            has_rows: false,
        };
        let sections = self.sections.iter().filter(|section| !section.detail);
        sections.for_each(|section| comment.section(section));
        comment.lines.extend(tail);
        comment.lines.join("\n") + "\n"
    }

    /// The answer, its basis, the next commands, its parts and what to do.
    fn comment_beginning(&self) -> Vec<String> {
        let mut lines = vec![format!("**{}**", escaped(self.headline()))];
        let basis = self.titled_basis().into_iter().map(escaped).joined(" · ");
        lines.extend(only_if(
            !basis.is_empty(),
            vec![String::new(), basis.trim().to_owned()],
        ));
        let next = self.next.iter().take(MAX_NEXT);
        let next = next.map(|command| escaped(&format!("`{command}`")));
        let next = next.joined(" · ");
        lines.extend(only_if(
            !next.is_empty(),
            vec![String::new(), format!("Next: {next}")],
        ));
        let tiles = self.tiles.iter().map(|tile| {
            let text = format!("{} {}", tile.text, tile.limits);
            format!("- {}", escaped(text.trim()))
        });
        lines.extend(list("", tiles.collect(), MAX_TILES));
        let advice = self.advice_texts();
        let advice = advice.iter().map(|text| format!("- {}", one_line(text)));
        lines.extend(list("**Advice**", advice.collect(), MAX_ADVICE));
        lines
    }

    /// Warnings, what was not measured, notes; where the rest is.
    fn comment_end(&self) -> Vec<String> {
        let mut notices: Vec<_> = self.notices.iter().collect();
        // A reason why the figures are weaker is not what is left out.
        notices.sort_by_key(|notice| notice.kind != NoticeKind::Warning);
        let items = notices.into_iter().flat_map(|notice| {
            let about = match notice.kind {
                NoticeKind::Warning => "⚠".to_owned(),
                NoticeKind::Missing | NoticeKind::Note => format!("{}:", notice.title),
            };
            let items = notice.items.iter();
            items.map(move |item| format!("- {about} {}", one_line(item)))
        });
        let mut lines = list("", items.collect(), MAX_NOTICES);
        let command = &self.origin.command;
        let whole = only_if(
            command.starts_with("vmtax report "),
            format!(" · whole report: `{command} --details`"),
        );
        let origin = format!("vmtax {}{whole}", self.origin.vmtax);
        lines.extend([String::new(), escaped(origin.trim())]);
        lines
    }
}

/// Lines of a list below its title and a blank line; the last says how many items are left out.
fn list(title: &str, items: Vec<String>, most: usize) -> Vec<String> {
    let left_out = items.len().saturating_sub(most);
    let mut lines = only_if(!items.is_empty(), vec![String::new()]);
    lines.extend(only_if(
        !items.is_empty() && !title.is_empty(),
        vec![title.to_owned()],
    ));
    lines.extend(items.into_iter().take(most));
    lines.extend((left_out > 0).then(|| format!("- and {left_out} more")));
    lines
}

/// A sentence, and the line to copy below it behind it; several lines are left out.
fn one_line(item: &str) -> String {
    let (sentence, lines) = with_lines(item);
    let line = only_if(
        !lines.is_empty() && !lines.contains('\n'),
        format!(" `{lines}`"),
    );
    escaped(&format!("{sentence}{line}"))
}

/// The lines of a comment so far.
struct Comment {
    lines: Vec<String>,
    /// The most lines before its end.
    most: usize,
    /// True if a picture or table is in it: further ones must fit whole.
    has_rows: bool,
}

impl Comment {
    fn room(&self) -> usize {
        self.most.saturating_sub(self.lines.len())
    }

    /// Adds lines if they fit.
    fn add(&mut self, lines: Vec<String>) -> bool {
        let fits = lines.len() <= self.room();
        self.lines.extend(only_if(fits, lines));
        fits
    }

    /// Adds a section, unless none of its blocks fits.
    fn section(&mut self, section: &Section) {
        let before = self.lines.len();
        let title = escaped(&section.title);
        if !self.add(only_if(
            !title.is_empty(),
            vec![String::new(), format!("**{title}**")],
        )) {
            return;
        }
        let begun = self.lines.len();
        section.blocks.iter().for_each(|block| self.block(block));
        if self.lines.len() == begun {
            self.lines.truncate(before);
        }
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Text(text) => {
                self.add(vec![String::new(), escaped(text)]);
            }
            Block::Lines(lines) => {
                self.fenced(lines);
            }
            Block::Facts(facts) => {
                let facts = facts
                    .iter()
                    .map(|(name, value)| format!("- {}: {}", escaped(name), escaped(value)));
                self.add([String::new()].into_iter().chain(facts).collect());
            }
            Block::Table(table) => self.table(table),
            Block::Figure(figure) => self.figure(figure),
            Block::Figures(_, figures) => figures.iter().for_each(|figure| {
                let before = self.lines.len();
                let title = format!("**{}**", escaped(&figure.title));
                if self.add(vec![String::new(), title]) {
                    let begun = self.lines.len();
                    self.figure(figure);
                    if self.lines.len() == begun {
                        self.lines.truncate(before);
                    }
                }
            }),
            // For those who read on.
            Block::Legend(_) | Block::Folded(..) | Block::Deferred(_) => {}
        }
    }

    fn figure(&mut self, figure: &Figure) {
        if let Some(picture) = figure.chart.sketch(WIDTH) {
            self.has_rows |= self.fenced(&picture);
        }
        if let Some(table) = &figure.table {
            self.table(table);
        }
    }

    /// Adds lines as they are, if they fit.
    fn fenced(&mut self, lines: &str) -> bool {
        let lines = lines.lines().map(|line| fit(&plain(line), WIDTH));
        let block = fenced(&lines.joined("\n"));
        let block = block.lines().map(str::to_owned);
        self.add([String::new()].into_iter().chain(block).collect())
    }

    /// Adds a table as far as it fits: the first one, and those whose first rows are the largest; others only whole.
    fn table(&mut self, table: &Table) {
        let table = table.in_common_units();
        let rows = table.brief_rows();
        let [head, rule] = table_head(&table);
        let mut lines = vec![String::new(), head, rule];
        let room = self.room().saturating_sub(lines.len());
        let fitting = if rows.len() <= room {
            rows.len()
        } else if self.has_rows && (table.most == 0 || room < FEWEST_ROWS) {
            return;
        } else {
            // One says how many are left out.
            room.saturating_sub(1)
        };
        if fitting == 0 {
            return;
        }
        lines.extend(rows[..fitting].iter().map(|row| table_row(&table, row)));
        let left_out = table.rows.len() - fitting;
        if left_out > 0 && lines.len() < self.room() {
            let row = Row::Cells(vec![format!("and {left_out} more").into()]);
            lines.push(table_row(&table, &row));
        }
        self.has_rows |= self.add(lines);
        let notes = table.all_notes();
        for note in notes.filter(|note| note.chars().count() <= MAX_NOTE) {
            self.add(vec![String::new(), escaped(&note)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Advice, Chart, Notice, Origin, Tile, figures, words};
    use maud::Markup;

    struct Tall(usize);

    impl Chart for Tall {
        fn svg(&self) -> Markup {
            Markup::default()
        }

        fn sketch(&self, _width: usize) -> Option<String> {
            Some("x\n".repeat(self.0))
        }
    }

    fn table(rows: usize) -> Table {
        let columns = vec![words("name"), figures("time")];
        let rows = (0..rows).map(|i| vec![format!("row {i}"), "1 ms".to_owned()]);
        Table::new("All", columns).rows(rows)
    }

    fn report(items: usize, tall: usize) -> Report<'static> {
        let many = |text: &str| vec![text.to_owned(); items];
        Report {
            title: "Title".to_owned(),
            answer: "The answer is 42.".to_owned(),
            basis: many("basis"),
            next: many("vmtax next"),
            tiles: (0..items).map(|_| Tile::default()).collect(),
            advice: (0..items)
                .map(|_| Advice {
                    finding: "Found.".to_owned(),
                    ..Advice::default()
                })
                .collect(),
            sections: vec![
                Section::new("First", [Figure::new(Tall(tall))]),
                Section::new("Second", [table(items)]),
                Section::new("Third", [table(tall)]),
                Section::detail("Detail", [table(1)]),
            ],
            notices: vec![
                Notice::notes("Notes", many("note")),
                Notice::warnings(many("weak")),
            ],
            method: many("method"),
            origin: Origin {
                command: "vmtax report out".to_owned(),
                ..Origin::default()
            },
            ..Report::default()
        }
    }

    #[test]
    fn no_comment_is_longer_than_a_screen_and_each_begins_with_the_answer() {
        for (items, tall) in [(0, 0), (1, 3), (3, 10), (5, 30), (100, 100), (100, 5)] {
            let comment = report(items, tall).markdown();
            let lines = comment.lines().count();
            assert!(lines <= COMMENT_LINES, "{items} {tall} {lines}:\n{comment}");
            assert!(comment.starts_with("**The answer is 42.**\n"), "{comment}");
            assert!(
                comment.ends_with("`vmtax report out --details`\n"),
                "{comment}"
            );
            assert!(!comment.contains("Detail") && !comment.contains("method"));
        }
    }

    #[test]
    fn a_comment_uses_its_room_and_says_what_it_leaves_out() {
        let comment = report(100, 100).markdown();
        assert_eq!(comment.lines().count(), COMMENT_LINES, "{comment}");
        let parts = ["- and 196 more", "- ⚠ weak", "| row 0 | 1 ms |", "| and "];
        for part in parts {
            assert!(comment.contains(part), "{part}:\n{comment}");
        }
        // What does not fit leaves no heading.
        assert!(!comment.contains("First") && !comment.contains("Third"));
        let short = report(3, 4).markdown();
        assert!(
            short.contains("**First**\n\n```text\nx\n") && short.contains("| row 2 | 1 ms |"),
            "{short}"
        );
    }
}
