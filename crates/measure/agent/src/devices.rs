//! The devices of a guest: the modules that drive them, its disks, their request queues, and its network card; waited
//! for, since they appear a moment after their drivers. And the tree that the host shares, mounted from one of them.

use crate::AgentError;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount as mount_at};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io;
use std::mem;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use vmtax_model::{ShareMethod, in_effect};
use vmtax_wire::{
    DISK_PARAMETER, DISK_SERIAL, Mount, NET_ADDRESS, NET_MAC, NET_MASK, NET_PARAMETER, SHARE,
    SHARE_MAC,
};

const APPEAR_TIMEOUT: Duration = Duration::from_secs(5);

/// A SATA, IDE or SCSI disk is probed in the background, and on a busy host an answer may be late: libata asks again after
/// 5, 10 and 30 s (`ata_eh_identify_timeouts` in the kernel's drivers/ata/libata-eh.c).
const PROBE_TIMEOUT: Duration = Duration::from_secs(50);

/// Returns the result of `find` as soon as it is not `None`; `None` after 5 s (`APPEAR_TIMEOUT`).
pub(crate) fn wait_for<T>(find: impl Fn() -> Option<T>) -> Option<T> {
    wait_up_to(APPEAR_TIMEOUT, find)
}

fn wait_up_to<T>(timeout: Duration, find: impl Fn() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        let found = find();
        if found.is_some() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where a disk has its serial number: virtio-blk, NVMe, and SCSI with SATA, in a page with a header of 4 bytes.
const SERIALS: [&str; 3] = ["serial", "device/serial", "device/vpd_pg80"];

/// The measured disk; waited for where the controller says that it appears later.
pub(crate) fn measured_disk() -> Option<PathBuf> {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    match line.split_whitespace().any(|word| word == DISK_PARAMETER) {
        true => wait_up_to(PROBE_TIMEOUT, || disk_with_serial(DISK_SERIAL)),
        false => disk_with_serial(DISK_SERIAL),
    }
}

/// The block device whose serial number is `serial`.
pub(crate) fn disk_with_serial(serial: &str) -> Option<PathBuf> {
    let has_serial = |disk: &fs::DirEntry| {
        let number = |name| fs::read(disk.path().join(name)).ok();
        let mut numbers = SERIALS.iter().filter_map(number);
        numbers.any(|bytes| is_serial(&bytes, serial))
    };
    let mut disks = fs::read_dir("/sys/block").ok()?.flatten();
    let node = disks
        .find(has_serial)
        .map(|disk| Path::new("/dev").join(disk.file_name()));
    // It is made a moment after the device.
    node.filter(|node| node.exists())
}

fn is_serial(bytes: &[u8], serial: &str) -> bool {
    let is = |text: &[u8]| text.trim_ascii() == serial.as_bytes();
    is(bytes) || bytes.get(4..).is_some_and(is)
}

/// A module's parameters. Linux 7 asks an NFS server of version 4.1 for delegations of folders with its GETATTRs; nfs-ganesha
/// does not know that call and fails what it comes with: reading a folder gives EREMOTEIO. A module without this parameter
/// loads all the same.
fn parameters(path: &str) -> &'static CStr {
    if path.ends_with("/nfsv4.ko") {
        c"directory_delegations=0"
    } else {
        c""
    }
}

/// Loads the modules of a list below `/vmtax`, one path a line, dependencies first: `modules`, or the additional ones of a share
/// method (`modules-METHOD`) or of a command's root (`modules-command`). Gives what did not work. A kernel without modules, or
/// without the list, is no fault.
pub(crate) fn load_modules(list: &str) -> Vec<String> {
    let list = fs::read_to_string(format!("/vmtax/{list}.list")).unwrap_or_default();
    list.lines()
        .filter_map(|path| load(path).err().map(|why| format!("module {path}: {why}")))
        .collect()
}

fn load(path: &str) -> Result<(), String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    match rustix::system::finit_module(file, parameters(path), 0) {
        // ENODEV: a driver for a CPU feature that this guest lacks; another driver has a general one.
        Ok(()) | Err(Errno::EXIST | Errno::NODEV) => Ok(()),
        Err(e) => Err(e.to_string()),
    }
}

/// Sets the address of the card with this hardware address, and enables it.
pub(crate) fn configure_card(mac: &str, address: Ipv4Addr, mask: Ipv4Addr) -> Result<(), String> {
    let name = wait_for(|| card(mac))
        .ok_or_else(|| format!("no network card with the address {mac} appeared"))?;
    let socket = socket()?;
    let failed =
        |what: &'static str| move |e: io::Error| format!("{what} of the network card: {e}");
    let mut request = request(&name);
    request.ifr_ifru.ifru_addr = plain(address);
    ioctl(&socket, libc::SIOCSIFADDR, &mut request).map_err(failed("the address"))?;
    request.ifr_ifru.ifru_netmask = plain(mask);
    ioctl(&socket, libc::SIOCSIFNETMASK, &mut request).map_err(failed("the mask"))?;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl(&socket, libc::SIOCSIFFLAGS, &mut request).map_err(failed("enabling"))
}

/// A socket: any takes the requests below.
fn socket() -> Result<UdpSocket, String> {
    UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|e| format!("a socket: {e}"))
}

/// Sets the default route.
pub(crate) fn route_all(gateway: Ipv4Addr) -> Result<(), String> {
    let socket = socket()?;
    // SAFETY: all of it are numbers and one pointer, for which zero is a value.
    let mut route: libc::rtentry = unsafe { mem::zeroed() };
    route.rt_dst = plain(Ipv4Addr::UNSPECIFIED);
    route.rt_genmask = plain(Ipv4Addr::UNSPECIFIED);
    route.rt_gateway = plain(gateway);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    // SAFETY: the descriptor is open, and the request reads a whole `rtentry`, which this is.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT as _, &raw const route) } {
        0 => Ok(()),
        _ => {
            let error = io::Error::last_os_error();
            Err(format!("adding the route via {gateway}: {error}"))
        }
    }
}

/// Enables the loopback device.
pub(crate) fn enable_loopback() -> Result<(), String> {
    let socket = socket()?;
    let mut request = request("lo");
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    ioctl(&socket, libc::SIOCSIFFLAGS, &mut request).map_err(|e| format!("enabling lo: {e}"))
}

/// The card with the address that the host gave it; a guest's kernel may have other interfaces.
fn card(mac: &str) -> Option<String> {
    let is_ours = |entry: &fs::DirEntry| {
        fs::read_to_string(entry.path().join("address"))
            .is_ok_and(|address| address.trim_end() == mac)
    };
    let mut cards = fs::read_dir("/sys/class/net").ok()?.flatten();
    cards.find(is_ours)?.file_name().into_string().ok()
}

/// Configures the card that is measured; `None` where the guest was given none.
pub(crate) fn configure_measured_card() -> Option<Result<SocketAddrV4, String>> {
    // The controller names the echo server on the kernel's command line: a card appears a moment after its driver.
    let line = fs::read_to_string("/proc/cmdline").ok()?;
    let named = |word: &str| {
        word.strip_prefix(NET_PARAMETER)?
            .strip_prefix('=')
            .map(str::to_owned)
    };
    let echo = line.split_whitespace().find_map(named)?;
    let echo = echo
        .parse()
        .map_err(|_| format!("{NET_PARAMETER}={echo} is not ADDRESS:PORT"));
    Some(echo.and_then(|echo| configure_card(NET_MAC, NET_ADDRESS, NET_MASK).map(|()| echo)))
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: all of it are numbers and arrays of numbers, for which zero is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // One less than there is room for: the last stays zero.
    let room = request.ifr_name.len() - 1;
    for (place, byte) in request.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    request
}

fn plain(address: Ipv4Addr) -> libc::sockaddr {
    // Port, then address, in network order.
    let mut data = [0; 14];
    for (place, byte) in data[2..6].iter_mut().zip(address.octets()) {
        *place = byte as libc::c_char;
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as libc::sa_family_t,
        sa_data: data,
    }
}

fn ioctl(socket: &UdpSocket, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: the descriptor is open, and these requests read a whole `ifreq`, which this is.
    match unsafe { libc::ioctl(socket.as_raw_fd(), what as _, std::ptr::from_mut(request)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Loads the modules, mounts, and returns the line of `/proc/mounts`.
pub(crate) fn mount_tree(request: &Mount) -> Result<String, String> {
    if std::process::id() != 1 {
        return Err("shares can only be mounted in guests".to_owned());
    }
    let mut complaints = load_modules(&format!("modules-{}", request.method));
    if let Some((address, mask)) = request.network {
        configure_card(SHARE_MAC, address, mask)?;
    }
    let source = if request.method.is_image() {
        disk(&request.source)?
    } else {
        PathBuf::from(&request.source)
    };
    fs::create_dir_all(SHARE).map_err(|e| format!("making {SHARE}: {e}"))?;
    let flags = if request.read_only {
        MountFlags::RDONLY
    } else {
        MountFlags::empty()
    };
    let options = CString::new(request.options.as_str()).map_err(|e| e.to_string())?;
    let (kind, options) = (request.kind.as_str(), options.as_c_str());
    mount_at(&source, SHARE, kind, flags, options).map_err(|e| {
        let failed = format!(
            "mounting {kind} from {} with '{}': {e}",
            request.source, request.options
        );
        complaints.insert(0, failed);
        complaints.extend(kernel_messages(request.method));
        complaints.join("; ")
    })?;
    let mounts = fs::read_to_string("/proc/mounts").map_err(|e| format!("/proc/mounts: {e}"))?;
    let line = mounts
        .lines()
        .rev()
        .find(|line| line.split(' ').nth(1) == Some(SHARE));
    line.map(str::to_owned)
        .ok_or_else(|| format!("{SHARE} is not in /proc/mounts after mounting it"))
}

fn disk(serial: &str) -> Result<PathBuf, String> {
    wait_for(|| disk_with_serial(serial).filter(|disk| disk.exists()))
        .ok_or_else(|| format!("no disk with the serial number '{serial}' appeared"))
}

/// The kernel's messages about the mount: more precise than an error number.
fn kernel_messages(method: ShareMethod) -> Vec<String> {
    let log = kernel_log();
    let word = method.driver().message;
    let lines = log.lines().rev().filter(|line| line.contains(word));
    lines.take(3).map(str::to_owned).collect()
}

/// Returns the present content of the kernel's log; empty where it may not be read.
pub(crate) fn kernel_log() -> String {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg");
    let Ok(mut log) = opened else {
        return String::new();
    };
    let (mut text, mut record) = (String::new(), [0; 8192]);
    // One record a read; "priority,sequence,time,flags;text".
    while let Ok(length @ 1..) = log.read(&mut record) {
        let record = String::from_utf8_lossy(&record[..length]);
        text += record
            .split_once(';')
            .map_or("", |(_, said)| said.lines().next().unwrap_or_default());
        text.push('\n');
    }
    text
}

/// Changing it resets other attributes, so it is written first.
const SCHEDULER: &str = "scheduler";

/// The attributes that were changed.
pub(crate) struct BlockQueue {
    folder: PathBuf,
    /// Values of the attributes before the change; `None` of one that cannot be read.
    before: BTreeMap<String, Option<String>>,
}

impl BlockQueue {
    /// The request queue of a disk, of which nothing is changed yet.
    pub fn of_disk(disk: &Path) -> BlockQueue {
        let name = disk.file_name().unwrap_or_default();
        BlockQueue {
            folder: Path::new("/sys/block").join(name).join("queue"),
            before: BTreeMap::new(),
        }
    }

    /// Restores what the last call changed, then sets these attributes.
    pub fn set(&mut self, attributes: &BTreeMap<String, String>) -> Result<(), AgentError> {
        for (name, before) in scheduler_first(&std::mem::take(&mut self.before)) {
            match before {
                Some(value) => self.write(name, value)?,
                // It is about to have another value.
                None if attributes.contains_key(name) => {}
                None => {
                    let why = io::Error::other("its previous value is not known");
                    return Err(AgentError::system(
                        format!("restoring {} of the guest", self.file(name).display()),
                        why,
                    ));
                }
            }
        }
        // All of them before any is written: another scheduler changes the others.
        self.before = attributes
            .keys()
            .map(|name| (name.clone(), self.read(name)))
            .collect();
        scheduler_first(attributes)
            .into_iter()
            .try_for_each(|(name, value)| self.write(name, value))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.file(name))
            .ok()
            .map(|text| in_effect(&text).to_owned())
    }

    fn write(&self, name: &str, value: &str) -> Result<(), AgentError> {
        let file = self.file(name);
        fs::write(&file, value).map_err(|e| {
            AgentError::system(
                format!("writing {value} to {} of the guest", file.display()),
                e,
            )
        })
    }
}

fn scheduler_first<Value>(attributes: &BTreeMap<String, Value>) -> Vec<(&String, &Value)> {
    let (first, rest): (Vec<_>, Vec<_>) =
        attributes.iter().partition(|(name, _)| *name == SCHEDULER);
    first.into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_stands_alone_or_behind_a_header() {
        assert!(
            is_serial(b"vmtax-disk\n", "vmtax-disk")
                && is_serial(b"\0\x80\0\x14  vmtax-disk", "vmtax-disk")
        );
        assert!(!is_serial(b"vmtax", "vmtax-disk") && !is_serial(b"", "vmtax-disk"));
    }

    fn attributes(text: &str) -> BTreeMap<String, String> {
        text.split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(k, v)| (k.into(), v.into()))
            .collect()
    }

    #[test]
    fn attributes_are_set_and_have_their_values_again_when_others_are() {
        let queue = tempfile::tempdir().unwrap();
        let attribute_value = |name: &str| fs::read_to_string(queue.path().join(name)).unwrap();
        fs::write(queue.path().join(SCHEDULER), "none [mq-deadline] kyber\n").unwrap();
        fs::write(queue.path().join("nr_requests"), "256\n").unwrap();
        let mut changed = BlockQueue {
            folder: queue.path().into(),
            before: BTreeMap::new(),
        };
        changed
            .set(&attributes("nr_requests=4 scheduler=none"))
            .unwrap();
        assert_eq!(
            (attribute_value(SCHEDULER), attribute_value("nr_requests")),
            ("none".into(), "4".into())
        );
        changed.set(&attributes("nr_requests=8")).unwrap();
        assert_eq!(
            (attribute_value(SCHEDULER), attribute_value("nr_requests")),
            ("mq-deadline".into(), "8".into())
        );
        changed.set(&BTreeMap::new()).unwrap();
        assert_eq!(
            (attribute_value(SCHEDULER), attribute_value("nr_requests")),
            ("mq-deadline".into(), "256".into())
        );
        let error = changed
            .set(&attributes("no-such/x=1"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("writing 1 to ") && error.contains("no-such/x of the guest"),
            "{error}"
        );
        // One that could not be read can change, but not go back.
        let mut changed = BlockQueue {
            folder: queue.path().into(),
            before: BTreeMap::new(),
        };
        changed.set(&attributes("new=1")).unwrap();
        changed.set(&attributes("new=2")).unwrap();
        assert_eq!(attribute_value("new"), "2");
        changed.before.insert("new".into(), None);
        assert!(
            changed
                .set(&BTreeMap::new())
                .unwrap_err()
                .to_string()
                .contains("restoring")
        );
    }

    #[test]
    fn what_another_scheduler_changes_has_its_value_again() {
        let queue = tempfile::tempdir().unwrap();
        let scheduler = queue.path().join(SCHEDULER);
        fs::write(&scheduler, "[mq-deadline] none\n").unwrap();
        // One file stands for an attribute that changes with the scheduler.
        std::os::unix::fs::symlink(&scheduler, queue.path().join("nr_requests")).unwrap();
        let mut changed = BlockQueue {
            folder: queue.path().into(),
            before: BTreeMap::new(),
        };
        changed
            .set(&attributes("nr_requests=4 scheduler=none"))
            .unwrap();
        changed.set(&BTreeMap::new()).unwrap();
        assert_eq!(fs::read_to_string(&scheduler).unwrap(), "mq-deadline");
    }

    #[test]
    fn the_scheduler_comes_first_since_it_changes_the_others() {
        let all = attributes("nr_requests=4 read_ahead_kb=0 scheduler=none wbt_lat_usec=0");
        let names: Vec<&str> = scheduler_first(&all)
            .into_iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(
            names,
            [SCHEDULER, "nr_requests", "read_ahead_kb", "wbt_lat_usec"]
        );
    }
}
