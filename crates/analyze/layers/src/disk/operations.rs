//! The operations of a program that stamps none, fio, by its own system calls: of each request that the guest's block layer shows
//! which call asked for it, and which brought it back.
//!
//! An operation lasts as fio counts its completion latency (fio(1), `clat`): with a synchronous engine from the entry of its call
//! to that call's return; with an asynchronous one from the return of the call that submitted it to the return of the one that
//! reaped it. Completions are reaped in their order. How many a call reaped does not show: at least one if it waited, and as many
//! as had to be before more could be submitted.

use super::NOWHERE;
use crate::events::{Event, GuestEvent};
use crate::join::Operation;
use std::collections::{HashMap, VecDeque};
use vmtax_findings::RequestKind;
use vmtax_trace::{SystemCall as S, system_call};

/// The operations, while the guest's events are read in the order of time.
#[derive(Debug)]
pub(crate) struct CalledOperations {
    /// Requests that one task has in flight at most.
    depth: u64,
    tasks: HashMap<i32, Task>,
    /// By the offset of a request that was inserted and not issued: its operation. A kernel thread may issue it, also after the call
    /// that asked for it has returned.
    inserted: HashMap<u64, usize>,
    /// By the offset of a request in flight: its operation.
    in_flight: HashMap<u64, usize>,
    open: HashMap<usize, OpenOperation>,
    /// Number of operations that have begun.
    begun: usize,
    done: Vec<Operation>,
    /// True if any of the requests is nobody's operation.
    has_others: bool,
}

/// A task of the guest.
#[derive(Debug, Default)]
struct Task {
    call: Option<OpenCall>,
    /// When its last call returned.
    returned: u64,
    /// Operations that it submitted and has not reaped.
    outstanding: u64,
    /// Of these the complete ones, in their order, each with the first return of a call since.
    complete: VecDeque<(usize, Option<u64>)>,
}

/// A call that has not returned.
#[derive(Debug)]
struct OpenCall {
    entered: u64,
    form: CallForm,
    /// Operations whose requests were issued in it.
    operations: Vec<usize>,
}

/// The part that a system call has in requests: it transfers, discards, submits or reaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallForm {
    /// Transfers data, and returns when that is done.
    Transfers,
    /// Discards blocks, likewise.
    Discards,
    /// Submits so many, and waits for so many.
    Queues { submits: u64, waits: u64 },
    /// Anything else, which may ask for blocks as well: to open a disk reads its partition table.
    Other,
}

/// An operation that is not over.
#[derive(Debug)]
struct OpenOperation {
    tid: i32,
    form: CallForm,
    entered: u64,
    /// When the call that submitted it returned.
    submitted: Option<u64>,
    key: u64,
    bytes: u64,
    /// Requests of it that were inserted or issued, and are not complete.
    requests: u64,
    completed: Option<u64>,
}

impl CallForm {
    fn of(nr: u32, args: &[u64; 4]) -> CallForm {
        match system_call(nr.into()) {
            Some(
                S::read
                | S::write
                | S::readv
                | S::writev
                | S::pread64
                | S::pwrite64
                | S::preadv
                | S::pwritev
                | S::preadv2
                | S::pwritev2,
            ) => CallForm::Transfers,
            Some(S::ioctl | S::fallocate) => CallForm::Discards,
            Some(S::io_submit) => CallForm::Queues {
                submits: args[1],
                waits: 0,
            },
            Some(S::io_uring_enter) => CallForm::Queues {
                submits: args[1],
                waits: args[2],
            },
            Some(S::io_getevents | S::io_pgetevents) => CallForm::Queues {
                submits: 0,
                waits: args[1],
            },
            _ => CallForm::Other,
        }
    }

    /// Most operations that the call can begin.
    fn operations(self) -> u64 {
        match self {
            CallForm::Transfers | CallForm::Discards => 1,
            CallForm::Queues { submits, .. } => submits,
            CallForm::Other => 0,
        }
    }

    /// Returns true if a request of this kind is an operation of the call. What makes writes durable is in none of fio's latencies.
    fn asks_for(self, kind: RequestKind) -> bool {
        match self {
            CallForm::Discards => kind == RequestKind::Discard,
            CallForm::Transfers | CallForm::Queues { .. } => kind != RequestKind::Flush,
            CallForm::Other => false,
        }
    }
}

impl CalledOperations {
    /// For tasks each of which has `depth` requests in flight at most.
    pub fn new(depth: u64) -> CalledOperations {
        CalledOperations {
            depth: depth.max(1),
            tasks: HashMap::new(),
            inserted: HashMap::new(),
            in_flight: HashMap::new(),
            open: HashMap::new(),
            begun: 0,
            done: Vec::new(),
            has_others: false,
        }
    }

    /// Takes an event; its times are those of the operations.
    pub fn take(&mut self, event: &Event<GuestEvent>) {
        let (at, tid) = (event.at, event.tid);
        match event.what {
            GuestEvent::Enter { nr, args } => self.enter(tid, at, CallForm::of(nr, &args)),
            GuestEvent::Exit => self.exit(tid, at),
            GuestEvent::Insert { offset } if !event.interrupt && offset != NOWHERE => {
                if let Some(number) = self.operation_of(tid, offset) {
                    self.inserted.insert(offset, number);
                }
            }
            GuestEvent::Issue {
                offset,
                bytes,
                kind,
            } => {
                let current = (!event.interrupt).then_some(tid);
                self.issue(
                    current,
                    Request {
                        offset,
                        bytes,
                        kind,
                    },
                );
            }
            GuestEvent::Complete { offset } => self.complete(offset, at),
            _ => {}
        }
    }

    /// Ends the trace: the operations in the order in which they began, and whether there were requests of nobody's operation.
    pub fn finish(mut self) -> (Vec<Operation>, bool) {
        for task in std::mem::take(&mut self.tasks).into_values() {
            for (number, returned) in task.complete {
                self.end(number, returned.unwrap_or(0));
            }
        }
        let mut done = self.done;
        done.sort_by_key(|operation| (operation.begin, operation.key));
        (done, self.has_others)
    }

    fn enter(&mut self, tid: i32, at: u64, form: CallForm) {
        let task = self.tasks.entry(tid).or_default();
        task.call = Some(OpenCall {
            entered: at,
            form,
            operations: Vec::new(),
        });
        let CallForm::Queues { submits, .. } = form else {
            return;
        };
        // There was room for these: so many had been reaped without a call, or by one that waited for fewer.
        let needed = (task.outstanding + submits).saturating_sub(self.depth);
        let needed = if submits > 0 { needed } else { 0 };
        self.reap(tid, needed);
    }

    fn exit(&mut self, tid: i32, at: u64) {
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.returned = at;
        let unreturned = task.complete.iter_mut().rev();
        for (_, returned) in unreturned.take_while(|(_, returned)| returned.is_none()) {
            *returned = Some(at);
        }
        let Some(call) = task.call.take() else { return };
        match call.form {
            CallForm::Transfers | CallForm::Discards => {
                for number in call.operations {
                    self.end(number, at);
                }
            }
            CallForm::Queues { waits, .. } => {
                for number in call.operations {
                    if let Some(operation) = self.open.get_mut(&number) {
                        operation.submitted = Some(at);
                    }
                }
                self.reap(tid, waits);
            }
            CallForm::Other => {}
        }
    }

    /// A task has reaped the oldest of its complete operations, `count` at most.
    fn reap(&mut self, tid: i32, count: u64) {
        for _ in 0..count {
            let Some(task) = self.tasks.get_mut(&tid) else {
                return;
            };
            let Some((number, _)) = task.complete.pop_front() else {
                return;
            };
            task.outstanding = task.outstanding.saturating_sub(1);
            let returned = task.returned;
            self.end(number, returned);
        }
    }

    fn issue(&mut self, current: Option<i32>, request: Request) {
        if self.in_flight.contains_key(&request.offset) && request.offset != NOWHERE {
            // A driver whose ring was full had it back.
            return;
        }
        let number = match self.inserted.remove(&request.offset) {
            Some(number) => Some(number),
            None => current.and_then(|tid| self.operation_of(tid, request.offset)),
        };
        let number = number.filter(|number| self.is_asked_for(*number, request.kind));
        let operation = number.and_then(|number| Some((number, self.open.get_mut(&number)?)));
        let Some((number, operation)) = operation else {
            self.has_others |= request.kind != RequestKind::Flush;
            return;
        };
        let end = operation.key.saturating_add(operation.bytes);
        operation.key = operation.key.min(request.offset);
        operation.bytes = end.max(request.end()) - operation.key;
        self.in_flight.insert(request.offset, number);
    }

    /// Returns true if a request of this kind is of its operation's call; an operation of another is forgotten.
    fn is_asked_for(&mut self, number: usize, kind: RequestKind) -> bool {
        let Some(operation) = self.open.get(&number) else {
            return false;
        };
        let is_asked_for = operation.form.asks_for(kind);
        if !is_asked_for {
            if let Some(task) = self.tasks.get_mut(&operation.tid) {
                task.outstanding = task.outstanding.saturating_sub(1);
            }
            self.open.remove(&number);
        }
        is_asked_for
    }

    /// The operation that a request of a task's call serves: one of its own, or of one that the block layer split.
    fn operation_of(&mut self, tid: i32, offset: u64) -> Option<usize> {
        let task = self.tasks.get_mut(&tid)?;
        let call = task.call.as_mut()?;
        let most = call.form.operations();
        if call.operations.len() as u64 >= most {
            let mut numbers = call.operations.iter().rev();
            let open = &self.open;
            let continued = |number: &&usize| {
                let end = |o: &OpenOperation| o.key.saturating_add(o.bytes) == offset;
                most == 1 || open.get(number).is_some_and(end)
            };
            let number = *numbers.find(continued)?;
            self.open.get_mut(&number)?.requests += 1;
            return Some(number);
        }
        let number = self.begun;
        self.begun += 1;
        call.operations.push(number);
        if matches!(call.form, CallForm::Queues { .. }) {
            task.outstanding += 1;
        }
        let operation = OpenOperation {
            tid,
            form: call.form,
            entered: call.entered,
            submitted: None,
            key: offset,
            bytes: 0,
            requests: 1,
            completed: None,
        };
        self.open.insert(number, operation);
        Some(number)
    }

    fn complete(&mut self, offset: u64, at: u64) {
        let Some(number) = self.in_flight.remove(&offset) else {
            return;
        };
        let Some(operation) = self.open.get_mut(&number) else {
            return;
        };
        operation.requests = operation.requests.saturating_sub(1);
        operation.completed = Some(at);
        if operation.requests > 0 {
            return;
        }
        let Some(task) = self.tasks.get_mut(&operation.tid) else {
            return;
        };
        if matches!(operation.form, CallForm::Queues { .. }) {
            task.complete.push_back((number, None));
        }
    }

    /// An operation is over, at the return of a call, but not before it was complete.
    fn end(&mut self, number: usize, returned: u64) {
        let Some(operation) = self.open.remove(&number) else {
            return;
        };
        let Some(completed) = operation.completed else {
            // Written to the page cache, say: the request goes on, and nobody waits.
            self.has_others = true;
            return;
        };
        let begin = operation.entered;
        let counted_from = operation.submitted.unwrap_or(begin);
        self.done.push(Operation {
            begin,
            counted_from,
            end: returned.max(completed).max(counted_from),
            key: operation.key,
            bytes: operation.bytes,
        });
    }
}

/// A request that the guest's block layer issues.
struct Request {
    offset: u64,
    bytes: u64,
    kind: RequestKind,
}

impl Request {
    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}
