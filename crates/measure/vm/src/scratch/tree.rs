//! The tree that is shared: made in the run's scratch folder, or a folder of the user's.

use crate::MachineError;
use crate::process::remove::{enter, remove};
use rustix::fs::CWD;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use vmtax_model::Tree;

/// Below it guests write.
const WRITABLE: &str = "scratch";
/// A file takes its inode and at least a page.
const BYTES_OF_FILE: u64 = 4096;

/// Room that a tree of the run's own takes: bytes and inodes.
pub(crate) fn room(tree: &Tree) -> (u64, u64) {
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
        None => Ok(room(tree)),
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
pub(crate) fn make(tree: &Tree, root: &Path) -> std::io::Result<()> {
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
pub(crate) fn clear(root: &Path, beside: &Path) -> Result<(), MachineError> {
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
pub(crate) fn check(folder: &Path) -> Result<(), MachineError> {
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
    fn the_tree_is_as_large_as_asked_and_its_room_suffices() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree {
            files: 250,
            bytes: 3_000_000,
            path: None,
        };
        let root = folder.path().join("tree");
        make(&tree, &root).unwrap();
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
        let (bytes, inodes) = room(&tree);
        assert!(bytes > 3_000_000 && inodes > 253);
    }

    #[test]
    fn whatever_a_guest_made_of_its_folder_the_next_has_an_empty_one() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("tree");
        make(
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
            clear(&root, place.path()).unwrap();
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
        let error = check(Path::new("/no/such/folder")).unwrap_err().to_string();
        assert!(error.contains("/no/such/folder"), "{error}");
    }
}
