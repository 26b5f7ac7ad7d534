//! Mount of the share by the guest, and the settings that took effect, as reported by kernel, QEMU and server, not as requested.

use super::Sharing;
use super::qemu_arguments::{SERVER, TAG, VERSION_EVENT};
use super::server::{EXPORT, MOUNT_PORT, NFS_PORT};
use crate::process::log::log_end;
use crate::vmm::qemu as own_qemu;
use procfs::process::{LimitValue, Process};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};
use vmtax_model::{ShareFacts, ShareMethod, Warning};
use vmtax_wire::{Mount, SHARE, SHARE_SERIAL};

/// The guest's own address in QEMU's user network.
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);

pub(crate) fn mount(sharing: &Sharing) -> Mount {
    let method = sharing.share.method;
    let (kind, source, options) = match method {
        ShareMethod::NineP => ("9p", TAG.to_owned(), nine_p(sharing)),
        ShareMethod::Virtiofs => ("virtiofs", TAG.to_owned(), String::new()),
        ShareMethod::Nfs3 => ("nfs", format!("{SERVER}:{EXPORT}"), nfs3(sharing)),
        ShareMethod::Nfs4 => ("nfs4", format!("{SERVER}:{EXPORT}"), nfs4(sharing)),
        // As the disk with a guest's own files has it.
        ShareMethod::Disk => ("ext4", SHARE_SERIAL.to_owned(), String::new()),
        ShareMethod::Erofs => ("erofs", SHARE_SERIAL.to_owned(), String::new()),
        ShareMethod::Squashfs => ("squashfs", SHARE_SERIAL.to_owned(), String::new()),
    };
    let network = matches!(method, ShareMethod::Nfs3 | ShareMethod::Nfs4).then_some((GUEST, MASK));
    Mount {
        method,
        kind: kind.to_owned(),
        source,
        options,
        read_only: sharing.read_only,
        network,
    }
}

/// For people, who mount it in guests of their own.
pub(super) fn command(mount: &Mount) -> String {
    let read_only = mount.read_only.then_some("ro").into_iter();
    let own = Some(mount.options.as_str()).filter(|options| !options.is_empty());
    let options: Vec<&str> = read_only.chain(own).collect();
    let options = match options[..] {
        [] => String::new(),
        _ => format!(" -o {}", options.join(",")),
    };
    let disk = match mount.method.is_image() {
        true => "/dev/disk/by-id/virtio-",
        false => "",
    };
    let Mount { kind, source, .. } = mount;
    format!("mount -t {kind}{options} {disk}{source} {SHARE}")
}

fn nine_p(sharing: &Sharing) -> String {
    with(
        sharing,
        "trans=virtio,version=9p2000.L".to_owned(),
        &["msize", "cache", "access"],
    )
}

/// Locks are the guest's own: the protocol for them is another, in which the server calls back.
fn nfs3(sharing: &Sharing) -> String {
    let mount = format!("mountaddr={SERVER},mountport={MOUNT_PORT},mountproto=tcp");
    nfs(
        sharing,
        format!("vers=3,addr={SERVER},port={NFS_PORT},proto=tcp,{mount},nolock,sec=sys"),
    )
}

/// Linux 6.12 reads by READ_PLUS in version 4.2, which nfs-ganesha 4.3 answers wrongly: the reads fail with EIO.
const NFS4_VERSION: &str = "4.1";

fn nfs4(sharing: &Sharing) -> String {
    let version = sharing.share.option("vers").unwrap_or(NFS4_VERSION);
    nfs(
        sharing,
        format!(
            "vers={version},addr={SERVER},clientaddr={GUEST},port={NFS_PORT},proto=tcp,sec=sys"
        ),
    )
}

fn nfs(sharing: &Sharing, base: String) -> String {
    let mut options = with(sharing, base, &["rsize", "wsize", "actimeo", "timeo"]);
    for key in ["noac", "nocto"] {
        if sharing.share.is_on(key) {
            options += &format!(",{key}");
        }
    }
    options
}

fn with(sharing: &Sharing, mut options: String, keys: &[&str]) -> String {
    for key in keys {
        if let Some(value) = sharing.share.option(key) {
            options += &format!(",{key}={value}");
        }
    }
    options
}

/// Time limit for QEMU's output to reach its log.
const LOG_TIMEOUT: Duration = Duration::from_secs(1);

/// From the guest's line of `/proc/mounts`, QEMU's and the server's arguments, the process that serves, and QEMU's log in
/// `log`; with what the reader should know.
pub(crate) fn effect(
    sharing: &Sharing,
    line: String,
    qemu: Vec<String>,
    server: Vec<String>,
    serving: Option<i32>,
    log: &Path,
) -> (ShareFacts, Vec<Warning>) {
    let method = sharing.share.method;
    let logs_version = qemu.iter().any(|argument| argument == VERSION_EVENT);
    let is_nine_p = method == ShareMethod::NineP;
    let msize = is_nine_p.then(|| msize(&line, log, logs_version)).flatten();
    let asked = sharing.share.option("msize");
    let asked = asked.and_then(|text| text.parse().ok());
    let warnings = match (asked, msize) {
        (Some(asked), Some(got)) if got < asked => vec![Warning::MsizeCapped { asked, got }],
        _ => Vec::new(),
    };
    let facts = ShareFacts {
        method,
        mount: line,
        mount_command: command(&mount(sharing)),
        msize,
        qemu,
        server,
        image: sharing.image.clone(),
        open_files: serving.and_then(open_files),
    };
    (facts, warnings)
}

/// The server's own answer to the client's wish; without QEMU's log the client's word, which is silent of its default.
fn msize(line: &str, log: &Path, is_logged: bool) -> Option<u64> {
    let timeout = if is_logged {
        LOG_TIMEOUT
    } else {
        Duration::ZERO
    };
    let deadline = Instant::now() + timeout;
    loop {
        let logs = [own_qemu::log(log), own_qemu::events(log)].map(|path| log_end(&path));
        let got = logs
            .iter()
            .find_map(|text| negotiated(&String::from_utf8_lossy(text)));
        if got.is_some() || Instant::now() >= deadline {
            return got.or_else(|| shown(line));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// "v9fs_version_return tag 65535 id 100 msize 131072 version 9P2000.L", the last one.
fn negotiated(log: &str) -> Option<u64> {
    let line = log
        .lines()
        .rev()
        .find(|line| line.contains(VERSION_EVENT))?;
    let mut words = line
        .split_whitespace()
        .skip_while(|word| *word != "msize")
        .skip(1);
    words.next()?.parse().ok()
}

fn shown(line: &str) -> Option<u64> {
    let options = line.split(' ').nth(3)?;
    options
        .split(',')
        .find_map(|option| option.strip_prefix("msize=")?.parse().ok())
}

/// The soft limit of a process.
fn open_files(pid: i32) -> Option<u64> {
    match Process::new(pid)
        .and_then(|process| process.limits())
        .ok()?
        .max_open_files
        .soft_limit
    {
        LimitValue::Value(limit) => Some(limit),
        LimitValue::Unlimited => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_negotiated_size_is_the_last_answer() {
        let log = "warning: 9p: degraded performance\nv9fs_version_return tag 65535 id 100 msize 8192 version 9P2000.L\n\
                   12@1.5:v9fs_version_return tag 65535 id 100 msize 512000 version 9P2000.L\n";
        assert_eq!(negotiated(log), Some(512_000));
        assert_eq!(negotiated("v9fs_version_return tag 1 msize many"), None);
        assert_eq!(negotiated(""), None);
        let line = "share /share 9p rw,relatime,access=client,msize=512000,trans=virtio 0 0";
        assert_eq!(shown(line), Some(512_000));
        assert_eq!(shown("share /share 9p rw,relatime"), None);
        assert_eq!(shown("nonsense"), None);
    }

    #[test]
    fn a_process_has_a_limit() {
        assert!(open_files(std::process::id() as i32).is_some_and(|n| n > 0));
        assert_eq!(open_files(-1), None);
    }
}
