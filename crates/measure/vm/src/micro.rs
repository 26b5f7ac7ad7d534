//! The micro-guest as a machine: no agent, orders go into its memory.

use crate::child::Child;
use crate::console::printable_tail;
use crate::micro_guest::{ExitKind, Exits, Mailbox, MicroRequest, Order, Run, State, layout};
use crate::outside;
use crate::qemu::{self, Streams};
use crate::qmp::Monitor;
use crate::setup::{Boot, Setup};
use crate::{Interrupt, MachineError, QemuMonitor, QemuOutside};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vmtax_clock::Shared;
use vmtax_model::{Habit, Machine, Ping};

/// How long QEMU may take over a monitor command, an exchange of stamps over its end, and the guest over its own.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the guest's memory is looked at: rarely, so that looking does not disturb.
const GLANCE: Duration = Duration::from_millis(1);

/// A micro-guest that is up and waits for orders. Ends with the value.
#[derive(Debug)]
pub struct MicroSession<'a> {
    machine: Machine,
    interrupt: &'a Interrupt,
    boot: Duration,
    disk_bytes: u64,
    memory: Shared,
    monitor: Monitor,
    log: PathBuf,
    child: Child,
}

impl<'a> MicroSession<'a> {
    /// Starts one and waits until it takes orders.
    ///
    /// # Errors
    /// [`MachineError`] saying what QEMU said last.
    pub fn start(setup: &Setup<'a>) -> Result<MicroSession<'a>, MachineError> {
        let began = Instant::now();
        let machine = setup.machine;
        let Boot::Micro(image) = setup.boot else {
            return Err(MachineError::NoAgent { machine });
        };
        let memory = Shared::create(layout::RAM_BYTES)?;
        let (monitor, theirs) = UnixStream::pair().map_err(|e| MachineError::system("making a socket pair", e))?;
        let streams = Streams { agent: None, monitor: theirs.into(), shared: memory.descriptor()?, server: None };
        let mut child = qemu::start_micro(setup, image, streams)?;
        let log = qemu::log(setup.log);
        let monitor = match Monitor::connect(monitor, setup.boot_deadline) {
            Ok(monitor) => monitor,
            Err(error) => return Err(refused(&mut child, &log).unwrap_or(error)),
        };
        let disk_bytes = setup.scratch.disk().and_then(|disk| disk.metadata().ok()).map_or(0, |m| m.len());
        let (boot, interrupt) = (Duration::ZERO, setup.interrupt);
        let mut session = MicroSession { machine, interrupt, boot, disk_bytes, memory, monitor, log, child };
        session.wait(began + setup.boot_deadline, "coming up")?;
        session.boot = began.elapsed();
        if machine == Machine::MICRO_KVM {
            session.monitor.check_kvm(PATIENCE)?;
        }
        Ok(session)
    }

    /// From the start of its process until it took orders.
    pub fn boot(&self) -> Duration {
        self.boot
    }

    /// The size of its disk.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Makes requests to the disk.
    ///
    /// # Errors
    /// [`MachineError`] when the guest cannot, does not, or ends.
    pub fn requests(&mut self, run: Run, deadline: Duration) -> Result<Vec<MicroRequest>, MachineError> {
        self.carry_out(&Order::Run(run), deadline, "making requests")?;
        Ok(self.mailbox()?.requests()?)
    }

    /// Makes exits of one kind.
    ///
    /// # Errors
    /// As [`MicroSession::requests`].
    pub fn exits(&mut self, kind: ExitKind, count: u32, deadline: Duration) -> Result<Exits, MachineError> {
        self.carry_out(&Order::Exits { kind, count }, deadline, "making exits")?;
        Ok(self.mailbox()?.exits(kind)?)
    }

    /// Follows a habit, or its cure: how long each took, ticks.
    ///
    /// # Errors
    /// As [`MicroSession::requests`].
    pub fn habit(
        &mut self,
        habit: Habit,
        cured: bool,
        count: u32,
        deadline: Duration,
    ) -> Result<Vec<u64>, MachineError> {
        self.carry_out(&Order::Habit { habit, cured, count }, deadline, "following a habit")?;
        Ok(self.mailbox()?.habit(habit, cured)?)
    }

    /// VM exits so far, as KVM counts them; `None` where it is not KVM, or QEMU does not tell (it does since 7.1).
    pub fn exits_by_now(&mut self) -> Option<u64> {
        outside::kvm_counters(&self.monitor)?.get("exits").copied()
    }

    /// Exchanges stamps for `duration`.
    ///
    /// # Errors
    /// As [`MicroSession::requests`], and [`MachineError::Clock`] when the guest does not answer.
    pub fn ping(&mut self, duration: Duration) -> Result<Ping, MachineError> {
        self.mailbox()?.order(&Order::Ping)?;
        let (host, guest) = (layout::words::HOST_STAMP, layout::words::GUEST_STAMP);
        let ping = vmtax_clock::exchange(&self.memory, layout::MAILBOX + host, layout::MAILBOX + guest, duration);
        self.wait(Instant::now() + PATIENCE, "exchanging stamps")?;
        Ok(ping?)
    }

    /// QEMU from outside: its process and its device.
    ///
    /// # Errors
    /// [`MachineError`] when the monitor does not answer.
    pub fn qemu(&mut self) -> Result<QemuOutside, MachineError> {
        QemuOutside::ask(&self.monitor)
    }

    /// Its QEMU's monitor, for others who have questions meanwhile.
    pub fn monitor(&self) -> QemuMonitor {
        QemuMonitor(self.monitor.clone())
    }

    /// Switches QEMU's own log of block requests on or off.
    ///
    /// # Errors
    /// [`MachineError`] when the monitor does not answer or refuses.
    pub fn log_events(&mut self, on: bool) -> Result<(), MachineError> {
        outside::log_events(&self.monitor, on)
    }

    /// Ends it in good order.
    pub fn end(mut self) {
        let told = self.mailbox().is_ok_and(|mailbox| mailbox.order(&Order::Leave).is_ok());
        if !told || self.child.wait(PATIENCE).is_none() {
            let _ = self.monitor.execute("quit", PATIENCE);
            self.child.wait(PATIENCE);
        }
    }

    fn mailbox(&self) -> Result<Mailbox<'_>, MachineError> {
        Ok(Mailbox::new(self.memory.words())?)
    }

    fn carry_out(&mut self, order: &Order, deadline: Duration, doing: &str) -> Result<(), MachineError> {
        self.mailbox()?.order(order)?;
        self.wait(Instant::now() + deadline, doing)
    }

    /// Waits until the last order is done with.
    fn wait(&mut self, deadline: Instant, doing: &str) -> Result<(), MachineError> {
        let machine = self.machine;
        let began = Instant::now();
        loop {
            match self.mailbox()?.state()? {
                State::Ready | State::Done => return Ok(()),
                State::Failed(failure) => return Err(crate::micro_guest::MicroError::from(failure).into()),
                State::Starting | State::Running => {}
            }
            if self.interrupt.raised() {
                return Err(MachineError::Interrupted);
            }
            if let Some(status) = self.child.wait(Duration::ZERO) {
                let tail = printable_tail(&std::fs::read(&self.log).unwrap_or_default());
                return Err(MachineError::Ended {
                    machine,
                    doing: doing.to_owned(),
                    status,
                    tail,
                    log: self.log.clone(),
                });
            }
            if Instant::now() > deadline {
                let seconds = began.elapsed().as_secs();
                return Err(MachineError::MicroSilent {
                    machine,
                    doing: doing.to_owned(),
                    seconds,
                    log: self.log.clone(),
                });
            }
            std::thread::sleep(GLANCE);
        }
    }
}

/// What QEMU said when it ended before it had a monitor.
fn refused(child: &mut Child, log: &std::path::Path) -> Option<MachineError> {
    let status = child.wait(PATIENCE)?;
    let said = printable_tail(&std::fs::read(log).unwrap_or_default());
    Some(MachineError::Refused { status, said, log: log.to_path_buf() })
}
