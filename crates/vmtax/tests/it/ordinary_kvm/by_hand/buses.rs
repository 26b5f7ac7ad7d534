//! Disks on buses without virtqueues, in a guest whose own drivers serve them: each request that QEMU counts is followed.

use super::{GUEST, LIMIT_S, booted, host};
use crate::common::boot_guest::ask;
use crate::common::{Ends, Place, Signal, files_below, json, number, until};
use serde_json::{Value, json as value};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

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
        assert!(followed >= 0.999 * all, "{said}");
        let rows = column["rows"].as_array().unwrap();
        let explained: f64 = rows.iter().map(|row| number(&row["percent"])).sum();
        assert!((98.0..=102.0).contains(&explained), "{explained}, {said}");
        assert!(rows.iter().any(|row| row["to"] == "host-call"), "{said}");
    }
}
