//! Keys: what each does to the screen's state, and what it asks of the sampler.

use crate::state::{Order, Prompt, State, View};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::time::Duration;

/// A key of the screen, for people.
#[derive(Debug)]
pub(crate) struct Key {
    pub keys: &'static str,
    pub does: &'static str,
}

const fn key(keys: &'static str, does: &'static str) -> Key {
    Key { keys, does }
}

/// The keys, for people: each with what it does.
pub(crate) const KEYS: &[Key] = &[
    key("↑ ↓ or k j", "select a VM; in details and help: scroll"),
    key(
        "Enter",
        "details of the selected VM: vCPUs, threads, disks, NICs, exits, why a figure is –",
    ),
    key("Esc", "back to the list"),
    key(
        "f",
        "fields: choose the columns (Space), sort by one of them (s)",
    ),
    key("< >", "order: sort by the column before, the next column"),
    key("U R N F", "sort by %RUN, by %RDY, by name, by findings"),
    key("r", "reverse the order"),
    key("s or d", "change the interval, in seconds"),
    key(
        "t",
        "trace the VM exits of the selected VM for 3 s (KVM, root)",
    ),
    key("? or h", "this page"),
    key("q or Ctrl-C", "end"),
];

/// Request to the sampler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// To trace the exits of this VM; its next sample holds them.
    TraceExits(i32),
    /// To sample in intervals of this length from now on.
    SetInterval(Duration),
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
    if state.prompt.is_some() {
        return typed(key.code, state);
    }
    match (key.code, state.view) {
        (KeyCode::Char('q'), _) => return Some(Action::Quit),
        (KeyCode::Esc | KeyCode::Backspace | KeyCode::Left, _)
        | (KeyCode::Enter, View::Fields)
        | (KeyCode::Char('f'), View::Fields) => go(state, View::List),
        (KeyCode::Char(' '), View::Fields) => state.choose_next(),
        (KeyCode::Char('s'), View::Fields) => {
            if let Some(column) = state.selected_field() {
                state.order = Order::Column(column);
            }
        }
        (KeyCode::Enter | KeyCode::Right, _) if state.selected_vm().is_some() => {
            go(state, View::Detail);
        }
        (KeyCode::Char('?' | 'h'), _) => go(state, View::Help),
        (KeyCode::Char('f'), _) => go(state, View::Fields),
        (KeyCode::Char('s' | 'd'), _) => state.prompt = Some(Prompt::default()),
        (KeyCode::Char('t'), _) if state.tracing.is_none() => {
            state.tracing = state.selected_vm().map(|vm| vm.pid);
            let traced = state.tracing.map(Request::TraceExits);
            return traced.map(Action::Ask);
        }
        (code, _) => move_or_sort(code, state),
    }
    None
}

fn move_or_sort(code: KeyCode, state: &mut State) {
    match code {
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
        _ => {}
    }
}

/// No interval has more characters.
const MAX_INTERVAL: usize = 8;

/// A key while an interval is typed.
fn typed(code: KeyCode, state: &mut State) -> Option<Action> {
    let prompt = state.prompt.as_mut()?;
    match code {
        KeyCode::Esc => state.prompt = None,
        KeyCode::Backspace => drop(prompt.text.pop()),
        KeyCode::Char(c) if c.is_ascii_graphic() && prompt.text.len() < MAX_INTERVAL => {
            prompt.text.push(c);
        }
        // As in top, nothing changes nothing.
        KeyCode::Enter if prompt.text.is_empty() => state.prompt = None,
        KeyCode::Enter => match (state.parse_interval)(&prompt.text) {
            Ok(interval) => {
                (state.interval, state.prompt) = (interval, None);
                return Some(Action::Ask(Request::SetInterval(interval)));
            }
            Err(why) => {
                *prompt = Prompt {
                    text: String::new(),
                    error: format!("\"{}\": {why}", prompt.text),
                };
            }
        },
        _ => {}
    }
    None
}

fn go(state: &mut State, view: View) {
    (state.view, state.scroll) = (view, 0);
}

/// In the list another row, among the fields another column, elsewhere other lines.
fn step(state: &mut State, by: i64) {
    match state.view {
        View::List => state.move_by(by),
        View::Fields => state.move_field_by(by),
        View::Detail | View::Help => {
            state.scroll = (i64::from(state.scroll) + by).clamp(0, i64::from(u16::MAX)) as u16;
        }
    }
}
