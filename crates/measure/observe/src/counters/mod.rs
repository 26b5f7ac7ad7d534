//! Counters that the host's kernel keeps of a process, its threads, its control group, its network interfaces and its block
//! devices. Reading them changes nothing and needs no root for one's own processes.

mod block_device;
mod cgroup;
mod cpu_use;
mod network;
mod process;
mod unix_socket;

pub use block_device::block_device;
pub use cgroup::{
    Cgroups, cgroup_counters, cpu_quotas, cpuset, low_cpu_weights, memory_limit, thread_groups,
};
pub use cpu_use::cpu_use;
pub use network::interfaces;
pub use process::{
    ThreadTimes, is_stopped, memory, own_cpu, process_io, process_stop, started, thread_state,
    thread_times, transparent_huge, wait_channel,
};
pub use unix_socket::{clients, socket_server};
