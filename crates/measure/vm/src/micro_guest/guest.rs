//! A micro-guest that runs: no agent, orders go into its memory.

use super::{ExitKind, Mailbox, MicroError, MicroRequest, Order, RoundTrips, Run, State};
use crate::network::{MachineNetwork, NetworkEnd, NetworkLink};
use crate::process::child::Child;
use crate::process::log::log_tail;
use crate::setup::{Setup, VmmProgram};
use crate::vmm::started::{Link, Started};
use crate::vmm::{self, start_micro_guest};
use crate::{Interrupt, MachineError};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_clock::Shared;
use vmtax_model::{Antipattern, Machine};
use vmtax_vmm::Vm;
use vmtax_vmm::qemu::monitor::QMP_TIMEOUT;

/// Interval between reads of the guest's memory: long, so that reading does not disturb.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A micro-guest that runs and waits for orders. Ends with the value.
#[derive(Debug)]
pub(crate) struct MicroGuest<'a> {
    machine: Machine,
    interrupt: &'a Interrupt,
    pub(super) boot: Duration,
    disk_bytes: u64,
    pub(super) memory: Shared,
    pub(super) vm: Vm,
    log: PathBuf,
    pub(super) child: Child,
    /// With the echo server's address there.
    pub(super) network: Option<(MachineNetwork, SocketAddrV4)>,
}

impl<'a> MicroGuest<'a> {
    /// Starts one and waits until it takes orders.
    ///
    /// # Errors
    /// [`MachineError`] saying what QEMU said last.
    pub fn start(
        setup: &Setup<'a>,
        program: &VmmProgram,
        rom: &Path,
    ) -> Result<MicroGuest<'a>, MachineError> {
        let began = Instant::now();
        let by_tap = setup.network.then(|| by_tap(setup)).transpose()?;
        let (network, link) = by_tap.unzip();
        let network = network.zip(link.as_ref().map(|link| link.echo));
        let Started { mut child, link } = start_micro_guest(setup, program, rom, link)?;
        let Link {
            memory,
            control,
            log,
            ..
        } = link;
        let vm = match vmm::connect(setup, child.session(), control, setup.guest.boot_timeout()) {
            Ok(vm) => vm,
            Err(error) => return Err(refused(&mut child, &log).unwrap_or(error)),
        };
        let disk = setup.scratch.disk().and_then(|disk| disk.metadata().ok());
        let mut session = MicroGuest {
            machine: setup.machine,
            interrupt: setup.interrupt,
            boot: Duration::ZERO,
            disk_bytes: disk.map_or(0, |data| data.len()),
            memory,
            vm,
            log,
            child,
            network,
        };
        session.wait(began + setup.guest.boot_timeout(), "booting")?;
        session.boot = began.elapsed();
        Ok(session)
    }

    /// The size of its disk.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// The echo server's address, where it has a network.
    pub fn echo(&self) -> Option<SocketAddrV4> {
        self.network.as_ref().map(|(_, echo)| *echo)
    }

    /// Makes round trips of this request over the network.
    ///
    /// # Errors
    /// As [`MicroGuest::requests`].
    pub fn round_trips(
        &mut self,
        request: &[u8],
        order: RoundTrips,
        timeout: Duration,
    ) -> Result<Vec<MicroRequest>, MachineError> {
        self.mailbox()?.lay(request);
        self.carry_out(&Order::RoundTrips(order), timeout, "making round trips")?;
        Ok(self.mailbox()?.round_trips()?)
    }

    /// Makes requests to the disk.
    ///
    /// # Errors
    /// [`MachineError`] when the guest cannot, does not, or ends.
    pub fn requests(
        &mut self,
        run: Run,
        timeout: Duration,
    ) -> Result<Vec<MicroRequest>, MachineError> {
        self.carry_out(&Order::Run(run), timeout, "making requests")?;
        Ok(self.mailbox()?.requests()?)
    }

    /// Makes exits of one kind.
    ///
    /// # Errors
    /// As [`MicroGuest::requests`].
    pub fn exits(
        &mut self,
        kind: ExitKind,
        count: u32,
        timeout: Duration,
    ) -> Result<Vec<u64>, MachineError> {
        self.carry_out(&Order::Exits { kind, count }, timeout, "making exits")?;
        Ok(self.mailbox()?.exits(kind)?)
    }

    /// Follows an antipattern, or its fix: how long each took, ticks.
    ///
    /// # Errors
    /// As [`MicroGuest::requests`].
    pub fn antipattern(
        &mut self,
        antipattern: Antipattern,
        fixed: bool,
        count: u32,
        timeout: Duration,
    ) -> Result<Vec<u64>, MachineError> {
        self.carry_out(
            &Order::Antipattern {
                antipattern,
                fixed,
                count,
            },
            timeout,
            "following an antipattern",
        )?;
        Ok(self.mailbox()?.antipattern(antipattern, fixed)?)
    }

    /// VM exits so far, as KVM counts them; `None` where it is not KVM, or QEMU does not tell (it does since 7.1).
    pub fn exits_by_now(&mut self) -> Option<u64> {
        self.vm.monitor()?.kvm_counters().get("exits").copied()
    }

    pub(super) fn mailbox(&self) -> Result<Mailbox<'_>, MachineError> {
        Ok(Mailbox::new(self.memory.words())?)
    }

    fn carry_out(
        &mut self,
        order: &Order,
        timeout: Duration,
        doing: &str,
    ) -> Result<(), MachineError> {
        self.mailbox()?.order(order)?;
        self.wait(Instant::now() + timeout, doing)
    }

    /// Waits until the last order is done with.
    pub(super) fn wait(&mut self, deadline: Instant, doing: &str) -> Result<(), MachineError> {
        let machine = self.machine;
        let began = Instant::now();
        loop {
            match self.mailbox()?.state()? {
                State::Ready | State::Done => return Ok(()),
                State::Failed(failure) => {
                    return Err(MicroError::from(failure).into());
                }
                State::Starting | State::Running => {}
            }
            if self.interrupt.raised() {
                return Err(MachineError::Interrupted);
            }
            if let Some(status) = self.child.wait(Duration::ZERO) {
                let tail = log_tail(&self.log);
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
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// A network for it: its driver speaks to a tap's host alone, and resolves no address.
fn by_tap(setup: &Setup<'_>) -> Result<(MachineNetwork, NetworkLink), MachineError> {
    match MachineNetwork::start(setup)? {
        (network, link @ NetworkLink { end: NetworkEnd::Tap(_), .. }) => Ok((network, link)),
        _ => Err(MachineError::NoNetwork(
            "the micro-guest's network is a tap alone: run vmtax as root with backend=tap, or use another machine"
                .to_owned(),
        )),
    }
}

/// Returns the error of a QEMU that ended before it had a monitor, with the end of its log.
fn refused(child: &mut Child, log: &Path) -> Option<MachineError> {
    let status = child.wait(QMP_TIMEOUT)?;
    let said = log_tail(log);
    Some(MachineError::Refused {
        status,
        said,
        log: log.to_path_buf(),
    })
}
