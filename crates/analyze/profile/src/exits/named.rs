//! VM exits row by row, with the device and the register of each address.

use super::devices::Devices;
use super::vcpu;
use vmtax_model::samples::{Access, ExitCounts, ExitRow};
use vmtax_rules::Register;

/// VM exits of a vCPU, for one reason, at one address.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedExits {
    /// The vCPU; `None` where its thread's role is not known.
    pub vcpu: Option<u32>,
    /// As KVM names it.
    pub reason: String,
    /// Address that the guest accessed, and the kind of access; `None` for exits without an address.
    pub access: Option<Access>,
    /// The device at the address, empty where there is none or it is not known.
    pub device: String,
    /// Register of the device, empty where it is not known.
    pub register: String,
    /// Number of exits.
    pub count: u64,
    /// Of those, handed to user space.
    pub user: u64,
    /// Of all, those whose time is known.
    pub timed: u64,
    /// Their time, ns.
    pub total_ns: f64,
}

/// The counts with names; none where KVM's tracepoints could not be read.
pub fn named(counts: &ExitCounts, devices: &Devices) -> Vec<NamedExits> {
    let Some(traced) = &counts.traced else {
        return Vec::new();
    };
    let row = |row: &ExitRow| {
        let (device, register) = row
            .access
            .as_ref()
            .map(|access| devices.at(access))
            .unwrap_or_default();
        NamedExits {
            vcpu: vcpu(traced, row.tid),
            reason: row.reason.clone(),
            access: row.access,
            device,
            register: register.map_or("", Register::label).to_owned(),
            count: row.count,
            user: row.user,
            timed: row.timed,
            total_ns: row.ticks as f64 * 1000.0 / traced.mhz,
        }
    };
    traced.rows.iter().map(row).collect()
}
