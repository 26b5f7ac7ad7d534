//! Rights of root that a process under the watchdog keeps, and a seccomp filter that refuses set-user-ID and set-group-ID modes.

use crate::MachineError;
use crate::sandbox::mounts::{self, unshare};
use crate::sandbox::reach::Reach;
use libc::{
    BPF_ABS, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET, BPF_W, EPERM, S_ISGID,
    S_ISUID, SECCOMP_FILTER_FLAG_SPEC_ALLOW, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
    SECCOMP_SET_MODE_FILTER, sock_filter, sock_fprog,
};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, UnshareFlags, capabilities,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::{fs, io};
use vmtax_workload::set_mount_attributes;

/// User ids of no one: systemd gives these to services for the time that they run.
const FIRST_USER: u32 = 61_184;
const USERS: u32 = 65_520 - FIRST_USER;

/// Without these a process of another user could not be started, observed or ended.
const NEEDED: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_ADMIN);

/// Devices that a VMM opens.
const DEVICES: [&str; 10] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/kvm",
    "/dev/net/tun",
    "/dev/vhost-net",
    "/dev/vhost-vsock",
    "/dev/userfaultfd",
];

/// Where root's daemons listen: a read-only mount does not keep anyone from connecting to a socket.
const SOCKETS: &str = "/run";

/// The user whose process a VMM becomes where this program is root; `None` where it is not, or may not change users.
pub(crate) fn unprivileged_user() -> Option<u32> {
    let held = capabilities(None).ok()?.effective;
    let user = FIRST_USER + std::process::id() % USERS;
    let is_mapped = |file: &str| {
        let map = fs::read_to_string(file).unwrap_or_default();
        map.lines().any(|line| {
            let mut numbers = line
                .split_whitespace()
                .map(|number| number.parse().unwrap_or(0_u64));
            let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
            first
                .zip(count)
                .is_some_and(|(first, count)| (first..first + count).contains(&u64::from(user)))
        })
    };
    let may = geteuid().is_root() && held.contains(NEEDED);
    (may && is_mapped("/proc/self/uid_map") && is_mapped("/proc/self/gid_map")).then_some(user)
}

/// The rights of a process, which neither it nor what it starts can extend.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Rights {
    /// The user that it is from its start, with the capabilities that remain of root's. Otherwise it stays who it is.
    pub user: Option<RightsOfUser>,
    /// True if the process may not make files set-user-ID or set-group-ID.
    pub no_set_id: bool,
}

/// A user, with the capabilities that remain of root's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RightsOfUser {
    /// Number of the user, and of the user's group.
    pub id: u32,
    /// Supplementary groups of the user.
    pub groups: Vec<u32>,
    /// The kernel's bits of the capabilities.
    pub capabilities: u64,
    /// Files and folders that it uses, whoever they are closed to; its own stay its own.
    pub reached: Vec<PathBuf>,
    /// With capabilities to write: the only trees to which it can.
    pub writable: Option<Vec<PathBuf>>,
}

impl Rights {
    /// The rights of no one, where this program may change users.
    pub fn of_no_one(no_set_id: bool) -> Rights {
        let user = unprivileged_user().map(|id| RightsOfUser {
            id,
            ..RightsOfUser::default()
        });
        Rights { user, no_set_id }
    }

    /// Restricts this process, which has one thread, before it becomes the program.
    ///
    /// # Errors
    /// [`MachineError::System`], with that of the kernel.
    pub fn apply(&self) -> Result<(), MachineError> {
        if let Some(user) = &self.user {
            Reach {
                user: user.id,
                groups: &user.groups,
            }
            .bring(&user.reached)?;
        }
        self.restrict()
            .map_err(|e| MachineError::system("giving up root's rights", e))
    }

    fn restrict(&self) -> io::Result<()> {
        if let Some(user) = &self.user {
            if let Some(trees) = &user.writable {
                write_only(trees)?;
            }
            user.apply()?;
        }
        set_no_new_privs(true)?;
        if self.no_set_id {
            refuse_set_id()
        } else {
            Ok(())
        }
    }
}

impl RightsOfUser {
    fn apply(&self) -> io::Result<()> {
        // Root of a container may lack one.
        let kept =
            CapabilitySet::from_bits_retain(self.capabilities) & capabilities(None)?.permitted;
        for other in (0..64)
            .map(|bit| CapabilitySet::from_bits_retain(1 << bit))
            .filter(|one| !kept.contains(*one))
        {
            match remove_capability_from_bounding_set(other) {
                // Past the last that the kernel knows.
                Err(Errno::INVAL) => break,
                done => done?,
            }
        }
        let (user, group) = (Uid::from_raw(self.id), Gid::from_raw(self.id));
        let groups: Vec<Gid> = self
            .groups
            .iter()
            .map(|group| Gid::from_raw(*group))
            .collect();
        set_keep_capabilities(true)?;
        set_thread_groups(&groups)?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        set_capabilities(
            None,
            CapabilitySets {
                effective: kept,
                permitted: kept,
                inheritable: kept,
            },
        )?;
        for one in kept {
            configure_capability_in_ambient_set(one, true)?;
        }
        Ok(())
    }
}

/// In a mount namespace of this process's own, all is read-only, and no device can be opened, except these trees and what a
/// VMM needs.
fn write_only(trees: &[PathBuf]) -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    mounts::keep_private().map_err(io::Error::other)?;
    let devices = DEVICES
        .map(Path::new)
        .into_iter()
        .filter(|device| device.exists());
    let clone = |path: &Path| Ok((path.to_path_buf(), mounts::clone_tree(path)?));
    let kept: io::Result<Vec<(PathBuf, OwnedFd)>> = trees
        .iter()
        .map(PathBuf::as_path)
        .chain(devices)
        .map(clone)
        .collect();
    let kept = kept?;
    set_mount_attributes(
        Path::new("/"),
        libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NODEV,
    )?;
    if !trees.iter().any(|tree| tree.starts_with(SOCKETS)) {
        mounts::cover(Path::new(SOCKETS))?;
    }
    for (at, tree) in kept {
        mounts::attach(&tree, &at)?;
    }
    Ok(())
}

/// System calls with the position of their mode argument. That of `openat2` is in memory, where a filter cannot read it.
const MODES: [(i64, u32); 9] = [
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_open, 2),
    (libc::SYS_openat, 3),
    (libc::SYS_creat, 1),
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// Architecture of system calls of x86-64 (`AUDIT_ARCH_X86_64`).
const X86_64: u32 = 0xc000_003e;
/// Numbers from here on are those of x32.
const X32: u32 = 0x4000_0000;

/// Makes system calls of this process, and of those that it starts, fail with EPERM where they would make a file
/// set-user-ID or set-group-ID (the kernel clears the latter only where the file's group is not the process's).
/// Directories are included: a filter does not see the type of the file. Needs `no_new_privs`.
///
/// # Errors
/// The error of the kernel.
fn refuse_set_id() -> io::Result<()> {
    let mut filter = set_id_filter();
    let program = sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // Without this flag a kernel before 5.16 slows the process down against speculative store bypass.
    let flags = SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel copies the program, whose length and address these are.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const program,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The instructions of that filter.
fn set_id_filter() -> Vec<sock_filter> {
    let refuse = SECCOMP_RET_ERRNO | EPERM as u32;
    let load = |at| step(BPF_LD | BPF_W | BPF_ABS, at, 0, 0);
    let end = |with| step(BPF_RET | BPF_K, with, 0, 0);
    let mut all = vec![
        load(ARCHITECTURE),
        step(BPF_JMP | BPF_JEQ | BPF_K, X86_64, 1, 0),
        end(refuse),
        load(NUMBER),
        step(BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1),
        end(refuse),
        step(BPF_JMP | BPF_JEQ | BPF_K, libc::SYS_openat2 as u32, 0, 1),
        end(SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ];
    for (call, mode) in MODES {
        all.extend([
            step(BPF_JMP | BPF_JEQ | BPF_K, call as u32, 0, 4),
            load(ARGUMENTS + 8 * mode),
            step(BPF_JMP | BPF_JSET | BPF_K, S_ISUID | S_ISGID, 0, 1),
            end(refuse),
            end(SECCOMP_RET_ALLOW),
        ]);
    }
    all.push(end(SECCOMP_RET_ALLOW));
    all
}

/// An instruction; the jumps are the numbers of instructions left out when it holds and when it does not.
fn step(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::spawn_command;
    use std::fs::File;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::process::Command;

    /// Runs a shell script with these rights; gives whether it ended well.
    fn runs(rights: &Rights, script: &str) -> bool {
        let arguments = ["-c", script].map(str::to_owned);
        spawn_command(Command::new("sh"), &arguments, Some(rights), None)
            .unwrap()
            .wait()
            .unwrap()
            .success()
    }

    #[test]
    fn set_id_files_are_refused_and_others_are_not() {
        let place = tempfile::tempdir().unwrap();
        let path_of = |name: &str| place.path().join(name).display().to_string();
        File::create(path_of("file")).unwrap();
        let rights = Rights {
            user: None,
            no_set_id: true,
        };
        for made in ["4755", "2755", "2644"] {
            assert!(
                !runs(&rights, &format!("chmod {made} {}", path_of("file"))),
                "{made}"
            );
        }
        assert!(runs(
            &rights,
            &format!(
                "chmod 755 {0} && mkdir {1} && mkfifo {2}",
                path_of("file"),
                path_of("folder"),
                path_of("fifo")
            )
        ));
        // A filter does not see what has the name.
        assert!(!runs(&rights, &format!("chmod 2755 {}", path_of("folder"))));
        assert_eq!(
            fs::metadata(path_of("file")).unwrap().mode() & 0o7777,
            0o755
        );
        assert!(
            runs(
                &Rights::default(),
                &format!("chmod 4755 {}", path_of("file"))
            ),
            "the filter refuses it, nothing else"
        );
    }

    #[test]
    #[ignore = "needs root"]
    fn a_user_keeps_the_capabilities_that_it_is_given() {
        let user = unprivileged_user().unwrap();
        let place = tempfile::tempdir().unwrap();
        let (inside, beside) = (place.path().join("inside"), place.path().join("beside"));
        for folder in [&inside, &beside] {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
            fs::write(folder.join("file"), "").unwrap();
        }
        let rights = |capabilities: CapabilitySet, writable| Rights {
            user: Some(RightsOfUser {
                id: user,
                capabilities: capabilities.bits(),
                writable,
                ..RightsOfUser::default()
            }),
            no_set_id: false,
        };
        let status = "test \"$(grep -c '^Cap.*0000000000000004$' /proc/self/status)\" = 5 && test $(id -u) = ";
        let reads = rights(CapabilitySet::DAC_READ_SEARCH, None);
        assert!(runs(
            &reads,
            &format!("{status}{user} && grep -q 'NoNewPrivs:.1' /proc/self/status")
        ));
        assert!(runs(&reads, &format!("cat {}/file", inside.display())));
        assert!(!runs(
            &reads,
            &format!("echo x > {}/file", inside.display())
        ));
        let all = CapabilitySet::DAC_OVERRIDE | CapabilitySet::MKNOD;
        let writes = rights(all, Some(vec![inside.clone()]));
        assert!(runs(
            &writes,
            &format!(
                "echo x > {}/file && echo x > /dev/null && test -z \"$(ls /run)\"",
                inside.display()
            )
        ));
        for elsewhere in [
            "/etc/passwd",
            "/root/.x",
            &format!("{}/file", beside.display()),
        ] {
            assert!(
                !runs(&writes, &format!("echo x >> {elsewhere}")),
                "{elsewhere}"
            );
        }
        assert_eq!(fs::read_to_string(inside.join("file")).unwrap(), "x\n");
    }

    #[test]
    #[ignore = "needs root"]
    fn a_user_reaches_the_files_that_are_named_and_no_other() {
        let user = unprivileged_user().unwrap();
        let place = tempfile::tempdir().unwrap();
        let path_of = |name: &str| place.path().join(name);
        // The folder itself is closed, too.
        fs::create_dir_all(path_of("closed/folder")).unwrap();
        fs::set_permissions(path_of("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        for (name, mode) in [
            ("own", 0o600),
            ("other", 0o644),
            ("read", 0o644),
            ("unreadable", 0o600),
            ("folder/file", 0o644),
        ] {
            let path = path_of("closed").join(name);
            fs::write(&path, name).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        std::os::unix::fs::chown(path_of("closed/own"), Some(user), Some(user)).unwrap();
        std::os::unix::fs::symlink(path_of("closed/read"), path_of("link")).unwrap();
        let device = path_of("device");
        let null = fs::metadata("/dev/null").unwrap().rdev();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &device,
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::Mode::from_raw_mode(0o600),
            null,
        )
        .unwrap();
        let reached = [
            "closed/own",
            "closed/unreadable",
            "closed/folder",
            "closed/missing",
            "link",
            "device",
        ]
        .map(path_of);
        let rights = |reached: &[PathBuf]| Rights {
            user: Some(RightsOfUser {
                id: user,
                reached: reached.to_vec(),
                ..RightsOfUser::default()
            }),
            no_set_id: false,
        };
        let reaches = |script: &str| {
            runs(
                &rights(&reached),
                &format!("cd {} && {script}", place.path().display()),
            )
        };
        assert!(reaches(
            "test \"$(cat closed/own closed/unreadable link closed/folder/file)\" = ownunreadablereadfolder/file"
        ));
        assert!(reaches("echo more >> closed/own && echo x > device"));
        assert!(!reaches("cat closed/other"), "nobody named it");
        assert!(!reaches(
            "echo x > closed/folder/more || echo x > closed/more || echo x > closed/unreadable"
        ));
        assert!(
            !runs(
                &rights(&[]),
                &format!("cat {}", path_of("closed/read").display())
            ),
            "it is closed"
        );
        assert_eq!(
            fs::read_to_string(path_of("closed/own")).unwrap(),
            "ownmore\n"
        );
        assert_eq!(
            fs::read_dir(path_of("closed")).unwrap().count(),
            5,
            "the host sees nothing of it"
        );
    }
}
