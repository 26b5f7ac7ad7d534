//! nfs-ganesha: an NFS server in user space, with a configuration, a network and a root folder of its own. The host's own
//! exports are left alone, and so is its rpcbind: for version 3, which has to register with one, there is another.

use super::Sharing;
use super::server_command::{ServerCommand, ServerEndpoint};
use crate::MachineError;
use crate::setup::Setup;
use crate::share::jail::{Jail, TREE};
use procfs::net::TcpState;
use procfs::process::Process;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};
use vmtax_model::ShareMethod;

/// The export's name, at the root of the server's own tree.
pub(super) const EXPORT: &str = "/share";
/// Files of the server's, in its own root.
const PID: &str = "/run/ganesha.pid";
const RECOVERY: &str = "/run";
/// The NFS port that the guest uses.
pub(super) const NFS_PORT: u16 = 2049;
/// The port of the MOUNT protocol of NFS version 3.
pub(super) const MOUNT_PORT: u16 = 20048;

pub(super) fn server_command(
    sharing: &Sharing,
    program: &Path,
    setup: &Setup<'_>,
) -> Result<ServerCommand, MachineError> {
    let method = sharing.share.method;
    let ports = free_ports().map_err(|e| MachineError::system("looking for a free port", e))?;
    let log = std::path::absolute(setup.log)
        .map_err(|e| MachineError::system("the current folder", e))?;
    let file = log.join("ganesha.conf");
    let access = if sharing.read_only { "RO" } else { "RW" };
    std::fs::write(&file, configuration(method, ports, access))
        .map_err(|e| MachineError::system(format!("writing {}", file.display()), e))?;
    let (program, file) = (program.display().to_string(), file.display().to_string());
    let command = [&program, "-F", "-f", &file, "-L", "STDERR", "-p", PID]
        .map(str::to_owned)
        .to_vec();
    let jail = jail(sharing, &file)?;
    Ok(ServerCommand {
        command,
        jail,
        descriptors: Vec::new(),
        endpoint: ServerEndpoint::Ports(ports),
        as_root: false,
    })
}

/// The arguments that run it in a root of its own.
fn jail(sharing: &Sharing, file: &str) -> Result<Vec<String>, MachineError> {
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|e| MachineError::system("the current folder", e))
    };
    let lacking = || {
        MachineError::NoShare(format!(
            "share={} has no image of the tree",
            sharing.share.method
        ))
    };
    let jail = Jail {
        image: absolute(sharing.own())?,
        read_only: sharing.read_only,
        root: absolute(sharing.jail.as_deref().ok_or_else(lacking)?)?,
        file: file.into(),
        portmapper: sharing.portmapper.clone(),
    };
    let jail = serde_json::to_string(&jail)
        .map_err(|e| MachineError::system("writing the jail's settings", e))?;
    Ok(["/proc/self/exe", "jail", &jail, "--"]
        .map(str::to_owned)
        .to_vec())
}

/// Taken by nobody now; nfs-ganesha cannot be handed a socket.
fn free_ports() -> std::io::Result<[u16; 2]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // Both at once, so that they are two.
    let (nfs, mount) = (listen()?, listen()?);
    Ok([nfs.local_addr()?.port(), mount.local_addr()?.port()])
}

/// Streams are made once for a guest's life: those that rest are not to be closed.
fn configuration(method: ShareMethod, [nfs, mount]: [u16; 2], access: &str) -> String {
    let version = if method == ShareMethod::Nfs3 { 3 } else { 4 };
    format!(
        "NFS_CORE_PARAM {{\n  Protocols = {version};\n  NFS_Port = {nfs};\n  MNT_Port = {mount};\n  mount_path_pseudo = \
         true;\n  RPC_Idle_Timeout_S = 3600;\n  Bind_addr = 127.0.0.1;\n  Enable_NLM = false;\n  Enable_RQUOTA = false;\n  \
         Enable_UDP = false;\n}}\n\
         NFSV4 {{\n  Graceless = true;\n  Minor_Versions = 0,1,2;\n  RecoveryBackend = fs;\n  RecoveryRoot = \
         {RECOVERY};\n}}\n\
         EXPORT_DEFAULTS {{\n  Access_Type = {access};\n  Squash = No_Root_Squash;\n  SecType = sys;\n  Protocols = \
         {version};\n  Transports = TCP;\n}}\n\
         EXPORT {{\n  Export_Id = 1;\n  Path = {TREE};\n  Pseudo = {EXPORT};\n  FSAL {{ Name = VFS; }}\n}}\n\
         LOG {{ Default_Log_Level = EVENT; }}\n"
    )
}

/// Waits until a socket listens at `port` in the network namespace of the process `of`, or the server has `ended`.
pub(super) fn listens(
    port: u16,
    of: i32,
    timeout: Duration,
    mut ended: impl FnMut() -> bool,
) -> bool {
    let deadline = Instant::now() + timeout;
    while Instant::now() < deadline && !ended() {
        // By the kernel's lists: that network cannot be connected to from here.
        let lists = Process::new(of).map(|process| [process.tcp(), process.tcp6()]);
        let mut sockets = lists.into_iter().flatten().flatten().flatten();
        if sockets
            .any(|socket| socket.state == TcpState::Listen && socket.local_address.port() == port)
        {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_port_is_detected() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let of = std::process::id() as i32;
        assert!(listens(port, of, Duration::from_secs(5), || false));
        assert!(!listens(port, of, Duration::from_secs(5), || true));
    }
}
