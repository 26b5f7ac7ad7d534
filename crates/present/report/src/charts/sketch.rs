//! Pictures with characters, a line for each figure: for Markdown.

use crate::engine::alike;
use crate::text::{columns, fit, plain};

/// Columns of the longest name.
const NAME: usize = 34;
/// Columns of the widest picture.
const ROOM: usize = 40;
/// Lines of a sketch: the largest figures, where there are more.
pub const MOST: usize = 12;

/// A line of a sketch.
pub struct Line {
    /// Name of the figure.
    pub name: String,
    /// Figure beside the name.
    pub figure: String,
    /// Begin and end of the row's marks, from 0 to 100; drawn one over the other.
    pub marks: Vec<Mark>,
}

/// Marks of one kind, from one place to another.
pub struct Mark {
    /// Character that draws them.
    pub character: char,
    /// First place, percent of the width.
    pub from: f64,
    /// Last place, percent of the width.
    pub to: f64,
}

/// Makes marks.
pub fn mark(character: char, from: f64, to: f64) -> Mark {
    Mark {
        character,
        from,
        to,
    }
}

/// Lines of at most this width: names, figures, marks, below each other.
pub fn sketch(lines: &[Line], width: usize) -> String {
    let name_of = |line: &Line| fit(&plain(&line.name.replace('`', "")), NAME);
    let widest = |texts: &mut dyn Iterator<Item = String>| {
        texts.map(|text| columns(&text)).max().unwrap_or(0)
    };
    let names = widest(&mut lines.iter().map(name_of));
    let texts: Vec<String> = lines.iter().map(|line| line.figure.clone()).collect();
    let texts = alike(&texts);
    let figures = widest(&mut texts.iter().cloned());
    let room = width.saturating_sub(names + figures + 4).clamp(10, ROOM);
    let line = |(line, figure): (&Line, &String)| {
        let name = name_of(line);
        let (after, before) = (names - columns(&name), figures - columns(figure));
        let [after, before] = [after, before].map(|n| " ".repeat(n));
        let text = format!("{name}{after}  {before}{figure}  {}", drawn(line, room));
        format!("{}\n", text.trim_end())
    };
    lines.iter().zip(&texts).map(line).collect()
}

/// The marks of a line in so many columns, each at least one.
fn drawn(line: &Line, room: usize) -> String {
    let mut drawn = vec![' '; room];
    let last = room - 1;
    let column = |place: f64| {
        let columns = (place / 100.0 * room as f64).ceil() as usize;
        columns.saturating_sub(1).min(last)
    };
    for mark in &line.marks {
        let (from, to) = (mark.from.min(mark.to), mark.from.max(mark.to));
        drawn[column(from)..=column(to)].fill(mark.character);
    }
    drawn.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_lie_where_their_figures_are_and_no_line_is_too_wide() {
        let line = |name: &str, figure: &str, to| Line {
            name: name.to_owned(),
            figure: figure.to_owned(),
            marks: vec![mark('█', 0.0, to), mark('│', 50.0, 50.0)],
        };
        let text = sketch(&[line("a", "×1", 0.0), line("long", "×10.0", 100.0)], 22);
        assert_eq!(text, "a        ×1  █   │\nlong  ×10.0  ████│█████\n");
        let wide = sketch(&[line(&"x".repeat(90), "×1", f64::NAN)], 80);
        assert!(columns(wide.trim_end()) <= 80, "{wide}");
    }
}
