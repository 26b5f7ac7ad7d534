//! Effects of the keys.

use crate::state::{Order, State, View};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

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
