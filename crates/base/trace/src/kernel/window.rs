//! Recent events, in the order of time: as far back as somebody may need them, and no further.

use std::collections::VecDeque;

/// Events of one kind, each with its time; the oldest are forgotten.
#[derive(Debug, Clone)]
pub struct EventWindow<T>(VecDeque<(u64, T)>);

impl<T> Default for EventWindow<T> {
    fn default() -> Self {
        EventWindow(VecDeque::new())
    }
}

impl<T> EventWindow<T> {
    /// Adds an event that is no earlier than those before it.
    pub fn push(&mut self, at: u64, what: T) {
        self.0.push_back((at, what));
    }

    /// Returns the latest event with its time; `None` if there is none.
    pub fn last(&self) -> Option<(u64, &T)> {
        self.0.back().map(|(at, what)| (*at, what))
    }

    /// The latest, to change.
    pub fn last_mut(&mut self) -> Option<(u64, &mut T)> {
        self.0.back_mut().map(|(at, what)| (*at, what))
    }

    /// Latest first, to change.
    pub fn latest_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().rev().map(|(_, what)| what)
    }

    fn index(&self, at: u64) -> usize {
        self.0.partition_point(|(t, _)| *t < at)
    }

    /// Oldest first, from `at` on.
    pub fn from(&self, at: u64) -> impl Iterator<Item = (u64, &T)> {
        self.0.range(self.index(at)..).map(|(t, what)| (*t, what))
    }

    /// Oldest first, from `from` up to and with `to`.
    pub fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &T)> {
        self.from(from).take_while(move |(at, _)| *at <= to)
    }

    /// The first after a cause at `at`, up to and with `until`; where there is none, the last before it, as another clock
    /// may have it that agrees within `bound`.
    pub fn caused(&self, at: u64, until: u64, bound: u64) -> Option<(u64, &T)> {
        let earliest = at.saturating_sub(bound);
        self.within(at, until).next().or_else(|| {
            self.before(at)
                .next()
                .filter(|(t, _)| *t >= earliest && *t <= until)
        })
    }

    /// Latest first, before `at`.
    pub fn before(&self, at: u64) -> impl Iterator<Item = (u64, &T)> {
        self.0
            .range(..self.index(at))
            .rev()
            .map(|(t, what)| (*t, what))
    }

    /// Latest first, up to and with `at`.
    pub fn until(&self, at: u64) -> impl Iterator<Item = (u64, &T)> {
        self.before(at.saturating_add(1))
    }

    /// Returns the number of events that it remembers.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks for that")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the oldest out, with the time of the one after it; `None` while that is not there.
    pub fn pop_over(&mut self) -> Option<(u64, T, u64)> {
        let end = self.0.get(1)?.0;
        self.0.pop_front().map(|(begin, what)| (begin, what, end))
    }

    /// Forgets what was before `at`.
    pub fn forget(&mut self, at: u64) {
        while self.0.front().is_some_and(|(t, _)| *t < at) {
            self.0.pop_front();
        }
    }

    /// Forgets what was before `at`, except the last: what lasts until the next.
    pub fn forget_but_one(&mut self, at: u64) {
        while self.0.get(1).is_some_and(|(t, _)| *t <= at) {
            self.0.pop_front();
        }
    }
}
