//! Counters of the host's kernel for all processes: CPU time, run queue, memory, swap; and its activity besides a VM's own: other
//! processes on the devices beneath its disks, NUMA balancing.

use super::{block_device, line};
use crate::clock::monotonic_ns;
use crate::host_disk::lowest_device;
use crate::process::processes;
use crate::{entries, read_text};
use procfs::process::Stat;
use procfs::{CpuTime, Current, CurrentSI, KernelStats, LoadAverage, Meminfo};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;
use vmtax_model::{DeviceUser, HostActivity, HostCounters, NumaBalancing, ProcessCpu};

/// Reads the counters; `with_processes`: also the CPU time of each process, a file each. `None` where `/proc/stat` cannot be read.
pub fn host_counters(with_processes: bool) -> Option<HostCounters> {
    let at_ns = monotonic_ns();
    let stats = KernelStats::current().ok()?;
    let memory = Meminfo::current().ok();
    let paging = procfs::vmstat().unwrap_or_default();
    let paged = |key: &str| {
        let pages = u64::try_from(*paging.get(key)?).ok()?;
        pages.checked_mul(procfs::page_size())
    };
    let processes = with_processes.then(|| processes().map(process_cpu).collect());
    Some(HostCounters {
        at_ns,
        cpus: stats.cpu_time.len(),
        busy_ms: milliseconds(busy_ticks(&stats.total)),
        runnable: stats.procs_running.map(u64::from),
        load: LoadAverage::current().ok().map(hundredths),
        memory: memory.as_ref().map(|memory| memory.mem_total),
        available: memory.and_then(|memory| memory.mem_available),
        swapped_in: paged("pswpin"),
        swapped_out: paged("pswpout"),
        processes: processes.unwrap_or_default(),
    })
}

/// The load average of one minute, in hundredths as the kernel prints it.
fn hundredths(load: LoadAverage) -> f64 {
    (f64::from(load.one) * 100.0).round() / 100.0
}

/// Ticks in which CPUs ran tasks or interrupts. The time of guests is in `user`; stolen time is another host's.
fn busy_ticks(time: &CpuTime) -> u64 {
    let interrupts = [time.irq, time.softirq].map(Option::unwrap_or_default);
    [time.user, time.nice, time.system]
        .into_iter()
        .chain(interrupts)
        .fold(0, u64::saturating_add)
}

fn process_cpu(stat: Stat) -> ProcessCpu {
    ProcessCpu {
        pid: stat.pid,
        started: stat.starttime,
        cpu_ms: milliseconds(stat.utime.saturating_add(stat.stime)),
        name: stat.comm,
    }
}

fn milliseconds(ticks: u64) -> u64 {
    ticks.saturating_mul(1000) / procfs::ticks_per_second().max(1)
}

/// Processes whose open files are looked up, those with most I/O first.
const MAX_USERS: usize = 8;
/// Open files of a process that are looked up.
const MAX_FILES: usize = 256;
/// Bytes a second below which a process is no load of a device.
const MIN_PER_S: f64 = 1e6;

/// Counters of the host at one moment.
#[derive(Debug)]
pub struct HostSample {
    at: Instant,
    numa: Option<[u64; 2]>,
    /// Bytes that each process had read and written, by PID and start.
    processes: BTreeMap<(i32, u64), [u64; 2]>,
}

impl HostSample {
    /// Reads the counters. Those of processes that this user may not read are left out.
    pub fn take() -> HostSample {
        let bytes = |stat: Stat| {
            let io = read_text(format!("/proc/{}/io", stat.pid))?;
            let [read, written] = ["read_bytes", "write_bytes"]
                .map(|key| line(&io, key).and_then(|number| number.trim().parse().ok()));
            Some(((stat.pid, stat.starttime), [read?, written?]))
        };
        HostSample {
            at: Instant::now(),
            numa: read_text("/proc/vmstat").and_then(|text| numa_counters(&text)),
            processes: processes().filter_map(bytes).collect(),
        }
    }

    /// The activity since an earlier sample, without that of a VM's process and of this one. `devices`: the block devices beneath the
    /// VM's disks, by their numbers as [`vmtax_model::VmDisk::host_device`] has them.
    pub fn since(&self, before: &HostSample, vm: i32, devices: &BTreeSet<u64>) -> HostActivity {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let rate = |before: u64, after: u64| {
            after.saturating_sub(before) as f64 / seconds.max(f64::MIN_POSITIVE)
        };
        let numa = before.numa.zip(self.numa).map(|(old, new)| NumaBalancing {
            hint_faults_per_s: rate(old[0], new[0]),
            migrated_per_s: rate(old[1], new[1]),
        });
        let own = std::process::id() as i32;
        let grown = |(process, new): (&(i32, u64), &[u64; 2])| {
            let old = before.processes.get(process)?;
            let user = DeviceUser {
                pid: process.0,
                read_per_s: rate(old[0], new[0]),
                written_per_s: rate(old[1], new[1]),
                ..DeviceUser::default()
            };
            let is_load = user.read_per_s + user.written_per_s >= MIN_PER_S;
            (is_load && ![vm, own].contains(&user.pid)).then_some(user)
        };
        let mut users: Vec<DeviceUser> = self.processes.iter().filter_map(grown).collect();
        users.sort_by_key(|user| Reverse((user.read_per_s + user.written_per_s) as u64));
        users.truncate(MAX_USERS);
        let on_device = |user: DeviceUser| {
            let device = used_device(user.pid, devices)?;
            Some(DeviceUser {
                name: read_text(format!("/proc/{}/comm", user.pid))?,
                device: block_device(device)?.name,
                ..user
            })
        };
        HostActivity {
            numa: numa.filter(|numa| numa.hint_faults_per_s > 0.0),
            device_users: users.into_iter().filter_map(on_device).collect(),
        }
    }
}

/// The first of these devices on which a process has a file open.
fn used_device(pid: i32, devices: &BTreeSet<u64>) -> Option<u64> {
    let files = entries(format!("/proc/{pid}/fd")).map(|entry| entry.path());
    let on = |file: PathBuf| lowest_device(&file).filter(|device| devices.contains(device));
    files.take(MAX_FILES).find_map(on)
}

/// Page faults in memory that NUMA balancing unmapped, and pages that it moved, of `/proc/vmstat`; `None` of a kernel without it.
fn numa_counters(vmstat: &str) -> Option<[u64; 2]> {
    let counter = |name: &str| {
        let mut lines = vmstat.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    };
    Some([
        counter("numa_hint_faults")?,
        counter("numa_pages_migrated")?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::{ExplicitSystemInfo, FromBufReadSI};
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    fn kernel_stats(text: &str) -> Option<KernelStats> {
        let system = ExplicitSystemInfo {
            boot_time_secs: 0,
            ticks_per_second: 100,
            page_size: 4096,
            is_little_endian: true,
        };
        KernelStats::from_buf_read(text.as_bytes(), &system).ok()
    }

    #[test]
    fn busy_is_what_tasks_and_interrupts_took_and_no_stolen_time() {
        let text = "cpu  1 2 4 1000 1000 8 16 1000 1 1\ncpu0 1 2 4 1000 1000 8 16 1000 1 1\nctxt 1\nbtime 1\nprocesses 1\nprocs_running 3\n";
        let stats = kernel_stats(text).unwrap();
        assert_eq!(
            (busy_ticks(&stats.total), stats.procs_running),
            (31, Some(3))
        );
    }

    #[test]
    fn the_own_cpu_time_is_in_those_of_the_host_and_of_its_process() {
        let own = std::process::id() as i32;
        let of_own = |counters: &HostCounters| {
            let mut all = counters.processes.iter();
            all.find(|process| process.pid == own).unwrap().cpu_ms
        };
        let before = host_counters(true).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let after = loop {
            let after = host_counters(true).unwrap();
            if of_own(&after) >= of_own(&before) + 50 {
                break after;
            }
            assert!(Instant::now() < deadline, "no CPU time is counted");
        };
        assert!(after.busy_ms > before.busy_ms && after.at_ns > before.at_ns);
        assert!(after.cpus > 0 && after.memory > after.available && after.load.is_some());
        assert_eq!(host_counters(false).unwrap().processes, []);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(cpu |cpu0 |ctxt |btime |processes |procs_running )?[ -~\n0-9]{0,80}") {
            let stats = kernel_stats(&text);
            let _ = stats.map(|stats| busy_ticks(&stats.total));
        }
    }

    #[test]
    fn faults_and_moved_pages_are_counters_of_their_own() {
        let text = "nr_free_pages 9\nnuma_pte_updates 70\nnuma_hint_faults 50\nnuma_hint_faults_local 40\nnuma_pages_migrated 7\n";
        assert_eq!(numa_counters(text), Some([50, 7]));
        assert_eq!(numa_counters("numa_hint_faults_local 40\n"), None);
    }

    proptest! {
        #[test]
        fn any_vmstat_is_survived(text in "(numa_hint_faults|numa_pages_migrated|[a-z _]{0,20})[ -~\n]{0,60}") {
            let _ = numa_counters(&text);
        }
    }

    /// A process that reads and writes a file on the device of this folder.
    #[test]
    fn a_process_that_loads_a_device_is_named_with_it() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let Some(device) = lowest_device(folder.path()) else {
            return eprintln!("skipped: this folder lies on no block device");
        };
        let before = HostSample::take();
        let script =
            "exec 3>f; while :; do dd if=/dev/zero bs=1M count=8 oflag=dsync >&3 2>/dev/null; done";
        let writes = vmtax_model::testing::Ends(
            std::process::Command::new("sh")
                .args(["-c", script])
                .current_dir(folder.path())
                .spawn()
                .unwrap(),
        );
        let pid = writes.0.id() as i32;
        let devices = BTreeSet::from([device]);
        let deadline = Instant::now() + std::time::Duration::from_secs(30);
        // The shell has the file open, and the I/O of its children once they have ended.
        let found = || {
            let before = HostSample::take();
            std::thread::sleep(std::time::Duration::from_millis(300));
            let activity = HostSample::take().since(&before, 1, &devices);
            let mut users = activity.device_users.into_iter();
            users.find(|user| user.pid == pid)
        };
        let user = loop {
            match found() {
                Some(user) => break user,
                None if Instant::now() > deadline => panic!("nobody loads the device"),
                None => {}
            }
        };
        assert!(
            user.name == "sh" && user.written_per_s > MIN_PER_S,
            "{user:?}"
        );
        let of_vm = HostSample::take().since(&before, pid, &devices);
        assert!(of_vm.device_users.iter().all(|user| user.pid != pid));
        let elsewhere = HostSample::take().since(&before, 1, &BTreeSet::from([7]));
        assert_eq!(elsewhere.device_users, [], "another device");
    }
}
