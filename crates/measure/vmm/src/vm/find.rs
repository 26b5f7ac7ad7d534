//! The VMs that run on this host, and one of them by what people call it.

use super::Vm;
use crate::Peer;
use crate::process::{VmmProcess, recognize};
use crate::qemu::attach::ATTACH_TIMEOUT;
use crate::qemu::conversation::connect;
use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use vmtax_model::{Managed, VmFacts, VmIdentity, without_secrets};
use vmtax_observe::counters::started;

/// Why a name stands for no VM.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// Nothing runs here that is a VM.
    #[error(
        "no VM runs on this host, or none that this user can see: start one, or run vmtax as root"
    )]
    NoVms,
    /// Others run, but none of that name.
    #[error("no VM matches \"{name}\". Running: {known} (`vmtax vms` lists them)")]
    Unknown {
        /// As it was given.
        name: String,
        /// The VMs there are.
        known: String,
    },
    /// It stands for more than one.
    #[error("\"{name}\" matches several VMs: {found}. Name one by its PID")]
    Ambiguous {
        /// As it was given.
        name: String,
        /// List of those VMs.
        found: String,
    },
    /// The process of a plan is another VM now, or none.
    #[error(
        "process {pid} is not the VM of the plan, {planned}, but {now}: name the VM again, `vmtax vms` lists the running VMs"
    )]
    OtherVm {
        /// PID of the process.
        pid: i32,
        /// The VM of the plan, with its start.
        planned: String,
        /// The VM that the process is now, with its start.
        now: String,
    },
    /// The process of a plan that is of any process is another one now, or none.
    #[error(
        "process {pid} is not the one of the plan, {planned}, but {now}: name the process again, or the VM with --vm"
    )]
    OtherProcess {
        /// PID of the process.
        pid: i32,
        /// The process of the plan, with its start.
        planned: String,
        /// The process that has the PID now, with its start.
        now: String,
    },
    /// The process listens on no QMP socket, or is no VM.
    #[error("{socket} is no socket of a running VM: {why}. `vmtax vms` lists the VMs")]
    NoSocket {
        /// Path of the socket.
        socket: String,
        /// Reason why it is no socket of a running VM.
        why: String,
    },
}

/// The processes of this host that run a guest, by PID; those of other users and of containers too.
pub fn running() -> Vec<i32> {
    pids().into_iter().filter(|pid| is_vm(*pid)).collect()
}

/// Every process of the host.
pub fn pids() -> BTreeSet<i32> {
    let names = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect()
}

/// Returns true if a process runs a guest.
pub fn is_vm(pid: i32) -> bool {
    recognize(pid).is_some()
}

/// A running VM by a name: its PID, the path of its QMP socket, its libvirt domain or UUID, its Proxmox ID, its QEMU name, or
/// a part of the name that no other VM has. Nothing of it is asked.
///
/// # Errors
/// [`FindError`] where it stands for none, or for several.
pub fn find(name: &str) -> Result<VmIdentity, FindError> {
    if name.contains('/') {
        return by_socket(name).map(vm_of_process);
    }
    let all: Vec<Known> = running().into_iter().map(Known::read).collect();
    choose(name, &all).map(vm_of_process)
}

/// Every running VM by its PID and name, as [`find`] gives one. Nothing of them is asked.
pub fn running_vms() -> Vec<VmIdentity> {
    running().into_iter().map(vm_of_process).collect()
}

/// The VM that a process runs, for a plan.
fn vm_of_process(pid: i32) -> VmIdentity {
    VmIdentity {
        name: Known::read(pid).name,
        ..process_identity(pid)
    }
}

/// Any process, for a plan.
pub fn process_identity(pid: i32) -> VmIdentity {
    VmIdentity {
        pid,
        started: started(pid),
        name: Some(Vm::program_of(pid)),
    }
}

/// Marks those of several VMs that have a name which another of them has.
pub fn mark_shared_names<'a>(vms: impl IntoIterator<Item = &'a mut VmFacts>) {
    let mut vms: Vec<&mut VmFacts> = vms.into_iter().collect();
    let names: Vec<Option<String>> = vms.iter().map(|vm| vm.name.clone()).collect();
    for vm in &mut vms {
        let same = names.iter().filter(|name| **name == vm.name).count();
        vm.shares_name = vm.name.is_some() && same > 1;
    }
}

impl Vm {
    /// A running VM by a name, as [`find`] takes it.
    ///
    /// # Errors
    /// [`FindError`] where it stands for none, or for several.
    pub fn find(name: &str) -> Result<Vm, FindError> {
        find(name).map(|found| Vm::attach(found.pid))
    }

    /// Returns true if another running VM has its name.
    pub fn shares_name(&self) -> bool {
        let name = self.process.name();
        let has_name = |pid| VmmProcess::without_monitor(pid).name() == name;
        let others = || running().into_iter().filter(|pid| *pid != self.pid());
        name.is_some() && others().any(has_name)
    }

    /// The VM of a plan, or (`is_vm` is false) its process, unless another process has its PID now, or none.
    ///
    /// # Errors
    /// [`FindError::OtherVm`], [`FindError::OtherProcess`].
    pub fn planned(planned: &VmIdentity, is_vm: bool) -> Result<Vm, FindError> {
        let is_other = |now: Option<u64>| planned.started.filter(|at| now != Some(*at));
        if let Some(at_start) = is_other(started(planned.pid)) {
            return Err(another(planned, is_vm, at_start));
        }
        let vm = Vm::attach(planned.pid);
        // Another process may have got its PID meanwhile.
        match is_other(vm.start_ticks()) {
            Some(at_start) => Err(another(planned, is_vm, at_start)),
            None => Ok(vm),
        }
    }
}

/// The process of a plan as it was, and as it is now.
fn another(planned: &VmIdentity, is_vm: bool, at_start: u64) -> FindError {
    let pid = planned.pid;
    let title = |vm: &VmIdentity, ticks: u64| {
        let name = vm.name.as_deref().unwrap_or("unnamed");
        format!("{name} (started at tick {ticks})")
    };
    let (now, runs_vm) = match self::is_vm(pid) {
        true => (vm_of_process(pid), true),
        false => (process_identity(pid), false),
    };
    let started = now.started.filter(|_| runs_vm || !is_vm);
    let none = if is_vm { "no VM" } else { "no process" };
    let now = started.map_or(none.to_owned(), |ticks| title(&now, ticks));
    let planned = title(planned, at_start);
    match is_vm {
        true => FindError::OtherVm { pid, planned, now },
        false => FindError::OtherProcess { pid, planned, now },
    }
}

/// Names that people may give a VM.
#[derive(Debug, Clone)]
struct Known {
    pid: i32,
    name: Option<String>,
    managed: Option<Managed>,
}

impl Known {
    fn read(pid: i32) -> Known {
        let process = VmmProcess::without_monitor(pid);
        Known {
            pid,
            name: process.name(),
            managed: process.managed(),
        }
    }

    fn text(&self) -> String {
        let manager = self.managed.as_ref().map_or(String::new(), |managed| {
            format!(", {}", managed.manager.as_str())
        });
        format!(
            "{} (PID {}{manager})",
            self.name.as_deref().unwrap_or("unnamed"),
            self.pid
        )
    }
}

/// The surest meaning that any VM has: PID, then the manager's ID, the whole name, a part of it. A number is no part of a name: its
/// VM may have ended, and another would be taken for it.
fn choose(name: &str, all: &[Known]) -> Result<i32, FindError> {
    let texts = |known: &[&Known]| {
        let texts: Vec<String> = known.iter().map(|known| known.text()).collect();
        texts.join("; ")
    };
    if all.is_empty() {
        return Err(FindError::NoVms);
    }
    let is_pid = |known: &Known| name.parse() == Ok(known.pid);
    let is_id = |known: &Known| {
        let managed = known.managed.as_ref();
        managed.is_some_and(|managed| managed.id == name)
    };
    let is_name = |known: &Known| known.name.as_deref() == Some(name);
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let has_part = |known: &Known| {
        let known = known.name.as_deref().unwrap_or_default();
        !is_number && known.contains(name)
    };
    let meanings: [&dyn Fn(&Known) -> bool; 4] = [&is_pid, &is_id, &is_name, &has_part];
    for meaning in meanings {
        let meant: Vec<&Known> = all.iter().filter(|known| meaning(known)).collect();
        match meant[..] {
            [] => {}
            [one] => return Ok(one.pid),
            ref several => {
                return Err(FindError::Ambiguous {
                    name: name.to_owned(),
                    found: texts(several),
                });
            }
        }
    }
    Err(FindError::Unknown {
        name: without_secrets(name).into_owned(),
        known: texts(&all.iter().collect::<Vec<_>>()),
    })
}

/// The VM that listens on a socket.
fn by_socket(path: &str) -> Result<i32, FindError> {
    let error = |why: &str| FindError::NoSocket {
        socket: without_secrets(path).into_owned(),
        why: why.to_owned(),
    };
    let data = Path::new(path)
        .metadata()
        .map_err(|e| error(&e.to_string()))?;
    if !data.file_type().is_socket() {
        return Err(error("it is not a socket"));
    }
    let stream = connect(Path::new(path), ATTACH_TIMEOUT).map_err(|e| error(&e.to_string()))?;
    let not_visible =
        || error("the process that listens there is in a PID namespace that is not visible here");
    let pid = Peer::of(&stream).ok_or_else(not_visible)?.pid;
    recognize(pid)
        .map(|_| pid)
        .ok_or_else(|| error(&format!("process {pid} listens there, which is no VMM")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::Manager;

    fn known(pid: i32, name: &str, id: Option<(Manager, &str)>) -> Known {
        let managed = id.map(|(manager, id)| Managed {
            manager,
            id: id.to_owned(),
        });
        Known {
            pid,
            name: (!name.is_empty()).then(|| name.to_owned()),
            managed,
        }
    }

    #[test]
    fn a_name_is_taken_in_its_surest_meaning() {
        let all = [
            known(100, "web01", Some((Manager::Libvirt, "18-6"))),
            known(200, "web010", None),
            known(300, "db", Some((Manager::Proxmox, "200"))),
            known(400, "", None),
        ];
        let chosen_vm = |name: &str| choose(name, &all);
        assert_eq!(
            (chosen_vm("100"), chosen_vm("18-6"), chosen_vm("db")),
            (Ok(100), Ok(100), Ok(300))
        );
        assert_eq!(chosen_vm("200"), Ok(200), "a PID before Proxmox's number");
        assert_eq!(
            (chosen_vm("web01"), chosen_vm("b010")),
            (Ok(100), Ok(200)),
            "the whole name before a part"
        );
        assert!(
            matches!(chosen_vm("010"), Err(FindError::Unknown { .. })),
            "a number is no part of a name"
        );
        let several = chosen_vm("web").unwrap_err().to_string();
        assert!(
            several.contains("web01 (PID 100, libvirt)") && several.contains("web010 (PID 200)"),
            "{several}"
        );
        let unknown = chosen_vm("nine").unwrap_err().to_string();
        assert!(
            unknown.contains("\"nine\"") && unknown.contains("unnamed (PID 400)"),
            "{unknown}"
        );
        assert!(matches!(chosen_vm(""), Err(FindError::Unknown { .. })));
        assert_eq!(choose("100", &[]), Err(FindError::NoVms));
    }

    #[test]
    fn the_vm_of_a_plan_is_the_process_that_started_then() {
        let own = process_identity(std::process::id() as i32);
        let (pid, at_start) = (own.pid, own.started);
        let check = |pid, started| {
            let planned = VmIdentity {
                pid,
                started,
                name: Some("web01".to_owned()),
            };
            Vm::planned(&planned, true)
                .map(|vm| vm.pid())
                .map_err(|e| e.to_string())
        };
        assert_eq!(
            (check(pid, at_start), check(pid, None)),
            (Ok(pid), Ok(pid)),
            "an older plan does not say"
        );
        let why = check(pid, Some(7)).unwrap_err();
        let expected = format!(
            "process {pid} is not the VM of the plan, web01 (started at tick 7), but no VM: "
        );
        assert!(why.starts_with(&expected), "{why}");
        assert!(
            check(i32::MAX, Some(7)).unwrap_err().contains("web01"),
            "it has ended"
        );
        let program = own.name.clone().unwrap();
        let earlier = VmIdentity {
            started: Some(7),
            ..own
        };
        let why = Vm::planned(&earlier, false).unwrap_err().to_string();
        let expected = format!(
            "process {pid} is not the one of the plan, {program} (started at tick 7), but {program} (started at tick {}): ",
            at_start.unwrap()
        );
        assert!(why.starts_with(&expected), "{why}");
    }

    #[test]
    fn a_socket_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listens = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let why = |path: &str| by_socket(path).unwrap_err().to_string();
        assert!(why(path.to_str().unwrap()).contains("no VMM"));
        assert!(why("/dev/null").contains("not a socket"));
        assert!(why("/nonexistent/qmp").contains("No such file"));
    }
}
