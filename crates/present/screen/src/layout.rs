//! Text laid out for the screen's width: sentences wrapped, tables in parts, rows cut.

use ratatui::style::Stylize;
use ratatui::text::Line;
use vmtax_report::{command_lines, printable, wrapped};

/// Lines of a page.
pub(crate) type Lines = Vec<Line<'static>>;

/// Adds a sentence in lines of at most `width` columns, the first after `first`, the others after so many blanks.
pub(crate) fn sentence(lines: &mut Lines, text: &str, width: u16, first: &str) {
    lines.extend(texts(text, width, first).map(Line::from));
}

/// Adds a sentence in bold.
pub(crate) fn bold_sentence(lines: &mut Lines, text: &str, width: u16) {
    lines.extend(texts(text, width, "").map(|line| Line::from(line.bold())));
}

fn texts(text: &str, width: u16, first: &str) -> impl Iterator<Item = String> {
    let blanks = " ".repeat(first.chars().count());
    let all = wrapped(text, usize::from(width.max(1)), first, &blanks);
    all.lines()
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Adds a command that a person can paste, broken where a shell goes on in the next line. A word that is longer than the screen goes on
/// in the next line as it is.
pub(crate) fn command(lines: &mut Lines, command: &str, width: u16, first: &str) {
    let width = usize::from(width.max(1));
    let all = command_lines(command, width, first);
    for line in all.lines() {
        let characters: Vec<char> = line.chars().collect();
        let parts = characters.chunks(width).map(|part| part.iter().collect());
        lines.extend(parts.map(|part: String| Line::from(part)));
    }
}

/// Adds a titled table: the first column to the left, the others to the right; nothing without rows. `heads` are separated by `|`.
/// Columns that the width has no room for follow below, again behind the first.
pub(crate) fn table(
    lines: &mut Lines,
    title: &str,
    heads: &str,
    rows: impl Iterator<Item = Vec<String>>,
    width: u16,
) {
    let rows = rows.map(|row| row.iter().map(|cell| printable(cell)).collect());
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return;
    }
    let heads: Vec<String> = heads.split('|').map(str::to_owned).collect();
    let widest = |at: usize| {
        let cells = rows.iter().chain([&heads]).filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(widest).collect();
    lines.push(Line::default());
    lines.push(Line::from(title.to_owned().bold()));
    for part in parts(&widths, usize::from(width)) {
        let line = |row: &Vec<String>| {
            let cells = part.iter().filter_map(|at| {
                let (cell, width) = (row.get(*at)?, widths.get(*at)?);
                Some(match at {
                    0 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
            });
            format!("  {}", cells.collect::<Vec<_>>().join("  "))
        };
        lines.push(Line::from(line(&heads)));
        lines.extend(rows.iter().map(|row| Line::from(line(row))));
    }
}

/// The columns of each part of a table, by their positions; the first is in each.
fn parts(widths: &[usize], room: usize) -> Vec<Vec<usize>> {
    let mut parts = vec![vec![0]];
    let first = 2 + widths.first().copied().unwrap_or(0);
    let mut used = first;
    for (at, width) in widths.iter().enumerate().skip(1) {
        let is_full = used + 2 + width > room && parts.last().is_some_and(|part| part.len() > 1);
        if is_full {
            parts.push(vec![0]);
            used = first;
        }
        used += 2 + width;
        parts.last_mut().into_iter().for_each(|part| part.push(at));
    }
    parts
}

/// Cut to so many characters, the cut marked.
pub(crate) fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_beyond_the_width_follow_behind_the_first() {
        assert_eq!(parts(&[4, 4, 4, 4], 80), [[0, 1, 2, 3]]);
        assert_eq!(parts(&[4, 4, 4, 4], 18), [vec![0, 1, 2], vec![0, 3]]);
        assert_eq!(parts(&[4, 40], 10), [[0, 1]], "one in each");
        assert_eq!(parts(&[4], 1), [[0]]);
    }

    #[test]
    fn a_cut_is_marked() {
        assert_eq!(
            [cut("abc", 3), cut("abcd", 3), cut("ab", 0)],
            ["abc", "ab…", "…"]
        );
    }
}
