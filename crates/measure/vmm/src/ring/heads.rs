//! The requests of a split queue that are in flight, by the heads of their chains: the rings keep the last of those that were made
//! available and of those that were used, and each head is made available and used in turn.

use super::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};

/// State of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    Free,
    InFlight,
    /// It was made available and perhaps used again, or longer ago than the rings show.
    Unknown,
}

/// States of all heads of a queue at one moment.
#[derive(Debug, Clone)]
pub(super) struct Heads {
    states: Vec<Head>,
    available: u32,
    used: u32,
}

/// The rings contradict themselves: a head that is used twice, more requests in flight than were made available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contradiction;

impl Heads {
    /// Reads the states that the rings show by themselves.
    ///
    /// # Errors
    /// [`Contradiction`].
    pub fn new(size: u32, snapshot: &Snapshot) -> Result<Heads, Contradiction> {
        let newest = |heads: &[u16]| -> BTreeMap<u16, u32> {
            // The last of equal keys stays.
            let back = |(at, head): (usize, &u16)| (*head, (heads.len() - at) as u32);
            heads.iter().enumerate().map(back).collect()
        };
        let (available, used) = (newest(&snapshot.heads), newest(&snapshot.used_heads));
        let parts = parts(snapshot, available.keys());
        let is_no_head = |slot: u16| {
            let descriptor = snapshot.table.get(usize::from(slot));
            parts.contains(&slot) || descriptor.is_some_and(|own| !own.is_written())
        };
        let state = |head: u16| match (available.get(&head), used.get(&head)) {
            // It was used at or behind the position at which it was made available: not before that.
            (Some(made), Some(done)) if *made >= *done + snapshot.in_flight() => Head::Free,
            (None, _) if is_no_head(head) => Head::Free,
            _ => Head::Unknown,
        };
        let mut heads = Heads {
            states: (0..size as u16).map(state).collect(),
            available: snapshot.available,
            used: snapshot.used,
        };
        heads.settle(snapshot.in_flight())?;
        Ok(heads)
    }

    /// Follows the queue to a later moment. Returns the number of requests that were used meanwhile; `None` where the rings do not
    /// reach back so far.
    ///
    /// # Errors
    /// [`Contradiction`].
    pub fn advance(&mut self, snapshot: &Snapshot) -> Result<Option<u32>, Contradiction> {
        let made = snapshot.distance(self.available, snapshot.available) as usize;
        let done = snapshot.distance(self.used, snapshot.used) as usize;
        let (heads, used_heads) = (&snapshot.heads, &snapshot.used_heads);
        let (Some(first), Some(first_used)) = (
            heads.len().checked_sub(made),
            used_heads.len().checked_sub(done),
        ) else {
            *self = Heads::new(self.states.len() as u32, snapshot)?;
            return Ok(None);
        };
        let mut changes: BTreeMap<u16, i32> = BTreeMap::new();
        for head in &heads[first..] {
            *changes.entry(*head).or_default() += 1;
        }
        for head in &used_heads[first_used..] {
            *changes.entry(*head).or_default() -= 1;
        }
        for (head, change) in changes {
            let Some(state) = self.states.get_mut(usize::from(head)) else {
                return Err(Contradiction);
            };
            *state = match (*state, change) {
                (same, 0) => same,
                (Head::InFlight, 1) | (Head::Free, -1) => return Err(Contradiction),
                (_, 1) => Head::InFlight,
                (_, -1) => Head::Free,
                _ => return Err(Contradiction),
            };
        }
        (self.available, self.used) = (snapshot.available, snapshot.used);
        self.settle(snapshot.in_flight())?;
        Ok(Some(done as u32))
    }

    /// Settles unknown states where the number in flight leaves no choice.
    fn settle(&mut self, in_flight: u32) -> Result<(), Contradiction> {
        let left = in_flight
            .checked_sub(self.count(Head::InFlight))
            .ok_or(Contradiction)?;
        let unknown = self.count(Head::Unknown);
        let settled = match left {
            0 => Head::Free,
            left if left == unknown => Head::InFlight,
            left if left > unknown => return Err(Contradiction),
            _ => return Ok(()),
        };
        let states = self.states.iter_mut();
        states
            .filter(|state| **state == Head::Unknown)
            .for_each(|state| *state = settled);
        Ok(())
    }

    fn count(&self, state: Head) -> u32 {
        self.states.iter().filter(|own| **own == state).count() as u32
    }

    /// Heads that are in flight; `None` while it is not known which.
    pub fn in_flight(&self, snapshot: &Snapshot) -> Option<Vec<u16>> {
        let heads = (0_u16..).zip(&self.states);
        let in_flight = heads.filter(|(_, state)| **state == Head::InFlight);
        let is_known = self.count(Head::InFlight) == snapshot.in_flight();
        is_known.then(|| in_flight.map(|(head, _)| head).collect())
    }
}

/// The descriptors behind these heads, which were made available lately: as one was written then, as part of a chain, it is none that has
/// been in flight as a head for longer.
fn parts<'a>(snapshot: &Snapshot, heads: impl Iterator<Item = &'a u16>) -> BTreeSet<u16> {
    let next = |slot: u16| snapshot.table.get(usize::from(slot))?.next();
    let mut parts = BTreeSet::new();
    for head in heads {
        let mut slot = next(*head);
        while let Some(part) = slot.filter(|part| parts.insert(*part)) {
            slot = next(part);
        }
    }
    parts
}
