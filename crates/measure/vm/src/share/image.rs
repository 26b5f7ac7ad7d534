//! Images made from the tree, for guests that are given a disk.

use crate::MachineError;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use vmtax_model::{ImageFacts, Share, ShareMethod, shell_line};

/// Room to write in on a disk that can be written: taken only when it is.
const SPARE: u64 = 1 << 30;
const INODES_SPARE: u64 = 65_536;

/// MiB that an image of a tree of so many bytes and files takes at most, spare room aside.
pub fn image_mib(method: ShareMethod, bytes: u64, files: u64) -> u64 {
    let structures = match method {
        // Inode tables and the journal.
        ShareMethod::Disk => (files.saturating_add(INODES_SPARE))
            .saturating_mul(256)
            .saturating_add(96 << 20),
        _ => files.saturating_mul(64).saturating_add(1 << 20),
    };
    bytes
        .saturating_add(bytes / 10)
        .saturating_add(structures)
        .div_ceil(1 << 20)
}

/// Makes the image `out` of the tree `tree`, which has so many bytes and files, by `program`.
///
/// # Errors
/// [`MachineError::NoShare`] with what the program said.
pub fn make_image(
    share: &Share,
    program: &Path,
    tree: &Path,
    bytes: u64,
    files: u64,
    out: &Path,
) -> Result<ImageFacts, MachineError> {
    let began = Instant::now();
    let (from, to) = (tree.display().to_string(), out.display().to_string());
    let mut words = vec![program.display().to_string()];
    let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    match share.method {
        ShareMethod::Disk => {
            let mib = image_mib(share.method, bytes, files);
            let size = (mib << 20) + SPARE;
            let file = File::create(out).and_then(|file| file.set_len(size));
            file.map_err(|e| MachineError::system(format!("creating {to}"), e))?;
            let inodes = files
                .saturating_add(INODES_SPARE)
                .max(size / 16_384)
                .to_string();
            // Not lazily: the guest's kernel must not go on formatting while it is measured.
            add(&[
                "-q",
                "-F",
                "-E",
                "lazy_itable_init=0,lazy_journal_init=0",
                "-N",
                &inodes,
                "-d",
                &from,
                &to,
            ]);
        }
        ShareMethod::Erofs => {
            if let Some(algorithm) = share.option("compress") {
                add(&[&format!("-z{algorithm}")]);
            }
            add(&[&to, &from]);
        }
        _ => {
            add(&[&from, &to, "-noappend", "-no-progress", "-quiet"]);
            match share.option("compress") {
                Some("none") => add(&["-noI", "-noD", "-noF", "-noX"]),
                Some(algorithm) => add(&["-comp", algorithm]),
                None => {}
            }
        }
    }
    let run = Command::new(program)
        .args(&words[1..])
        .stdin(Stdio::null())
        .output();
    let failed = |said: &str| {
        MachineError::NoShare(format!(
            "share={}: {} failed: {}",
            share.method,
            shell_line(&words),
            said.trim()
        ))
    };
    let output = run.map_err(|e| failed(&e.to_string()))?;
    if !output.status.success() {
        return Err(failed(&String::from_utf8_lossy(&output.stderr)));
    }
    // A disk that is still on its way to the host's would be measured while it goes.
    let synced = File::open(out).and_then(|file| file.sync_all().and_then(|()| file.metadata()));
    let made = synced.map_err(|e| failed(&e.to_string()))?;
    Ok(ImageFacts {
        command: words,
        seconds: began.elapsed().as_secs_f64(),
        bytes: made.len(),
    })
}

/// A copy of an image for one machine to write to, holes as holes.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), MachineError> {
    let failed =
        |e| MachineError::system(format!("copying {} to {}", from.display(), to.display()), e);
    let run = Command::new("cp")
        .args([
            "--sparse=always",
            "--reflink=auto",
            "--remove-destination",
            "--",
        ])
        .args([from, to])
        .output();
    let output = run.map_err(failed)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(failed(std::io::Error::other(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )))
    }
}
