//! The whole screen: a header with the level and its cost, the page, what the selected VM suffers from, the keys.

use crate::keys::KEYS;
use crate::state::{State, View};
use crate::{detail, list};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};
use vmtax_report::{counted, host_disks, level_cost, printable, sentence, top_columns};

/// Lines of the sentence below the page.
const SENTENCE_LINES: u16 = 5;

pub(crate) fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let rows = [
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(SENTENCE_LINES),
        Constraint::Length(1),
    ];
    let [header, page, below, keys] = Layout::vertical(rows).areas(frame.area());
    frame.render_widget(
        Paragraph::new(head(state, header.width)).style(Style::new().reversed()),
        header,
    );
    match state.view {
        View::List => list::draw(frame, page, state),
        View::Detail => scrolled(frame, page, detail::lines(state), state),
        View::Help => scrolled(frame, page, help(), state),
    }
    frame.render_widget(
        Paragraph::new(about_selected(state)).wrap(Wrap { trim: true }),
        below,
    );
    let text = match state.view {
        View::List => "↑↓ select  Enter details  <> sort  r reverse  t trace exits  ? help  q end",
        _ => "↑↓ scroll  Esc list  t trace exits  q end",
    };
    frame.render_widget(Paragraph::new(text).style(Style::new().reversed()), keys);
}

/// The time, the VMs, the interval, the level with its cost.
fn head(state: &State, width: u16) -> String {
    let Some(sample) = &state.sample else {
        return format!(
            "vmtax top: the first interval takes {} s",
            state.interval.as_secs_f64()
        );
    };
    let time = sample
        .time
        .split(['T', '.', 'Z'])
        .nth(1)
        .unwrap_or_default();
    let vms = counted(sample.vms.len() as u64, "VM");
    let full = format!(
        "vmtax top  {time} UTC  {vms}, every {} s, by {}  {}",
        state.interval.as_secs_f64(),
        state.order_name(),
        level_cost(sample)
    );
    match full.chars().count() <= usize::from(width) {
        true => full,
        false => format!(
            "{time}  {vms}, by {}  {}",
            state.order_name(),
            level_cost(sample)
        ),
    }
}

/// Returns the largest problem of the selected VM, and the next command.
fn about_selected(state: &State) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if let Some(vm) = state.selected_vm() {
        let (text, next) = sentence(vm);
        let line = format!("{}: {text}", printable(&vm.label()));
        lines.push(Line::from(line.bold()));
        lines.extend(next.map(|next| Line::from(format!("Next: {next}"))));
    }
    let vms = state.sample.iter().map(|sample| &*sample.vms);
    lines.extend(
        vms.filter_map(host_disks)
            .map(|line| Line::from(printable(&line))),
    );
    if state.tracing.is_some() {
        lines.push(Line::from("Tracing VM exits for 3 s …"));
    }
    let notes = state.sample.iter().flat_map(|sample| &sample.notes);
    lines.extend(notes.map(|note| Line::from(printable(note))));
    if state
        .sample
        .as_ref()
        .is_some_and(|sample| sample.vms.is_empty())
    {
        lines.push(Line::from(
            "No VM runs on this host, or none that this user can see.",
        ));
    }
    lines
}

/// Lines that may be more than the page has room for.
fn scrolled(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>, state: &mut State) {
    let most = (lines.len() as u16).saturating_sub(area.height);
    state.scroll = state.scroll.min(most);
    frame.render_widget(Paragraph::new(lines).scroll((state.scroll, 0)), area);
}

fn help() -> Vec<Line<'static>> {
    let mut lines = vec![Line::from("Keys".bold())];
    lines.extend(
        KEYS.iter()
            .map(|(keys, does)| Line::from(format!("  {keys:<12} {does}"))),
    );
    lines.push(Line::default());
    lines.push(Line::from("Columns (vmtax top --explain COLUMN)".bold()));
    lines.extend(
        top_columns().map(|column| Line::from(format!("  {:<12} {}", column.column, column.what))),
    );
    lines
}
