//! The list: a row for each VM, in the columns that fit and that a person chose.

use crate::layout::cut;
use crate::state::{ColumnChoice, Order, State};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::Text;
use ratatui::widgets::{Cell, Row, Table, TableState};
use vmtax_findings::VmRates;
use vmtax_model::Counter;
use vmtax_model::number::NONE;
use vmtax_report::{counter_text, printable};

/// Characters of a name, and of the busiest thread, where there is room, and where there is none.
const NAME: [u16; 2] = [20, 9];
const THREAD: [u16; 2] = [20, NARROW_THREAD];
const NARROW_THREAD: u16 = 10;

/// Columns of the list.
pub(crate) struct Columns {
    pub shown: Vec<&'static Counter>,
    /// Width of the name.
    name: u16,
    /// Width of the busiest thread; `None` where there is no room for it.
    thread: Option<u16>,
}

impl Columns {
    /// Returns true if a figure of this VM is "–" in the list.
    pub fn has_unknown(&self, vm: &VmRates) -> bool {
        let busiest = self.thread.is_some() && vm.busiest().is_none();
        let mut figures = self.shown.iter().map(|column| counter_text(column, vm));
        busiest || figures.any(|text| text == NONE)
    }

    /// Number of the columns that are left out though nobody hid them.
    pub fn left_out(&self, state: &State) -> usize {
        let is_wanted = |column: &&Counter| state.choice(column) != ColumnChoice::Hidden;
        let wanted = Counter::columns().filter(is_wanted).count();
        wanted.saturating_sub(self.shown.len()) + usize::from(self.thread.is_none())
    }
}

/// Draws a row for each VM.
pub(crate) fn draw_list(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let vms = state.rows();
    let Columns {
        shown,
        name,
        thread,
    } = fitting(state, area.width);
    let widths = shown.iter().map(|column| width(column, &vms));
    let widths = [name].into_iter().chain(widths).chain(thread);
    let constraints: Vec<Constraint> = widths.map(Constraint::Length).collect();
    let heads = shown.iter().map(|column| head(column, state.order));
    let busiest_head = thread.map(|width| match width {
        NARROW_THREAD => Cell::from("BUSIEST"),
        _ => Cell::from("BUSIEST THREAD"),
    });
    let header = [Cell::from("VM")].into_iter().chain(heads);
    let header = Row::new(header.chain(busiest_head));
    let row = |vm: &&VmRates| {
        let cells = shown.iter().map(|column| {
            Cell::from(Text::from(counter_text(column, vm)).alignment(Alignment::Right))
        });
        let label = Cell::from(cut(&printable(&vm.label()), name));
        let busiest = thread.map(|width| Cell::from(cut(&printable(&busiest(vm)), width)));
        let color = if vm.findings.is_empty() {
            Style::new()
        } else {
            Style::new().fg(Color::Yellow)
        };
        Row::new([label].into_iter().chain(cells).chain(busiest)).style(color)
    };
    let table = Table::new(vms.iter().map(row), constraints)
        .header(header.style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(1)
        .row_highlight_style(Style::new().reversed());
    let mut selection =
        TableState::new().with_selected(vms.iter().position(|vm| Some(vm.pid) == state.selected));
    frame.render_stateful_widget(table, area, &mut selection);
}

/// The head of a column, underlined where rows are sorted by it.
fn head(column: &'static Counter, order: Order) -> Cell<'static> {
    let is_order = matches!(order, Order::Column(sorted) if sorted == column);
    let style = if is_order {
        Style::new().add_modifier(Modifier::UNDERLINED)
    } else {
        Style::new()
    };
    Cell::from(Text::from(column.column).alignment(Alignment::Right)).style(style)
}

/// The columns that fit: those that nobody chose are left out first, the least important of them before the others.
pub(crate) fn fitting(state: &State, room: u16) -> Columns {
    let vms = state.rows();
    let labels = vms.iter().map(|vm| vm.label().chars().count() as u16);
    let name = labels.max().unwrap_or(0).clamp(2, NAME[0]);
    let needs = |shown: &[&Counter]| -> u16 {
        let widths = shown.iter().map(|column| width(column, &vms) + 1);
        widths.fold(0, u16::saturating_add)
    };
    let steps = Counter::columns().map(|column| column.spare).max();
    for step in 0..=steps.unwrap_or(0) {
        let shown = chosen(state, step);
        let sizes = [
            (name, THREAD[0]),
            (name, THREAD[1]),
            (name.min(NAME[1]), THREAD[1]),
        ];
        let fits = |(name, thread): &(u16, u16)| name + needs(&shown) + thread < room;
        if let Some((name, thread)) = sizes.into_iter().find(fits) {
            return Columns {
                shown,
                name,
                thread: Some(thread),
            };
        }
    }
    let mut shown = chosen(state, u8::MAX);
    let name = name.min(NAME[1]);
    while name + needs(&shown) > room && !shown.is_empty() {
        let automatic = |column: &&Counter| state.choice(column) == ColumnChoice::Automatic;
        let last = shown.iter().rposition(automatic);
        shown.remove(last.unwrap_or(shown.len() - 1));
    }
    Columns {
        shown,
        name,
        thread: None,
    }
}

/// The columns of a step: those that a person chose, and those that are not left out yet.
fn chosen(state: &State, step: u8) -> Vec<&'static Counter> {
    let is_shown = |column: &&Counter| match state.choice(column) {
        ColumnChoice::Automatic => column.spare == 0 || column.spare > step,
        ColumnChoice::Shown => true,
        ColumnChoice::Hidden => false,
    };
    Counter::columns().filter(is_shown).collect()
}

fn width(column: &Counter, vms: &[&VmRates]) -> u16 {
    let cells = vms
        .iter()
        .map(|vm| counter_text(column, vm).chars().count());
    cells
        .chain([column.column.chars().count()])
        .max()
        .unwrap_or(0) as u16
}

fn busiest(vm: &VmRates) -> String {
    vm.busiest().map_or(NONE.to_owned(), |thread| {
        format!("{} {:.0}%", thread.role.label(), thread.run * 100.0)
    })
}
