//! Rules about threads that serve a running VM's devices beside its vCPUs, and are too busy: an iothread of several
//! disks, a main loop that searches 9p's files or answers monitor commands.

use super::vm_cpu::{MIN_READY, PROFILE_THREAD};
use super::vm_io::{BUSY_IOTHREAD, MIN_PER_S, is_served, waiting};
use crate::rule::{about_vm, instruction, live_change, measurement, qmp};
use crate::{Finding, Rule, VmPart};
use serde_json::json;
use vmtax_findings::{FunctionShare, ProfileFindings, ThreadRates, VmRates};
use vmtax_model::number::{percent, significant};
use vmtax_model::{
    ChangeCost, DiskSettings, LiveChange, LiveMetric, LiveSetting, Remedy, Role, Setting,
    SettingPlace, ShareServer,
};

/// A main loop on a CPU for so long makes the devices that it serves wait.
const BUSY_MAIN_LOOP: f64 = 0.5;
/// QEMU has a hash table of 9p's files since then.
const HASHED_FIDS: (u32, u32) = (7, 2);
/// 9p's own functions do little else than search: on a CPU for so long they search a long list.
const BUSY_9P: f64 = 0.1;
/// With so many requests of disks the main loop may be busy with them.
const MANY_REQUESTS_PER_S: f64 = 500.0;
/// Managers ask their VMs a few times a second: so often is a flood. Each command wakes the monitor's thread once and more.
const MANY_WAKE_UPS_PER_S: f64 = 200.0;
/// Fewer commands are a flood, too, where the monitor's thread is on a CPU so much to read and answer them.
const BUSY_READER: f64 = 0.1;
/// The main loop executes the commands with the BQL held, which vCPUs need for their devices.
const BUSY_WITH_COMMANDS: f64 = 0.2;
/// QEMU's own `poll-max-ns`.
const POLL_MAX_NS: u64 = 32768;
/// Requests that take longer do not come while an iothread polls.
const MAX_BLKAVG_NS: f64 = 5e5;
/// QEMU's thread that reads commands, by its name.
const MONITOR_THREAD: &str = "IO mon_iothread";

pub(super) const VM_SHARED_IOTHREAD: Rule = Rule {
    id: "vm-shared-iothread",
    finds: "an iothread that serves several disks under load and is on a CPU four fifths of the time and more",
    remedies: &[
        Remedy {
            line: "-object iothread,id=disk-io2 -device virtio-blk-pci,…,iothread=disk-io2 # libvirt: virsh iothreadadd VM 2 --live, then re-plug the disk with <driver iothread='2'/>",
            undo: "iothread=SHARED",
            ..Setting::named("iothread")
                .remedy("on", "Give each of the disks an iothread of its own")
        },
        PROFILE_THREAD,
    ],
    source: "QEMU documentation, Using Multiple IOThreads",
    evaluate: |evidence| {
        let Some(vm) = evidence.vm else {
            return Vec::new();
        };
        let found = |thread: &ThreadRates| {
            let Role::Iothread(name) = &thread.role else {
                return None;
            };
            let disks = disks_of(vm, name);
            let all: f64 = disks.iter().map(|(_, per_s)| per_s).sum();
            let most = disks.iter().map(|(_, per_s)| *per_s).fold(0.0, f64::max);
            let names: Vec<&str> = disks.iter().map(|(name, _)| *name).collect();
            let text = format!(
                "Iothread \"{name}\" (TID {}) is on a CPU {} of the time and serves {} disks: {}.",
                thread.tid,
                percent(thread.run),
                disks.len(),
                names.join(", ")
            );
            // The busiest disk keeps the thread.
            let gain = thread.run * (1.0 - most / all);
            (disks.len() > 1 && thread.run >= BUSY_IOTHREAD).then(|| Finding {
                values: vec![("SHARED", name.clone()), ("VM", vm.argument())],
                ..Finding::with_gain(text, gain)
            })
        };
        vm.threads.iter().filter_map(found).collect()
    },
};

pub(super) const VM_IOTHREAD_SLEEPS: Rule = Rule {
    id: "vm-iothread-sleeps",
    finds: "an iothread that does not poll, though it serves one disk with fewer than one request in flight on average, each below half a millisecond, and the vCPUs get their CPUs",
    remedies: &[Remedy {
        place: SettingPlace::Qmp,
        setting: "iothread.poll-max-ns",
        value: "32768",
        action: "Set the iothread's poll-max-ns: it polls for the next request before it sleeps, which takes CPU time",
        line: "POLL",
        cost: Some(ChangeCost::Live),
        read_back: "QMP query-iothreads: poll-max-ns",
        undo: "SLEEP",
    }],
    source: "QEMU manual page, -object iothread: poll-max-ns",
    evaluate: |evidence| {
        // Where vCPUs wait for their CPUs, a thread that polls takes them away.
        let Some(vm) = evidence
            .vm
            .filter(|vm| vm.ready.is_none_or(|ready| ready < MIN_READY))
        else {
            return Vec::new();
        };
        let sleeps = |disk: &DiskSettings| {
            let name = disk.iothread.as_ref()?;
            let mut iothreads = vm.settings.iothreads.iter();
            let iothread = iothreads.find(|known| known.name == *name && known.poll_max_ns == 0)?;
            let io = vm.disk(&disk.name)?.io?;
            let (blkavg, in_flight) = (io.blkavg_ns?, waiting(io.per_s(), io.blkavg_ns?));
            let disks = vm.settings.disks.iter();
            let same = disks.filter(|other| other.iothread == disk.iothread);
            let is_alone = same.count() == 1;
            let text = format!(
                "Iothread \"{}\" sleeps after each request on {} (poll-max-ns=0), of which there are {} a second, fewer than one in flight on average.",
                iothread.name,
                disk.name,
                significant(io.per_s())
            );
            let path = format!("/objects/{name}");
            let set = |ns: u64| {
                let arguments = json!({ "path": path, "property": "poll-max-ns", "value": ns });
                qmp(vm, "qom-set", &arguments)
            };
            let setting = LiveSetting::QomProperty {
                path: path.clone(),
                property: "poll-max-ns".to_owned(),
            };
            let action = format!("Set poll-max-ns of the iothread {name} to {POLL_MAX_NS}");
            let is_short =
                io.per_s() >= MANY_REQUESTS_PER_S && in_flight < 1.0 && blkavg < MAX_BLKAVG_NS;
            (is_short && is_alone).then(|| Finding {
                part: VmPart::Disk(disk.name.clone()),
                values: vec![("POLL", set(POLL_MAX_NS)), ("SLEEP", set(0))],
                change: Some(LiveChange {
                    metric: Some(LiveMetric::Requests),
                    disk: Some(disk.name.clone()),
                    ..live_change(action, setting, POLL_MAX_NS.to_string())
                }),
                ..Finding::new(text)
            })
        };
        vm.settings.disks.iter().filter_map(sleeps).collect()
    },
};

pub(super) const VM_MONITOR_FLOOD: Rule = Rule {
    id: "vm-monitor-flood",
    finds: "a main loop that is busy a fifth of the time and more while hundreds of monitor commands a second arrive, or take a tenth of a CPU to read; needs debug-threads=on",
    remedies: &[
        instruction(
            "Find the program that sends the commands, and make it send fewer or wait for events",
            "sudo ss -xp | grep -e qmp -e monitor",
        ),
        measurement("See which functions hold the BQL", "vmtax profile --vm VM"),
    ],
    source: "QEMU documentation, Using Multiple IOThreads: the BQL",
    evaluate: |evidence| {
        let finding = |vm: &VmRates| {
            let main = main_loop(vm).filter(|run| *run >= BUSY_WITH_COMMANDS)?;
            let reads = |thread: &&ThreadRates| thread.role.is_other(MONITOR_THREAD);
            let reader = vm.threads.iter().find(reads)?;
            let wakes = reader.turns_per_s;
            let text = format!(
                "Monitor commands wake QEMU {} times a second: its main loop is on a CPU {} of the time, with the BQL held.",
                significant(wakes),
                percent(main)
            );
            (wakes >= MANY_WAKE_UPS_PER_S || reader.run >= BUSY_READER)
                .then(|| Finding::of_vm(vm, text, main))
        };
        about_vm(evidence, finding)
    },
};

pub(super) const VM_9P_FIDS: Rule = Rule {
    id: "vm-9p-fid-list",
    finds: "a QEMU before 7.2 that shares files by 9p, whose 9p functions are on a CPU a tenth of the time and more; without samples a possibility, where its main loop is on a CPU half of the time with few requests of disks",
    remedies: &[
        measurement(
            "See whether 9p's functions (get_fid, v9fs_*) are what is busy",
            "vmtax profile --vm VM",
        ),
        instruction(
            "Start the VM with QEMU 7.2 or newer, or migrate it there: it has a hash table",
            "qemu-system-x86_64 --version",
        ),
        instruction(
            "Until then drop the guest's unused dentries and inodes",
            "echo 2 | sudo tee /proc/sys/vm/drop_caches # in the guest",
        ),
    ],
    source: "QEMU 7.2 change log: 9pfs",
    evaluate: |evidence| {
        let finding = |vm: &VmRates| {
            let qemu = vm.settings.qemu.filter(|version| *version < HASHED_FIDS)?;
            let mut shares = vm.settings.shares.iter();
            let share = shares.find(|share| share.server == ShareServer::Qemu)?;
            let version = format!("QEMU {}.{}", qemu.0, qemu.1);
            let tag = share.tag.escape_default();
            let [of_9p, unknown] = evidence.profile.and_then(time_in_9p).unwrap_or([0.0, 1.0]);
            if of_9p >= BUSY_9P {
                let text = format!(
                    "{version} scans its list of fids for every request of 9p share \"{tag}\": its 9p server is on a CPU {} of the time.",
                    percent(of_9p)
                );
                return Some(Finding {
                    unfit: Some(SettingPlace::Vmtax),
                    ..Finding::of_vm(vm, text, of_9p)
                });
            }
            let main = main_loop(vm).filter(|run| *run >= BUSY_MAIN_LOOP)?;
            let has_few_requests = vm.io.is_none_or(|io| io.per_s() < MANY_REQUESTS_PER_S);
            let text = format!(
                "{version} may scan its list of fids for every request of 9p share \"{tag}\": its main loop is on a CPU {} of the time, with few requests of disks.",
                percent(main)
            );
            // How much of it is 9p's is not known: what is proven comes first.
            (has_few_requests && unknown >= BUSY_9P).then(|| Finding::of_vm(vm, text, 0.0))
        };
        about_vm(evidence, finding)
    },
};

/// Of the time, how much QEMU's 9p server was on a CPU, and functions of QEMU that cannot be placed; `None` without samples.
fn time_in_9p(profile: &ProfileFindings) -> Option<[f64; 2]> {
    let full = f64::from(profile.hz) * profile.seconds;
    let time = |is: fn(&str) -> bool| {
        let functions = profile.functions.iter();
        let samples = functions
            .filter(|function| function.layer == "program" && is(symbol(function)))
            .map(|function| function.inside.samples);
        (samples.sum::<u64>() as f64 / full).min(1.0)
    };
    let is_9p = |symbol: &str| {
        let is_part = ["v9fs_", "pdu_"]
            .iter()
            .any(|start| symbol.starts_with(start));
        is_part || ["cred_init", "get_fid", "alloc_fid", "clunk_fid", "put_fid"].contains(&symbol)
    };
    (profile.samples > 0 && full > 0.0)
        .then(|| [time(is_9p), time(|symbol| symbol.starts_with("0x"))])
}

/// A function's symbol, else the exported one that is nearest (`qemu-system-x86_64:pdu_free+0x240`), else its address.
pub(super) fn symbol(function: &FunctionShare) -> &str {
    if function.named {
        // A compiler's clone of it has a suffix: get_fid.isra.0.
        return function.name.split('.').next().unwrap_or_default();
    }
    let near = function.name.rsplit(':').next().unwrap_or_default();
    near.split("+0x")
        .next()
        .and_then(|near| near.split("-0x").next())
        .unwrap_or_default()
}

/// The disks under load that an iothread serves, with their requests per second.
fn disks_of<'a>(vm: &'a VmRates, iothread: &str) -> Vec<(&'a str, f64)> {
    let loaded = |settings: &DiskSettings| {
        let disk = vm.disk(&settings.name)?;
        Some((disk.name.as_str(), disk.io?.per_s())).filter(|(_, per_s)| *per_s >= MIN_PER_S)
    };
    let disks = vm.settings.disks.iter();
    disks
        .filter(|disk| is_served(disk, iothread))
        .filter_map(loaded)
        .collect()
}

/// The part of the time that the main loop is on a CPU.
fn main_loop(vm: &VmRates) -> Option<f64> {
    let mut threads = vm.threads.iter();
    Some(threads.find(|thread| thread.role == Role::Main)?.run)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Evidence;
    use crate::test_evidence::{advice, says};
    use vmtax_findings::{DiskRates, IoRates, SampleShare};
    use vmtax_model::{IothreadSettings, ShareDevice, VmSettings};

    fn thread(role: Role, run: f64, turns_per_s: f64) -> ThreadRates {
        ThreadRates {
            tid: 7,
            role,
            run,
            ready: 0.0,
            turns_per_s,
            throttled: None,
        }
    }

    #[test]
    fn an_iothread_that_does_not_poll_is_found_where_few_requests_are_in_flight() {
        let vm_with_iothread = |poll_max_ns, blkavg_ns, ready| {
            let io = IoRates {
                reads_per_s: 4000.0,
                blkavg_ns: Some(blkavg_ns),
                ..IoRates::default()
            };
            let disk = DiskRates {
                name: "vd0".to_owned(),
                io: Some(io),
                ..DiskRates::default()
            };
            let iothread = Some("io0".to_owned());
            let settings = DiskSettings {
                name: "vd0".to_owned(),
                iothread,
                ..DiskSettings::default()
            };
            let iothreads = vec![IothreadSettings {
                name: "io0".to_owned(),
                poll_max_ns,
            }];
            let settings = VmSettings {
                disks: vec![settings],
                iothreads,
                ..VmSettings::default()
            };
            VmRates {
                disks: vec![disk],
                settings,
                ready: Some(ready),
                ..VmRates::default()
            }
        };
        assert_eq!(
            says("vm-iothread-sleeps", &vm_with_iothread(0, 8e4, 0.01)),
            [
                "Iothread \"io0\" sleeps after each request on vd0 (poll-max-ns=0), of which there are 4000 a second, fewer than one in flight on average."
            ]
        );
        let none = [
            vm_with_iothread(32768, 8e4, 0.01),
            vm_with_iothread(0, 9e5, 0.01),
            vm_with_iothread(0, 8e4, 0.3),
        ];
        assert!(
            none.iter()
                .all(|vm| says("vm-iothread-sleeps", vm).is_empty())
        );
        let found = advice(
            "vm-iothread-sleeps",
            &Evidence {
                vm: Some(&vm_with_iothread(0, 8e4, 0.0)),
                ..Evidence::default()
            },
        );
        assert_eq!(found[0].change.as_ref().unwrap().settings[0].value, "32768");
        assert!(
            found[0].remedies[0].undo.contains("\"value\":0"),
            "{:?}",
            found[0].remedies[0]
        );
    }

    #[test]
    fn a_busy_iothread_is_shared_where_two_of_its_disks_have_load() {
        let vm_with_disks = |run, second, second_iothread: &str| {
            let disk = |name: &str, reads_per_s| DiskRates {
                name: name.to_owned(),
                io: Some(IoRates {
                    reads_per_s,
                    ..IoRates::default()
                }),
                ..DiskRates::default()
            };
            let settings = |name: &str, iothread: &str| DiskSettings {
                name: name.to_owned(),
                iothread: Some(iothread.to_owned()),
                ..DiskSettings::default()
            };
            let disks = vec![settings("vd0", "io0"), settings("vd1", second_iothread)];
            VmRates {
                threads: vec![thread(Role::Iothread("io0".to_owned()), run, 0.0)],
                disks: vec![disk("vd0", 300.0), disk("vd1", second)],
                settings: VmSettings {
                    disks,
                    ..VmSettings::default()
                },
                ..VmRates::default()
            }
        };
        assert_eq!(
            says("vm-shared-iothread", &vm_with_disks(0.8, 100.0, "io0")),
            ["Iothread \"io0\" (TID 7) is on a CPU 80 % of the time and serves 2 disks: vd0, vd1."]
        );
        let none = [
            vm_with_disks(0.79, 100.0, "io0"),
            vm_with_disks(0.9, 9.0, "io0"),
            vm_with_disks(0.9, 100.0, "io1"),
        ];
        assert!(
            none.iter()
                .all(|vm| says("vm-shared-iothread", vm).is_empty())
        );
    }

    #[test]
    fn many_commands_and_a_busy_main_loop_are_a_flood() {
        let findings_with = |name: &str, reader, wakes, main| {
            let threads = vec![
                thread(Role::Main, main, 0.0),
                thread(Role::Other(name.to_owned()), reader, wakes),
            ];
            says(
                "vm-monitor-flood",
                &VmRates {
                    threads,
                    ..VmRates::default()
                },
            )
        };
        let findings_for = |name: &str, wakes, main| findings_with(name, 0.09, wakes, main);
        assert_eq!(
            findings_for(MONITOR_THREAD, 3000.0, 0.6),
            [
                "Monitor commands wake QEMU 3000 times a second: its main loop is on a CPU 60 % of the time, with the BQL held."
            ]
        );
        assert_eq!(
            findings_with(MONITOR_THREAD, 0.1, 70.0, 0.6).len(),
            1,
            "few, and large"
        );
        let none = [
            findings_for(MONITOR_THREAD, 199.0, 0.6),
            findings_for(MONITOR_THREAD, 3000.0, 0.19),
            findings_for("worker", 3000.0, 0.6),
        ];
        assert!(none.iter().all(Vec::is_empty));
    }

    fn with_9p(
        qemu: Option<(u32, u32)>,
        server: ShareServer,
        main: f64,
        reads_per_s: f64,
    ) -> VmRates {
        let shares = vec![ShareDevice {
            tag: "src".to_owned(),
            server,
        }];
        VmRates {
            threads: vec![thread(Role::Main, main, 0.0)],
            io: Some(IoRates {
                reads_per_s,
                ..IoRates::default()
            }),
            settings: VmSettings {
                qemu,
                shares,
                ..VmSettings::default()
            },
            ..VmRates::default()
        }
    }

    #[test]
    fn the_fid_list_is_possible_before_7_2_alone() {
        let findings_for =
            |qemu, server, main, reads| says("vm-9p-fid-list", &with_9p(qemu, server, main, reads));
        assert_eq!(
            findings_for(Some((5, 2)), ShareServer::Qemu, 0.93, 0.0),
            [
                "QEMU 5.2 may scan its list of fids for every request of 9p share \"src\": its main loop is on a CPU 93 % of the time, with few requests of disks."
            ]
        );
        let none = [
            findings_for(Some((7, 2)), ShareServer::Qemu, 0.93, 0.0),
            findings_for(None, ShareServer::Qemu, 0.93, 0.0),
            findings_for(Some((5, 2)), ShareServer::Daemon("/s".into()), 0.93, 0.0),
            findings_for(Some((5, 2)), ShareServer::Qemu, 0.49, 0.0),
            findings_for(Some((5, 2)), ShareServer::Qemu, 0.93, 600.0),
        ];
        assert!(none.iter().all(Vec::is_empty));
    }

    /// A busy main loop with a 9p device is not 9p's: a profile says whose functions are busy, also in a stripped QEMU.
    #[test]
    fn the_fid_list_is_proven_by_samples_in_9p() {
        let finding_and_gain = |name: &str, named, main| {
            let function = FunctionShare {
                name: name.to_owned(),
                module: "/usr/bin/qemu-system-x86_64".to_owned(),
                layer: "program".to_owned(),
                named,
                inside: SampleShare {
                    samples: 80,
                    ..SampleShare::default()
                },
                total: SampleShare::default(),
            };
            let functions = vec![function];
            let profile = ProfileFindings {
                seconds: 1.0,
                hz: 100,
                samples: 100,
                functions,
                ..ProfileFindings::default()
            };
            let vm = with_9p(Some((5, 2)), ShareServer::Qemu, main, 0.0);
            let evidence = Evidence {
                vm: Some(&vm),
                profile: Some(&profile),
                ..Evidence::default()
            };
            let found = advice("vm-9p-fid-list", &evidence);
            let found = found
                .first()
                .map(|found| (found.finding.replace('\u{a0}', " "), found.gain));
            found.unwrap_or_default()
        };
        let proven = "QEMU 5.2 scans its list of fids for every request of 9p share \"src\": its 9p server is on a CPU 80 % of the time.";
        for name in ["get_fid", "get_fid.isra.0", "v9fs_walk"] {
            assert_eq!(
                finding_and_gain(name, true, 0.4),
                (proven.to_owned(), 0.8),
                "{name}"
            );
        }
        for name in [
            "qemu-system-x86_64:pdu_free+0x240",
            "qemu-system-x86_64:cred_init-0x6b0",
        ] {
            assert_eq!(
                finding_and_gain(name, false, 0.9),
                (proven.to_owned(), 0.8),
                "{name}"
            );
        }
        let (text, gain) = finding_and_gain("qemu-system-x86_64:0x59a6f0", false, 0.9);
        assert!(text.contains("may scan") && gain == 0.0, "{text}");
        assert_eq!(
            finding_and_gain("qemu-system-x86_64:0x59a6f0", false, 0.4),
            Default::default()
        );
        assert_eq!(
            finding_and_gain("vnc_refresh", true, 0.9),
            Default::default()
        );
        assert_eq!(
            finding_and_gain("qemu-system-x86_64:vnc_init_func+0x20", false, 0.9),
            Default::default()
        );
    }
}
