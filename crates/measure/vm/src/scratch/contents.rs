//! Contents of a scratch folder: images of the measured disk in the formats of a plan's variants, made by qemu-img; and the tree that
//! is shared, unless that is a folder of the user's.

use super::{DISK_MIB, DiskKind, Scratch};
use crate::MachineError;
use crate::process::remove::{enter, remove};
use rustix::fs::CWD;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vmtax_host::{ask_command, find_program};
use vmtax_model::{Qcow2Settings, Tree, parse_size};

/// Before the options of `qemu-img create -o`, as settings of a disk: `image.cluster_size`.
pub const IMAGE: &str = "image.";
/// The guest's disk, bytes, where it is larger than the written data: the rest is allocated, and read as zeros.
const SIZE: &str = "image.size";
/// Size of an image without its data, the L2 tables and the refcounts, MiB.
const HEADER_MIB: u64 = 4;
/// A large image's tables take time; its data are not written.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Returns the settings that distinguish images: the format and the options of creation; `None` for raw data as they
/// are.
fn making(settings: &BTreeMap<String, String>) -> Option<BTreeMap<&str, &str>> {
    let format = settings.get("format").filter(|format| *format != "raw")?;
    let options = settings.iter().filter(|(key, _)| key.starts_with(IMAGE));
    let options = options.map(|(key, value)| (key.as_str(), value.as_str()));
    Some(options.chain([("format", format.as_str())]).collect())
}

/// MiB that the images of these disks take besides the written data.
pub fn images_mib<'a>(disks: impl Iterator<Item = &'a BTreeMap<String, String>>) -> u64 {
    let all: BTreeSet<BTreeMap<&str, &str>> = disks.filter_map(making).collect();
    all.iter().map(|making| DISK_MIB + tables_mib(making)).sum()
}

/// MiB that the tables of an image take at most: an entry and a refcount for each cluster (`docs/interop/qcow2.txt` of QEMU).
fn tables_mib(making: &BTreeMap<&str, &str>) -> u64 {
    let number = |key: &str, default: u64| {
        making
            .get(key)
            .and_then(|text| parse_size(text))
            .unwrap_or(default)
    };
    let size = number(SIZE, DISK_MIB << 20).max(DISK_MIB << 20);
    let image = Qcow2Settings::made(size, |option| {
        making.get(format!("{IMAGE}{option}").as_str()).copied()
    });
    let refcount = number("image.refcount_bits", 16).div_ceil(8);
    // Tables are clusters of their own, and refcounted, too.
    let bytes = (size / image.cluster_size)
        .saturating_mul(image.entry_size + refcount)
        .saturating_mul(9)
        / 8;
    HEADER_MIB + bytes.div_ceil(1 << 20)
}

impl Scratch {
    /// The file behind the measured disk with these settings, which is there once [`Scratch::make_image`] has made it.
    pub fn image(&self, settings: &BTreeMap<String, String>) -> Option<PathBuf> {
        let disk = self.disk()?;
        let Some(making) = making(settings) else {
            return Some(disk);
        };
        let name: String = making
            .iter()
            .map(|(key, value)| format!("-{}-{value}", key.trim_start_matches(IMAGE)))
            .collect();
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        Some(self.folder().join(format!("disk{name}.image")))
    }

    /// Makes the image of a disk with these settings, unless its data are raw or it exists.
    ///
    /// # Errors
    /// [`MachineError::Image`] without qemu-img, or with what it said.
    pub fn make_image(&self, settings: &BTreeMap<String, String>) -> Result<(), MachineError> {
        let (Some(disk), Some(image), Some(making)) =
            (self.disk(), self.image(settings), making(settings))
        else {
            return Ok(());
        };
        if image.exists() && self.needs.disk == Some(DiskKind::Data) {
            return Ok(());
        }
        let partial = image.with_extension("partial");
        let options: Vec<String> = making
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(IMAGE)?, value)))
            .filter(|(key, _)| *key != "size")
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let mut words = vec!["convert", "-q", "-f", "raw", "-O", making["format"]];
        let options = options.join(",");
        if !options.is_empty() {
            words.extend(["-o", &options]);
        }
        qemu_img(&words, &[&disk, &partial])?;
        if let Some(size) = settings.get(SIZE) {
            // Its tables are there, as in an image that a guest has filled.
            qemu_img(
                &[
                    "resize",
                    "-q",
                    "-f",
                    making["format"],
                    "--preallocation=metadata",
                ],
                &[&partial, Path::new(size)],
            )?;
        }
        fs::rename(&partial, &image)
            .map_err(|e| MachineError::system(format!("making {}", image.display()), e))
    }
}

fn qemu_img(words: &[&str], files: &[&Path]) -> Result<(), MachineError> {
    let failed = |said: String| MachineError::Image {
        words: words.join(" "),
        said,
    };
    let program =
        find_program("qemu-img").ok_or_else(|| failed("it is not installed".to_owned()))?;
    let mut command = Command::new(program);
    command.args(words).args(files);
    match ask_command(command, TIMEOUT) {
        Ok(Some(answer)) if answer.success => Ok(()),
        Ok(Some(answer)) => Err(failed(answer.text.trim().to_owned())),
        Ok(None) => Err(failed(format!(
            "it did not end within {} s",
            TIMEOUT.as_secs()
        ))),
        Err(e) => Err(failed(e.to_string())),
    }
}

/// Below it guests write.
const WRITABLE: &str = "scratch";
/// A file takes its inode and at least a page.
const BYTES_OF_FILE: u64 = 4096;

/// Room that a tree of the run's own takes: bytes and inodes.
pub(crate) fn room_of_tree(tree: &Tree) -> (u64, u64) {
    let small = tree.files.saturating_mul(BYTES_OF_FILE);
    (
        small.saturating_add(tree.large()),
        tree.files
            .saturating_add(tree.files / Tree::PER_FOLDER)
            .saturating_add(16),
    )
}

/// Bytes and files that the plan's tree takes on a disk.
///
/// # Errors
/// [`MachineError::NoTree`] for a folder of the user's that cannot be read, with everything below it.
pub fn tree_room(tree: &Tree) -> Result<(u64, u64), MachineError> {
    match &tree.path {
        None => Ok(room_of_tree(tree)),
        Some(path) => {
            measure(path).map_err(|(folder, source)| MachineError::NoTree { folder, source })
        }
    }
}

/// Returns the bytes and files of an existing tree, links not followed.
fn measure(root: &Path) -> Result<(u64, u64), (PathBuf, std::io::Error)> {
    let (mut bytes, mut files, mut folders) = (0_u64, 0_u64, vec![root.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        let failed = |e| (folder.clone(), e);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let metadata = entry.metadata().map_err(failed)?;
            files += 1;
            bytes = bytes.saturating_add(metadata.len().next_multiple_of(BYTES_OF_FILE));
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok((bytes, files))
}

/// Makes the tree at `root`: `small/DDD/FFFF`, `large`, and `scratch/` to write in.
pub(crate) fn make_tree(tree: &Tree, root: &Path) -> std::io::Result<()> {
    fs::create_dir_all(root.join("small"))?;
    fs::create_dir(root.join(WRITABLE))?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut content = vec![0; Tree::SMALL as usize];
    for number in 0..tree.files {
        let folder = root.join(format!("small/{:03}", number / Tree::PER_FOLDER));
        if number % Tree::PER_FOLDER == 0 {
            fs::create_dir(&folder)?;
        }
        text(&mut random, &mut content);
        fs::write(
            folder.join(format!("{:04}", number % Tree::PER_FOLDER)),
            &content,
        )?;
    }
    let mut large = File::create(root.join("large"))?;
    let mut block = vec![0; 1 << 20];
    text(&mut random, &mut block);
    let mut left = tree.large();
    while left > 0 {
        // No two blocks alike, or a file system that looks for that would store one.
        text(&mut random, &mut block[..4096]);
        let length = left.min(block.len() as u64) as usize;
        large.write_all(&block[..length])?;
        left -= length as u64;
    }
    large.sync_all()
}

/// Text of 64 letters: it compresses to three quarters, as nothing random does and no source text as badly.
fn text(random: &mut fastrand::Rng, bytes: &mut [u8]) {
    random.fill(bytes);
    for byte in bytes {
        *byte = b'0' + (*byte & 63);
    }
}

/// Gives the next guest an empty folder to write in, whatever the last one made of it: removed, a file or a link, closed,
/// full of what will not go. The old one is moved to `beside` first, and removed there as far as it can be.
pub(crate) fn clear_tree(root: &Path, beside: &Path) -> Result<(), MachineError> {
    let (folder, aside) = (
        root.join(WRITABLE),
        beside.join(format!("left-{:016x}", fastrand::u64(..))),
    );
    let cleared = || {
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
        match fs::symlink_metadata(&folder) {
            Ok(found) => {
                if found.is_dir() {
                    enter(CWD, &folder)?;
                }
                fs::rename(&folder, &aside)?;
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        fs::create_dir(&folder)
    };
    cleared().map_err(|source| MachineError::NotCleared {
        folder: folder.clone(),
        source,
    })?;
    // What stays is in nobody's way, and tried again at the end of the run.
    let _ = remove(&aside);
    Ok(())
}

/// Checks that a directory of the user's can be shared at all.
pub(crate) fn check_tree(folder: &Path) -> Result<(), MachineError> {
    match fs::read_dir(folder) {
        Ok(_) => Ok(()),
        Err(source) => Err(MachineError::NoTree {
            folder: folder.to_path_buf(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_making_an_image_takes_room_once() {
        let set = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let all = [
            set(&[("cache", "none")]),
            set(&[("format", "raw")]),
            set(&[("format", "qcow2")]),
            set(&[("format", "qcow2"), ("l2-cache-size", "1M")]),
            set(&[("format", "qcow2"), ("image.cluster_size", "4096")]),
        ];
        assert_eq!(images_mib(all.iter()), 2 * DISK_MIB + 5 + 5);
    }

    #[test]
    fn the_tables_of_small_clusters_have_room() {
        let Some(program) = find_program("qemu-img") else {
            return;
        };
        for options in [
            "cluster_size=512",
            "cluster_size=4096,refcount_bits=64",
            "extended_l2=on,cluster_size=16k",
        ] {
            let pairs = options
                .split(',')
                .filter_map(|option| option.split_once('='));
            let mut settings: BTreeMap<String, String> = pairs
                .map(|(key, value)| (format!("image.{key}"), value.to_uppercase()))
                .collect();
            settings.extend([
                ("format".to_owned(), "qcow2".to_owned()),
                (SIZE.to_owned(), (1_u64 << 30).to_string()),
            ]);
            settings
                .entry("image.extended_l2".to_owned())
                .and_modify(|on| *on = "on".to_owned());
            let words = [
                "measure", "--output", "json", "-O", "qcow2", "--size", "1G", "-o",
            ];
            let output = Command::new(&program)
                .args(words)
                .arg(options)
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let full = text.split("fully-allocated\":").nth(1).unwrap();
            let full: u64 = full
                .chars()
                .filter(|c| !c.is_whitespace())
                .take_while(char::is_ascii_digit)
                .collect::<String>()
                .parse()
                .unwrap();
            let tables = full - (1 << 30);
            let room = (images_mib([&settings].into_iter()) - DISK_MIB) << 20;
            assert!(
                room >= tables && room < tables * 2 + (8 << 20),
                "{options}: {tables} {room}"
            );
        }
    }

    #[test]
    fn the_tree_is_as_large_as_asked_and_its_room_suffices() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree {
            files: 250,
            bytes: 3_000_000,
            path: None,
        };
        let root = folder.path().join("tree");
        make_tree(&tree, &root).unwrap();
        assert_eq!(fs::read_dir(root.join("small")).unwrap().count(), 3);
        assert_eq!(fs::read_dir(root.join("small/002")).unwrap().count(), 50);
        assert_eq!(
            fs::metadata(root.join("small/002/0049")).unwrap().len(),
            Tree::SMALL
        );
        assert_eq!(
            fs::metadata(root.join("large")).unwrap().len(),
            3_000_000 - 250 * Tree::SMALL
        );
        let (bytes, inodes) = room_of_tree(&tree);
        assert!(bytes > 3_000_000 && inodes > 253);
    }

    #[test]
    fn whatever_a_guest_made_of_its_folder_the_next_has_an_empty_one() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("tree");
        make_tree(
            &Tree {
                files: 0,
                bytes: 0,
                path: None,
            },
            &root,
        )
        .unwrap();
        let folder = root.join(WRITABLE);
        let close =
            |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        let spoils: [&dyn Fn(); 5] = [
            &|| fs::write(folder.join("left"), "").unwrap(),
            &|| fs::remove_dir(&folder).unwrap(),
            &|| {
                fs::remove_dir(&folder).unwrap();
                std::os::unix::fs::symlink("/", &folder).unwrap();
            },
            &|| {
                fs::remove_dir(&folder).unwrap();
                fs::write(&folder, "").unwrap();
            },
            &|| {
                fs::create_dir(folder.join("closed")).unwrap();
                fs::write(folder.join("closed/file"), "").unwrap();
                [folder.join("closed"), folder.clone(), root.clone()]
                    .iter()
                    .for_each(|path| close(path));
            },
        ];
        for spoil in spoils {
            spoil();
            clear_tree(&root, place.path()).unwrap();
            assert!(fs::symlink_metadata(&folder).unwrap().is_dir());
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
            assert_eq!(
                fs::read_dir(place.path()).unwrap().count(),
                1,
                "something stayed beside the tree"
            );
        }
    }

    #[test]
    fn a_folder_that_is_none_is_named() {
        let error = check_tree(Path::new("/no/such/folder"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/no/such/folder"), "{error}");
    }
}
