//! A row for each VM. Columns that there is no room for are left out, the least important first.

use crate::state::{Order, State};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::Text;
use ratatui::widgets::{Cell, Row, Table, TableState};
use vmtax_model::VmRates;
use vmtax_report::{VmCounter, printable, top_columns};

/// Characters of a name, and of the busiest thread, where there is room, and where there is none.
const NAME: (u16, u16) = (20, 9);
const THREAD: (u16, u16) = (20, 10);

pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let vms = state.rows();
    let (shown, name, thread) = fitting(&vms, area.width);
    let widths = |column: &&VmCounter| Constraint::Length(width(column, &vms));
    let constraints: Vec<Constraint> = [Constraint::Length(name)]
        .into_iter()
        .chain(shown.iter().map(widths))
        .chain([Constraint::Length(thread)])
        .collect();
    let head = |column: &VmCounter| {
        let is_order = matches!(state.order, Order::Column(at) if top_columns().nth(at).is_some_and(|c| c.column == column.column));
        let style = if is_order {
            Style::new().add_modifier(Modifier::UNDERLINED)
        } else {
            Style::new()
        };
        Cell::from(Text::from(column.column).alignment(Alignment::Right)).style(style)
    };
    let heads = shown.iter().map(|column| head(column));
    let header = Row::new(
        [Cell::from("VM")]
            .into_iter()
            .chain(heads)
            .chain([Cell::from("BUSIEST THREAD")]),
    )
    .style(Style::new().add_modifier(Modifier::BOLD));
    let row = |vm: &&VmRates| {
        let cells = shown
            .iter()
            .map(|column| Cell::from(Text::from(column.text(vm)).alignment(Alignment::Right)));
        let all = [Cell::from(cut(&printable(&vm.label()), name))]
            .into_iter()
            .chain(cells);
        let colour = if vm.findings.is_empty() {
            Style::new()
        } else {
            Style::new().fg(Color::Yellow)
        };
        Row::new(all.chain([Cell::from(cut(&printable(&busiest(vm)), thread))])).style(colour)
    };
    let table = Table::new(vms.iter().map(row), constraints)
        .header(header)
        .column_spacing(1)
        .row_highlight_style(Style::new().reversed());
    let mut selection =
        TableState::new().with_selected(vms.iter().position(|vm| Some(vm.pid) == state.selected));
    frame.render_stateful_widget(table, area, &mut selection);
}

/// The columns that fit, with the width of the name and of the busiest thread.
fn fitting(vms: &[&VmRates], room: u16) -> (Vec<&'static VmCounter>, u16, u16) {
    let longest = vms
        .iter()
        .map(|vm| vm.label().chars().count() as u16)
        .max()
        .unwrap_or(0);
    let name = longest.clamp(2, NAME.0);
    let steps = top_columns().map(|column| column.spare).max().unwrap_or(0);
    for step in 0..=steps {
        let shown: Vec<&VmCounter> = top_columns()
            .filter(|column| column.spare == 0 || column.spare > step)
            .collect();
        let figures: u16 = shown.iter().map(|column| width(column, vms) + 1).sum();
        for (name, thread) in [
            (name, THREAD.0),
            (name, THREAD.1),
            (name.min(NAME.1), THREAD.1),
        ] {
            if name + figures + thread < room {
                return (shown, name, thread);
            }
        }
    }
    (
        top_columns().filter(|column| column.spare == 0).collect(),
        name.min(NAME.1),
        THREAD.1,
    )
}

fn width(column: &VmCounter, vms: &[&VmRates]) -> u16 {
    let cells = vms.iter().map(|vm| column.text(vm).chars().count());
    cells
        .chain([column.column.chars().count()])
        .max()
        .unwrap_or(0) as u16
}

fn busiest(vm: &VmRates) -> String {
    vm.busiest().map_or("–".to_owned(), |thread| {
        format!("{} {:.0}%", thread.role.label(), thread.run * 100.0)
    })
}

/// Cut to so many characters, the cut marked.
fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    match text.chars().count() > width {
        true => text
            .chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .collect(),
        false => text.to_owned(),
    }
}
