//! Joined requests as Parquet: a row for each request, and a row for each segment of one. docs/export.md is the schema.

use crate::joined::Sheet;
use crate::table::{Cell, Column, Table, text};
use crate::{ExportError, Trial};
use parquet::data_type::ByteArray;
use std::io::Write;
use vmtax_findings::State;
use vmtax_layers::Who;
use vmtax_model::Checkpoint;

/// A checkpoint's name in files.
fn name(checkpoint: Checkpoint) -> String {
    checkpoint.id().replace('-', "_")
}

/// The columns that hold when a request passed each checkpoint.
fn checkpoint_columns() -> [String; Checkpoint::COUNT] {
    Checkpoint::ALL.map(|checkpoint| format!("{}_ns", name(checkpoint)))
}

/// A state's name in files, and the column of the time in it.
const STATES: [(State, &str, &str); 9] = [
    (State::Running, "running", "running_ns"),
    (State::Runnable, "runnable", "runnable_ns"),
    (State::GuestRunnable, "guest_runnable", "guest_runnable_ns"),
    (State::CpuWakeUp, "cpu_wake_up", "cpu_wake_up_ns"),
    (
        State::GuestCpuWakeUp,
        "guest_cpu_wake_up",
        "guest_cpu_wake_up_ns",
    ),
    (State::Lock, "lock", "lock_ns"),
    (State::Waiting, "waiting", "waiting_ns"),
    (State::InRing, "in_ring", "in_ring_ns"),
    (State::Queued, "queued", "queued_ns"),
];

/// Returns the columns with which both tables begin: the trial and the request.
fn identity<'n>() -> Vec<(&'n str, Column)> {
    vec![
        text("run"),
        text("machine"),
        text("variant"),
        ("round", Column::Int(vec![])),
        ("trial", Column::Int(vec![])),
        ("request", Column::Int(vec![])),
    ]
}

/// The cells of [`identity`].
fn identify(sheet: &Sheet) -> impl Fn(u32) -> [Cell; 6] + use<> {
    let [run, machine, variant] =
        [&sheet.run, sheet.machine.as_str(), &sheet.variant].map(ByteArray::from);
    let (round, trial) = (sheet.round, sheet.number);
    let text = |t: &ByteArray| Cell::Text(t.clone());
    move |request| {
        [
            text(&run),
            text(&machine),
            text(&variant),
            Cell::Int(round),
            Cell::Int(trial),
            Cell::Int(request),
        ]
    }
}

/// A table with a row for each joined request.
pub struct Requests<W: Write + Send>(Table<W>);

impl<W: Write + Send> Requests<W> {
    /// Begins the table.
    ///
    /// # Errors
    /// [`ExportError`] when it cannot be written.
    pub fn new(out: W) -> Result<Self, ExportError> {
        let time = |i: usize| {
            // Every request has the workload's own stamps.
            let is_stamp = i == 0 || i + 1 == Checkpoint::COUNT;
            if is_stamp {
                Column::Long(vec![])
            } else {
                Column::Maybe(vec![])
            }
        };
        let mut columns = identity();
        columns.push(("offset", Column::Long(vec![])));
        let names = checkpoint_columns();
        let times = names.iter().enumerate();
        columns.extend(times.map(|(i, name)| (name.as_str(), time(i))));
        columns.extend(STATES.map(|(_, _, column)| (column, Column::Long(vec![]))));
        columns.push(("unexplained_ns", Column::Long(vec![])));
        Table::new("table of requests", out, columns).map(Requests)
    }

    /// Adds a trial's requests.
    ///
    /// # Errors
    /// [`ExportError`] when they cannot be written.
    pub fn add(&mut self, trial: &Trial) -> Result<(), ExportError> {
        self.sheet(&Sheet::of_trial(trial, |_| true))
    }

    pub(crate) fn sheet(&mut self, sheet: &Sheet) -> Result<(), ExportError> {
        let identity = identify(sheet);
        for r in &sheet.requests {
            let between = &r.checkpoints[1..Checkpoint::COUNT - 1];
            let between = between.iter().map(|at| Cell::Maybe(*at));
            let begin = [Cell::Long(r.begin())].into_iter();
            let times = begin.chain(between).chain([Cell::Long(r.end())]);
            let mut states = [0; STATES.len()];
            for slice in &r.slices {
                if let Some(at) = STATES.iter().position(|(state, ..)| *state == slice.state) {
                    states[at] += slice.end - slice.begin;
                }
            }
            let states = states.map(Cell::Long);
            let row = identity(r.number).into_iter().chain([Cell::Long(r.offset)]);
            let row = row.chain(times).chain(states);
            self.0.push(row.chain([Cell::Long(r.unexplained())]))?;
        }
        Ok(())
    }

    /// Ends the table.
    ///
    /// # Errors
    /// [`ExportError`] when it cannot be written.
    pub fn finish(self) -> Result<(), ExportError> {
        self.0.finish()
    }
}

/// A table with a row for each segment of a joined request.
pub struct Segments<W: Write + Send>(Table<W>);

impl<W: Write + Send> Segments<W> {
    /// Begins the table.
    ///
    /// # Errors
    /// [`ExportError`] when it cannot be written.
    pub fn new(out: W) -> Result<Self, ExportError> {
        let mut columns = identity();
        columns.extend(["from_checkpoint", "to_checkpoint", "state", "thread"].map(text));
        columns.extend(["begin_ns", "end_ns"].map(|name| (name, Column::Long(vec![]))));
        Table::new("table of segments", out, columns).map(Segments)
    }

    /// Adds the segments of a trial's requests.
    ///
    /// # Errors
    /// [`ExportError`] when they cannot be written.
    pub fn add(&mut self, trial: &Trial) -> Result<(), ExportError> {
        self.sheet(&Sheet::of_trial(trial, |_| true))
    }

    pub(crate) fn sheet(&mut self, sheet: &Sheet) -> Result<(), ExportError> {
        let identity = identify(sheet);
        // Each text once: a row has copies that point to it.
        let checkpoints =
            Checkpoint::ALL.map(|checkpoint| ByteArray::from(name(checkpoint).as_str()));
        let states = STATES.map(|(_, name, _)| ByteArray::from(name));
        let text_of_state = |state| {
            let at = STATES.iter().position(|(s, ..)| *s == state);
            at.map(|at| states[at].clone())
        };
        let [guest, host] = [Who::Guest, Who::Host].map(|who| ByteArray::from(sheet.name(who)));
        let thread = |i: u16| ByteArray::from(sheet.name(Who::Thread(i)));
        let threads: Vec<ByteArray> = (0..sheet.threads.len())
            .filter_map(|i| u16::try_from(i).ok())
            .map(thread)
            .collect();
        for r in &sheet.requests {
            for s in &r.slices {
                let who = match s.who {
                    Who::Guest => guest.clone(),
                    Who::Host => host.clone(),
                    Who::Thread(i) => {
                        let known = threads.get(usize::from(i)).cloned();
                        known.unwrap_or_else(|| thread(i))
                    }
                };
                let state = text_of_state(s.state).unwrap_or_default();
                let [from, to] = [s.from, s.to].map(|at| checkpoints[at as usize].clone());
                let words = [from, to, state, who].map(Cell::Text);
                let times = [Cell::Long(s.begin), Cell::Long(s.end)];
                let row = identity(r.number).into_iter().chain(words);
                self.0.push(row.chain(times))?;
            }
        }
        Ok(())
    }

    /// Ends the table.
    ///
    /// # Errors
    /// [`ExportError`] when it cannot be written.
    pub fn finish(self) -> Result<(), ExportError> {
        self.0.finish()
    }
}

#[cfg(test)]
#[path = "parquet_tests.rs"]
mod tests;
