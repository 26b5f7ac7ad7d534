//! Facts of a running QEMU that another program started: by its monitor, by its threads' names, and without both.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vmtax_model::testing::accelerators;
use vmtax_model::{
    AbilityName, Accelerator, DiskBus, QemuThread, Role, RoleSource, VmFacts, VmNic, Vmm,
};
use vmtax_vmm::Vm;

const BOOT_TIMEOUT: Duration = Duration::from_secs(60);

/// A disk of a file whose every byte is on the host's disk.
struct DiskFile {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl DiskFile {
    fn new() -> DiskFile {
        // Not below /tmp, which may be memory: there is no O_DIRECT there.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("disk");
        fs::write(&path, vec![1; 16 << 20]).unwrap();
        DiskFile {
            path,
            _folder: folder,
        }
    }
}

/// A QEMU without a guest's kernel, which ends with the value.
struct Qemu(Child);

impl Qemu {
    fn start(program: &[&str], arguments: &[&str]) -> Qemu {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-m",
            "64M",
        ]);
        Qemu(
            command
                .args(arguments)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    /// The vm, as soon as it is `ready`.
    fn until(&mut self, ready: impl Fn(&VmFacts) -> bool) -> Vm {
        let deadline = Instant::now() + BOOT_TIMEOUT;
        loop {
            assert!(self.0.try_wait().unwrap().is_none(), "QEMU ended");
            let vm = Vm::attach(self.pid());
            let facts = vm.facts();
            if facts.as_ref().is_some_and(&ready) {
                return vm;
            }
            assert!(Instant::now() < deadline, "{facts:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn vcpus(threads: &[QemuThread]) -> Vec<(i32, u32)> {
    threads
        .iter()
        .filter_map(|t| {
            if let Role::Vcpu(number) = t.role {
                Some((t.tid, number))
            } else {
                None
            }
        })
        .collect()
}

fn missing(facts: &VmFacts, what: AbilityName) -> Option<String> {
    let ability = facts
        .abilities
        .iter()
        .find(|ability| ability.what == what)
        .unwrap();
    ability
        .missing
        .as_ref()
        .map(|missing| format!("{}: {}", missing.why, missing.fix))
}

/// Two disks, an iothread, two vCPUs.
fn arguments(disks: [&DiskFile; 2]) -> Vec<String> {
    let drive = format!(
        "if=none,id=dr,format=raw,cache=none,aio=native,file={}",
        disks[0].path.display()
    );
    let file = format!(
        r#"{{"driver":"file","node-name":"f","read-only":true,"filename":"{}"}}"#,
        disks[1].path.display()
    );
    let node = r#"{"driver":"raw","node-name":"n","file":"f","read-only":true}"#;
    let all = [
        "-smp",
        "2",
        "-object",
        "iothread,id=io0",
        "-drive",
        &drive,
        "-blockdev",
        &file,
        "-blockdev",
        node,
    ];
    let devices = [
        "virtio-blk-pci,drive=dr,iothread=io0,id=d0",
        "virtio-blk-pci,drive=n,id=d1",
    ];
    all.into_iter()
        .chain(devices.into_iter().flat_map(|device| ["-device", device]))
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_monitor_tells_threads_disks_and_names() {
    let disks = [DiskFile::new(), DiskFile::new()];
    // Attaching flushes nothing.
    disks
        .iter()
        .for_each(|disk| fs::File::open(&disk.path).unwrap().sync_all().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let qmp = format!(
        "unix:{},server=on,wait=off",
        folder.path().join("qmp").display()
    );
    let mut all = arguments([&disks[0], &disks[1]]);
    all.extend(["-name", "guest=lab,,1", "-qmp", &qmp].map(str::to_owned));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for accelerator in accelerators() {
        let mut qemu = Qemu::start(
            &["qemu-system-x86_64"],
            &[&all[..], &["-accel", accelerator]].concat(),
        );
        let vm = qemu.until(|facts| facts.disks.len() == 2 && facts.disks[0].iothread.is_some());
        let facts = vm.facts().unwrap();
        assert_eq!(
            (facts.pid, facts.vmm, facts.name.as_deref()),
            (qemu.pid(), Vmm::Qemu, Some("lab,1"))
        );
        assert_eq!(
            facts.accelerator.map(Accelerator::as_str),
            Some(accelerator)
        );
        let said = Command::new("qemu-system-x86_64")
            .arg("--version")
            .output()
            .unwrap()
            .stdout;
        let version = facts.version.clone().unwrap();
        assert!(
            String::from_utf8_lossy(&said).contains(version.split(' ').next().unwrap()),
            "{version}"
        );
        assert!(
            facts
                .binary
                .as_ref()
                .is_some_and(|b| b.ends_with("qemu-system-x86_64")),
            "{:?}",
            facts.binary
        );

        assert_eq!(facts.roles_from, RoleSource::Monitor);
        assert_eq!(
            vcpus(&facts.threads)
                .into_iter()
                .map(|(_, number)| number)
                .collect::<Vec<_>>(),
            [0, 1]
        );
        assert_eq!(vm.vcpus().len(), 2);
        let is = |role: Role| {
            facts
                .threads
                .iter()
                .filter(|thread| thread.role == role)
                .count()
        };
        assert_eq!(
            (is(Role::Main), is(Role::Iothread("io0".to_owned()))),
            (1, 1),
            "{:?}",
            facts.threads
        );

        let [first, second] = &facts.disks[..] else {
            panic!("{:?}", facts.disks)
        };
        assert_eq!((first.id.as_str(), second.id.as_str()), ("d0", "d1"));
        assert_eq!(
            [&first.file, &second.file],
            [&disks[0].path, &disks[1].path]
        );
        assert_eq!((first.direct, second.direct), (Some(true), Some(false)));
        assert_eq!((first.read_only, second.read_only), (false, true));
        assert_eq!(
            (first.aio.as_deref(), second.aio.as_deref()),
            (Some("native"), Some("threads"))
        );
        assert_eq!(
            (first.iothread.as_deref(), second.iothread.as_deref()),
            (Some("io0"), None)
        );
        assert_eq!(first.format.as_deref(), Some("raw"));
        let host = vmtax_observe::host_disk(&disks[0].path).unwrap();
        assert_eq!(
            (first.host_device, first.extents.unwrap_or(0)),
            (host.device, host.extents.len())
        );

        assert_eq!(missing(&facts, AbilityName::Monitor), None);
        assert!(
            missing(&facts, AbilityName::GuestAgent)
                .unwrap()
                .contains("vmtax run")
        );
        let no_exits = missing(&facts, AbilityName::CountExits)
            .is_some_and(|why| why.contains("TCG has none"));
        assert_eq!(no_exits, accelerator == "tcg");
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", qemu.pid())).unwrap();
        let group = facts.cgroup.as_deref().unwrap();
        assert!(
            groups
                .lines()
                .any(|line| line.rsplit_once(':').is_some_and(|(_, path)| path == group)),
            "{group}"
        );
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<VmFacts>(&text).unwrap(), facts);
    }
}

#[test]
fn without_a_monitor_names_and_open_files_tell_the_same() {
    let disks = [DiskFile::new(), DiskFile::new()];
    let mut all = arguments([&disks[0], &disks[1]]);
    all.extend(["-name", "lab,debug-threads=on"].map(str::to_owned));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    for accelerator in accelerators() {
        let mut qemu = Qemu::start(
            &["qemu-system-x86_64"],
            &[&all[..], &["-accel", accelerator]].concat(),
        );
        let vm = qemu.until(|facts| facts.disks.len() == 2 && vcpus(&facts.threads).len() == 2);
        let facts = vm.facts().unwrap();
        assert_eq!(facts.roles_from, RoleSource::Names);
        assert_eq!(
            (facts.name.as_deref(), facts.version.as_deref()),
            (Some("lab"), None)
        );
        assert_eq!(
            facts.accelerator.map(Accelerator::as_str),
            Some(accelerator)
        );
        assert!(
            facts
                .threads
                .iter()
                .any(|t| t.role == Role::Iothread("io0".to_owned())),
            "{:?}",
            facts.threads
        );
        let find = |file: &Path| facts.disks.iter().find(|disk| disk.file == file).unwrap();
        let (first, second) = (find(&disks[0].path), find(&disks[1].path));
        assert_eq!((first.direct, second.direct), (Some(true), Some(false)));
        assert_eq!((first.read_only, second.read_only), (false, true));
        assert_eq!(first.aio.as_deref(), Some("native"));
        assert!(
            missing(&facts, AbilityName::Monitor)
                .unwrap()
                .contains("-qmp unix:")
        );
    }
}

#[test]
fn without_names_vcpus_are_known_by_their_files_of_kvm_or_their_time() {
    for accelerator in accelerators() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("qmp");
        let qmp = format!("unix:{},server=on,wait=off", socket.display());
        let all = [
            "-smp",
            "2",
            "-object",
            "iothread,id=io0",
            "-accel",
            accelerator,
            "-qmp",
            &qmp,
        ];
        let mut qemu = Qemu::start(&["qemu-system-x86_64"], &all);
        let told = qemu.until(|facts| facts.version.is_some() && vcpus(&facts.threads).len() == 2);
        let vcpus_told = vcpus(&told.threads());
        // The monitor takes one visitor, and vmtax leaves after each command: this one stays.
        let _visitor = UnixStream::connect(&socket).unwrap();
        let guessed = Vm::attach(qemu.pid());
        assert!(guessed.monitor().is_none());
        let deadline = Instant::now() + BOOT_TIMEOUT;
        // Under TCG both have used some time by then: the firmware wakes the second.
        while vcpus(&guessed.threads()) != vcpus_told {
            assert!(
                Instant::now() < deadline,
                "{accelerator}: {:?}, not {vcpus_told:?}",
                guessed.threads()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let from = guessed.facts().unwrap().roles_from;
        assert!(
            matches!(from, RoleSource::KvmRun | RoleSource::CpuTime),
            "{from:?}"
        );
        assert!(accelerator == "kvm" || from == RoleSource::CpuTime);
    }
}

#[test]
fn qemu_is_found_under_any_name_and_behind_a_loader() {
    let folder = tempfile::tempdir().unwrap();
    let renamed = folder.path().join("vmm");
    fs::copy("/usr/bin/qemu-system-x86_64", &renamed).unwrap();
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    let (program, loader_text) = (renamed.to_str().unwrap(), loader.to_str().unwrap());
    // A copy looks for its modules and its BIOS beside itself.
    let modules = "QEMU_MODULE_DIR=/usr/lib/x86_64-linux-gnu/qemu";
    let mut programs = vec![vec!["env", modules, program]];
    if loader.exists() {
        programs.push(vec!["env", modules, loader_text, program]);
    }
    for program in programs {
        let firmware = ["-L", "/usr/share/seabios", "-L", "/usr/share/qemu"];
        let mut qemu = Qemu::start(
            &program,
            &[
                &["-accel", "tcg", "-smp", "1", "-machine", "pc"],
                &firmware[..],
            ]
            .concat(),
        );
        let vm =
            qemu.until(|facts| facts.threads.len() > 1 && facts.binary.as_ref() == Some(&renamed));
        assert_eq!((vm.vmm(), vm.program().as_str()), (Some(Vmm::Qemu), "vmm"));
        assert_eq!(vm.accelerator(), Some(Accelerator::Tcg));
        assert!(
            DiskBus::ALL
                .iter()
                .all(|bus| !vm.disk_probe_points(*bus).is_empty())
        );
    }
    let own = Vm::attach(std::process::id() as i32);
    assert_eq!(
        (own.vmm(), own.facts(), own.accelerator()),
        (None, None, None)
    );
}

#[test]
fn who_starts_a_qemu_has_its_command_line_and_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("qmp");
    let qmp = format!("unix:{},server=on,wait=off", socket.display());
    let wrapper = Qemu::start(
        &["timeout", "60", "qemu-system-x86_64"],
        &["-accel", "tcg", "-smp", "1", "-qmp", &qmp],
    );
    let deadline = Instant::now() + BOOT_TIMEOUT;
    let qemu = loop {
        let children = format!("/proc/{0}/task/{0}/children", wrapper.pid());
        let child = fs::read_to_string(children)
            .ok()
            .and_then(|pids| pids.trim().parse::<i32>().ok());
        match child.map(Vm::attach).filter(|vm| vm.monitor().is_some()) {
            Some(vm) => break vm.pid(),
            None => assert!(Instant::now() < deadline, "QEMU has no monitor yet"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let vm = Vm::attach(wrapper.pid());
    assert_eq!(
        (vm.vmm(), vm.monitor().is_some(), vm.vcpus()),
        (None, false, vec![])
    );
    assert_eq!(Vm::attach(qemu).vmm(), Some(Vmm::Qemu));
    // It passes the signal on.
    Command::new("kill")
        .arg(wrapper.pid().to_string())
        .status()
        .unwrap();
    while Path::new(&format!("/proc/{qemu}/exe")).exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn taps_are_interfaces() {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root || !PathBuf::from("/dev/net/tun").exists() {
        return eprintln!("skipped: only root makes a tap device, of /dev/net/tun");
    }
    let tap = format!("vmtax{}", std::process::id() % 100_000);
    let net = format!("tap,id=n,ifname={tap},script=no,downscript=no");
    let all = [
        "-accel",
        "tcg",
        "-netdev",
        &net,
        "-device",
        "virtio-net-pci,netdev=n",
    ];
    let mut qemu = Qemu::start(&["qemu-system-x86_64"], &all);
    let vm = qemu.until(|facts| !facts.nics.is_empty());
    assert_eq!(
        vm.facts().unwrap().nics,
        [VmNic {
            tap,
            queues: 1,
            vhost: false
        }]
    );
}
