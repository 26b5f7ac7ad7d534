//! What happened lately, in the order of time: as far back as a request under way may need it, and no further.

use std::collections::VecDeque;

#[derive(Debug, Clone)]
pub(crate) struct Past<T>(VecDeque<(u64, T)>);

impl<T> Default for Past<T> {
    fn default() -> Self {
        Past(VecDeque::new())
    }
}

impl<T> Past<T> {
    pub fn push(&mut self, at: u64, what: T) {
        self.0.push_back((at, what));
    }

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
        self.within(at, until).next().or_else(|| self.before(at).next().filter(|(t, _)| *t >= earliest && *t <= until))
    }

    /// Latest first, before `at`.
    pub fn before(&self, at: u64) -> impl Iterator<Item = (u64, &T)> {
        self.0.range(..self.index(at)).rev().map(|(t, what)| (*t, what))
    }

    /// Latest first, up to and with `at`.
    pub fn until(&self, at: u64) -> impl Iterator<Item = (u64, &T)> {
        self.before(at.saturating_add(1))
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets what was before `at`.
    pub fn forget(&mut self, at: u64) {
        while self.0.front().is_some_and(|(t, _)| *t < at) {
            self.0.pop_front();
        }
    }

    /// Forgets what was before `at`, but for the last: what lasts until the next.
    pub fn forget_but_one(&mut self, at: u64) {
        while self.0.get(1).is_some_and(|(t, _)| *t <= at) {
            self.0.pop_front();
        }
    }
}
