//! A VM that somebody started by hand: its disks are volumes of the device mapper, its packets go over vhost-net, a vCPU computes. And
//! disks on buses without virtqueues, in a guest whose own drivers serve them: each request that QEMU counts is followed.

use super::{GUEST, LIMIT_S, findings};
use crate::common::boot_guest::ask;
use crate::common::{
    Ends, Place, Signal, files_below, json, number, traces_of, tracing, until, until_near,
};
use serde_json::{Value, json as value};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The address of its network card.
const ADDRESS: &str = "10.9.0.2";
/// Delay of each request to a volume.
const DELAY_MS: u32 = 8;
/// The size of each volume, sectors.
const VOLUME: u32 = 128 << 11;

/// Runs a program of the host; returns its output.
fn host(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).output().unwrap();
    assert!(
        out.status.success(),
        "{program} {arguments:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

struct ByHand {
    place: Place,
    qemu: Ends,
}

impl ByHand {
    /// Makes the volumes and starts the VM, whose guest reads and writes a device on one of them and a file on another.
    fn start() -> ByHand {
        let place = Place::new();
        let disk = place.put("parts.raw", vec![7; 3 * VOLUME as usize * 512]);
        for module in ["loop", "dm-delay"] {
            host("modprobe", &[module]);
        }
        let device = host(
            "losetup",
            &["-f", "--show", "--direct-io=on", disk.to_str().unwrap()],
        );
        for (part, name) in ["slow", "beside", "files"].into_iter().enumerate() {
            let table = format!(
                "0 {VOLUME} delay {device} {} {DELAY_MS}",
                part as u32 * VOLUME
            );
            host("dmsetup", &["create", name, "--table", &table]);
        }
        // Of a device with a request queue the kernel counts times exactly.
        let exact = host(
            "losetup",
            &["-f", "--show", "--direct-io=on", "/dev/mapper/slow"],
        );
        let folder = place.path("files");
        fs::create_dir(&folder).unwrap();
        host("mkfs.ext4", &["-q", "/dev/mapper/files"]);
        host("mount", &["/dev/mapper/files", folder.to_str().unwrap()]);
        let file = place.put("files/disk.raw", vec![7; 64 << 20]);
        fs::File::open(&file).unwrap().sync_all().unwrap();
        host("ip", &["tuntap", "add", "hand0", "mode", "tap"]);
        host("ip", &["address", "add", "10.9.0.1/24", "dev", "hand0"]);
        host("ip", &["link", "set", "hand0", "up"]);
        let load =
            format!("load=disk:/dev/vda:20:60 load=disk:/dev/vdb:20:60 load=cpu address={ADDRESS}");
        let more = "-netdev tap,id=n,ifname=hand0,script=no,downscript=no,vhost=on -device virtio-net-pci,netdev=n";
        let qemu = guest(
            &place,
            "web",
            &[&exact, file.to_str().unwrap()],
            &load,
            more,
        );
        ByHand { place, qemu }
    }

    fn pid(&self) -> u32 {
        self.qemu.0.id()
    }

    /// A thread of the VM by a part of its name. Before Linux 6.4 a vhost worker is a thread of the kernel, named after QEMU's process.
    fn thread(&self, name: &str) -> String {
        let pid = self.pid();
        let find = |folder: String, name: &str| {
            let tasks = fs::read_dir(folder).unwrap().flatten();
            let mut named = tasks.filter(|task| {
                fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.contains(name))
            });
            named.next()?.file_name().into_string().ok()
        };
        let own = find(format!("/proc/{pid}/task"), name);
        own.or_else(|| find("/proc".to_owned(), &format!("{name}-{pid}")))
            .unwrap()
    }
}

/// Starts a guest of the box whose disks have no IDs, as people write it; returns once it is up.
fn guest(place: &Place, name: &str, disks: &[&str], load: &str, more: &str) -> Ends {
    let mut words: Vec<String> = more.split_whitespace().map(str::to_owned).collect();
    for (number, disk) in disks.iter().enumerate() {
        words.extend([
            "-drive".to_owned(),
            format!("if=none,id=d{number},format=raw,file={disk},cache=none,aio=native"),
        ]);
        words.extend([
            "-device".to_owned(),
            format!("virtio-blk-pci,drive=d{number}"),
        ]);
    }
    let initramfs = PathBuf::from(format!("{GUEST}/initramfs"));
    booted(place, name, "q35", &initramfs, load, words)
}

/// Starts a guest with the box's kernel and an initramfs on a machine of this type; returns once it is up.
fn booted(
    place: &Place,
    name: &str,
    machine: &str,
    initramfs: &Path,
    load: &str,
    more: Vec<String>,
) -> Ends {
    let (console, monitor) = (
        place.path(&format!("{name}.console")),
        place.path(&format!("{name}.qmp")),
    );
    let words = format!(
        "-name {name},debug-threads=on -machine {machine},accel=kvm -cpu host -m 384 -nodefaults -display none \
         -kernel {GUEST}/vmlinuz -initrd {} -serial file:{} -qmp unix:{},server=on,wait=off",
        initramfs.display(),
        console.display(),
        monitor.display()
    );
    let append = format!("console=ttyS0 quiet mitigations=off {load}");
    let words = words.split_whitespace().map(str::to_owned);
    let words = words.chain(more).chain(["-append".to_owned(), append]);
    let qemu = Ends::start_with("qemu-system-x86_64", words);
    until("the guest is up", || {
        fs::read_to_string(&console)
            .ok()?
            .contains("guest is up")
            .then_some(())
    });
    qemu
}

fn by_hand() -> MutexGuard<'static, ByHand> {
    static BY_HAND: LazyLock<Mutex<ByHand>> = LazyLock::new(|| Mutex::new(ByHand::start()));
    BY_HAND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The VM exits of a thread since this was made, counted in the kernel.
struct Exits(PathBuf);

impl Exits {
    fn count_from_now(tid: &str) -> Exits {
        let instance = tracing().join("instances/known-load");
        fs::create_dir(&instance).unwrap();
        let trigger = format!("hist:keys=common_pid if common_pid == {tid}");
        fs::write(instance.join("events/kvm/kvm_exit/trigger"), trigger).unwrap();
        Exits(instance)
    }

    fn count(&self) -> f64 {
        let hist = fs::read_to_string(self.0.join("events/kvm/kvm_exit/hist")).unwrap();
        hist.lines()
            .find_map(|line| line.trim().strip_prefix("Hits: "))
            .unwrap()
            .parse()
            .unwrap()
    }
}

impl Drop for Exits {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Echo requests that the host's kernel sent, and their replies.
fn echoes() -> f64 {
    let text = fs::read_to_string("/proc/net/snmp").unwrap();
    let [names, values] = text
        .lines()
        .filter(|line| line.starts_with("Icmp: "))
        .collect::<Vec<_>>()[..]
    else {
        panic!("{text}")
    };
    let icmp_counter = |name: &str| {
        let at = names.split(' ').position(|word| word == name).unwrap();
        values.split(' ').nth(at).unwrap().parse::<f64>().unwrap()
    };
    icmp_counter("OutEchos") + icmp_counter("InEchoReps")
}

#[test]
#[ignore = "needs the box"]
fn figures_of_top_are_those_of_a_known_load_beside_another_vm() {
    let vm = by_hand();
    let _ping = Ends::start("ping", &format!("-q -i 0.05 -w 300 {ADDRESS}"));
    let exits = Exits::count_from_now(&vm.thread("CPU 0/KVM"));
    let truth = || (Instant::now(), exits.count(), echoes());
    let compared = || {
        // Of the device's requests the truth is their trace in the same time.
        let folder = tempfile::tempdir().unwrap();
        let words = format!(
            "layers --vm {} --duration 9 --json --output {}/out",
            vm.pid(),
            folder.path().display()
        );
        let layers = vm.place.vmtax(&words).start(LIMIT_S);
        until("it traces", || {
            (!traces_of(layers.pid()).is_empty()).then_some(())
        });
        let (began, exits, packets) = truth();
        let sample = vm
            .place
            .vmtax(&format!("top {} --json --duration 6", vm.pid()))
            .start(LIMIT_S)
            .outcome()
            .exits(0);
        let (ended, exits_then, packets_then) = truth();
        let seconds = (ended - began).as_secs_f64();
        let traced = json(&layers.outcome().exits(0).stdout)["findings"]["requests"].clone();
        let of_disk = |of_kind: &&Value| of_kind["disk"] == "d0" && !of_kind["davg"].is_null();
        let [n, ns] = traced.as_array().unwrap().iter().filter(of_disk).fold(
            [0.0, 0.0],
            |[n, ns], of_kind| {
                let davg = &of_kind["davg"];
                [
                    n + number(&davg["n"]),
                    ns + number(&davg["n"]) * number(&davg["mean_ns"]),
                ]
            },
        );
        let found = json(&sample.stdout)["vms"][0].clone();
        let nic = &found["nics"][0];
        let packets_found = number(&nic["rx_packets_per_s"]) + number(&nic["tx_packets_per_s"]);
        [
            (
                "EXIT/s",
                number(&found["exits"]["per_s"]),
                (exits_then - exits) / seconds,
                0.0,
            ),
            ("DAVG", number(&found["disks"][0]["davg_ns"]), ns / n, 0.0),
            (
                "PKT/s",
                packets_found,
                (packets_then - packets) / seconds,
                0.0,
            ),
        ]
    };
    let near_and_planted = || {
        let tries = until_near(compared);
        // The load is the one that was planted.
        let least = tries
            .iter()
            .map(|one| one[1].1)
            .fold(f64::INFINITY, f64::min);
        assert!(least >= 0.5e6 * f64::from(DELAY_MS), "{tries:#?}");
    };
    near_and_planted();
    let load = "load=disk:/dev/vda:30:100 load=cpu";
    let _neighbor = guest(&vm.place, "neighbor", &["/dev/mapper/beside"], load, "");
    near_and_planted();
}

#[test]
#[ignore = "needs the box"]
fn requests_of_a_volume_and_of_a_file_on_one_are_followed_to_it() {
    let vm = by_hand();
    let found = findings(&vm.place, &format!("layers --vm {} --duration 6", vm.pid()));
    let requests: Vec<&Value> = found["requests"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|of_kind| of_kind["kind"] != "flush")
        .collect();
    assert_eq!(
        requests.len(),
        4,
        "reads and writes of both disks: {found:#}"
    );
    for of_kind in requests {
        assert!(
            number(&of_kind["followed"]) >= 0.999 * number(&of_kind["requests"]),
            "{of_kind:#}"
        );
        // A tick of the delay's timer is 4 ms long.
        let least = 0.5e6 * f64::from(DELAY_MS);
        assert!(number(&of_kind["davg"]["p50_ns"]) > least, "{of_kind:#}");
    }
    let missing = found["missing"].to_string() + &found["layers"]["missing"].to_string();
    assert!(
        !missing.contains("kicks") && !missing.contains("block device"),
        "{missing}"
    );
    let sample = vm
        .place
        .vmtax(&format!("top {} --json --level 1 --duration 2", vm.pid()))
        .start(LIMIT_S)
        .outcome();
    let disk = &json(&sample.exits(0).stdout)["vms"][0]["disks"][0];
    assert!(
        disk["io"]["in_flight"].is_number(),
        "a disk without an ID has its queue, too: {disk:#}"
    );
}

#[test]
#[ignore = "needs the box"]
fn a_vhost_worker_that_gets_no_cpu_is_found() {
    let vm = by_hand();
    let (worker, vcpu) = (vm.thread("vhost"), vm.thread("CPU 0/KVM"));
    let found = {
        let _ping = Ends::start("ping", &format!("-q -i 0.05 -w 300 {ADDRESS}"));
        host("taskset", &["-pc", "0", &vcpu]);
        host("taskset", &["-pc", "1", &worker]);
        host("chrt", &["-i", "-p", "0", &worker]);
        let busy = || {
            Ends::start_with(
                "timeout",
                [
                    "200",
                    "taskset",
                    "-c",
                    "1",
                    "sh",
                    "-c",
                    "while :; do :; done",
                ],
            )
        };
        let _load = [busy(), busy()];
        findings(&vm.place, &format!("diagnose {} --duration 6", vm.pid()))
    };
    host("chrt", &["-o", "-p", "0", &worker]);
    for thread in [&worker, &vcpu] {
        host("taskset", &["-pc", "0,1", thread]);
    }
    let first = &found["causes"][0];
    assert_eq!(
        first["rule"], "vm-serving-run-queue-wait",
        "{:#}",
        found["causes"]
    );
    assert!(
        first["finding"].as_str().unwrap().contains("vhost worker"),
        "{first:#}"
    );
    assert!(
        first["remedies"]
            .to_string()
            .contains(&format!("taskset -pc CPUS {worker}")),
        "{first:#}"
    );
}

/// Each disk's ID, and its device.
const DISKS: [(&str, &str); 6] = [
    ("ide", "ide-hd,bus=ide.0"),
    ("sata", "ide-hd,bus=ahci.0"),
    ("nvme", "nvme,serial=1"),
    ("lsi", "scsi-hd,bus=sym.0"),
    ("megasas", "scsi-hd,bus=sas.0"),
    ("pvscsi", "scsi-hd,bus=para.0"),
];
const CONTROLLERS: &str =
    "-device ahci,id=ahci -device lsi53c895a,id=sym -device megasas,id=sas -device pvscsi,id=para";
/// Drivers of the guest's that its initramfs lacks.
const DRIVERS: [&str; 4] = ["ata_piix", "sym53c8xx", "megaraid_sas", "vmw_pvscsi"];
/// The guest's disks, whichever is which.
const IN_GUEST: [&str; 6] = ["nvme0n1", "sda", "sdb", "sdc", "sdd", "sde"];
/// Programs of the guest that ask each disk, one request after the other.
const IN_FLIGHT: usize = 3;
/// Kinds of requests, and QEMU's name of their number.
const KINDS: [(&str, &str); 3] = [
    ("read", "rd_operations"),
    ("write", "wr_operations"),
    ("flush", "flush_operations"),
];

/// The guest's initramfs with more drivers: of a file that is twice in it the last counts.
fn initramfs(place: &Place) -> PathBuf {
    let (folder, whole) = (place.path("initramfs.d"), place.path("initramfs"));
    let script = format!(
        "set -e; mkdir -p {folder}/modules; cd {folder}/modules\n\
         cpio -i --quiet --to-stdout '*modules/order' <{GUEST}/initramfs >order\n\
         for driver in {drivers}; do modprobe --show-depends $driver; done | sed -n 's/^insmod \\([^ ]*\\).*/\\1/p' | while read -r path; do\n\
         name=$(basename $path .xz); ! grep -qx $name order || continue\n\
         case $path in *.xz) xz -dc $path ;; *) cat $path ;; esac >$name; echo $name >>order\n\
         done\n\
         cd ..; find . | cpio --quiet -o -H newc >{whole}.more; cat {GUEST}/initramfs {whole}.more >{whole}",
        folder = folder.display(),
        drivers = DRIVERS.join(" "),
        whole = whole.display()
    );
    host("sh", &["-c", &script]);
    whole
}

/// A running guest, whose monitor of the test's own is in `test.qmp`.
fn start(place: &Place) -> Ends {
    let disks = DISKS.map(|(id, device)| {
        let file = place.put(&format!("{id}.raw"), vec![7; 32 << 20]);
        fs::File::open(&file).unwrap().sync_all().unwrap();
        format!(
            "-drive if=none,id={id}-d,format=raw,cache=none,aio=native,file={} -device {device},drive={id}-d,id={id}",
            file.display()
        )
    });
    let monitor = place.path("test.qmp");
    let more = format!(
        "-qmp unix:{},server=on,wait=off {CONTROLLERS} {}",
        monitor.display(),
        disks.join(" ")
    );
    let loads = IN_GUEST.map(|disk| format!("load=disk:/dev/{disk}:0:60 ").repeat(IN_FLIGHT));
    let more = more.split_whitespace().map(str::to_owned).collect();
    booted(
        place,
        "buses",
        "pc",
        &initramfs(place),
        &loads.concat(),
        more,
    )
}

/// Number of requests of a kind that QEMU has completed for a disk.
fn completed(stats: &Value, disk: &str, kind: &str) -> f64 {
    let of_disk = |stats: &&Value| {
        let device = stats["qdev"].as_str().unwrap_or_default();
        device.split('/').any(|part| part == disk)
    };
    let stats = stats.as_array().unwrap().iter().find(of_disk).unwrap();
    number(&stats["stats"][kind])
}

/// QEMU's counters before some seconds of the guest and after them, and the findings of these seconds.
struct Traced {
    before: Value,
    after: Value,
    found: Value,
}

/// Traces a guest that runs between two moments in which nothing is in flight.
fn traced(place: &Place) -> Traced {
    let vm = start(place);
    let socket = place.path("test.qmp");
    let monitor = |command: &str| ask(&socket, &value!({ "execute": command }));
    until("the guest asks each disk", || {
        let stats = monitor("query-blockstats");
        let writes = |disk| completed(&stats, disk, "wr_operations");
        DISKS
            .iter()
            .all(|(disk, _)| writes(disk) > 0.0)
            .then_some(())
    });
    let stop = || {
        monitor("stop");
        thread::sleep(Duration::from_secs(3));
        monitor("query-blockstats")
    };
    let before = stop();
    let words = format!(
        "layers --vm {} --duration 600 --output out --json",
        vm.0.id()
    );
    let tracing = place.vmtax(&words).start(LIMIT_S);
    let is_page = |path: &PathBuf| path.to_string_lossy().contains("host-trace/bound.cpu");
    until("it traces", || {
        let mut files = files_below(&place.path("out")).into_iter();
        files.any(|path| is_page(&path)).then_some(())
    });
    monitor("cont");
    thread::sleep(Duration::from_secs(15));
    let after = stop();
    tracing.signal(Signal::INT);
    let found = json(&tracing.outcome().exits(0).stdout)["findings"].clone();
    Traced {
        before,
        after,
        found,
    }
}

#[test]
#[ignore = "needs the box"]
fn each_request_of_disks_without_virtqueues_is_followed_and_counted() {
    let place = Place::new();
    let Traced {
        before,
        after,
        found,
    } = traced(&place);
    let requests = found["requests"].as_array().unwrap();
    let columns = found["layers"]["columns"].as_array().unwrap();
    for (disk, (kind, counter)) in DISKS
        .iter()
        .flat_map(|(disk, _)| KINDS.map(|kind| (disk, kind)))
    {
        let done = completed(&after, disk, counter) - completed(&before, disk, counter);
        let at = requests
            .iter()
            .position(|of_kind| of_kind["disk"] == *disk && of_kind["kind"] == kind);
        // QEMU does not count the flushes of NVMe, and not each guest flushes each disk.
        assert!(
            at.is_some() == (done > 0.0) && (at.is_some() || kind == "flush"),
            "{done} {kind} of {disk}: {found:#}"
        );
        let Some(at) = at else { continue };
        let (of_kind, column) = (&requests[at], &columns[at]);
        let (all, followed) = (number(&of_kind["requests"]), number(&of_kind["followed"]));
        let said = format!(
            "{disk}, {kind}: {:#} {:#}",
            column["matched"], column["rows"]
        );
        assert_eq!(all, done, "{said}");
        // Of few requests one may be under way where the trace begins.
        assert!(all - followed <= (0.001 * all).max(1.0), "{said}");
        let rows = column["rows"].as_array().unwrap();
        let explained: f64 = rows.iter().map(|row| number(&row["percent"])).sum();
        assert!((98.0..=102.0).contains(&explained), "{explained}, {said}");
        assert!(rows.iter().any(|row| row["to"] == "host-call"), "{said}");
    }
}
