//! Images of the measured disk in the formats of a plan's variants, made by qemu-img.

use super::{DISK_MIB, DiskKind, Scratch};
use crate::MachineError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use vmtax_host::{ask_command, find_program};
use vmtax_model::{Qcow2Settings, parse_size};

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
}
