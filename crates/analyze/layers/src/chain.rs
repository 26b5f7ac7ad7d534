//! The stations that a trial's requests have in common, and the rows between them.

use crate::request::{JoinedRequest, Piece};
use std::collections::BTreeMap;
use vmtax_model::{Layer, RequestKind, State, Station};

/// A row of the table: a stretch in one state. Rows sort in the order of the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub to: Station,
    pub from: Station,
    pub state: State,
}

impl Key {
    pub fn layer(self) -> Layer {
        layer(self.from, self.to)
    }

    /// For people.
    pub fn label(self) -> String {
        label(self.from, self.to)
    }

    /// Whether its ends were stamped by two clocks.
    pub fn crosses(self) -> bool {
        in_guest(self.from) != in_guest(self.to)
    }
}

/// A stretch, for people.
pub(crate) fn label(from: Station, to: Station) -> String {
    match to {
        // Before that, it is others of the workload's requests that take its time.
        Station::End => format!("{} to the workload's turn", from.label()),
        // Of a request that nobody stamped.
        _ if from == Station::Begin => format!("guest block layer to {}", to.label()),
        _ => format!("{} to {}", from.label(), to.label()),
    }
}

/// Whether the guest's clock stamps it.
const fn in_guest(station: Station) -> bool {
    matches!(
        station,
        Station::Begin
            | Station::GuestCall
            | Station::GuestIssue
            | Station::GuestNotify
            | Station::GuestInterrupt
            | Station::GuestComplete
            | Station::GuestReturn
            | Station::End
    )
}

/// The layer that a stretch counts for. One that spans several layers, because what lies between was not observed, counts
/// for the way between guest and QEMU if it has such a part, else for the host's kernel.
pub(crate) fn layer(from: Station, to: Station) -> Layer {
    use Station as S;
    let down = from < S::QemuWake && to > S::GuestNotify;
    let up = from < S::GuestInterrupt && to > S::QemuNotify;
    match (from, to) {
        (S::Begin, S::GuestCall) | (S::GuestReturn, S::End) => Layer::GuestApplication,
        _ if to <= S::GuestNotify || from >= S::GuestInterrupt => Layer::GuestKernel,
        // Nothing of QEMU was seen at all.
        _ if down && up => Layer::Qemu,
        (S::GuestNotify, S::KvmNotify) => Layer::Kvm,
        _ if down => Layer::Notify,
        _ if up => Layer::Interrupt,
        (S::HostIssue, S::HostComplete) => Layer::Device,
        _ if from >= S::HostCall && to <= S::QemuReap => Layer::HostKernel,
        _ if from < S::HostIssue && to > S::HostComplete => Layer::HostKernel,
        _ => Layer::Qemu,
    }
}

/// Fewer requests than this share have a station: it is no part of the chain, and its stretch joins the next one.
const HARDLY_ANY: f64 = 0.01;
/// More requests than this share have a station: one that lacks it was not followed.
const NEARLY_ALL: f64 = 0.95;

/// The stations between which a trial's rows lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain(Vec<Station>);

/// Stations that a request may well do without: it shares another's, or nobody had to be told or woken.
const fn may_lack(station: Station) -> bool {
    matches!(
        station,
        Station::GuestCall
            | Station::GuestNotify
            | Station::KvmNotify
            | Station::QemuWake
            | Station::QemuReap
            | Station::QemuNotify
            | Station::Inject
            | Station::GuestInterrupt
            | Station::GuestReturn
    )
}

impl Chain {
    /// What the requests have in common.
    pub fn of(requests: &[JoinedRequest]) -> Chain {
        let share = shares(requests.iter());
        let in_chain = |s: &Station| *s != Station::Begin && *s != Station::End && share[*s as usize] > HARDLY_ANY;
        Chain(Station::ALL.into_iter().filter(in_chain).collect())
    }

    /// The stations that each request of a kind has to have.
    pub fn needed(requests: &[JoinedRequest]) -> BTreeMap<RequestKind, Vec<Station>> {
        let mut kinds: BTreeMap<RequestKind, Vec<Station>> = requests.iter().map(|r| (r.kind, Vec::new())).collect();
        for (kind, needed) in &mut kinds {
            let share = shares(requests.iter().filter(|r| r.kind == *kind));
            needed.extend(Station::ALL.into_iter().filter(|s| !may_lack(*s) && share[*s as usize] > NEARLY_ALL));
        }
        kinds
    }

    pub fn stations(&self) -> &[Station] {
        &self.0
    }

    /// The row that a piece counts for. A stretch whose first station the request lacks counts as if it began there:
    /// nobody had to be woken or told, so that took no time.
    pub fn key(&self, piece: &Piece) -> Key {
        let at = self.0.partition_point(|s| *s < piece.to);
        let to = self.0.get(at).copied().unwrap_or(piece.to);
        let before = at.checked_sub(1).and_then(|i| self.0.get(i)).copied().unwrap_or(Station::Begin);
        let issued = self.0.contains(&Station::GuestIssue);
        let from = if piece.state == State::InRing && issued { Station::GuestIssue } else { before };
        Key { to, from, state: piece.state }
    }
}

/// How many of the requests pass each station, 0 to 1.
fn shares<'a>(requests: impl Iterator<Item = &'a JoinedRequest>) -> [f64; Station::ALL.len()] {
    let (mut counts, mut all) = ([0_u64; Station::ALL.len()], 0_u64);
    for request in requests {
        all += 1;
        for (station, _) in request.stations() {
            counts[station as usize] += 1;
        }
    }
    counts.map(|count| count as f64 / all.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stretch_of_the_whole_way_has_its_layer() {
        let layers: Vec<Layer> = Station::ALL.windows(2).map(|w| layer(w[0], w[1])).collect();
        use Layer::*;
        let expected = [
            GuestApplication,
            GuestKernel,
            GuestKernel,
            Kvm,
            Notify,
            Qemu,
            Qemu,
            Qemu,
            HostKernel,
            Device,
            HostKernel,
            Qemu,
            Qemu,
            Interrupt,
            Interrupt,
            GuestKernel,
            GuestKernel,
            GuestApplication,
        ];
        assert_eq!(layers, expected);
    }

    #[test]
    fn what_was_not_observed_counts_for_what_lies_around_it() {
        use Station as S;
        assert_eq!(layer(S::GuestNotify, S::QemuWake), Layer::Notify);
        assert_eq!(layer(S::GuestNotify, S::QemuPop), Layer::Notify);
        assert_eq!(layer(S::GuestIssue, S::QemuPop), Layer::Notify);
        assert_eq!(layer(S::KvmNotify, S::QemuPop), Layer::Notify);
        assert_eq!(layer(S::QemuNotify, S::GuestInterrupt), Layer::Interrupt);
        assert_eq!(layer(S::QemuPush, S::GuestComplete), Layer::Interrupt);
        assert_eq!(layer(S::Inject, S::GuestComplete), Layer::Interrupt);
        assert_eq!(layer(S::HostCall, S::QemuReap), Layer::HostKernel);
        assert_eq!(layer(S::QemuSubmit, S::QemuPush), Layer::HostKernel);
        assert_eq!(layer(S::QemuSubmit, S::HostIssue), Layer::Qemu);
        assert_eq!(layer(S::GuestNotify, S::GuestInterrupt), Layer::Qemu);
        assert_eq!(layer(S::GuestCall, S::GuestNotify), Layer::GuestKernel);
    }
}
