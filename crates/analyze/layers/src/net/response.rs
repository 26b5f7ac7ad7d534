//! Search for the response to a round trip among the packets that the guest's stack receives: the packet that its
//! client copies from its socket. If the guest's kernel shows no copy, the position among the packets that QEMU passed
//! on decides.

use super::follow::{Follow, in_softirq};
use crate::join::sides::GuestPacket;
use crate::join::{Reason, RequestPath};
use vmtax_model::{Checkpoint as C, Stamped, thread_of_round_trip};
use vmtax_trace::Moment;

/// So many packets before and after one are compared.
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
        let all: Vec<(Received, Option<Moment>)> = self
            .received(from, operation.end)
            .map(|one| (one, self.copied(&one, operation.end)))
            .collect();
        // It came before QEMU had it.
        if all.is_empty() && self.received(sent, operation.end).next().is_some() {
            return Err(Reason::Violation);
        }
        let ((polled, received), copied) = self.own(&all, client, answered, operation.end)?;
        let polled = in_softirq(polled.moment);
        path.set_guest(C::NetGuestPoll, polled);
        let received = received.ok_or(Reason::NoPacket)?;
        path.set_guest(C::NetGuestReceive, in_softirq(received.moment));
        if let Some(copied) = copied {
            path.set_guest(C::NetGuestRead, copied);
        }
        Ok(polled)
    }

    /// The client's own packet of these, each with who copied it from its socket and when.
    fn own(
        &self,
        all: &[(Received, Option<Moment>)],
        client: i32,
        answered: Option<u64>,
        end: u64,
    ) -> Result<(Received, Option<Moment>), Reason> {
        let is_own = |copied: &Moment| copied.tid == client;
        let own: Vec<_> = all
            .iter()
            .filter(|(_, copied)| copied.as_ref().is_some_and(is_own))
            .collect();
        let of_nobody: Vec<Received> = all
            .iter()
            .filter(|(_, copied)| copied.is_none())
            .map(|(one, _)| *one)
            .collect();
        match (&own[..], &of_nobody[..]) {
            ([one], _) => Ok(**one),
            ([], [one]) => Ok((*one, None)),
            ([], []) => Err(Reason::NoPacket),
            ([], _) => {
                let place = answered.and_then(|at| self.in_its_place(&of_nobody, at, end));
                Ok((place.ok_or(Reason::Ambiguous)?, None))
            }
            _ => Err(Reason::Ambiguous),
        }
    }

    /// By whom and when a packet is copied from its socket. Once the kernel has given its address to another, no copy is its own.
    fn copied(&self, (polled, _): &Received, end: u64) -> Option<Moment> {
        let next = |at: C| {
            let mut all = self
                .guest
                .packets
                .within(at, polled.moment.at.saturating_add(1), end);
            all.find(|(_, p)| p.packet.skb == polled.packet.skb)
                .map(|(_, p)| p.moment)
        };
        let copied = next(C::NetGuestRead).filter(|copied| !copied.interrupt)?;
        let others = [C::NetGuestPoll, C::NetGuestQueue]
            .into_iter()
            .filter_map(next);
        others
            .min_by_key(|other| other.at)
            .is_none_or(|other| copied.at < other.at)
            .then_some(copied)
    }

    /// The packets with a payload that the guest's driver receives, in their order.
    fn received(&self, from: u64, to: u64) -> impl Iterator<Item = Received> {
        let polled = self
            .guest
            .packets
            .within(C::NetGuestPoll, from, to)
            .map(|(_, packet)| *packet);
        polled
            .filter(|polled| self.frames.has(polled.packet.len))
            .map(move |polled| {
                let mut received =
                    self.guest
                        .packets
                        .within(C::NetGuestReceive, polled.moment.at, to);
                (
                    polled,
                    received
                        .find(|(_, p)| p.packet.skb == polled.packet.skb)
                        .map(|(_, packet)| *packet),
                )
            })
    }

    /// The one of these that QEMU passed on at this moment. The receive queue keeps the order: so its neighbors are those
    /// that QEMU passed on right before and after, and whom the stack woke for them is the client of one of them.
    fn in_its_place(&self, all: &[Received], answered: u64, end: u64) -> Option<Received> {
        let client = |key: Option<u64>| {
            key.map(thread_of_round_trip)
                .filter(|tid| self.guest.clients.contains(tid))
        };
        let passed = self.host.passed.at(C::NetRx);
        let mut host: Vec<(u64, i32)> = passed
            .until(answered)
            .filter_map(|(at, p)| Some((at, client(p.mark.round_trip)?)))
            .take(NEIGHBOURS)
            .collect();
        host.reverse();
        let place = host.len().checked_sub(1)?;
        let after = passed.from(answered.saturating_add(1));
        host.extend(
            after
                .filter_map(|(at, p)| Some((at, client(p.mark.round_trip)?)))
                .take(NEIGHBOURS),
        );
        let slack = self.params.slack;
        let (first, last) = (
            host.first()?.0.saturating_sub(slack),
            end.saturating_add(slack),
        );
        let guest: Vec<Received> = self.received(first, last).collect();
        let mut fits = all.iter().filter(|one| {
            let at = guest.iter().position(|other| {
                other.0.moment.at == one.0.moment.at && other.0.packet == one.0.packet
            });
            at.is_some_and(|at| self.agrees(&host, place, &guest, at))
        });
        fits.next().filter(|_| fits.next().is_none()).copied()
    }

    /// Returns true if packets of both sides may be the same, of which these two are one: none is in the guest before
    /// QEMU has it, and each client that the guest's stack woke for a batch was waiting for a packet of it.
    fn agrees(&self, host: &[(u64, i32)], place: usize, guest: &[Received], at: usize) -> bool {
        let host_of = |number: usize| {
            (number + place)
                .checked_sub(at)
                .and_then(|number| host.get(number))
        };
        let bound = self.params.bound;
        let is_caused = |(number, one): (usize, &Received)| {
            host_of(number).is_none_or(|(at, _)| one.0.moment.at.saturating_add(bound) >= *at)
        };
        let numbers: Vec<usize> = (0..guest.len()).collect();
        let batches = numbers.chunk_by(|a, b| batch(&guest[*a]) == batch(&guest[*b]));
        // Of the first and the last batch there may be more than these.
        let whole =
            |numbers: &&[usize]| numbers[0] > 0 && numbers[numbers.len() - 1] + 1 < guest.len();
        guest.iter().enumerate().all(is_caused)
            && batches.filter(whole).all(|numbers| {
                let client = |number: &usize| host_of(*number).map(|(_, tid)| *tid);
                let clients: Vec<Option<i32>> = numbers.iter().map(client).collect();
                self.woke_these(&guest[numbers[0]], &clients)
            })
    }

    /// Returns true if the clients that were woken for a batch may be those of its packets, in their order; some are
    /// not known.
    fn woke_these(&self, first: &Received, clients: &[Option<i32>]) -> bool {
        let Some(received) = first.1 else { return true };
        let woken = self
            .guest
            .woken
            .from(received.moment.at)
            .map(|(_, woken)| *woken);
        let mut unknown = clients.iter().filter(|client| client.is_none()).count();
        let mut next = 0;
        // Later ones are woken for something else: the end of a connection.
        woken
            .take_while(|woken| woken.batch == received.batch)
            .take(clients.len())
            .all(|woken| {
                match clients[next..]
                    .iter()
                    .position(|client| *client == Some(woken.tid))
                {
                    Some(skipped) => next += skipped + 1,
                    None if unknown > 0 => unknown -= 1,
                    None => return false,
                }
                true
            })
    }
}

fn batch(packet: &Received) -> Option<u64> {
    packet.1.map(|received| received.batch)
}
