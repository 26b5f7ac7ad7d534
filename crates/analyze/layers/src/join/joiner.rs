//! From the events of both sides, in one order of time, to joined requests. Remembers no more than the requests in
//! flight need, and one record for each that was joined.

use super::segments::{Sides, ThreadTable};
use super::sides::GuestWindow;
use super::sides::HostWindow;
use super::{Joined, MatchParams, Operation, Reason, Rejected, RequestPath, View};
use crate::JoinedRequest;
use crate::disk::by_calls::InCalls;
use crate::disk::follow::Follow;
use crate::disk::{Ended, GuestRequest, InDevice};
use crate::events::{Event, GuestEvent, HostEvent, moment_at};
use crate::net::from_both::FromBoth;
use crate::net::from_host::{FromHost, OnTap, VmmPart};
use crate::net::in_queues::InQueues;
use crate::net::{Frames, PacketTally, follow as net};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use vmtax_findings::RequestKind;
use vmtax_model::{Checkpoint, Stamped, TraceFacts, thread_of_round_trip};
use vmtax_trace::{EventWindow, Moment};

/// So many times the slack a request may wait in the guest's block layer while no other is in flight: a tenth of a second
/// and more. One that was taken in before was merged with another.
const MAX_WAIT: u64 = 100;

/// Longest time from a push by QEMU to its notification, if nothing else tells when the guest got it, in microseconds.
const NOTIFICATION_US: f64 = 50_000.0;

/// Longest time from NAPI's poll of a packet to the receipt by the guest's stack, without a CPU meanwhile, in
/// microseconds.
const RECEIPT_US: f64 = 100_000.0;

pub(crate) struct Join {
    /// Nobody stamped operations: each of the guest's requests is one.
    unstamped: bool,
    /// Operations are round trips over the network, whose packets are these.
    frames: Option<Frames>,
    packets: Option<PacketTally>,
    /// When the host was done with the last of these.
    answered: u64,
    /// By client: the server's thread that answered it.
    servers: BTreeMap<i32, i32>,
    /// Of a guest that the host alone shows.
    in_device: InDevice,
    /// Of one whose VMM no probe shows.
    in_calls: Option<InCalls>,
    /// Of one whose packets are followed, and not its block requests.
    on_tap: Option<OnTap>,
    /// Of a guest that traces, likewise.
    in_queues: Option<InQueues>,
    /// So long after a request was complete all of its events are known, ticks.
    follow_after: u64,
    /// In the order in which they began, host ticks.
    operations: Vec<Operation>,
    params: MatchParams,
    host: HostWindow,
    guest: GuestWindow,
    thread_table: ThreadTable,
    /// The guest's requests that are complete; the host may still tell of a moment before that.
    complete: VecDeque<GuestRequest>,
    done: EventWindow<GuestRequest>,
    paths: EventWindow<(GuestRequest, Result<RequestPath, Reason>)>,
    /// In how many operations a task of the guest made a system call.
    callers: BTreeMap<i32, u64>,
    /// Number of operations that have begun.
    begun: usize,
    open: BTreeSet<usize>,
    ending: BinaryHeap<Reverse<(u64, usize)>>,
    /// Time before which events are forgotten, in host ticks.
    horizon: u64,
    /// When that was last decided.
    looked: u64,
    out: Joined,
}

impl Join {
    /// For operations in the order in which they began, in host ticks, each about `bytes` of the disk.
    pub fn new(
        facts: &TraceFacts,
        operations: Vec<Stamped>,
        bytes: u64,
        view: View,
        bound: u64,
    ) -> Self {
        let of_bytes = |stamp: &Stamped| Operation::of_stamp(stamp, bytes);
        Join::of_operations(
            facts,
            operations.iter().map(of_bytes).collect(),
            view,
            bound,
        )
    }

    /// For operations in the order in which they began, in host ticks.
    pub fn of_operations(
        facts: &TraceFacts,
        operations: Vec<Operation>,
        view: View,
        bound: u64,
    ) -> Self {
        // Far longer than any clock is wrong that is right at all, and short beside a request in flight.
        let slack = ((facts.tsc_mhz * 1000.0) as u64).max(bound.saturating_mul(4));
        let alone = operations.windows(2).all(|w| w[0].end <= w[1].begin);
        Join {
            unstamped: false,
            frames: None,
            packets: None,
            answered: 0,
            servers: BTreeMap::new(),
            in_device: InDevice::default(),
            in_calls: None,
            on_tap: None,
            in_queues: None,
            follow_after: slack,
            params: MatchParams {
                view,
                bound,
                slack,
                alone,
            },
            host: HostWindow::new(facts),
            guest: GuestWindow::new(facts),
            thread_table: ThreadTable::new(facts),
            complete: VecDeque::new(),
            done: EventWindow::default(),
            paths: EventWindow::default(),
            callers: BTreeMap::new(),
            begun: 0,
            open: BTreeSet::new(),
            ending: BinaryHeap::new(),
            horizon: 0,
            looked: 0,
            out: Joined {
                requests: Vec::with_capacity(operations.len()),
                ..Joined::default()
            },
            operations,
        }
    }

    /// For operations in a guest that makes other requests, too.
    pub fn among_others(mut self) -> Self {
        self.params.alone = false;
        self
    }

    /// For requests that nobody stamped: each is an operation, from its issue in the guest to its completion there.
    pub fn unstamped(facts: &TraceFacts, bound: u64) -> Self {
        let join = Join::new(facts, Vec::new(), 0, View::Kernel, bound);
        // How many there are at once is not known beforehand.
        Join {
            unstamped: true,
            params: MatchParams {
                alone: false,
                ..join.params
            },
            ..join
        }
    }

    /// For the packets of a network card, whoever sends them: each is an operation.
    pub fn packets(facts: &TraceFacts, bound: u64, guest_alone: bool) -> Self {
        let mut join = Join::unstamped(facts, bound);
        join.follow_after = join.follow_after.max((facts.tsc_mhz * RECEIPT_US) as u64);
        join.in_queues = Some(InQueues::new(
            bound,
            join.params.slack,
            join.follow_after,
            guest_alone,
        ));
        join
    }

    /// For round trips over the network.
    pub fn network(
        facts: &TraceFacts,
        operations: Vec<Stamped>,
        frames: Frames,
        view: View,
        bound: u64,
    ) -> Self {
        let clients = operations
            .iter()
            .map(|operation| thread_of_round_trip(operation.key))
            .collect();
        let packets = PacketTally::new(&operations);
        let mut join = Join {
            frames: Some(frames),
            ..Join::new(facts, operations, 0, view, bound)
        };
        join.packets = Some(packets);
        join.guest.clients = clients;
        join
    }

    /// With what the requests may lack although most have it.
    pub fn may_lack(mut self, checkpoints: &'static [Checkpoint]) -> Self {
        self.out.may_lack = checkpoints;
        self
    }

    /// For the requests to one disk of a guest that the host alone shows: each begins with the first that is seen of it, and
    /// ends with the last.
    pub fn from_host(facts: &TraceFacts) -> Self {
        let mut join = Join {
            unstamped: true,
            ..Join::new(facts, Vec::new(), 0, View::Host, 0)
        };
        join.params.alone = false;
        join.params.slack = (facts.tsc_mhz * NOTIFICATION_US) as u64;
        join.follow_after = join.params.slack;
        join
    }

    /// For the requests to one disk of a guest that the host alone shows, without its VMM's own steps.
    pub fn by_calls(facts: &TraceFacts) -> Self {
        Join {
            in_calls: Some(InCalls::default()),
            ..Join::from_host(facts)
        }
    }

    /// For the packets of one network card of a guest that the host alone shows: each begins with the first event that
    /// is seen of it, and ends with the last. `part`: the source of the VMM's part.
    pub fn packets_from_host(facts: &TraceFacts, part: VmmPart) -> Self {
        Join {
            on_tap: Some(OnTap::new(part)),
            ..Join::from_host(facts)
        }
    }

    /// Takes an event of the host. Events of both sides must come in the order of time.
    pub fn host(&mut self, event: &Event<HostEvent>) {
        self.advance(event.at);
        self.host.take(event);
        if let Some(packets) = &mut self.packets {
            packets.host(event, &self.host);
        }
        if let Some(in_queues) = &mut self.in_queues {
            in_queues.host(event);
        }
        let ended = match (&mut self.on_tap, &mut self.in_calls) {
            (Some(on_tap), _) => on_tap.take(event),
            (None, Some(in_calls)) => in_calls.take(event, &self.host),
            (None, None) if self.params.view == View::Host => self.in_device.take(event),
            (None, None) => None,
        };
        match ended {
            Some(Ended::Done(request)) => self.complete.push_back(request),
            Some(Ended::Unseen(request, last)) => self.reject_unseen(&request, last),
            None => {}
        }
    }

    /// Rejects a request whose end was not seen.
    fn reject_unseen(&mut self, request: &GuestRequest, last: Checkpoint) {
        self.out.rejected.push(Rejected {
            begin: request.issue.at,
            end: request.complete.at,
            kind: request.kind,
            reason: Reason::Missing(last),
        });
    }

    /// Takes an event of the guest.
    pub fn guest(&mut self, event: &Event<GuestEvent>) {
        self.advance(event.at);
        if let Some(vcpu) = self.thread_table.vcpu(event.cpu) {
            self.host.tasks.at_work(vcpu, event.at, event.cpu);
        }
        if let Some(packets) = &mut self.packets {
            packets.guest(event);
        }
        if let Some(in_queues) = &mut self.in_queues {
            in_queues.guest(event);
        }
        self.complete.extend(self.guest.take(event));
    }

    /// Returns the number of events and requests in flight that the join remembers.
    #[cfg(test)]
    pub fn remembers(&self) -> usize {
        self.host.remembers()
            + self.guest.remembers()
            + self.done.len()
            + self.paths.len()
            + self.open.len()
            + self.in_queues.as_ref().map_or(0, InQueues::remembers)
    }

    /// There are no more events.
    pub fn finish(mut self) -> Joined {
        if let Some(in_queues) = &mut self.in_queues {
            in_queues.finish();
        }
        self.advance(u64::MAX);
        let on_tap = self.on_tap.take().unwrap_or_default();
        for unread in on_tap.unread(self.params.slack) {
            self.reject_unseen(&unread, Checkpoint::NetTapRead);
        }
        self.out.threads = self.thread_table.threads;
        self.out.packets = self.packets.as_ref().map(PacketTally::counts);
        self.out
    }

    /// Does what can be done once every event before `now` is known.
    fn advance(&mut self, now: u64) {
        while let Some(operation) = self.operations.get(self.begun).filter(|o| o.begin <= now) {
            self.open.insert(self.begun);
            self.ending.push(Reverse((operation.end, self.begun)));
            self.begun += 1;
        }
        let slack = self.params.slack;
        if let Some(in_queues) = &mut self.in_queues {
            in_queues.settle(now);
            self.complete.extend(in_queues.done.drain(..));
            self.out.rejected.append(&mut in_queues.rejected);
        }
        while let Some(part) = self.complete.front().copied() {
            if part.complete.at.saturating_add(self.follow_after) >= now && now != u64::MAX {
                break;
            }
            self.complete.pop_front();
            self.follow(part);
        }
        while let Some(&Reverse((end, number))) = self.ending.peek() {
            if end.saturating_add(slack * 2) >= now && now != u64::MAX {
                break;
            }
            self.ending.pop();
            self.end(self.operations[number]);
            self.open.remove(&number);
        }
        // Not at each event: to look costs more than to remember.
        let latest = now.saturating_sub(slack * 2);
        let is_near = latest.saturating_sub(slack * 2) <= self.horizon.saturating_add(slack);
        if is_near || now < self.looked.saturating_add(slack / 4) {
            return;
        }
        self.looked = now;
        let horizon = self
            .oldest(now)
            .unwrap_or(now)
            .min(latest)
            .saturating_sub(slack * 2);
        if horizon > self.horizon.saturating_add(slack) {
            self.horizon = horizon;
            self.host.forget(horizon);
            self.guest.forget(horizon);
            self.done.forget(horizon);
            self.paths.forget(horizon);
        }
    }

    /// When the oldest operation began that is not over.
    fn oldest(&self, now: u64) -> Option<u64> {
        if !self.unstamped {
            let first = self.open.first()?;
            return Some(self.operations[*first].begin);
        }
        let since = now.saturating_sub(self.params.slack.saturating_mul(MAX_WAIT));
        let in_flight = [
            self.guest.oldest(since),
            self.in_device.oldest(),
            self.in_calls.as_ref().and_then(InCalls::oldest),
            self.on_tap.as_ref().and_then(|on_tap| on_tap.oldest(since)),
            self.in_queues
                .as_ref()
                .and_then(|queues| queues.oldest(since)),
        ];
        let complete = self.complete.iter().map(GuestRequest::begin);
        complete.chain(in_flight.into_iter().flatten()).min()
    }

    /// Returns a request's path, as far as the traces show it. `part` gets its place on the disk where the host alone
    /// shows it.
    fn path(&self, part: &mut GuestRequest) -> Result<RequestPath, Reason> {
        let (host, guest, params) = (&self.host, &self.guest, self.params);
        if let Some(OnTap { part: vmm, .. }) = self.on_tap {
            let packet = FromHost {
                host,
                part: vmm,
                slack: params.slack,
            };
            return packet.path(part);
        }
        if let Some(InQueues { guest_alone, .. }) = self.in_queues {
            let packet = FromBoth {
                host,
                guest,
                bound: params.bound,
                guest_alone,
            };
            return packet.path(part);
        }
        let follow = Follow {
            host,
            guest,
            done: &self.done,
            params,
        };
        match params.view {
            _ if self.in_calls.is_some() => follow.call_path(part),
            View::Host => follow.host_path(part),
            _ => follow.path(part),
        }
    }

    fn follow(&mut self, mut part: GuestRequest) {
        let mut path = self.path(&mut part);
        let is_from_guest = self.params.view != View::Host;
        let is_of_disk = is_from_guest && self.in_queues.is_none();
        if is_of_disk {
            self.done.push(part.complete.at, part);
            if !self.unstamped {
                self.paths.push(part.complete.at, (part, path));
                return;
            }
            if let Ok(path) = &mut path {
                path.begins_in_kernel = true;
            }
        }
        if is_from_guest {
            self.out.parts.push(part);
        }
        let (begin, end) = match &path {
            Ok(path) if !is_of_disk => path.span(),
            _ => (part.begin(), part.complete.at),
        };
        let operation = Stamped {
            begin,
            end,
            key: part.at_device(),
        };
        let request = path.and_then(|path| self.whole(path, &part, operation));
        self.put(request, operation, part.kind);
    }

    /// Ends an operation with its request, or with the reason why there is none.
    fn put(
        &mut self,
        request: Result<JoinedRequest, Reason>,
        operation: Stamped,
        kind: RequestKind,
    ) {
        let Stamped { begin, end, .. } = operation;
        match request {
            Ok(request) => self.out.requests.push(request),
            Err(reason) => self.out.rejected.push(Rejected {
                begin,
                end,
                kind,
                reason,
            }),
        }
    }

    /// Ends an operation that the workload stamped.
    fn end(&mut self, operation: Operation) {
        if self.frames.is_none() && self.params.view != View::Kernel {
            // Without a block layer to tell of requests, the operation itself is one.
            self.follow(GuestRequest::of_operation(
                &operation.stamp(),
                operation.bytes,
            ));
        }
        let request = self.request(operation);
        self.put(request, operation.counted(), RequestKind::Other);
    }

    fn request(&mut self, operation: Operation) -> Result<JoinedRequest, Reason> {
        if let Some(frames) = self.frames {
            return self.round_trip(operation.stamp(), frames);
        }
        let (stamp, bytes) = (operation.stamp(), operation.bytes);
        let Stamped { begin, end, .. } = stamp;
        // Of an operation that the block layer split, the part that came last: the operation waited for it.
        let of_operation = self
            .paths
            .within(begin, end)
            .filter(|(_, (part, _))| part.serves(&stamp, bytes));
        let (_, (part, path)) = of_operation.last().ok_or(Reason::NoRequest)?;
        let (part, mut path) = (*part, (*path)?);
        if self.params.view == View::Kernel {
            self.call(&part, begin, end, &mut path);
        }
        if operation.counted_from > begin {
            path.not_before(operation.counted_from);
        }
        self.whole(path, &part, operation.counted())
    }

    /// Follows a round trip over the network.
    fn round_trip(&mut self, operation: Stamped, frames: Frames) -> Result<JoinedRequest, Reason> {
        let client = thread_of_round_trip(operation.key);
        let follow = net::Follow {
            host: &self.host,
            guest: &self.guest,
            frames,
            params: self.params,
            after: self.answered,
            server: self.servers.get(&client).copied(),
        };
        let path = follow.path(&operation)?;
        if let Some((_, server)) = path.thread(Checkpoint::NetServerSend) {
            self.servers.insert(client, server);
        }
        self.answered = net::Follow::done(&path).max(self.answered);
        self.whole(path, &GuestRequest::of_operation(&operation, 0), operation)
    }

    /// A path with its operation's begin and end.
    fn whole(
        &mut self,
        mut path: RequestPath,
        part: &GuestRequest,
        operation: Stamped,
    ) -> Result<JoinedRequest, Reason> {
        let Stamped { begin, end, key } = operation;
        path.set_guest(Checkpoint::Begin, moment_at(begin));
        path.set_guest(Checkpoint::End, moment_at(end));
        let path = path.in_order(self.params.bound)?;
        let mut sides = Sides {
            host: &self.host,
            guest: &self.guest,
            thread_table: &mut self.thread_table,
        };
        Ok(sides.request(&path, part, key))
    }

    /// The workload's system call: of the task that issued the request, if that made one; else the first since of the
    /// task that makes one in most operations, which is the workload.
    fn call(&mut self, part: &GuestRequest, begin: u64, end: u64, path: &mut RequestPath) {
        let calls = || self.guest.calls.within(begin, part.issue.at);
        let callers: BTreeSet<i32> = calls().map(|(_, c)| c.tid).collect();
        for caller in &callers {
            *self.callers.entry(*caller).or_default() += 1;
        }
        let own = calls().filter(|(_, c)| c.tid == part.issue.tid).last();
        let usual = callers.iter().max_by_key(|tid| self.callers.get(tid));
        let Some((enter, call)) = own.or_else(|| calls().find(|(_, c)| Some(&c.tid) == usual))
        else {
            return;
        };
        let tid = call.tid;
        let moment = |(at, cpu)| Moment {
            at,
            cpu,
            tid,
            interrupt: false,
        };
        path.set_guest(Checkpoint::GuestCall, moment((enter, call.cpu)));
        // It may have returned before the request was complete; then a later call brings it.
        let calls = self.guest.calls.within(begin, end);
        let mut exits = calls
            .filter(|(_, c)| c.tid == tid)
            .filter_map(|(_, c)| c.exit)
            .filter(|(at, _)| (part.complete.at..=end).contains(at));
        if let Some(exit) = exits.next() {
            path.set_guest(Checkpoint::GuestReturn, moment(exit));
            path.busy_until = exits.last().map(moment);
        }
    }
}
