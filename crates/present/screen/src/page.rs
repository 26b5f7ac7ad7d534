//! The whole screen: a header with the level and its cost, the host, the page, what the selected VM suffers from, the keys. A
//! page is a row for each VM, one VM in detail, the columns to choose from, or the help.

use crate::details::detail_lines;
use crate::keys::KEYS;
use crate::layout::{Lines, bold_sentence, command, cut, sentence};
use crate::list::{draw_list, fitting};
use crate::state::{ColumnChoice, Order, Prompt, State, View};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use vmtax_model::Counter;
use vmtax_model::number::counted;
use vmtax_report::{
    NO_VM, Statement, host_lines, host_statements, level_cost, printable, vm_statement,
};

/// Lines that the list keeps where the terminal is low.
const LIST_LINES: u16 = 4;

pub(crate) fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let Rect { width, height, .. } = frame.area();
    let room = height.saturating_sub(2 + LIST_LINES);
    let below = below(state, width);
    let below_height = (below.len() as u16).min(room);
    let host = host(state, width);
    // A low terminal has no room for the host beside a finding.
    let host_height = Some(host.len() as u16).filter(|lines| *lines <= room - below_height);
    let rows = [
        Constraint::Length(1),
        Constraint::Length(host_height.unwrap_or(0)),
        Constraint::Min(0),
        Constraint::Length(below_height),
        Constraint::Length(1),
    ];
    let [header, above, page, bottom, keys] = Layout::vertical(rows).areas(frame.area());
    let head = Paragraph::new(head(state, width)).style(Style::new().reversed());
    frame.render_widget(head, header);
    frame.render_widget(Paragraph::new(host), above);
    match state.view {
        View::List => draw_list(frame, page, state),
        View::Detail => scrolled(frame, page, detail_lines(state, width), state),
        View::Fields => fields(frame, page, state),
        View::Help => scrolled(frame, page, help(width), state),
    }
    frame.render_widget(Paragraph::new(shortened(below, bottom.height)), bottom);
    let keys_line = Paragraph::new(last_line(state, width)).style(Style::new().reversed());
    frame.render_widget(keys_line, keys);
}

/// The time, the VMs, the interval, the level with its cost: as much of it as there is room for.
fn head(state: &State, width: u16) -> String {
    let interval = state.interval.as_secs_f64();
    let Some(sample) = &state.sample else {
        return format!("vmtax top: the first interval takes {interval} s");
    };
    let time = sample
        .time
        .split(['T', '.', 'Z'])
        .nth(1)
        .unwrap_or_default();
    let vms = counted(sample.vms.len() as u64, "VM");
    let (order, cost) = (state.order_name(), level_cost(sample));
    let forms = [
        format!("vmtax top  {time} UTC  {vms}, every {interval} s, by {order}  {cost}"),
        format!("{time}  {vms}, every {interval} s, by {order}  {cost}"),
        format!("{time}  {vms}, by {order}  {cost}"),
        format!("{time}  {vms}, by {order}"),
    ];
    let fits = |form: &&String| form.chars().count() <= usize::from(width);
    let fitting = forms.iter().find(fits).or(forms.last());
    fitting.cloned().unwrap_or_default()
}

/// The host's CPUs, memory and disks: of the list and the details.
fn host(state: &State, width: u16) -> Lines {
    let mut lines = Lines::new();
    let has_host = matches!(state.view, View::List | View::Detail);
    let samples = state.sample.iter().filter(|_| has_host);
    for text in samples.flat_map(host_lines) {
        sentence(&mut lines, &text, width, "");
    }
    lines
}

/// Findings about the host and the selected VM with the next command, then what there is to know about the figures. Below the list;
/// elsewhere what happens meanwhile.
fn below(state: &State, width: u16) -> Lines {
    let mut lines = Lines::new();
    let Some(sample) = state.sample.as_ref().filter(|_| state.view == View::List) else {
        events(&mut lines, state, width);
        return lines;
    };
    let (causes, settings): (Vec<Statement>, Vec<Statement>) = host_statements(sample)
        .into_iter()
        .partition(|statement| statement.has_cost);
    let of_vm = state.selected_vm().and_then(|vm| vm_statement(sample, vm));
    for statement in causes.iter().chain(&of_vm) {
        stated(&mut lines, statement, width);
    }
    events(&mut lines, state, width);
    if let [first, others @ ..] = settings.as_slice() {
        let more = match others.len() as u64 {
            0 => String::new(),
            more => format!(" and {}", counted(more, "more setting")),
        };
        let text = format!(
            "{}, worth checking: {} The details (Enter) have its remedy{more}.",
            first.about, first.text
        );
        sentence(&mut lines, &text, width, "");
    }
    if sample.vms.is_empty() {
        sentence(&mut lines, NO_VM, width, "");
    }
    figures(&mut lines, state, width);
    lines
}

/// A finding, in bold, and the command that comes next.
fn stated(lines: &mut Lines, statement: &Statement, width: u16) {
    let about = printable(&statement.about);
    bold_sentence(lines, &format!("{about}: {}", statement.text), width);
    if let Some(next) = &statement.next {
        command(lines, next, width, "Next: ");
    }
}

/// A trace that runs, and what the last sample has to tell.
fn events(lines: &mut Lines, state: &State, width: u16) {
    if state.tracing.is_some() {
        sentence(lines, "Tracing VM exits for 3 s …", width, "");
    }
    let notes = state.sample.iter().flat_map(|sample| &sample.notes);
    notes.for_each(|note| sentence(lines, note, width, ""));
}

/// Why figures of the selected VM are "–", and that columns are left out.
fn figures(lines: &mut Lines, state: &State, width: u16) {
    let columns = fitting(state, width);
    let has_unknown = state
        .selected_vm()
        .is_some_and(|vm| columns.has_unknown(vm));
    let unknown = has_unknown.then(|| "–: not known; Enter shows the reason.".to_owned());
    let left_out = match columns.left_out(state) {
        0 => None,
        count => Some(format!(
            "{} left out: Enter shows all figures, f chooses columns.",
            counted(count as u64, "column")
        )),
    };
    let texts: Vec<String> = unknown.into_iter().chain(left_out).collect();
    if !texts.is_empty() && state.selected_vm().is_some() {
        sentence(lines, &texts.join(" "), width, "");
    }
}

/// Lines for so many rows; that there are more is the last of them.
fn shortened(mut lines: Lines, rows: u16) -> Lines {
    let rows = usize::from(rows);
    if lines.len() > rows {
        lines.truncate(rows.saturating_sub(1));
        if rows > 0 {
            lines.push(Line::from(
                "… Enter shows the rest, as does a higher terminal.",
            ));
        }
    }
    lines
}

/// The question for an interval, or the keys of the view, as many as there is room for.
fn last_line(state: &State, width: u16) -> String {
    if let Some(prompt) = &state.prompt {
        return question(prompt, state.interval.as_secs_f64(), width);
    }
    let mut line = String::new();
    for key in keys_of(state.view) {
        let gap = if line.is_empty() { "" } else { "  " };
        let next = format!("{line}{gap}{key}");
        if next.chars().count() > usize::from(width) {
            break;
        }
        line = next;
    }
    line
}

/// The keys of a view, the most important first.
fn keys_of(view: View) -> &'static [&'static str] {
    match view {
        View::List => &[
            "? help",
            "q quit",
            "Enter details",
            "↑↓ select",
            "f fields",
            "<> sort",
            "r reverse",
            "s interval",
            "t trace exits",
        ],
        View::Fields => &["↑↓ select", "Space choose", "s sort by it", "Esc list"],
        View::Detail => &["↑↓ scroll", "Esc list", "t trace exits", "q quit"],
        View::Help => &["↑↓ scroll", "Esc list", "q quit"],
    }
}

/// The question for an interval with what is typed so far, as long as there is room for.
fn question(prompt: &Prompt, interval: f64, width: u16) -> String {
    let (error, text) = (&prompt.error, &prompt.text);
    let forms = match error.is_empty() {
        true => [
            format!("Interval in seconds, now {interval} (Esc: keep): {text}_"),
            format!("Seconds: {text}_"),
        ],
        false => [
            format!("{error}. Interval in seconds: {text}_"),
            format!("{error}: {text}_"),
        ],
    };
    let fits = |form: &&String| form.chars().count() <= usize::from(width);
    let fitting = forms.iter().find(fits).or(forms.last());
    fitting.cloned().unwrap_or_default()
}

/// Lines that may be more than the page has room for.
fn scrolled(frame: &mut Frame<'_>, area: Rect, lines: Lines, state: &mut State) {
    let most = (lines.len() as u16).saturating_sub(area.height);
    state.scroll = state.scroll.min(most);
    frame.render_widget(Paragraph::new(lines).scroll((state.scroll, 0)), area);
}

/// The columns with the choice about each, and the order.
fn fields(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let mut lines = Lines::new();
    let head = "Columns: automatic (where there is room), shown (before those), hidden";
    bold_sentence(&mut lines, head, area.width);
    let above = lines.len() as u16;
    for (at, column) in Counter::columns().enumerate() {
        let choice = match state.choice(column) {
            ColumnChoice::Automatic => "automatic",
            ColumnChoice::Shown => "shown",
            ColumnChoice::Hidden => "hidden",
        };
        let is_order = matches!(state.order, Order::Column(sorted) if sorted == column);
        let order = if is_order { " (sorted by it)" } else { "" };
        let what = format!("{}{order}", column.what);
        let text = format!("  {:<9}  {:<7} {what}", choice, column.column);
        let line = Line::from(cut(&text, area.width));
        lines.push(if at == state.field {
            line.reversed()
        } else {
            line
        });
    }
    let selected = above.saturating_add(state.field as u16);
    let scroll = (selected + 1).saturating_sub(area.height);
    frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)), area);
}

fn help(width: u16) -> Lines {
    let mut lines = vec![Line::from("Keys".bold())];
    let mut row = |name: &str, does: &str| {
        sentence(&mut lines, does, width, &format!("  {name:<12} "));
    };
    KEYS.iter().for_each(|key| row(key.keys, key.does));
    row(
        "–",
        "as a figure: not known; the reason is in the details (Enter)",
    );
    lines.push(Line::default());
    lines.push(Line::from("Columns (vmtax top --explain COLUMN)".bold()));
    for column in Counter::columns() {
        let first = format!("  {:<12} ", column.column);
        sentence(&mut lines, column.what, width, &first);
    }
    lines
}
