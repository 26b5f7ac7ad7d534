use super::*;
use crate::testing::{module, put, tree};
use std::os::unix::fs::symlink;
use vmtax_model::SourceOfKernel;

fn kernel() -> KernelFacts {
    KernelFacts {
        image: "/k/vmlinuz".into(),
        modules: None,
        release: "6.1.0".into(),
        source: SourceOfKernel::Given,
    }
}

fn names(tree: &Tree, wanted: &[&str]) -> Vec<String> {
    tree.load_order(&kernel(), wanted)
        .unwrap()
        .into_iter()
        .map(|module| module.name)
        .collect()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

#[test]
fn dependencies_come_first_and_once() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path(), "6.1.0");
    let tree = Tree::open(dir.path()).unwrap();
    assert_eq!(
        names(&tree, &["virtio_blk", "virtio_pci"]),
        ["virtio", "virtio_ring", "virtio_blk", "virtio_pci"]
    );
}

#[test]
fn a_wish_is_met_by_all_that_carry_its_alias() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path(), "6.1.0");
    assert_eq!(
        names(&Tree::open(dir.path()).unwrap(), &["ext4"]),
        ["crc32c_generic", "crc32c_intel", "jbd2", "ext4"]
    );
}

#[test]
fn a_wish_that_nobody_meets_is_no_fault() {
    let dir = tempfile::tempdir().unwrap();
    put(
        &dir.path().join("a.ko"),
        &module(&["softdep=pre: nowhere", "depends="]),
    );
    put(&dir.path().join("modules.builtin"), b"");
    assert_eq!(names(&Tree::open(dir.path()).unwrap(), &["a"]), ["a"]);
}

#[test]
fn what_is_built_in_is_not_packed_and_what_is_neither_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    put(&dir.path().join("a.ko"), &module(&["depends=built-in"]));
    put(
        &dir.path().join("modules.builtin"),
        b"kernel/lib/built-in.ko\n",
    );
    assert_eq!(names(&Tree::open(dir.path()).unwrap(), &["a"]), ["a"]);

    put(
        &dir.path().join("modules.builtin"),
        b"kernel/lib/other.ko\n",
    );
    let error = Tree::open(dir.path())
        .unwrap()
        .load_order(&kernel(), &["a"])
        .err()
        .unwrap();
    assert!(
        matches!(&error, KernelError::NoModule { module, .. } if module == "built_in"),
        "{error}"
    );

    // Without the list nobody knows, so it is taken to be built in.
    fs::remove_file(dir.path().join("modules.builtin")).unwrap();
    assert_eq!(names(&Tree::open(dir.path()).unwrap(), &["a"]), ["a"]);
}

#[test]
fn cycles_and_links_do_not_loop() {
    let dir = tempfile::tempdir().unwrap();
    put(&dir.path().join("kernel/a.ko"), &module(&["depends=b"]));
    put(&dir.path().join("kernel/b.ko"), &module(&["depends=a"]));
    symlink("..", dir.path().join("kernel/up")).unwrap();
    symlink(dir.path(), dir.path().join("build")).unwrap();
    let linked = dir.path().join("link");
    symlink(dir.path(), &linked).unwrap();
    assert_eq!(names(&Tree::open(&linked).unwrap(), &["a"]), ["b", "a"]);
}

#[test]
fn every_compression_gives_the_same_module() {
    let plain = read(&fixture("plain.ko")).unwrap();
    assert_eq!(plain, fs::read(fixture("plain.ko")).unwrap());
    for name in ["lzma2.ko.xz", "bcj.ko.xz", "level19.ko.zst", "level9.ko.gz"] {
        assert!(read(&fixture(name)).unwrap() == plain, "{name}");
        assert_ne!(fs::read(fixture(name)).unwrap(), plain, "{name}");
    }
    assert_eq!(
        info(Path::new("plain.ko"), &plain).unwrap().depends,
        ["virtio", "virtio_ring"]
    );
}

#[test]
fn damaged_modules_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "plain.ko",
        "lzma2.ko.xz",
        "bcj.ko.xz",
        "level19.ko.zst",
        "level9.ko.gz",
    ] {
        let whole = fs::read(fixture(name)).unwrap();
        let path = dir.path().join(name);
        for cut in [0, 3, 40, whole.len() / 2] {
            put(&path, &whole[..cut]);
            let error = read(&path).and_then(|elf| info(&path, &elf)).unwrap_err();
            assert!(
                matches!(error, KernelError::BadModule { .. }),
                "{name} cut to {cut}: {error}"
            );
            assert!(
                error.to_string().starts_with(path.to_str().unwrap()),
                "{error}"
            );
        }
    }
    // A flipped bit in the compressed data is caught by the checksum.
    let mut bytes = fs::read(fixture("lzma2.ko.xz")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    put(&dir.path().join("flipped.ko.xz"), &bytes);
    assert!(read(&dir.path().join("flipped.ko.xz")).is_err());
}

#[test]
fn a_module_that_unpacks_to_too_much_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bomb.ko.gz");
    let mut packer =
        flate2::write::GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
    io::copy(&mut io::repeat(0).take(LARGEST_MODULE + 1), &mut packer).unwrap();
    packer.finish().unwrap();
    assert!(
        read(&path)
            .unwrap_err()
            .to_string()
            .contains("more than 64 MiB")
    );
}

#[test]
fn names_are_read_from_files() {
    assert_eq!(
        module_name("virtio-rng.ko.xz").as_deref(),
        Some("virtio_rng")
    );
    assert_eq!(module_name("ext4.ko.zst").as_deref(), Some("ext4"));
    assert_eq!(module_name("9p.ko").as_deref(), Some("9p"));
    for other in [".ko", "modules.dep", "ext4.ko.debug", "ext4.xz", ""] {
        assert_eq!(module_name(other), None, "{other}");
    }
}

#[test]
fn of_two_files_of_a_name_the_choice_is_fixed() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ('b'..='z').chain(['a']) {
        put(
            &dir.path().join(format!("{folder}/a.ko")),
            &module(&["depends="]),
        );
    }
    assert_eq!(
        Tree::open(dir.path()).unwrap().files["a"],
        dir.path().join("a/a.ko")
    );
}
