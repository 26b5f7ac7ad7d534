//! The second wall: what a job does that no reader has refused.

use super::*;

/// A block device beside the measured disk, where this user can make one, else a file; with its content.
struct Canary {
    path: PathBuf,
    device: Option<PathBuf>,
    content: Vec<u8>,
}

impl Canary {
    fn new(folder: &Path) -> Canary {
        let path = folder.join("canary");
        let content: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
        fs::write(&path, &content).unwrap();
        let output = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&path)
            .output();
        let device = output.ok().filter(|output| output.status.success());
        let device = device.map(|output| String::from_utf8(output.stdout).unwrap().trim().into());
        Canary {
            path,
            device,
            content,
        }
    }

    fn name(&self) -> String {
        self.device
            .as_ref()
            .unwrap_or(&self.path)
            .display()
            .to_string()
    }

    fn is_untouched(&self) -> bool {
        if let Some(device) = &self.device {
            let file = fs::File::open(device).unwrap();
            file.sync_all().unwrap();
        }
        fs::read(&self.path).unwrap() == self.content
    }
}

impl Drop for Canary {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            let _ = Command::new("losetup").arg("--detach").arg(device).status();
        }
    }
}

fn fio() -> Option<PathBuf> {
    let found = Path::new("/usr/bin/fio");
    found.exists().then(|| found.to_owned())
}

fn run_unchecked(program: &Path, disk: &Path, job: &str) -> Result<String, String> {
    let sandbox = Sandboxed {
        program,
        base: Path::new("/"),
        disk,
        job,
        is_read_only: false,
        is_native: true,
    };
    run(&sandbox).map_err(|error| error.to_string())
}

#[test]
fn what_a_reader_would_miss_reaches_no_other_disk_file_or_network() {
    let Some(program) = fio() else {
        vmtax_model::testing::skipped("fio is not installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.raw");
    fs::write(&disk, vec![7; 4 << 20]).unwrap();
    let canary = Canary::new(folder.path());
    let (name, mark) = (canary.name(), folder.path().join("mark"));
    let write = "[a]\nrw=write\nbs=4k\nsize=1m\n";
    let ours = "[a]\nrw=read\nbs=4k\nsize=1m\nfilename=/disk\n";
    if let Err(error) = run_unchecked(&program, &disk, ours) {
        assert!(error.contains("namespaces"), "{error}");
        vmtax_model::testing::skipped(&error);
        return;
    }
    for job in [
        format!("{write}filename={name}\n"),
        format!("{write}filename=/disk:{name}\n"),
        format!("{write}filename={}\n", canary.path.display()),
        format!("{write}filename=../../../../../..{name}\n"),
        format!("{ours}exec_prerun=dd if=/dev/zero of={name} bs=4k count=1\n"),
        format!("{ours}exec_postrun=touch {}\n", mark.display()),
        format!("{ours}write_iolog={}\n", mark.display()),
        format!(
            "{ours}ioengine=ftruncate\nfilename={}\n",
            canary.path.display()
        ),
        format!(
            "{ours}ioengine=filedelete\nfilename={}\n",
            canary.path.display()
        ),
        format!("{ours}exec_prerun=mknod /job/d b 7 0 && dd if=/dev/zero of=/job/d count=1\n"),
        format!("{ours}exec_prerun=mount -o remount,rw /usr && touch /usr/vmtax-mark\n"),
        format!("{ours}exec_prerun=touch /usr/vmtax-mark\n"),
        format!("include {}\n{ours}", canary.path.display()),
    ] {
        let _ = run_unchecked(&program, &disk, &job);
        assert!(canary.is_untouched(), "{job}");
        assert!(
            !mark.exists() && !Path::new("/usr/vmtax-mark").exists(),
            "{job}"
        );
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let sends = format!("[a]\nioengine=net\nhostname=127.0.0.1\nport={port}\nrw=write\nsize=4k\n");
    assert!(run_unchecked(&program, &disk, &sends).is_err());
    assert!(listener.accept().is_err(), "it reached the host's network");
    assert_eq!(fs::metadata(&disk).unwrap().len(), 4 << 20);
}

/// The processes that descend from one.
fn descendants(of: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split(' ').nth(2)?.parse().ok()
    };
    let names = fs::read_dir("/proc").unwrap().flatten();
    let all = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let lineage = |pid: &u32| std::iter::successors(Some(*pid), |pid| parent(*pid));
    all.filter(|pid| *pid != of && lineage(pid).any(|one| one == of))
        .collect()
}

/// Waits until something is so; for at most 20 s.
fn waits_for(is_so: impl Fn() -> bool) -> bool {
    (0..400).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        is_so()
    })
}

#[test]
fn fios_jobs_end_with_it() {
    let Some(program) = fio() else {
        vmtax_model::testing::skipped("fio is not installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.raw");
    fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let job = "[a]\nrw=randread\nbs=4k\nnumjobs=2\nfilename=/disk\ntime_based=1\nruntime=60\nthinktime=1000\n";
    let sandbox = Sandboxed {
        program: &program,
        base: Path::new("/"),
        disk: &disk,
        job,
        is_read_only: true,
        is_native: true,
    };
    let mut child = match start(&sandbox) {
        Ok(child) => child,
        Err(why) => return vmtax_model::testing::skipped(&why),
    };
    // Natively fio itself is one more.
    assert!(waits_for(|| descendants(child.id()).len() >= 2));
    let all = descendants(child.id());
    child.kill().unwrap();
    let _ = child.wait();
    let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    assert!(waits_for(|| !all.iter().any(is_there)), "{all:?}");
}

#[test]
fn memory_nodes_are_known_to_fio() {
    let Some(program) = fio() else {
        vmtax_model::testing::skipped("fio is not installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.raw");
    fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let job = "[a]\nrw=read\nfilename=/disk\nnuma_cpu_nodes=0\nnuma_mem_policy=prefer:0\n";
    if let Err(error) = run_unchecked(&program, &disk, job) {
        assert!(error.contains("namespaces"), "{error}");
        vmtax_model::testing::skipped(&error);
    }
}

#[test]
fn a_failure_is_in_fios_own_words() {
    let Some(program) = fio() else {
        vmtax_model::testing::skipped("fio is not installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk.raw");
    fs::write(&disk, vec![7; 1 << 20]).unwrap();
    let error = run_unchecked(&program, &disk, "[a]\nrw=bogus\n").unwrap_err();
    assert!(
        error.starts_with("fio ended with exit status 1: "),
        "{error}"
    );
    assert!(
        error.contains("rw=bogus") || error.contains("namespaces"),
        "{error}"
    );
}
