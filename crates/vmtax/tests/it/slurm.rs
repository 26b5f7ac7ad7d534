//! The job of docs/jobs under a real Slurm: a controller and a node on this machine, with ports and folders of their own.

use crate::common::{Place, Running, Signal, binary, files_below, json, send, skipped};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const JOB: &str = include_str!("../../../../docs/jobs/vmtax.sbatch");
/// Tasks of the job's array.
const TASKS: u32 = 8;
/// The task that is killed.
const KILLED: u32 = 1;
/// Plan of each task: long enough to be killed meanwhile.
const PLAN: &str = "cpu max-prime=1500 time=1 --machine native --rounds 2";
/// Longest time for which the cluster's daemons run, s.
const LIFETIME: u64 = 300;

/// A cluster of one node. Whatever happens, nothing of it outlives this value.
struct Cluster<'a> {
    place: &'a Place,
    daemons: Vec<Running<'a>>,
}

impl<'a> Cluster<'a> {
    fn start(place: &'a Place) -> Cluster<'a> {
        let ports: [TcpListener; 2] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [controller, node] = ports
            .each_ref()
            .map(|port| port.local_addr().unwrap().port());
        let folder = |name: &str| {
            fs::create_dir_all(place.path(name)).unwrap();
            place.path(name).display().to_string()
        };
        let (state, spool, own) = (
            folder("slurm/state"),
            folder("slurm/spool"),
            folder("slurm"),
        );
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let host = host.split('.').next().unwrap();
        let cpus = std::thread::available_parallelism().unwrap();
        let settings = format!(
            "ClusterName=vmtax\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket={own}/munge.socket,cred_expire=5\n\
             SlurmctldPort={controller}\nSlurmdPort={node}\nSlurmctldPidFile={own}/slurmctld.pid\nSlurmdPidFile={own}/slurmd.pid\n\
             StateSaveLocation={state}\nSlurmdSpoolDir={spool}\nSlurmctldLogFile={own}/slurmctld.log\nSlurmdLogFile={own}/slurmd.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
             AccountingStorageType=accounting_storage/none\nSwitchType=switch/none\nMpiDefault=none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nSchedulerType=sched/builtin\nReturnToService=2\nKillWait=5\n\
             NodeName=node NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES State=UP\n"
        );
        place.put("slurm/slurm.conf", settings);
        place.put("slurm/cgroup.conf", "CgroupAutomount=no\n");
        let key = place.put("slurm/munge.key", [b'k'; 128]);
        fs::set_permissions(key, fs::Permissions::from_mode(0o400)).unwrap();
        drop(ports);
        let mut cluster = Cluster {
            place,
            daemons: Vec::new(),
        };
        let files = ["key", "socket", "pid", "log", "seed"].map(|file| {
            format!("--{file}-file={own}/munge.{file}").replace("socket-file", "socket")
        });
        cluster.daemon("munged", &format!("--foreground {}", files.join(" ")));
        until("MUNGE to listen", || {
            place.path("slurm/munge.socket").exists()
        });
        cluster.daemon("slurmctld", "-D");
        cluster.daemon("slurmd", "-D -N node");
        until("the node to be idle", || {
            cluster.ask("sinfo", "--noheader --format=%t").trim() == "idle"
        });
        cluster
    }

    fn daemon(&mut self, program: &str, words: &str) {
        let daemon = self
            .place
            .program(program)
            .words(words)
            .env("SLURM_CONF", self.place.path("slurm/slurm.conf"));
        self.daemons.push(daemon.start(LIFETIME));
    }

    /// Returns the output of a program of Slurm; empty if it fails, as before the controller answers.
    fn ask(&self, program: &str, words: &str) -> String {
        let program = self
            .place
            .program(program)
            .words(words)
            .env("SLURM_CONF", self.place.path("slurm/slurm.conf"));
        program.outcome().stdout
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for log in ["slurmctld.log", "slurmd.log", "munge.log"] {
                let text =
                    fs::read_to_string(self.place.path("slurm").join(log)).unwrap_or_default();
                let last: Vec<&str> = text.lines().rev().take(20).collect();
                eprintln!("--- {log}, the last lines first\n{}", last.join("\n"));
            }
        }
        // The node first: it would start the next task. Each ends what it started, given the time.
        for daemon in self.daemons.drain(..).rev() {
            try_send(daemon.pid(), Signal::TERM);
            let is_there = || {
                self.place
                    .processes()
                    .iter()
                    .any(|process| process.pid == daemon.pid())
            };
            let began = Instant::now();
            while is_there() && began.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        // Tasks and their steps, which work in folders of this place.
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(10) {
            let left = self.place.processes();
            if left.is_empty() {
                break;
            }
            left.iter()
                .for_each(|process| try_send(process.pid, Signal::KILL));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// To a process that may have ended by itself.
fn try_send(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32);
    let _ = rustix::process::kill_process(pid.unwrap(), signal);
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "waited for {what}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
#[ignore = "needs root"]
fn an_array_whose_task_is_killed_and_requeued_leaves_a_whole_dataset() {
    if ["slurmctld", "slurmd", "sbatch", "munged"]
        .iter()
        .any(|program| !is_installed(program))
    {
        return skipped("no Slurm with MUNGE on this machine: run scripts/setup test");
    }
    let place = Place::new();
    let job = place.put("vmtax.sbatch", JOB);
    let cluster = Cluster::start(&place);
    let shared = place.path("shared");
    let variables = [
        ("VMTAX_SHARED", shared.display().to_string()),
        ("VMTAX", binary().to_owned()),
        ("VMTAX_PLAN", PLAN.to_owned()),
    ];
    let submit = place
        .program("sbatch")
        .words("--parsable --export=ALL --partition=all")
        .arg(&job);
    let submit = submit.env("SLURM_CONF", place.path("slurm/slurm.conf"));
    let submit = variables
        .iter()
        .fold(submit, |submit, (name, value)| submit.env(name, value));
    let array = submit.succeeds().stdout.trim().to_owned();

    // While the task measures: a trial is recorded, the recording is not complete.
    let unfinished = format!("{array}-{KILLED}.part.");
    let is_measuring = || {
        let runs = shared.join("runs");
        let part = names(&runs)
            .into_iter()
            .find(|name| name.starts_with(&unfinished));
        part.is_some_and(|part| {
            files_below(&runs.join(part))
                .iter()
                .any(|file| file.ends_with("trial.json"))
        })
    };
    until("the task to measure", is_measuring);
    let measuring = place
        .processes()
        .into_iter()
        .find(|p| p.command.contains(&unfinished) && p.command.contains(" run "))
        .unwrap()
        .pid;
    // It does not end while Slurm is asked.
    send(measuring, Signal::STOP);
    let task = |fields: &str| {
        cluster
            .ask("scontrol", &format!("--oneliner show job {array}_{KILLED}"))
            .contains(fields)
    };
    assert!(
        task("JobState=RUNNING") && task("Restarts=0"),
        "{}",
        cluster.ask("scontrol", "show job")
    );
    send(measuring, Signal::KILL);
    place
        .program("scontrol")
        .words(&format!("requeue {array}_{KILLED}"))
        .env("SLURM_CONF", place.path("slurm/slurm.conf"))
        .succeeds();
    until("all tasks to end", || {
        cluster
            .ask("squeue", "--noheader --format=%i")
            .trim()
            .is_empty()
            && is_complete(&shared)
    });
    assert!(
        task("JobState=COMPLETED") && task("Restarts=1"),
        "{}",
        cluster.ask("scontrol", "show job")
    );

    // Each task's recording, complete, under its own name; a seed of its own.
    let recordings: Vec<String> = (0..TASKS).map(|task| format!("{array}-{task}")).collect();
    assert_eq!(
        names(&shared.join("runs"))
            .into_iter()
            .filter(|n| n.starts_with(&array))
            .collect::<Vec<_>>(),
        recordings
    );
    for (task, recording) in recordings.iter().enumerate() {
        let folder = shared.join("runs").join(recording);
        let run = json(&fs::read_to_string(folder.join("run.json")).unwrap());
        assert!(run["ended"].is_string(), "{run}");
        let plan = fs::read_to_string(folder.join("plan.toml")).unwrap();
        assert!(plan.contains(&format!("seed = {task}\n")), "{plan}");
    }
    // The dataset has each run once, and no file that is not whole.
    let tables = ["facts", "figures"].map(|table| files_below(&shared.join("dataset").join(table)));
    assert_eq!(
        tables.each_ref().map(Vec::len),
        [TASKS as usize; 2],
        "{tables:?}"
    );
    assert!(
        tables
            .iter()
            .flatten()
            .all(|file| file.extension().is_some_and(|end| end == "parquet")),
        "{tables:?}"
    );
    let again = recordings.iter().fold(
        place.vmtax("export --dataset").arg(shared.join("dataset")),
        |export, recording| export.arg(shared.join("runs").join(recording)),
    );
    again
        .succeeds()
        .says("8 of 8 recordings, 0 files written, 16 unchanged");
    drop(cluster);
    place.nothing_is_left();
}

fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).exists())
}

/// Returns true if each task's run is in the dataset.
fn is_complete(shared: &Path) -> bool {
    files_below(&shared.join("dataset/figures")).len() == TASKS as usize
}
