//! The server behind a share, nfs-ganesha or virtiofsd: a fresh one for each machine, under the watchdog.
//!
//! nfs-ganesha is an NFS server in user space, with a configuration, a network and a root folder of its own. The host's own
//! exports are left alone, and so is its rpcbind: for version 3, which has to register with one, there is another. Of virtiofsd
//! there are QEMU's own in C, and its successor in Rust, which take different arguments.

use crate::MachineError;
use crate::process::child::{Child, FIRST_DESCRIPTOR, Start};
use crate::process::log::log_tail;
use crate::process::watchdog::Supervision;
use crate::sandbox::Namespaces;
use crate::setup::Setup;
use crate::share::jail::{Jail, TREE};
use crate::share::{Sharing, programs};
use crate::vmm::qemu::device_arguments::owned;
use procfs::net::TcpState;
use procfs::process::Process;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, unlinkat};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use vmtax_model::{ShareMethod, shell_line};

/// A server that ended closed its streams before; its process is gone within moments.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The address of a server.
#[derive(Debug)]
pub(crate) enum ServerAddress {
    /// By this stream, which QEMU gets.
    Stream(OwnedFd),
    /// At ports of the loopback address, in the network of a process.
    Ports {
        /// Ports of NFS, and of the MOUNT protocol, which lists exports.
        ports: [u16; 2],
        /// PID of that process.
        of: i32,
    },
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    pub command: Vec<String>,
    method: ShareMethod,
    log: PathBuf,
    is_jailed: bool,
    child: Child,
}

impl Server {
    /// Starts what the share needs besides QEMU: a server, a copy of an image. `None` without a server.
    pub fn start(
        sharing: &Sharing,
        setup: &Setup<'_>,
    ) -> Result<Option<(Server, ServerAddress)>, MachineError> {
        let method = sharing.share.method;
        programs::check_rights(&sharing.share)?;
        if let Some(copy) = &sharing.copy {
            programs::copy(&sharing.source, copy)?;
        }
        let Some(program) = &sharing.server else {
            return Ok(None);
        };
        let serving = match method {
            ShareMethod::Virtiofs => virtiofsd_command(sharing, program, setup.scratch.folder())?,
            _ => ganesha_command(sharing, program, setup)?,
        };
        let log = setup.log.join("server.log");
        let saved = setup.log.join("server.command");
        fs::write(&saved, shell_line(&serving.command) + "\n")
            .map_err(|e| MachineError::system(format!("writing {}", saved.display()), e))?;
        let is_jailed = sharing.jail.is_some();
        let child = Child::spawn(Start {
            command: [serving.jail, serving.command.clone()].concat(),
            stdin: None,
            descriptors: serving.descriptors,
            log: &log,
            supervision: Supervision {
                namespaces: Namespaces {
                    read_only: (sharing.users && !is_jailed).then(|| sharing.source.clone()),
                    root: sharing.root(),
                    as_root: serving.as_root,
                    own_network: matches!(serving.endpoint, ServerEndpoint::Ports(_)),
                    ..Namespaces::default()
                },
                removed: vec![setup.scratch.folder().to_path_buf()],
                ..Supervision::default()
            },
        })?;
        let mut server = Server {
            command: serving.command,
            method,
            log,
            is_jailed,
            child,
        };
        let address = server.address(serving.endpoint, setup.guest.boot_timeout())?;
        Ok(Some((server, address)))
    }

    /// Returns the server's address, once it listens there.
    fn address(
        &mut self,
        endpoint: ServerEndpoint,
        timeout: Duration,
    ) -> Result<ServerAddress, MachineError> {
        match endpoint {
            ServerEndpoint::Stream(stream) => Ok(ServerAddress::Stream(stream)),
            ServerEndpoint::Ports(ports) => {
                let of = self.session();
                match listens(ports[0], of, timeout, || self.status().is_some()) {
                    true => Ok(ServerAddress::Ports { ports, of }),
                    false => Err(self.ended("starting")),
                }
            }
        }
    }

    /// Returns a descriptor that becomes readable when the server has ended; see [`Child::ended`].
    pub fn watch(&self) -> Result<OwnedFd, MachineError> {
        self.child.ended()
    }

    /// Returns true if the server has a root of its own, with the tree in it.
    pub fn is_jailed(&self) -> bool {
        self.is_jailed
    }

    /// Returns the session of the server; see [`Child::session`].
    pub fn session(&self) -> i32 {
        self.child.session()
    }

    /// Returns the server's exit status, once it has ended.
    pub fn status(&mut self) -> Option<i32> {
        self.child.wait(Duration::ZERO)
    }

    /// The error of a server that ended.
    pub fn ended(&mut self, doing: &str) -> MachineError {
        let status = self.child.wait(CLOSE_TIMEOUT).unwrap_or(-1);
        let name = self
            .command
            .first()
            .map(Path::new)
            .and_then(Path::file_name)
            .unwrap_or_default();
        MachineError::ServerEnded {
            method: self.method,
            what: format!("{} ended while {doing}", name.to_string_lossy()),
            status,
            said: log_tail(&self.log),
            log: self.log.clone(),
        }
    }
}

/// Where a server will listen.
enum ServerEndpoint {
    /// By this stream, which QEMU gets.
    Stream(OwnedFd),
    /// At these ports.
    Ports([u16; 2]),
}

/// The command of a server.
struct ServerCommand {
    pub command: Vec<String>,
    /// Command that runs the server in a root of its own; empty if it has none.
    pub jail: Vec<String>,
    pub descriptors: Vec<OwnedFd>,
    pub endpoint: ServerEndpoint,
    /// True if the server needs to be root, at least in a user namespace.
    pub as_root: bool,
}

/// The export's name, at the root of the server's own tree.
pub(super) const EXPORT: &str = "/share";
/// Files of the server's, in its own root.
const PID: &str = "/run/ganesha.pid";
const RECOVERY: &str = "/run";
/// The NFS port that the guest uses.
pub(super) const NFS_PORT: u16 = 2049;
/// The port of the MOUNT protocol of NFS version 3.
pub(super) const MOUNT_PORT: u16 = 20048;

/// The command of nfs-ganesha, with its configuration in the log folder.
fn ganesha_command(
    sharing: &Sharing,
    program: &Path,
    setup: &Setup<'_>,
) -> Result<ServerCommand, MachineError> {
    let method = sharing.share.method;
    let ports = free_ports().map_err(|e| MachineError::system("looking for a free port", e))?;
    let file = absolute(setup.log)?.join("ganesha.conf");
    let access = if sharing.read_only { "RO" } else { "RW" };
    std::fs::write(&file, configuration(method, ports, access))
        .map_err(|e| MachineError::system(format!("writing {}", file.display()), e))?;
    let (program, file) = (program.display().to_string(), file.display().to_string());
    let command = owned([&program, "-F", "-f", &file, "-L", "STDERR", "-p", PID]);
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
    Ok(owned(["/proc/self/exe", "jail", &jail, "--"]))
}

fn absolute(path: &Path) -> Result<PathBuf, MachineError> {
    std::path::absolute(path).map_err(|e| MachineError::system("the current directory", e))
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
fn listens(port: u16, of: i32, timeout: Duration, mut ended: impl FnMut() -> bool) -> bool {
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

const VIRTIOFSD_SOCKET: &str = "virtiofsd.socket";

/// The server, and the stream to it. Its socket has a name for a moment, in a folder that is closed to others: an abstract
/// one can be connected to by everyone.
fn virtiofsd_command(
    sharing: &Sharing,
    program: &Path,
    scratch: &Path,
) -> Result<ServerCommand, MachineError> {
    let help = help(program)?;
    let rust = help.contains("--shared-dir");
    // The one in C, even for its help.
    if help.contains("setgroups() failed") {
        return Err(MachineError::NoShare(format!(
            "share=virtiofs: {} drops supplementary groups when it starts, which only root may do: run vmtax as root, install the \
             virtiofsd in Rust and name it with share.server, or use share=9p",
            program.display()
        )));
    }
    let failed = |e| MachineError::system("making virtiofsd's socket", e);
    let (listener, stream) = connected(scratch).map_err(failed)?;
    Ok(ServerCommand {
        command: virtiofsd_arguments(sharing, program, rust),
        jail: Vec::new(),
        descriptors: vec![listener.into()],
        endpoint: ServerEndpoint::Stream(stream.into()),
        // The one in Rust makes a user namespace by itself.
        as_root: !rust,
    })
}

/// A listening socket with its only client.
fn connected(folder: &Path) -> io::Result<(UnixListener, UnixStream)> {
    // By the folder's descriptor, as the path of a socket has at most 107 bytes.
    let folder = File::open(folder)?;
    let path = format!("/proc/self/fd/{}/{VIRTIOFSD_SOCKET}", folder.as_raw_fd());
    let listener = UnixListener::bind(&path)?;
    // The first in its queue, so the only one that is ever accepted.
    let stream = UnixStream::connect(&path);
    unlinkat(&folder, VIRTIOFSD_SOCKET, AtFlags::empty())?;
    Ok((listener, stream?))
}

fn help(program: &Path) -> Result<String, MachineError> {
    let asked = Command::new(program)
        .arg("--help")
        .stdin(Stdio::null())
        .output();
    let output = asked.map_err(|e| {
        MachineError::NoShare(format!(
            "{} does not start ({e}): use another with share.server",
            program.display()
        ))
    })?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn virtiofsd_arguments(sharing: &Sharing, program: &Path, rust: bool) -> Vec<String> {
    let option = |key: &str| sharing.share.option(key);
    let source = sharing.source.display();
    let mut arguments = vec![
        program.display().to_string(),
        format!("--fd={FIRST_DESCRIPTOR}"),
    ];
    if rust {
        arguments.push(format!("--shared-dir={source}"));
        arguments.extend(option("cache").map(|mode| format!("--cache={mode}")));
        arguments.extend(sharing.share.is_on("xattr").then(|| "--xattr".to_owned()));
    } else {
        // Its name for no cache is another; and a comma begins another option unless it is escaped.
        let cache = option("cache").map(|mode| if mode == "never" { "none" } else { mode });
        let source = source.to_string().replace('\\', "\\\\").replace(',', "\\,");
        let cache = cache.map(|mode| format!("cache={mode}"));
        let xattr = sharing.share.is_on("xattr").then(|| "xattr".to_owned());
        let options = [Some(format!("source={source}")), cache, xattr];
        let options = options.into_iter().flatten();
        arguments.extend(options.flat_map(|option| ["-o".to_owned(), option]));
    }
    arguments.extend(option("threads").map(|count| format!("--thread-pool-size={count}")));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::{Share, ShareMethod};

    #[test]
    fn a_listening_port_is_detected() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let of = std::process::id() as i32;
        assert!(listens(port, of, Duration::from_secs(5), || false));
        assert!(!listens(port, of, Duration::from_secs(5), || true));
    }

    #[test]
    fn nobody_else_can_connect_to_the_server() {
        let place = tempfile::tempdir().unwrap();
        let (listener, _stream) = connected(place.path()).unwrap();
        assert!(
            std::fs::read_dir(place.path()).unwrap().next().is_none(),
            "its name is gone"
        );
        let address = listener.local_addr().unwrap();
        assert!(std::os::linux::net::SocketAddrExt::as_abstract_name(&address).is_none());
        assert!(UnixStream::connect_addr(&address).is_err());
        listener.accept().unwrap();
        listener.set_nonblocking(true).unwrap();
        assert_eq!(
            listener.accept().unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
    }

    #[test]
    fn both_take_the_same_settings_in_their_own_syntax() {
        let options = [("cache", "never"), ("threads", "0"), ("xattr", "on")];
        let options = options.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let share = Share {
            method: ShareMethod::Virtiofs,
            options,
        };
        let source = "/x,y".into();
        let sharing = Sharing::new(share, source);
        let line = |rust| virtiofsd_arguments(&sharing, Path::new("v"), rust).join(" ");
        assert_eq!(
            line(true),
            "v --fd=4 --shared-dir=/x,y --cache=never --xattr --thread-pool-size=0"
        );
        assert_eq!(
            line(false),
            "v --fd=4 -o source=/x\\,y -o cache=none -o xattr --thread-pool-size=0"
        );
    }
}
