//! A profile: threads as bars of their states (running, runnable without a CPU, blocked, idle), and flame graphs.

use super::{Axis, percent};
use crate::engine::Chart;
use crate::text::{Paint, columns, fit, only_if, plain, wrapped};
use base64::Engine;
use maud::{Markup, html};
use vmtax_findings::{ThreadStates, TimeSlice, WaitFor};

/// Characters of the longest bar.
const BAR: usize = 20;

/// A state, as bars distinguish them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BarState {
    Running,
    Runnable,
    Blocked,
    Idle,
}

impl BarState {
    const ALL: [BarState; 4] = [Self::Running, Self::Runnable, Self::Blocked, Self::Idle];

    /// Of a wait: what a thread without work does is idle.
    fn for_wait(reason: WaitFor) -> BarState {
        match reason {
            WaitFor::Work | WaitFor::Events | WaitFor::Sleep | WaitFor::Guest | WaitFor::Resume => {
                BarState::Idle
            }
            WaitFor::Lock | WaitFor::BigLock | WaitFor::Io | WaitFor::Other => BarState::Blocked,
        }
    }

    fn label(self) -> &'static str {
        match self {
            BarState::Running => "running",
            BarState::Runnable => "runnable, waiting for a CPU",
            BarState::Blocked => "blocked (lock, I/O, kernel)",
            BarState::Idle => "idle (events, work, timer, halted guest)",
        }
    }

    fn class(self) -> &'static str {
        match self {
            BarState::Running => "t-running",
            BarState::Runnable => "t-runnable",
            BarState::Blocked => "t-blocked",
            BarState::Idle => "t-idle",
        }
    }

    fn character(self) -> char {
        match self {
            BarState::Running => '█',
            BarState::Runnable => '▓',
            BarState::Blocked => '▒',
            BarState::Idle => '░',
        }
    }

    /// Returns the fraction of its time that a thread was in the state.
    fn fraction(self, thread: &ThreadStates) -> f64 {
        match self {
            BarState::Running => thread.running,
            BarState::Runnable => thread.runnable.unwrap_or(0.0),
            BarState::Blocked | BarState::Idle => {
                let waits = thread.waits.iter();
                let waits = waits.filter(|wait| BarState::for_wait(wait.reason) == self);
                waits.map(|wait| wait.fraction).sum()
            }
        }
    }
}

/// Returns the meaning of the characters of [`bar`].
pub fn legend() -> String {
    BarState::ALL
        .map(|state| format!("{} {}", state.character(), state.label()))
        .join("  ")
}

/// A thread's time in characters.
pub fn bar(thread: &ThreadStates) -> String {
    let mut end = 0.0;
    let mut bar = String::new();
    for state in BarState::ALL {
        end += state.fraction(thread).max(0.0);
        let to = ((end.min(1.0) * BAR as f64).round() as usize).saturating_sub(bar.chars().count());
        bar.extend(std::iter::repeat_n(state.character(), to));
    }
    bar
}

/// Threads, each with what stands beside its bar.
pub struct ThreadBars<'a>(pub Vec<(&'a ThreadStates, String)>);

impl Chart for ThreadBars<'_> {
    fn svg(&self) -> Markup {
        let axis = Axis::from_zero(100.0);
        let ticks = axis.ticks(5);
        html! {
            p.legend { @for state in BarState::ALL { span.key.(state.class()) { (state.label()) } } }
            div.chart.threads {
                div.group { span {} div { (axis.labels(&ticks, |t| format!("{t} %"))) } span {} }
                @for (thread, said) in &self.0 {
                    div.row {
                        span.name { (thread.name) " " small { (thread.tid) } }
                        svg height="24" role="img" aria-label={ (thread.name) ": " (said) } {
                            (axis.grid(&ticks))
                            @for (state, begin, end) in parts(thread) {
                                g.(state.class()) {
                                    title { (state.label()) ": " (format!("{:.1} %", end - begin)) }
                                    rect x=(percent(axis.at(begin))) width=(percent(axis.at(end) - axis.at(begin))) y="3" height="18" {}
                                }
                            }
                        }
                        span.said-beside { (said) }
                    }
                }
            }
        }
    }
}

/// A state of a part of the time, from samples that do not tell running from runnable.
const SLICE_STATES: [(BarState, &str); 3] = [
    (BarState::Running, "running or runnable"),
    (BarState::Blocked, "blocked (lock, I/O, kernel)"),
    (BarState::Idle, "idle (events, work, timer, halted guest)"),
];

/// Fractions of the samples of a part of the time, in the order of [`SLICE_STATES`]; `None` where there is none.
fn slice_fractions(slice: &TimeSlice) -> Option<[f64; 3]> {
    let all = Some(slice.samples).filter(|all| *all > 0)?;
    let waited = |state| {
        let waits = slice.waits.iter();
        let waits = waits.filter(|(reason, _)| BarState::for_wait(**reason) == state);
        waits.map(|(_, count)| *count).sum::<u64>().min(all)
    };
    let (blocked, idle) = (waited(BarState::Blocked), waited(BarState::Idle));
    let ran = all.saturating_sub(blocked + idle);
    Some([ran, blocked, idle].map(|count| count as f64 / all as f64))
}

/// A part of the time in which a thread ran, waited or was idle by so much more than in another has changed.
const CHANGE: f64 = 0.5;

/// Tells whether the state of a thread changed over time.
pub fn has_changed(thread: &ThreadStates) -> bool {
    let fractions = || thread.slices.iter().filter_map(slice_fractions);
    (0..SLICE_STATES.len()).any(|state| {
        let least = fractions().map(|all| all[state]).fold(1.0, f64::min);
        let most = fractions().map(|all| all[state]).fold(0.0, f64::max);
        most - least >= CHANGE
    })
}

/// Threads over time.
pub struct TimeStrips<'a> {
    /// Threads with slices.
    pub threads: Vec<&'a ThreadStates>,
    /// Length of the time, s.
    pub seconds: f64,
}

impl Chart for TimeStrips<'_> {
    fn svg(&self) -> Markup {
        let axis = Axis::from_zero(self.seconds);
        let ticks = axis.ticks(5);
        html! {
            p.legend { @for (state, label) in SLICE_STATES { span.key.(state.class()) { (label) } } }
            div.chart.threads.strips {
                div.group { span {} div { (axis.labels(&ticks, |t| format!("{} s", (t * 1000.0).round() / 1000.0))) } span {} }
                @for thread in &self.threads {
                    div.row {
                        span.name { (thread.name) " " small { (thread.tid) } }
                        svg height="32" role="img" aria-label={ (thread.name) " over time" } { (strip(thread)) }
                        span {}
                    }
                }
            }
        }
    }

    fn text(&self, width: usize, _paint: Paint) -> Option<String> {
        let character = |slice: &TimeSlice| {
            let fractions = slice_fractions(slice)?;
            let states = SLICE_STATES.iter().zip(fractions);
            let most = states.max_by(|a, b| a.1.total_cmp(&b.1))?;
            Some(most.0.0.character())
        };
        let line = |thread: &&ThreadStates| {
            let slices = thread.slices.iter();
            let strip: String = slices
                .map(|slice| character(slice).unwrap_or(' '))
                .collect();
            let others = self.threads.iter();
            let is_twin = others.filter(|other| other.name == thread.name).count() > 1;
            let tid = only_if(is_twin, format!(" {}", thread.tid));
            let room = NAME.saturating_sub(columns(&tid));
            let name = fit(&plain(&thread.name), room) + &tid;
            let gap = " ".repeat(NAME.saturating_sub(columns(&name)));
            format!("{name}{gap} {strip}\n")
        };
        let lines: String = self.threads.iter().map(line).collect();
        let slices = self
            .threads
            .iter()
            .map(|thread| thread.slices.len())
            .max()?;
        let end = format!("{:.1} s", self.seconds);
        let gap = " ".repeat(slices.saturating_sub(1 + columns(&end)));
        let scale = format!("{} 0{gap}{end}\n", " ".repeat(NAME));
        let legend = SLICE_STATES.map(|(state, label)| format!("{} {label}", state.character()));
        Some(lines + &scale + &wrapped(&legend.join("  "), width, "", ""))
    }
}

/// Columns of a thread's name beside its strip.
const NAME: usize = 18;

/// Each part of the time as a column of its states, the running one at the foot.
fn strip(thread: &ThreadStates) -> Markup {
    let width = 100.0 / thread.slices.len().max(1) as f64;
    html! {
        @for (i, slice) in thread.slices.iter().enumerate() {
            @if let Some(fractions) = slice_fractions(slice) {
                @for (state, from, part) in stacked(fractions) {
                    g.(state.class()) {
                        rect x=(percent(i as f64 * width)) width=(percent(width)) y=(percent(100.0 * (1.0 - from - part))) height=(percent(100.0 * part)) {}
                    }
                }
            }
        }
    }
}

/// The states of a part of the time that occur: where each begins, and its fraction.
fn stacked(fractions: [f64; 3]) -> Vec<(BarState, f64, f64)> {
    let mut from = 0.0;
    let states = SLICE_STATES.iter().zip(fractions);
    let states = states.map(|((state, _), part)| {
        let begin = from;
        from += part;
        (*state, begin, part)
    });
    states.filter(|(.., part)| *part > 0.0).collect()
}

/// Where each state's part of a bar begins and ends, percent.
fn parts(thread: &ThreadStates) -> Vec<(BarState, f64, f64)> {
    let mut at = 0.0;
    let part = |state: BarState| {
        let begin = at;
        at += 100.0 * state.fraction(thread).clamp(0.0, 1.0);
        (state, begin, f64::min(at, 100.0))
    };
    let all = BarState::ALL.into_iter().map(part);
    all.filter(|(_, begin, end)| end > begin).collect()
}

/// A flame graph: a document of its own inside a page, which brings its script for zoom and search.
pub struct Flame<'a> {
    /// Title of the frame on the page.
    pub title: &'a str,
    /// SVG document with the flame graph.
    pub svg: &'a str,
}

impl Chart for Flame<'_> {
    fn svg(&self) -> Markup {
        let data = base64::engine::general_purpose::STANDARD.encode(self.svg);
        let style = format!("height:{}px", frame_height(self.svg));
        html! { iframe title=(self.title) style=(style) src={ "data:image/svg+xml;base64," (data) } {} }
    }
}

/// Returns the height of the picture by its own attribute, in px: 600 without it, at least 200, at most 1200.
fn frame_height(svg: &str) -> u32 {
    let said = svg
        .split_once(" height=\"")
        .and_then(|(_, rest)| rest.split_once('"')?.0.parse().ok());
    said.unwrap_or(600).clamp(200, 1200)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_findings::StateWait;

    #[test]
    fn a_strip_has_the_state_that_most_samples_of_each_part_show() {
        let slice = |samples, waits: &[(WaitFor, u64)]| TimeSlice {
            samples,
            waits: waits.iter().copied().collect(),
        };
        let thread = ThreadStates {
            name: "vCPU 0".to_owned(),
            slices: vec![
                slice(4, &[]),
                slice(4, &[(WaitFor::Lock, 3)]),
                slice(4, &[(WaitFor::Guest, 2), (WaitFor::Events, 1)]),
                slice(0, &[]),
                slice(4, &[(WaitFor::Io, 1)]),
            ],
            ..ThreadStates::default()
        };
        assert!(has_changed(&thread));
        assert_eq!(
            stacked(slice_fractions(&thread.slices[2]).unwrap())[1].2,
            0.75
        );
        let strips = TimeStrips {
            threads: vec![&thread],
            seconds: 2.0,
        };
        let text = strips.text(80, Paint(false)).unwrap();
        assert!(text.starts_with("vCPU 0             █▒░ █\n"), "{text}");
        let steady = ThreadStates {
            slices: vec![slice(4, &[]), slice(4, &[(WaitFor::Io, 1)])],
            ..thread.clone()
        };
        assert!(!has_changed(&steady) && !has_changed(&ThreadStates::default()));
    }

    #[test]
    fn a_bar_is_full_and_in_the_order_of_states() {
        let wait = |reason, fraction| StateWait {
            reason,
            call: String::new(),
            below: String::new(),
            fraction,
        };
        let waits = vec![
            wait(WaitFor::Guest, 0.1),
            wait(WaitFor::BigLock, 0.1),
            wait(WaitFor::Events, 0.05),
        ];
        let thread = ThreadStates {
            running: 0.25,
            runnable: Some(0.5),
            waits,
            ..ThreadStates::default()
        };
        assert_eq!(bar(&thread), "█████▓▓▓▓▓▓▓▓▓▓▒▒░░░");
        let ends: Vec<f64> = parts(&thread)
            .into_iter()
            .map(|(_, _, end)| end.round())
            .collect();
        assert_eq!(ends, [25.0, 75.0, 85.0, 100.0]);
    }
}
