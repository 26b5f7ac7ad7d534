//! The micro-guest as a machine.

use super::guest::MicroGuest;
use super::{Order, layout, workloads};
use crate::agent::messages::Files;
use crate::running::RunningMachine;
use crate::vmm::qemu::monitor::QMP_TIMEOUT;
use crate::{MachineError, Vm};
use std::time::{Duration, Instant};
use vmtax_model::{Ping, Probes, QemuThread, TrialResult, WorkloadSpec};
use vmtax_wire::Observed;

impl RunningMachine for MicroGuest<'_> {
    fn boot(&self) -> Duration {
        self.boot
    }

    fn run(
        &mut self,
        workload: &WorkloadSpec,
        probes: Probes,
        timeout: Duration,
        files: &mut Files<'_>,
    ) -> Result<(TrialResult, Option<Observed>), MachineError> {
        let (result, series) = workloads::run(self, workload, timeout)?;
        if probes != Probes::None {
            files(vmtax_model::files::SERIES, &series.to_bytes()).map_err(|what| {
                MachineError::System {
                    what,
                    source: std::io::ErrorKind::Other.into(),
                }
            })?;
        }
        Ok((result, None))
    }

    fn ping(&mut self, duration: Duration) -> Result<Ping, MachineError> {
        self.mailbox()?.order(&Order::Ping)?;
        let (host, guest) = (layout::words::HOST_STAMP, layout::words::GUEST_STAMP);
        let ping = vmtax_clock::exchange(
            &self.memory,
            layout::MAILBOX + host,
            layout::MAILBOX + guest,
            duration,
        );
        self.wait(Instant::now() + QMP_TIMEOUT, "exchanging time stamps")?;
        Ok(ping?)
    }

    fn network_threads(&self) -> Vec<QemuThread> {
        self.network
            .as_ref()
            .map_or(Vec::new(), |(network, _)| network.threads())
    }

    fn vm(&self) -> Option<&Vm> {
        Some(&self.vm)
    }

    fn end(mut self: Box<Self>) {
        let told = self
            .mailbox()
            .is_ok_and(|mailbox| mailbox.order(&Order::Leave).is_ok());
        if !told || self.child.wait(QMP_TIMEOUT).is_none() {
            self.vm.quit();
            self.child.wait(QMP_TIMEOUT);
        }
    }
}
