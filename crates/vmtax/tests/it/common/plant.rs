//! A QEMU and a guest with a known delay at one place of a request's way; passt, of this host or beside it.

use super::{Place, fake_qemu, qemu, skipped};
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use vmtax_wire::DISK_SERIAL;

/// Duration of a planted delay, ms.
pub const DELAY_MS: u64 = 30;
/// Distance between requests that the limit of the guest's block layer allows, and time for which the guest's hog
/// takes the CPU, ms.
pub const LIMIT_MS: u64 = 100;

/// Name and content of the header that both of the guests' programs include.
const TEXT: (&str, &str) = ("text.h", include_str!("../planted/text.h"));

/// A QEMU that knows the disk's property `x-planted`: see `planted/shim.c` and `planted/guest.c` for its values. The
/// second is what `starve` asks for a CPU: it has to live as long as QEMU runs.
pub fn planting_qemu(place: &Place) -> (PathBuf, Hog) {
    let shim = compiled(
        place,
        "shim",
        include_str!("../planted/shim.c"),
        &["-shared", "-fPIC"],
    );
    place.put(TEXT.0, TEXT.1);
    let guest = compiled(
        place,
        "guest",
        include_str!("../planted/guest.c"),
        &["-static"],
    );
    let archive = place.put(
        "planted.cpio",
        archive("planted", &fs::read(guest).unwrap()),
    );
    // Where QEMU's user writes.
    let whole = place.put("planted.cpio.initramfs", "");
    fs::set_permissions(&whole, fs::Permissions::from_mode(0o666)).unwrap();
    let asked = place.path("hog.socket");
    let hog = Hog::started(
        &compiled(place, "hog", include_str!("../planted/hog.c"), &[]),
        &asked,
    );
    let set = |name: &str, value: &Path| format!("{name}='{}'\n", value.display());
    let means = [
        set("QEMU", qemu()),
        set("SHIM", &shim),
        set("HOG", &asked),
        set("ARCHIVE", &archive),
        set("DISK", DISK_SERIAL.as_ref()),
    ];
    (
        place.script(
            "planting-qemu",
            &(means.concat() + include_str!("../planted/qemu.sh")),
        ),
        hog,
    )
}

/// A QEMU whose reads of this many bytes take so much longer, and whose boots differ: all reads of every other boot take
/// `boot_ns` more. See `planted/read_delay.c`.
pub fn read_delaying_qemu(place: &Place, bytes: u64, delay_ns: u64, boot_ns: u64) -> PathBuf {
    let shim = compiled(
        place,
        "read_delay",
        include_str!("../planted/read_delay.c"),
        &["-shared", "-fPIC"],
    );
    // Where QEMU's user writes.
    let boots = place.put("boots", "0\n");
    fs::set_permissions(&boots, fs::Permissions::from_mode(0o666)).unwrap();
    let script = format!(
        "case \"$*\" in *-blockdev*) ;; *) exec {qemu} \"$@\" ;; esac\n\
         read -r boot <{boots}\necho $((boot + 1)) >{boots}\n\
         export PLANTED_BYTES={bytes} PLANTED_NS={delay_ns} PLANTED_BOOT_NS=$((boot % 2 * {boot_ns})) LD_PRELOAD={shim}\n\
         exec {qemu} \"$@\"",
        qemu = qemu().display(),
        boots = boots.display(),
        shim = shim.display()
    );
    place.script("read-delaying-qemu", &script)
}

/// Planted delay of a packet that has to be found, ns.
pub const PACKET_DELAY_NS: f64 = 200_000.0;
/// Accepted growth of the median of the packet's row due to the delay, ns, in one round on a host that may be busy.
pub const PLANTED_NS: Range<f64> = 0.9 * PACKET_DELAY_NS..1.5 * PACKET_DELAY_NS;
/// Largest change of the medians of other rows due to a busy host, ns.
pub const ELSEWHERE_NS: f64 = PACKET_DELAY_NS / 4.0;

/// A QEMU whose writes of packets to its backend are late by so much: see `planted/net_shim.c`.
pub fn packet_delaying_qemu(place: &Place, delay_ns: u64) -> PathBuf {
    with_shim(
        place,
        &packet_delay(place, &[&format!("-DDELAY_NS={delay_ns}")]),
    )
}

/// A QEMU that has KVM deliver its devices' interrupts late by so much.
pub fn interrupt_delaying_qemu(place: &Place, delay_ns: u64) -> PathBuf {
    with_shim(
        place,
        &packet_delay(
            place,
            &["-DDELAY_NS=0", &format!("-DINTERRUPT_NS={delay_ns}")],
        ),
    )
}

fn with_shim(place: &Place, shim: &Path) -> PathBuf {
    fake_qemu(
        place,
        &format!(
            "export LD_PRELOAD={}\nexec {} \"$@\"",
            shim.display(),
            qemu().display()
        ),
    )
}

/// A PATH with a passt that sends datagrams late by so much.
pub fn path_with_delaying_passt(place: &Place, passt: &Path, delay_ns: u64) -> String {
    let shim = packet_delay(place, &[&format!("-DDELAY_NS={delay_ns}")]);
    place.script(
        "bin/passt",
        &format!(
            "export LD_PRELOAD={}\nexec {} \"$@\"",
            shim.display(),
            passt.display()
        ),
    );
    format!(
        "{}:{}",
        place.path("bin").display(),
        std::env::var("PATH").unwrap()
    )
}

fn packet_delay(place: &Place, delays: &[&str]) -> PathBuf {
    let how = [&["-shared", "-fPIC"], delays].concat();
    compiled(
        place,
        "net_shim",
        include_str!("../planted/net_shim.c"),
        &how,
    )
}

/// `planted/hog.c`, which ends with this value or this process.
pub struct Hog(Child);

impl Hog {
    fn started(program: &Path, asked: &Path) -> Hog {
        let mut hog = Command::new(program)
            .arg(asked)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(hog.stdout.take().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert_eq!(said, "ready\n", "this user may not take a CPU");
        Hog(hog)
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// A QEMU whose guests try to get out of the tree that they share: see `planted/escape.c`. `outside` is a folder that
/// they aim at.
pub fn escaping_qemu(place: &Place, outside: &Path) -> PathBuf {
    let headers = [
        TEXT,
        ("virtio.h", include_str!("../planted/virtio.h")),
        ("raw_9p.h", include_str!("../planted/raw_9p.h")),
        ("raw_fuse.h", include_str!("../planted/raw_fuse.h")),
    ];
    for (name, text) in headers {
        place.put(name, text);
    }
    let guest = compiled(
        place,
        "escape",
        include_str!("../planted/escape.c"),
        &["-static"],
    );
    let archive = place.put("escape.cpio", archive("escape", &fs::read(guest).unwrap()));
    // Where a QEMU that serves files may write: beside the archive of its guest, or where everyone may.
    let open = place.put("escape.whole", "");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o666)).unwrap();
    let (archive, open, outside) = (archive.display(), open.display(), outside.display());
    fake_qemu(
        place,
        &format!(
            "before=; for word; do shift; case $before in\n-initrd) whole=\"$word.whole\"; \
             touch \"$whole\" 2>/dev/null || whole={open}; cat {archive} \"$word\" >\"$whole\"; word=\"$whole\" ;;\n-append) word=\"$word rdinit=/escape PLANTED_OUTSIDE={outside}\" ;;\nesac\n\
             before=$word; set -- \"$@\" \"$word\"; done\nexec {} \"$@\"",
            qemu().display()
        ),
    )
}

/// A program whose functions have known shares of its time: see `planted/known.c`.
pub fn known_program(place: &Place, name: &str) -> PathBuf {
    compiled(
        place,
        name,
        include_str!("../planted/known.c"),
        &["-fomit-frame-pointer", "-pthread"],
    )
}

/// A plan of one observed trial of `count` requests; `more` is what else it says.
pub fn layers_plan(place: &Place, count: u64, more: &str) -> PathBuf {
    let text = format!(
        "rounds = 1\nmachines = ['tcg']\nprobes = ['layers']\n{more}\n[[workload]]\nname = 'disk'\n\
         options = {{ count = {count}, time = 0 }}\n"
    );
    place.put("plan.toml", text)
}

pub fn compiled(place: &Place, name: &str, source: &str, how: &[&str]) -> PathBuf {
    let (source, out) = (place.put(&format!("{name}.c"), source), place.path(name));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&out)
        .arg(&source);
    if !how.iter().any(|option| option.starts_with("-DDELAY_NS")) {
        cc.args([
            format!("-DDELAY_NS={DELAY_MS}000000"),
            format!("-DLIMIT_NS={LIMIT_MS}000000"),
        ]);
    }
    cc.args(how);
    let done = cc.output().expect(
        "these tests plant delays in C: install a compiler with `apt-get install gcc libc6-dev`",
    );
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    out
}

/// A cpio archive ("newc") of one program.
fn archive(name: &str, program: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, mode, content) in [(name, 0o100_755, program), ("TRAILER!!!", 0, &[])] {
        let fields = [
            1,
            mode,
            0,
            0,
            1,
            0,
            content.len(),
            0,
            0,
            0,
            0,
            name.len() + 1,
            0,
        ];
        archive.extend(b"070701");
        archive.extend(
            fields
                .iter()
                .flat_map(|field| format!("{field:08X}").into_bytes()),
        );
        archive.extend(name.bytes());
        archive.push(0);
        archive.resize(archive.len().next_multiple_of(4), 0);
        archive.extend(content);
        archive.resize(archive.len().next_multiple_of(4), 0);
    }
    archive
}

/// The passt of this host; without one the test is listed as skipped.
pub fn passt() -> Option<PathBuf> {
    let found = ["/usr/bin/passt", "/usr/local/bin/passt"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.exists());
    if found.is_none() {
        skipped("passt is not installed: `apt-get install passt`");
    }
    found
}

/// One that is a vhost-user back end, of this host or what `scripts/setup test` unpacked, with a `PATH` on which it is found;
/// without one the test is listed as skipped.
pub fn passt_with_vhost_user() -> Option<(PathBuf, String)> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/passt/bin/passt");
    let all = [
        "/usr/bin/passt".into(),
        "/usr/local/bin/passt".into(),
        unpacked,
    ];
    let found = all
        .into_iter()
        .find(|path| vmtax_host::passt_has_vhost_user(path));
    if found.is_none() {
        skipped("no passt with vhost-user: `scripts/setup test` brings one to Debian");
    }
    found.map(|passt| {
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", passt.parent().unwrap().display());
        (passt, path)
    })
}
