use super::*;
use crate::rule::Rule;
use crate::{Exits, Finding, rules, test_evidence};
use std::collections::BTreeMap;
use vmtax_findings::VmRates;
use vmtax_model::samples::{ApicFeatures, KvmFeatures};
use vmtax_model::{
    GuestDiskSettings, HostQueue, IothreadSettings, Qcow2Settings, RunState, VmConfiguration,
    VmFacts, VmNic, VmSettings,
};

/// Findings of these rules are proof that no remedy of theirs is in effect: each is an exit, a stop or a reading that the setting
/// would not let happen. So nobody reads the setting.
const PROVEN_BY_THE_FINDING: [&str; 15] = [
    "configured-user-network",
    "faster-share",
    "faster-variant",
    "hpet-clock",
    "notify-without-ioeventfd",
    "pm-timer-clock",
    "qemu-run-queue-wait",
    "vcpu-run-queue-wait",
    "vga-cursor",
    "vm-drops",
    "vm-run-queue-wait",
    "vm-serving-run-queue-wait",
    "vm-slirp",
    "vm-small-segments",
    "vm-virtiofsd-throttled",
];

/// Values of the words in remedies, as the rule fills them in.
fn values(rule: &Rule) -> Vec<(&'static str, String)> {
    let value = match rule.id {
        "vm-guest-clock" => "kvm-clock",
        "vm-guest-read-ahead" => "128",
        _ => "none",
    };
    let values = [
        ("VALUE", value),
        ("CACHE_BYTES", "1048576"),
        ("CACHE_FILE", "/sys/block/vda/cache_type"),
        ("DEFAULT", "100"),
        ("GUEST_DISK", "vda"),
        ("HOST_DISK", "sda"),
    ];
    values.map(|(name, value)| (name, value.to_owned())).into()
}

fn in_guest() -> GuestSettings {
    let disk = GuestDiskSettings {
        disk: "vd0".to_owned(),
        name: "vda".to_owned(),
        cache_type: Some("write back".to_owned()),
        scheduler: Some("none".to_owned()),
        read_ahead_kb: Some(128),
        rotational: Some(false),
    };
    GuestSettings {
        clock_source: "kvm-clock".to_owned(),
        cpuidle_governor: Some("menu".to_owned()),
        command_line: Some(
            "BOOT_IMAGE=/vmlinuz idle=poll console=hvc0 quiet loglevel=3".to_owned(),
        ),
        disks: vec![disk],
        ..GuestSettings::default()
    }
}

/// A VM whose every setting is as remedies want it.
fn tuned() -> (VmFacts, VmRates) {
    let disk = VmDisk {
        id: "vd0".to_owned(),
        file: "/d".into(),
        format: Some("qcow2".to_owned()),
        direct: Some(true),
        read_only: false,
        aio: Some("native".to_owned()),
        iothread: Some("io0".to_owned()),
        host_device: None,
        own_device: None,
        extents: None,
    };
    let facts = VmFacts {
        version: Some("10.0.13".to_owned()),
        accelerator: Some(Accelerator::Kvm),
        nics: vec![VmNic {
            tap: "vnet0".to_owned(),
            queues: 1,
            vhost: true,
        }],
        disks: vec![disk],
        ..VmFacts::unknown(7)
    };
    let qcow2 = Qcow2Settings {
        l2_cache: Some(1 << 20),
        ..Qcow2Settings::default()
    };
    let disk = DiskSettings {
        name: "vd0".to_owned(),
        iothread: Some("io0".to_owned()),
        write_through: Some(false),
        qcow2: Some(qcow2),
        ..DiskSettings::default()
    };
    let settings = VmSettings {
        disks: vec![disk],
        iothreads: vec![IothreadSettings {
            name: "io0".to_owned(),
            poll_max_ns: 32768,
        }],
        host_queues: vec![HostQueue {
            device: "sda".to_owned(),
            scheduler: "none".to_owned(),
            rotational: Some(false),
        }],
        guest: Some(in_guest()),
        ..VmSettings::default()
    };
    (
        facts,
        VmRates {
            settings,
            state: Some(RunState::Running),
            ..VmRates::default()
        },
    )
}

/// The result of `read` for evidence of a tuned VM on a host that is tuned as the rule wants it.
fn with_tuned<T>(
    rule: &Rule,
    configuration: &VmConfiguration,
    read: impl Fn(&Evidence<'_>) -> T,
) -> T {
    let (facts, rates) = tuned();
    let mut host = test_evidence::host();
    for remedy in rule
        .remedies
        .iter()
        .filter(|remedy| remedy.place == SettingPlace::HostSysfs)
    {
        host.settings
            .insert(remedy.read_back.to_owned(), remedy.value.to_owned());
    }
    host.settings.insert(
        "/proc/cmdline".to_owned(),
        "ro tsc=reliable cgroup_enable=memory".to_owned(),
    );
    let apic = ApicFeatures {
        pv_eoi: Some(true),
        x2apic: Some(true),
    };
    let (registers, counters) = (&[], &BTreeMap::new());
    let exits = Exits {
        seconds: 1.0,
        vcpus: 1,
        mean_ns: 0.0,
        registers,
        tick: None,
        counters,
        apic,
        kvm: KvmFeatures::default(),
        reasons: &[],
        page_faults: None,
        timers: &[],
    };
    let (host, facts, vm, exits) = (Some(&host), Some(&facts), Some(&rates), Some(&exits));
    read(&Evidence {
        host,
        facts,
        vm,
        exits,
        configuration: Some(configuration),
        ..Evidence::default()
    })
}

/// Guests of Linux and of Windows that have every setting of a command line as remedies want it.
fn configured() -> [VmConfiguration; 2] {
    let with_all = |vm: VmConfiguration| VmConfiguration {
        cpu_model: Some("host".to_owned()),
        cpu_features: [("invtsc".to_owned(), true)].into(),
        hpet: Some(false),
        ..vm
    };
    let enlightenments = ["time", "stimer", "ipi", "vapic", "avic"];
    [
        with_all(VmConfiguration::default()),
        with_all(test_evidence::windows(&enlightenments)),
    ]
}

/// Settings that the rule advises for the disk of a tuned VM.
fn advised(rule: &Rule, evidence: &Evidence<'_>) -> Vec<String> {
    let part = VmPart::Disk("vd0".to_owned());
    let finding = Finding {
        values: values(rule),
        part,
        ..Finding::new("Something takes time.".to_owned())
    };
    let remedies = rule.advice_on(finding, evidence).remedies.into_iter();
    let settings =
        remedies.filter(|remedy| !remedy.setting.is_empty() && remedy.place != SettingPlace::Vmtax);
    settings
        .map(|remedy| format!("{}: {}={}", rule.id, remedy.setting, remedy.value))
        .collect()
}

#[test]
fn no_rule_advises_what_is_in_effect() {
    let is_read = |rule: &&Rule| !PROVEN_BY_THE_FINDING.contains(&rule.id);
    for vm in configured() {
        let all: Vec<String> = rules()
            .filter(is_read)
            .flat_map(|rule| with_tuned(rule, &vm, |tuned| advised(rule, tuned)))
            .collect();
        assert_eq!(all, [""; 0], "{vm:?}");
    }
    let not_tuned = rules()
        .filter(is_read)
        .flat_map(|rule| advised(rule, &Evidence::default()));
    assert!(
        not_tuned.count() > 30,
        "without a known value each is advised"
    );
}

#[test]
fn each_rule_that_nobody_reads_a_setting_for_is_there() {
    let missing = PROVEN_BY_THE_FINDING
        .iter()
        .find(|id| !rules().any(|rule| rule.id == **id));
    assert_eq!(missing, None);
}

#[test]
fn each_host_file_of_a_remedy_is_read() {
    let files = rules()
        .flat_map(|rule| rule.remedies)
        .filter(|remedy| remedy.place == SettingPlace::HostSysfs);
    let unread = files.map(|remedy| remedy.read_back).find(|file| {
        // The queue of a disk is among the VM's settings.
        !vmtax_model::host_setting_files().any(|read| read == *file) && !file.contains("HOST_DISK")
    });
    assert_eq!(unread, None);
}

/// Lines of a rule's remedies in a changed VM.
fn lines(id: &str, change: impl Fn(&mut VmFacts)) -> Vec<String> {
    let rule = rules().find(|rule| rule.id == id).unwrap();
    let (mut facts, rates) = tuned();
    change(&mut facts);
    let evidence = Evidence {
        facts: Some(&facts),
        vm: Some(&rates),
        ..Evidence::default()
    };
    let finding = Finding {
        part: VmPart::Disk("vd0".to_owned()),
        ..Finding::new("Something takes time.".to_owned())
    };
    rule.advice_on(finding, &evidence)
        .remedies
        .into_iter()
        .map(|remedy| remedy.line)
        .collect()
}

#[test]
fn requests_past_the_page_cache_and_a_pool_need_no_other_aio() {
    let advises = |aio: Option<&str>, direct| {
        let lines = lines("vm-queued-requests", |facts| {
            (facts.disks[0].aio, facts.disks[0].direct) = (aio.map(str::to_owned), direct);
        });
        lines[0].contains("aio=io_uring,cache.direct=on")
    };
    assert!(!advises(Some("native"), Some(true)) && !advises(Some("io_uring"), Some(true)));
    assert!(advises(Some("threads"), Some(true)) && advises(Some("io_uring"), Some(false)));
    assert!(
        advises(None, Some(true)) && advises(Some("native"), None),
        "nobody knows"
    );
}

#[test]
fn an_iothread_is_advised_to_a_disk_alone_and_where_it_has_none_of_its_own() {
    let whole = |change: &dyn Fn(&mut VmFacts)| {
        let (mut facts, rates) = tuned();
        change(&mut facts);
        let evidence = Evidence {
            facts: Some(&facts),
            vm: Some(&rates),
            ..Evidence::default()
        };
        let rule = rules().find(|rule| rule.id == "vcpu-big-lock").unwrap();
        let remedies = rule
            .advice_on(Finding::new("The lock.".to_owned()), &evidence)
            .remedies;
        remedies.iter().any(|remedy| remedy.setting == "iothread")
    };
    assert!(!whole(&|facts| facts.disks.clear()), "no disk");
    assert!(!whole(&|_| ()), "it has one");
    assert!(whole(&|facts| facts.disks[0].iothread = None));
    assert!(
        whole(&|facts| facts.disks.push(VmDisk {
            id: "vd1".to_owned(),
            ..facts.disks[0].clone()
        })),
        "two share it"
    );
    assert!(whole(&|facts| facts.version = None), "no monitor tells");
}

#[test]
fn a_host_without_idle_states_is_told_of_none() {
    let advises_cpupower = |settings: &[(&str, &str)]| {
        let mut host = test_evidence::host();
        host.settings = settings
            .iter()
            .map(|(file, value)| ((*file).to_owned(), (*value).to_owned()))
            .collect();
        let rule = rules().find(|rule| rule.id == "idle-wake-up").unwrap();
        let evidence = Evidence {
            host: Some(&host),
            ..Evidence::default()
        };
        let remedies = rule
            .advice_on(Finding::new("It sleeps.".to_owned()), &evidence)
            .remedies;
        remedies
            .iter()
            .any(|remedy| remedy.line.contains("cpupower"))
    };
    const STATES: &str = "/sys/devices/system/cpu/cpu*/cpuidle/state*/disable";
    const OTHER: (&str, &str) = ("/proc/sys/vm/swappiness", "60");
    assert_eq!(
        [
            advises_cpupower(&[OTHER]),
            advises_cpupower(&[OTHER, (STATES, "1")])
        ],
        [false, false],
        "no driver, or disabled"
    );
    assert_eq!(
        [
            advises_cpupower(&[OTHER, (STATES, "0")]),
            advises_cpupower(&[])
        ],
        [true, true],
        "an older recording does not say"
    );
}

#[test]
fn memory_without_a_balloon_has_none_to_set() {
    let balloon_setting = |balloon: Option<f64>| {
        let vm = VmRates {
            counters: balloon
                .map(|bytes| ("balloon", bytes))
                .into_iter()
                .collect(),
            state: Some(RunState::Running),
            ..VmRates::default()
        };
        monitor_setting(
            &Evidence {
                vm: Some(&vm),
                ..Evidence::default()
            },
            &VmPart::Whole,
            "balloon",
        )
    };
    assert_eq!(
        (balloon_setting(None), balloon_setting(Some(1.0))),
        (InEffect::Absent, InEffect::Unknown)
    );
}
