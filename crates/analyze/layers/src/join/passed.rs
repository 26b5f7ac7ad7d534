//! Recent events, by checkpoint.

use vmtax_model::Checkpoint;
use vmtax_trace::EventWindow;

#[derive(Debug)]
pub(crate) struct Passed<T> {
    /// Events of each checkpoint, at the index of the checkpoint.
    windows: Vec<EventWindow<T>>,
    seen: [bool; Checkpoint::COUNT],
}

impl<T> Default for Passed<T> {
    fn default() -> Self {
        let windows = Checkpoint::ALL
            .iter()
            .map(|_| EventWindow::default())
            .collect();
        Passed {
            windows,
            seen: [false; Checkpoint::COUNT],
        }
    }
}

impl<T> Passed<T> {
    pub fn push(&mut self, checkpoint: Checkpoint, at: u64, what: T) {
        self.seen[checkpoint as usize] = true;
        self.windows[checkpoint as usize].push(at, what);
    }

    pub fn at(&self, checkpoint: Checkpoint) -> &EventWindow<T> {
        &self.windows[checkpoint as usize]
    }

    /// Returns true if the checkpoint was ever observed.
    pub fn seen(&self, checkpoint: Checkpoint) -> bool {
        self.seen[checkpoint as usize]
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.windows.iter().map(EventWindow::len).sum()
    }

    /// Forgets what was before `at`.
    pub fn forget(&mut self, at: u64) {
        self.windows.iter_mut().for_each(|window| window.forget(at));
    }
}
