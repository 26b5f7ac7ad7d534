//! Everything that `layers` found, as text: `--details`.

use super::terminal::heading;
use super::view::{self, Scale};
use super::words;
use crate::Style;
use crate::number::{count, nanoseconds, percent};
use crate::table::{self, right};
use crate::text::{Paint, cell, plain, wrapped};
use comfy_table::{Attribute, Cell, Table};
use vmtax_model::{CallRow, Estimate, LayerColumn, LayerFindings, Row, Summary};
use vmtax_recording::Recording;

/// Every table of every column. Lines of the widest tables may be broken below 80 columns.
pub fn details(recording: &Recording, findings: &LayerFindings, style: Style) -> String {
    let width = style.width.max(40);
    let page = Details { width, color: style.color, paint: Paint(style.color) };
    let mut out = wrapped(&heading(recording, findings), width, "", "");
    if let Some(host) = &findings.host {
        out.push_str(
            &page.titled("Bare host, the same work on the same file", page.figures(&[("one operation", host)])),
        );
    }
    let columns = view::columns(findings);
    for column in &columns {
        out.push_str(&format!("\n{}\n", page.paint.with("1;4", &plain(&view::title(column)))));
        out.push_str(&page.column(column));
    }
    if columns.len() > 1 {
        out.push_str(&page.titled("Rows side by side, means", page.side_by_side(&columns)));
    }
    out.push('\n');
    out.push_str(&wrapped(&format!("Method: {}", findings.method), width, "", "  "));
    out
}

struct Details {
    width: usize,
    color: bool,
    paint: Paint,
}

impl Details {
    fn titled(&self, title: &str, table: String) -> String {
        format!("\n{}\n{table}\n", self.paint.bold(&plain(title)))
    }

    /// A table with these headers; all but the first `words` are figures.
    fn table(&self, headers: &[&str], words: usize) -> Table {
        let mut table = table::empty(self.color);
        let cell = |(i, h): (usize, &&str)| if i < words { Cell::new(h) } else { right(*h) };
        table.set_header(headers.iter().enumerate().map(cell));
        table
    }

    fn column(&self, column: &LayerColumn) -> String {
        let mut out = String::new();
        out.push_str(&wrapped(&format!("Clocks: {}.", words::clock(column)), self.width, "", "  "));
        out.push_str(&wrapped(&format!("Requests: {}.", words::matched(column)), self.width, "", "  "));
        out.push_str(&wrapped(&format!("Observer effect: {}.", words::observer(column)), self.width, "", "  "));
        let wholes: Vec<(&str, &Summary)> = [("traced", Some(&column.traced)), ("control", column.control.as_ref())]
            .into_iter()
            .filter_map(|(name, figure)| Some((name, figure?)))
            .collect();
        out.push_str(&self.titled("One operation", self.figures(&wholes)));
        out.push_str(&self.titled("Rows", self.rows(column)));
        out.push_str(&self.titled("From each layer's entry to its exit", self.nested(column)));
        out.push_str(&self.titled("The life of a request, medians", self.lifecycle(column)));
        for thread in &column.calls {
            let title = format!("System calls of QEMU's {}", view::role(&thread.role));
            out.push_str(&self.titled(&title, self.calls(thread.calls.iter(), thread.locks.as_ref())));
        }
        out.push_str(&self.titled("The slowest 1 % against the requests around the median, means", self.tail(column)));
        out
    }

    fn figures(&self, figures: &[(&str, &Summary)]) -> String {
        let mut table = self.table(&["", "p50", "p90", "p99", "max", "mean"], 1);
        for (name, f) in figures {
            let cells = [f.p50_ns, f.p90_ns, f.p99_ns, f.max_ns, f.mean_ns].map(|ns| right(nanoseconds(ns)));
            table.add_row([Cell::new(name)].into_iter().chain(cells));
        }
        table::lines(table)
    }

    fn rows(&self, column: &LayerColumn) -> String {
        let scale = Scale::for_columns(&[column]);
        let mean = format!("mean, {} (95 %)", scale.unit);
        let mut table = self.table(&["row", "n", "p50", "p90", "p99", "max", &mean], 1);
        let room = self.width.saturating_sub(58).clamp(18, 60);
        let mut before: Option<&Row> = None;
        for row in &column.rows {
            if before.is_none_or(|b| b.layer != row.layer) {
                table.add_row([Cell::new(row.layer.label()).add_attribute(Attribute::Bold)]);
            }
            let again = before.is_some_and(|b| (b.layer, b.to) == (row.layer, row.to));
            let stretch = if again { "″".to_owned() } else { format!("→ {}", row.to.label()) };
            let state = Some(view::state(row.state)).filter(|s| !s.is_empty());
            let state = state.map_or(String::new(), |s| format!(" ({s})"));
            let name = format!("{stretch}{state}{}", if row.below_bound { " †" } else { "" });
            before = Some(row);
            let f = &row.time;
            let figures = [f.p50_ns, f.p90_ns, f.p99_ns, f.max_ns].map(|ns| right(scale.number(ns)));
            table.add_row(
                [Cell::new(cell(&name, room)), right(count(row.count))]
                    .into_iter()
                    .chain(figures)
                    .chain([right(estimate(&scale, &row.mean))]),
            );
        }
        let note = words::below_bound(&[column]).map_or(String::new(), |n| wrapped(&n, self.width, "", "  "));
        format!("{}\n{note}", table::lines(table)).trim_end().to_owned()
    }

    fn nested(&self, column: &LayerColumn) -> String {
        let mut table = self.table(&["layer", "cumulative", "p50", "p99", "delta", "percent", "control"], 1);
        // The control is the whole operation without probes: it belongs beside the outermost.
        for (i, n) in column.nested.iter().enumerate() {
            let control = column.control.filter(|_| i == 0).map_or(String::new(), |c| nanoseconds(c.mean_ns));
            let times = [n.cumulative.mean_ns, n.cumulative.p50_ns, n.cumulative.p99_ns, n.delta_ns];
            table.add_row(
                [Cell::new(plain(&n.label))]
                    .into_iter()
                    .chain(times.map(|ns| right(nanoseconds(ns))))
                    .chain([right(percent(n.percent / 100.0)), right(control)]),
            );
        }
        table::lines(table)
    }

    fn lifecycle(&self, column: &LayerColumn) -> String {
        let scale = Scale::for_columns(&[column]);
        let since = format!("since previous, {}", scale.unit);
        let mut table = self.table(&["event", "thread", &since], 2);
        for step in &column.lifecycle {
            let words = [&step.label, &step.thread].map(|t| Cell::new(plain(t)));
            table.add_row(words.into_iter().chain([right(scale.number(step.since_previous_ns))]));
        }
        table::lines(table)
    }

    fn calls<'a>(&self, calls: impl Iterator<Item = &'a CallRow>, locks: Option<&CallRow>) -> String {
        let mut table = self.table(&["call", "count", "mean", "stddev", "min", "max", "total"], 1);
        let mut add = |name: String, c: &CallRow| {
            let times = [c.mean_ns, c.stddev_ns, c.min_ns, c.max_ns, c.total_ns].map(|ns| right(nanoseconds(ns)));
            table.add_row([Cell::new(name), right(count(c.count))].into_iter().chain(times));
        };
        for call in calls {
            add(plain(&call.name), call);
        }
        if let Some(locks) = locks {
            add("of these, lock waits".to_owned(), locks);
        }
        table::lines(table)
    }

    fn tail(&self, column: &LayerColumn) -> String {
        let scale = Scale::for_columns(&[column]);
        let headers = ["row", "median", "slowest 1 %", "more"];
        let mut table = self.table(&headers, 1);
        for row in &column.tail {
            let times = [row.median_ns, row.slowest_ns, row.slowest_ns - row.median_ns].map(|ns| right(scale.text(ns)));
            table.add_row([Cell::new(plain(&row.label))].into_iter().chain(times));
        }
        table::lines(table)
    }

    fn side_by_side(&self, columns: &[&LayerColumn]) -> String {
        let scale = Scale::for_columns(columns);
        let titles: Vec<String> = columns
            .iter()
            .map(|c| format!("{}\n{}", c.machine, plain(&c.variant)).trim_end().replace(',', "\n"))
            .collect();
        let mut headers = vec!["row"];
        headers.extend(titles.iter().map(String::as_str));
        let mut table = self.table(&headers, 1);
        let room = self.width.saturating_sub(14 * columns.len()).clamp(20, 60);
        for key in view::rows_of(columns) {
            let mean = |c: &&LayerColumn| right(key.find(c).map_or(String::new(), |r| scale.text(r.time.mean_ns)));
            table.add_row([Cell::new(cell(&key.name(), room))].into_iter().chain(columns.iter().map(mean)));
        }
        table::lines(table)
    }
}

/// "24.7 (22.1–25.0)".
fn estimate(scale: &Scale, e: &Estimate) -> String {
    match e.interval {
        Some(_) => format!("{} ({})", scale.number(e.median), scale.range(e)),
        None => scale.number(e.median),
    }
}
