//! State of the screen: the newest sample, the selected VM, the order; and how keys change it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Duration;
use vmtax_findings::{GuestExits, TopSample, VmRates};
use vmtax_model::Counter;
use vmtax_report::counter_value;

/// Page that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// A row for each VM.
    List,
    /// The threads, disks, NICs and exits of the selected one.
    Detail,
    /// Meaning of the columns and keys.
    Help,
}

/// By what rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Cost of the findings, then %RUN.
    Findings,
    Name,
    Column(&'static Counter),
}

/// The state of the screen.
#[derive(Debug)]
pub(crate) struct State {
    pub interval: Duration,
    pub sample: Option<TopSample>,
    pub view: View,
    pub order: Order,
    pub reversed: bool,
    /// The selected VM; it stays selected where rows move.
    pub selected: Option<i32>,
    /// Lines of a page that are above the screen.
    pub scroll: u16,
    /// The VM whose exits are being traced.
    pub tracing: Option<i32>,
    /// Exits that were traced last, with the PID of their VM.
    pub exits: Option<(i32, GuestExits)>,
}

impl State {
    pub fn new(interval: Duration) -> State {
        State {
            interval,
            sample: None,
            view: View::List,
            order: Order::Findings,
            reversed: false,
            selected: None,
            scroll: 0,
            tracing: None,
            exits: None,
        }
    }

    /// Shows a newer sample.
    pub fn show(&mut self, mut sample: TopSample) {
        for vm in &mut sample.vms {
            if let Some(exits) = vm.traced_exits.take() {
                self.exits = Some((vm.pid, exits));
            }
        }
        // The sample behind a request for a trace holds it, or says why it could not be made.
        self.tracing = None;
        self.sample = Some(sample);
        if self.selected_vm().is_none() {
            self.selected = self.rows().first().map(|vm| vm.pid);
            if self.view == View::Detail {
                self.view = View::List;
            }
        }
    }

    /// The VMs in the order that was chosen.
    pub fn rows(&self) -> Vec<&VmRates> {
        let mut rows: Vec<&VmRates> = self.sample.iter().flat_map(|sample| &sample.vms).collect();
        let largest_first =
            |a: Option<f64>, b: Option<f64>| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0));
        let gain = |vm: &VmRates| vm.findings.first().map(|advice| advice.gain);
        rows.sort_by(|a, b| {
            let order = match self.order {
                Order::Findings => {
                    largest_first(gain(a), gain(b)).then(largest_first(a.run, b.run))
                }
                Order::Name => a.label().cmp(&b.label()),
                Order::Column(column) => {
                    largest_first(counter_value(column, a), counter_value(column, b))
                }
            };
            let order = if self.reversed {
                order.reverse()
            } else {
                order
            };
            order.then(a.pid.cmp(&b.pid))
        });
        rows
    }

    pub fn selected_vm(&self) -> Option<&VmRates> {
        let vms = self.sample.iter().flat_map(|sample| &sample.vms);
        self.selected
            .and_then(|pid| vms.into_iter().find(|vm| vm.pid == pid))
    }

    /// Selects another row, so many further down.
    pub fn move_by(&mut self, rows: i64) {
        let pids: Vec<i32> = self.rows().iter().map(|vm| vm.pid).collect();
        let at = pids
            .iter()
            .position(|pid| Some(*pid) == self.selected)
            .unwrap_or(0) as i64;
        let to = (at.saturating_add(rows)).clamp(0, pids.len().saturating_sub(1) as i64);
        self.selected = pids.get(to as usize).copied();
    }

    /// Sorts by the next column, or the one before.
    pub fn sort_further(&mut self, columns: i64) {
        let all = [Order::Findings, Order::Name].into_iter();
        let all: Vec<Order> = all.chain(Counter::columns().map(Order::Column)).collect();
        let at = all.iter().position(|order| *order == self.order);
        let next = (at.unwrap_or(0) as i64 + columns).rem_euclid(all.len() as i64);
        self.order = all.get(next as usize).copied().unwrap_or(Order::Findings);
    }

    /// Sorts by the column of this name.
    pub fn sort_by(&mut self, name: &str) {
        if let Some(column) = Counter::columns().find(|column| column.column == name) {
            self.order = Order::Column(column);
        }
    }

    /// The order, for people.
    pub fn order_name(&self) -> &'static str {
        match self.order {
            Order::Findings => "findings",
            Order::Name => "name",
            Order::Column(column) => column.column,
        }
    }
}

/// The keys, for people: each with what it does.
pub(crate) const KEYS: &[(&str, &str)] = &[
    ("↑ ↓ or k j", "select a VM; in details and help: scroll"),
    (
        "Enter",
        "details of the selected VM: threads, disks, NICs, exits, why a figure is –",
    ),
    ("Esc", "back to the list"),
    ("< >", "sort by the column before, the next column"),
    ("U R N F", "sort by %RUN, by %RDY, by name, by findings"),
    ("r", "reverse the order"),
    (
        "t",
        "trace the VM exits of the selected VM for 3 s (KVM, root)",
    ),
    ("? or h", "this page"),
    ("q or Ctrl-C", "end"),
];

/// Request to the sampler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// To trace the exits of this VM; its next sample holds them.
    TraceExits(i32),
}

/// Effect of a key outside of the screen's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Quit,
    Ask(Request),
}

pub(crate) fn action(key: KeyEvent, state: &mut State) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Action::Quit);
    }
    match key.code {
        KeyCode::Char('q') => return Some(Action::Quit),
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => go(state, View::List),
        KeyCode::Enter | KeyCode::Right if state.selected_vm().is_some() => go(state, View::Detail),
        KeyCode::Char('?' | 'h') => go(state, View::Help),
        KeyCode::Down | KeyCode::Char('j') => step(state, 1),
        KeyCode::Up | KeyCode::Char('k') => step(state, -1),
        KeyCode::PageDown => step(state, 10),
        KeyCode::PageUp => step(state, -10),
        KeyCode::Char('<') => state.sort_further(-1),
        KeyCode::Char('>') => state.sort_further(1),
        KeyCode::Char('U') => state.sort_by("%RUN"),
        KeyCode::Char('R') => state.sort_by("%RDY"),
        KeyCode::Char('N') => state.order = Order::Name,
        KeyCode::Char('F') => state.order = Order::Findings,
        KeyCode::Char('r') => state.reversed = !state.reversed,
        KeyCode::Char('t') if state.tracing.is_none() => {
            state.tracing = state.selected_vm().map(|vm| vm.pid);
            return state
                .tracing
                .map(|pid| Action::Ask(Request::TraceExits(pid)));
        }
        _ => {}
    }
    None
}

fn go(state: &mut State, view: View) {
    (state.view, state.scroll) = (view, 0);
}

/// In the list another row, elsewhere other lines.
fn step(state: &mut State, by: i64) {
    match state.view {
        View::List => state.move_by(by),
        _ => state.scroll = (i64::from(state.scroll) + by).clamp(0, i64::from(u16::MAX)) as u16,
    }
}
