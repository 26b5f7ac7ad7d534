//! Loads the modules that were packed beside the agent, in the order in which they were listed.

use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::{self, File};
use vmtax_model::ShareMethod;

/// One path a line, dependencies first; written by the `kernel` crate.
const LIST: &str = "/vmtax/modules.list";

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

/// Loads every listed module; gives what did not work. A kernel without modules, or without the list, is no fault.
pub(crate) fn load_all() -> Vec<String> {
    load_list(LIST)
}

/// Loads the additional modules of a share method; returns what did not work.
pub(crate) fn load_for(method: ShareMethod) -> Vec<String> {
    load_list(&format!("/vmtax/modules-{method}.list"))
}

/// Loads the additional modules of a command's root; returns what did not work.
pub(crate) fn load_command() -> Vec<String> {
    load_list("/vmtax/modules-command.list")
}

fn load_list(list: &str) -> Vec<String> {
    let list = fs::read_to_string(list).unwrap_or_default();
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
