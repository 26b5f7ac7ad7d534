//! The answer for a terminal: the laws, the rungs, a sentence for what grows most.

use super::words;
use crate::Style;
use crate::number::{NONE, count, nanoseconds};
use crate::table::{self, right};
use crate::text::{Paint, columns, fit, plain, section, wrapped};
use crate::view::when;
use comfy_table::{Attribute, Cell};
use vmtax_model::{Growth, GrowthFindings};
use vmtax_recording::Recording;

/// Sentences that a reader takes in.
const SAID: usize = 4;

/// The answer for a terminal. Nothing from a guest reaches the terminal as a control character.
pub fn terminal(recording: &Recording, findings: &GrowthFindings, style: Style) -> String {
    let width = style.width.max(40);
    let paint = Paint(style.color);
    let mut out = wrapped(&heading(recording, findings), width, "", "");
    if findings.growths.is_empty() {
        out.push_str(&wrapped("No trial gave a value: there is nothing to fit.", width, "", ""));
    } else {
        out.push('\n');
        out.push_str(&narrowed(width, &|room, all| laws(findings, room, all, style.color)));
        out.push_str(&format!("\n\n{}\n", paint.bold("Cost by size, medians over rounds")));
        out.push_str(&narrowed(width, &|room, all| rungs(findings, room, all, style.color)));
        out.push_str("\n\n");
        for growth in words::ranked(findings).iter().take(SAID) {
            out.push_str(&wrapped(&words::sentence(growth, &findings.option), width, "", "  "));
        }
        out.push('\n');
        out.push_str(&wrapped(&findings.method, width, "", ""));
    }
    section(&mut out, &paint.with("1;33", "Not measured"), &words::missing(findings), "– ", width);
    section(&mut out, &paint.with("1;33", "Warnings"), &words::warnings(recording, findings), "! ", width);
    out
}

fn heading(recording: &Recording, findings: &GrowthFindings) -> String {
    let host = &recording.host;
    format!(
        "Growth with {}, {}, {}; {}, Linux {}",
        findings.option,
        when(&recording.manifest.started),
        words::rounds(findings),
        host.cpu.model,
        host.kernel
    )
}

/// A table that fits: first its label is shortened, then columns are left out, the last ones first.
fn narrowed(width: usize, build: &dyn Fn(usize, usize) -> String) -> String {
    let fits = |text: &String| text.lines().all(|line| columns(line) <= width);
    let mut made = build(usize::MAX, usize::MAX);
    for shown in (1..=8).rev() {
        for room in [60, 40, 30, 24, 18] {
            if fits(&made) {
                return made;
            }
            made = build(room, shown);
        }
    }
    made
}

fn label(growth: &Growth, room: usize) -> Cell {
    Cell::new(fit(&plain(&format!("{} ({})", words::what(growth), words::place(growth))), room))
}

fn laws(findings: &GrowthFindings, room: usize, shown: usize, color: bool) -> String {
    let mut table = table::empty(color);
    let names = ["law", "one more", "95 % interval", "top:bottom", "p"];
    let chosen = |cells: [Cell; 5]| cells.into_iter().take(shown.max(1));
    table.set_header([Cell::new("cost of")].into_iter().chain(chosen(names.map(Cell::new))));
    for growth in &findings.growths {
        let step = match growth.law {
            Some(law) if !matches!(law.step(), "one more") => {
                format!("{} {}", words::one_more(growth), short(law.step()))
            }
            _ => words::one_more(growth),
        };
        let cells = [
            Cell::new(words::law(growth)).add_attribute(Attribute::Bold),
            right(step),
            right(words::one_more_range(growth)),
            right(words::change(growth)),
            right(format!("{:.3}", growth.p)),
        ];
        table.add_row([label(growth, room)].into_iter().chain(chosen(cells)));
    }
    table::lines(table)
}

/// A step in a cell.
fn short(step: &str) -> &str {
    if step == "twice as many" { "a doubling" } else { "at the top" }
}

/// The rungs' medians: of many sizes as many as fit, the first and the last among them.
fn rungs(findings: &GrowthFindings, room: usize, shown: usize, color: bool) -> String {
    let sizes: Vec<u64> = findings.growths.first().map_or(Vec::new(), |g| g.rungs.iter().map(|r| r.size).collect());
    let last = sizes.len().saturating_sub(1);
    let wanted = shown.clamp(2, sizes.len().max(2));
    let mut picked: Vec<usize> = (0..wanted).map(|i| i * last / (wanted - 1)).collect();
    picked.dedup();
    let mut table = table::empty(color);
    table.set_header([Cell::new("")].into_iter().chain(picked.iter().map(|&k| right(count(sizes[k])))));
    for growth in &findings.growths {
        let cost = |&k: &usize| right(growth.rungs[k].ns.map_or(NONE.to_owned(), |e| nanoseconds(e.median)));
        table.add_row([label(growth, room)].into_iter().chain(picked.iter().map(cost)));
    }
    table::lines(table)
}
