//! Which packet of those that the guest's stack receives is the response to a round trip.

use super::follow::Follow;
use crate::join::guest::GuestPacket;
use crate::join::joined::Reason;
use crate::join::request_path::{PassedBy, RequestPath};
use vmtax_model::{Checkpoint as C, Stamped, thread_of_round_trip};
use vmtax_trace::Moment;

/// So many packets before and after one are searched for such as are known.
const NEIGHBOURS: usize = 64;

/// A packet in the guest: as NAPI has it, and as its stack has.
type Received = (GuestPacket, Option<GuestPacket>);

impl Follow<'_> {
    /// The response in the guest's stack, from its driver: when NAPI has it. `answered`: when QEMU had it, where its key told.
    pub(super) fn got(
        &self,
        path: &mut RequestPath,
        operation: &Stamped,
        sent: u64,
        answered: Option<u64>,
    ) -> Result<Moment, Reason> {
        let from = answered.map_or(sent, |at| at.saturating_sub(self.params.bound).max(sent));
        let client = thread_of_round_trip(operation.key);
        let all: Vec<Received> = self.received(from, operation.end).collect();
        let own: Vec<&Received> = all.iter().filter(|one| client != 0 && woke(one) == Some(client)).collect();
        let (polled, received) = match (&all[..], &own[..]) {
            // It came before QEMU had it.
            ([], _) if self.received(sent, operation.end).next().is_some() => return Err(Reason::Violation),
            ([], _) => return Err(Reason::NoPacket),
            ([one], _) if client == 0 || woke(one).is_none_or(|woke| woke == client) => *one,
            (_, [one]) => **one,
            // None of them woke it: its place is that between two that are known.
            (_, []) => answered.and_then(|at| self.between(at, operation)).ok_or(Reason::Ambiguous)?,
            _ => return Err(Reason::Ambiguous),
        };
        // The softirq has nothing to do with the task that it interrupts.
        let by = |packet: GuestPacket| Moment { interrupt: true, ..packet.moment };
        path.set(C::NetGuestPoll, polled.moment.at, PassedBy::Guest(by(polled)));
        let received = by(received.ok_or(Reason::NoPacket)?);
        path.set(C::NetGuestReceive, received.at, PassedBy::Guest(received));
        Ok(by(polled))
    }

    /// The packets with a payload that the guest's driver receives, in their order.
    fn received(&self, from: u64, to: u64) -> impl Iterator<Item = Received> {
        let polled = self.guest.packets.at(C::NetGuestPoll).within(from, to).map(|(_, packet)| *packet);
        polled.filter(|polled| self.frames.has(polled.packet.len)).map(move |polled| {
            let mut received = self.guest.packets.at(C::NetGuestReceive).within(polled.moment.at, to);
            (polled, received.find(|(_, p)| p.packet.skb == polled.packet.skb).map(|(_, packet)| *packet))
        })
    }

    /// The packet that QEMU passed on at a moment. The receive queue keeps the order: it is as far from the last before it that woke
    /// its client as the host's is, and from the next likewise.
    fn between(&self, answered: u64, operation: &Stamped) -> Option<Received> {
        let client_of = |key: Option<u64>| key.map(thread_of_round_trip).filter(|tid| self.guest.clients.contains(tid));
        let clients = |(at, key): (u64, Option<u64>)| client_of(key).map(|client| (at, client));
        let passed = self.host.passed.at(C::NetRx);
        let before: Vec<(u64, i32)> =
            passed.before(answered).filter_map(|(at, p)| clients((at, p.mark.round_trip))).take(NEIGHBOURS).collect();
        let after = passed.from(answered.saturating_add(1)).filter_map(|(at, p)| clients((at, p.mark.round_trip)));
        let after: Vec<(u64, i32)> = after.take(NEIGHBOURS).collect();
        let earliest = before.last()?.0.saturating_sub(self.params.bound);
        let packets: Vec<Received> = self.received(earliest, operation.end.saturating_add(self.params.slack)).collect();
        let place = |(at, client): (u64, i32)| {
            let since = at.saturating_sub(self.params.bound);
            packets.iter().position(|one| one.0.moment.at >= since && woke(one) == Some(client))
        };
        let (back, first) = before.into_iter().enumerate().find_map(|(n, one)| Some((n + 1, place(one)?)))?;
        let (ahead, last) = after.into_iter().enumerate().find_map(|(n, one)| Some((n + 1, place(one)?)))?;
        let found = packets.get(first + back).filter(|_| last.checked_sub(first) == Some(back + ahead))?;
        let is_own = woke(found).is_none_or(|woke| woke == thread_of_round_trip(operation.key));
        (is_own && found.0.moment.at <= operation.end).then_some(*found)
    }
}

/// The client that a packet woke.
fn woke(packet: &Received) -> Option<i32> {
    packet.1.and_then(|received| received.woke)
}
