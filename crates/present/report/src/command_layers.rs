//! What a command's guests asked of their disks, beside what the command cost.

use crate::Style;
use crate::layers::terminal::{notes, tables};
use crate::layers::{view, words};
use crate::number::{count, nanoseconds, percent, value};
use crate::table::{self, right};
use crate::text::{Paint, columns, section, wrapped};
use crate::view::{first_five, warnings};
use comfy_table::Cell;
use vmtax_model::{CommandLayers, DiskUse, ExecFindings, KindUse, Metric, Unit};
use vmtax_recording::Recording;

/// For a terminal: each disk's use, then where the time of a request goes.
pub(crate) fn terminal(recording: &Recording, found: &CommandLayers, exec: &ExecFindings, style: Style) -> String {
    let (width, paint) = (style.width.max(40), Paint(style.color));
    let mut out = String::new();
    for disk in &found.disks {
        out += &format!("\n{}\n", paint.bold(wrapped(&title(disk), width, "", "").trim_end()));
        if !disk.kinds.is_empty() {
            out += &(table(disk, style) + "\n");
        }
        out += &wrapped(&sentence(disk, exec), width, "", "  ");
    }
    let layers = &found.layers;
    if let Some(main) = view::main_column(layers) {
        out += &tables(layers, main, style);
        // What the probes cost stands in the sentence: it is the command's, and not a request's.
        for note in notes(main).iter().filter(|note| !note.starts_with("Observer effect")) {
            out += &wrapped(note, width, "", "  ");
        }
    }
    section(&mut out, &paint.with("1;33", "Not observed"), &words::missing(layers), "– ", width);
    section(&mut out, &paint.with("1;33", "Warnings"), &warnings(recording, &layers.warnings), "! ", width);
    section(&mut out, &paint.with("1;36", "Advice"), &first_five(&layers.advice), "→ ", width);
    out
}

pub(crate) fn title(disk: &DiskUse) -> String {
    format!("Requests to the scratch disk on {} (one more run, under probes)", disk.machine)
}

/// How much of the command's time there were requests at all.
pub(crate) fn sentence(disk: &DiskUse, exec: &ExecFindings) -> String {
    let seconds = |s| value(Unit::Seconds, s);
    let row = exec.taxes.rows.iter().find(|row| row.metric == Metric::ExecWall);
    let column = row.and_then(|row| row.machines.iter().find(|c| c.machine == disk.machine));
    let untraced = column
        .and_then(|c| c.spread.as_ref())
        .map_or(String::new(), |spread| format!(", those without probes {} (median)", seconds(spread.median)));
    let took = format!("This run took {}{untraced}", seconds(disk.wall_s));
    let part = if disk.observed_s < disk.wall_s {
        format!(" Its first {} alone were observed: then the buffers for events were full.", seconds(disk.observed_s))
    } else {
        String::new()
    };
    if disk.kinds.is_empty() {
        return format!("No request reached the disk: the guest kept all in its memory. {took}.{part}");
    }
    let share = percent(disk.under_way_s / disk.observed_s.max(f64::MIN_POSITIVE));
    format!(
        "At least one request was under way for {} ({share} of the time): so much of it the disk can have cost at most. \
         {took}.{part}",
        seconds(disk.under_way_s)
    )
}

/// One line of a disk's table.
pub(crate) fn cells(kind: &KindUse) -> [String; 7] {
    [
        count(kind.requests),
        bytes(kind.bytes),
        sizes(kind),
        nanoseconds(kind.time.p50_ns),
        nanoseconds(kind.time.p99_ns),
        nanoseconds(kind.time.max_ns),
        count(kind.followed),
    ]
}

/// What its columns are called.
pub(crate) const HEADERS: [&str; 7] = ["requests", "bytes", "each", "p50", "p99", "longest", "followed"];

/// What a narrow terminal goes without, by position, the first first.
const SPARED: [usize; 4] = [2, 5, 4, 1];

fn table(disk: &DiskUse, style: Style) -> String {
    let without = |spared: &[usize], color| {
        let left = |cells: [String; 7]| {
            let cells = cells.into_iter().enumerate().filter(|(i, _)| !spared.contains(i));
            cells.map(|(_, text)| right(text)).collect::<Vec<_>>()
        };
        let mut table = table::empty(color);
        table.set_header([Cell::new("")].into_iter().chain(left(HEADERS.map(str::to_owned))));
        for kind in &disk.kinds {
            table.add_row([Cell::new(kind.kind.label())].into_iter().chain(left(cells(kind))));
        }
        table::lines(table)
    };
    let fits = |n: &usize| without(&SPARED[..*n], false).lines().all(|line| columns(line) <= style.width);
    let spared = (0..SPARED.len()).find(fits).unwrap_or(SPARED.len());
    without(&SPARED[..spared], style.color)
}

fn bytes(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { value(Unit::Mebibytes, bytes as f64 / f64::from(1 << 20)) }
}

/// The shortest and the longest.
fn sizes(kind: &KindUse) -> String {
    match (kind.sizes.first(), kind.sizes.last()) {
        (Some((low, _)), Some((high, _))) if low == high => size(*low),
        (Some((low, _)), Some((high, _))) => format!("{}–{}", size(*low), size(*high)),
        _ => String::new(),
    }
}

/// The same without a fraction that is none: lengths are powers of two as a rule.
fn size(length: u64) -> String {
    bytes(length).replace(".000 ", " ").replace(".00 ", " ").replace(".0 ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Machine, RequestKind, Summary};

    #[test]
    fn a_disks_table_fits_any_terminal_and_keeps_what_matters() {
        let time =
            Summary { n: 9, min_ns: 1e6, mean_ns: 2e6, p50_ns: 1.234e6, p90_ns: 3e6, p99_ns: 123.4e6, max_ns: 2.345e9 };
        let kind = |kind, requests, sizes: &[(u64, u64)]| {
            let bytes = sizes.iter().map(|(bytes, n)| bytes * n).sum();
            KindUse { kind, requests, followed: requests, bytes, sizes: sizes.to_vec(), time }
        };
        let write = kind(RequestKind::Write, 1_234_567, &[(4096, 1_000_000), (1_310_720, 234_567)]);
        let kinds = vec![write, kind(RequestKind::Flush, 22, &[(0, 22)])];
        let disk = DiskUse { machine: Machine::TCG, wall_s: 9.0, observed_s: 9.0, under_way_s: 1.0, kinds };
        for width in [40, 60, 80, 100] {
            let text = table(&disk, Style { width, color: false });
            assert!(text.lines().all(|line| columns(line) <= width), "{width}:\n{text}");
            assert!(
                ["writes", "flushes", "1,234,567", "1.234 ms", "followed"].iter().all(|w| text.contains(w)),
                "{text}"
            );
        }
        let wide = table(&disk, Style { width: 100, color: false });
        assert!(wide.contains("4 KiB–1.250 MiB") && wide.contains("290 GiB"), "{wide}");
    }
}
