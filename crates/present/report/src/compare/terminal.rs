//! The answer for a terminal: a table for each side.

use super::words;
use crate::Style;
use crate::number::{percent, ratio, value};
use crate::table::{self, right};
use crate::text::{Paint, columns, fit, plain, section, wrapped};
use crate::view::when;
use comfy_table::{Attribute, Cell, Color};
use vmtax_model::{Against, CompareFindings, Shown};
use vmtax_recording::Recording;

/// The answer for a terminal; without a recording, of recordings that were held against each other.
pub fn terminal(recording: Option<&Recording>, findings: &CompareFindings, style: Style) -> String {
    let width = style.width.max(40);
    let paint = Paint(style.color);
    let place = recording.map_or(String::new(), |r| {
        format!(", {}; {}, Linux {}", when(&r.manifest.started), r.host.cpu.model, r.host.kernel)
    });
    let mut out =
        wrapped(&format!("Compared with {}, {}{place}", findings.baseline, words::rounds(findings)), width, "", "");
    for against in &findings.against {
        out.push('\n');
        let title = wrapped(&format!("{} against {}", against.side, findings.baseline), width, "", "");
        out.push_str(&format!("{}\n", paint.bold(title.trim_end())));
        if against.rows.is_empty() {
            out.push_str(&wrapped("No metric that both sides have.", width, "", ""));
            continue;
        }
        out.push_str(&fitting(against, findings.detect, width, style.color));
        out.push_str("\n\n");
        out.push_str(&wrapped(&words::summary(against), width, "→ ", "  "));
        if let Some(open) = words::open(findings, against) {
            out.push_str(&wrapped(&open, width, "", ""));
        }
    }
    out.push('\n');
    let method = [words::warming_up(findings), Some(findings.method.clone())].into_iter().flatten();
    method.for_each(|text| out.push_str(&wrapped(&text, width, "", "")));
    section(&mut out, &paint.with("1;33", "Warnings"), &words::warnings(recording, findings), "! ", width);
    out
}

/// The widest table that fits: then names are shortened, columns left out.
fn fitting(against: &Against, detect: f64, width: usize, color: bool) -> String {
    let fits = |text: &String| text.lines().all(|line| columns(line) <= width);
    let tries = [(usize::MAX, 4), (26, 4), (26, 3), (22, 2), (18, 1), (14, 0)];
    let made = tries.iter().map(|(room, more)| built(against, detect, *room, *more, color));
    let mut last = String::new();
    for text in made {
        if fits(&text) {
            return text;
        }
        last = text;
    }
    last
}

/// With `more` of the columns that can be left out.
fn built(against: &Against, detect: f64, room: usize, more: usize, color: bool) -> String {
    let mut table = table::empty(color);
    let mut header = vec![Cell::new("metric")];
    header.extend((more > 1).then(|| right("baseline")));
    header.extend((more > 1).then(|| right("side")));
    header.push(right("cost"));
    header.extend((more > 0).then(|| right("95 % interval")));
    header.push(Cell::new("verdict"));
    header.extend((more > 2).then(|| right("p")));
    header.extend((more > 3).then(|| right("noise")));
    table.set_header(header);
    for row in &against.rows {
        let unit = row.metric.unit();
        let mut cells = vec![Cell::new(fit(&plain(row.metric.id()), room))];
        cells.extend((more > 1).then(|| right(value(unit, row.base.median))));
        cells.extend((more > 1).then(|| right(value(unit, row.other.median))));
        cells.push(right(ratio(row.ratio.median)).add_attribute(Attribute::Bold));
        cells.extend((more > 0).then(|| right(words::interval(row))));
        cells.push(match row.shown {
            Shown::Faster => Cell::new(words::verdict(row, detect)).fg(Color::Green),
            Shown::Slower => Cell::new(words::verdict(row, detect)).fg(Color::Red),
            Shown::Same => Cell::new(words::verdict(row, detect)),
            Shown::NotShown | Shown::TooFewRounds => Cell::new(words::verdict(row, detect)).fg(Color::DarkGrey),
        });
        cells.extend((more > 2).then(|| right(format!("{:.3}", row.p_adjusted))));
        cells.extend((more > 3).then(|| right(format!("±{}", percent(row.noise)))));
        table.add_row(cells);
    }
    table::lines(table)
}
