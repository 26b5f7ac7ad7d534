//! A tree shared with real guests, each way that this machine has, for root and for an ordinary user.

use crate::common::{Outcome, Place, binary, fast_guest, is_root, json, kernel, trials};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A plan of one round under TCG: a tree, the variants (name and settings), the workload with its options.
pub fn plan(tree: &str, variants: &[(&str, &str)], workload: &str) -> String {
    let mut text = format!("rounds = 1\nmachines = [\"tcg\"]\ntimeout-s = 100\n[tree]\n{tree}\n");
    for (name, set) in variants {
        text += &format!("[[variant]]\nname = \"{name}\"\nset = {{ {set} }}\n");
    }
    text + "[[workload]]\n" + workload + "\n"
}

pub fn run(place: &Place, plan: &str) -> Outcome {
    place
        .run("--json")
        .arg(place.put("plan.toml", plan))
        .start(240)
        .outcome()
}

/// Runs the plan in the [`fast_guest`] in place of its machines.
pub fn run_fast(place: &Place, plan: &str) -> Outcome {
    place
        .run(&format!("--json {}", fast_guest().1))
        .arg(place.put("plan.toml", plan))
        .start(240)
        .outcome()
}

/// The words for the fastest guest that can mount it: kernels for some hosts' KVM have only what guests need most.
pub fn fastest(set: &str) -> String {
    if is_rare(set) {
        "--machine tcg".to_owned()
    } else {
        fast_guest().1
    }
}

fn is_rare(set: &str) -> bool {
    ["nfs", "erofs", "squashfs"]
        .iter()
        .any(|way| set.contains(way))
}

/// Variants, names with settings.
pub type Variants<'a> = Vec<(&'a str, &'a str)>;

/// The variants by their [`fastest`] guest.
pub fn by_guest<'a>(variants: &[(&'a str, &'a str)]) -> Vec<Variants<'a>> {
    let (rare, usual): (Variants<'a>, Variants<'a>) =
        variants.iter().partition(|(_, set)| is_rare(set));
    let both = [rare, usual].into_iter();
    both.filter(|of| !of.is_empty()).collect()
}

/// Runs the plan of these variants with these words, those for which it will do in the [`fast_guest`]. Gives the reports, with the
/// names of their variants.
fn run_each_fastest<'a>(
    place: &Place,
    words: &str,
    tree: &str,
    variants: &[(&'a str, &'a str)],
    workload: &str,
) -> Vec<(Vec<&'a str>, Value)> {
    let run = |variants: Variants<'a>| {
        let plan = place.put("plan.toml", plan(tree, &variants, workload));
        let words = format!("--json {words} {}", fastest(variants[0].1));
        let outcome = place.run(&words).arg(plan).start(240).outcome();
        let names = variants.iter().map(|(name, _)| *name);
        (names.collect(), json(&outcome.exits(0).stdout))
    };
    by_guest(variants).into_iter().map(run).collect()
}

/// The only trial of a variant.
pub fn trial<'a>(report: &'a Value, variant: &str) -> &'a Value {
    trials(report)
        .iter()
        .find(|t| t["variant"] == variant)
        .unwrap_or_else(|| panic!("no {variant} in {report}"))
}

pub const SMALL_TREE: &str = "files = 120\nbytes = 1000000";
pub const CPU: &str = "name = \"cpu\"\noptions = { time = 0.05 }";
/// Long enough to be disturbed.
pub const LONG: &str = "name = \"cpu\"\noptions = { time = 60 }";

/// The methods that serve the tree itself; those with a server only root has in full.
pub fn served() -> Vec<(&'static str, &'static str)> {
    let mut all = vec![("9p", "share = \"9p\"")];
    if is_root() {
        all.push((
            "virtiofs",
            "share = \"virtiofs\", \"share.cache\" = \"never\"",
        ));
        all.push(("nfs3", "share = \"nfs3\", \"share.wsize\" = \"32768\""));
        all.push(("nfs4", "share = \"nfs4\", \"share.rsize\" = \"65536\""));
    }
    all
}

#[test]
fn each_way_gives_the_guest_the_same_tree() {
    let place = Place::new();
    let mut variants = served();
    variants.extend([
        ("disk", "share = \"disk\", \"share.aio\" = \"threads\""),
        ("erofs", "share = \"erofs\""),
        (
            "squashfs",
            "share = \"squashfs\", \"share.compress\" = \"gzip\"",
        ),
    ]);
    let reports = run_each_fastest(&place, "", SMALL_TREE, &variants, "name = \"tree\"");
    let trial = |name: &str| {
        let report = reports.iter().find(|(of, _)| of.contains(&name));
        trial(&report.unwrap().1, name)
    };
    for (name, _) in &variants {
        let trial = trial(name);
        assert_eq!(trial["outcome"], "done", "{trial}");
        let share = &trial["share"];
        assert_eq!(share["method"], *name);
        let mount = share["mount"].as_str().unwrap();
        let kind = match *name {
            "disk" => "ext4",
            "nfs3" => "nfs",
            name => name,
        };
        assert!(mount.contains(&format!(" /share {kind} ")), "{mount}");
        assert!(
            trial["cpu_seconds"]["guest"].as_f64().unwrap() > 0.0,
            "{trial}"
        );
        let server = matches!(*name, "virtiofs" | "nfs3" | "nfs4");
        assert_eq!(
            trial["cpu_seconds"]["server"].is_number(),
            server,
            "{trial}"
        );
        assert_eq!(share["server"].is_array(), server, "{share}");
        let image = matches!(*name, "disk" | "erofs" | "squashfs");
        assert_eq!(
            share["image"]["seconds"].as_f64().is_some_and(|s| s > 0.0),
            image,
            "{share}"
        );
        // Every file is there: as many reads as files, at least.
        let counts = trial["result"]["operations"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|o| o["summary"]["count"].as_u64());
        assert!(counts.max().unwrap() >= 121, "{trial}");
    }
    // As negotiated, though the mount line has it not: 128 KiB, to which newer kernels add a header.
    let msize = trial("9p")["share"]["msize"].as_u64().unwrap();
    assert!([131_072, 131_096].contains(&msize), "{msize}");
    if is_root() {
        let mount = |name| trial(name)["share"]["mount"].as_str().unwrap().to_owned();
        assert!(
            mount("nfs4").contains("rsize=65536") && mount("nfs4").contains("vers=4.1"),
            "{}",
            mount("nfs4")
        );
        assert!(
            mount("nfs3").contains("wsize=32768") && mount("nfs3").contains("vers=3"),
            "{}",
            mount("nfs3")
        );
    }
}

#[test]
fn a_message_size_that_was_capped_is_said_and_switches_reach_the_mount() {
    let place = Place::new();
    let set = "share = \"9p\", \"share.msize\" = \"8388608\", \"share.cache\" = \"loose\", \
               \"share.security-model\" = \"mapped-xattr\", \"share.multidevs\" = \"remap\"";
    let report = json(
        &run(&place, &plan(SMALL_TREE, &[("big", set)], CPU))
            .exits(0)
            .stdout,
    );
    let trial = trial(&report, "big");
    let got = trial["share"]["msize"].as_u64().unwrap();
    assert!((131_072..8_388_608).contains(&got), "{got}");
    assert_eq!(trial["warnings"][0]["warning"], "msize-capped", "{trial}");
    assert_eq!(trial["warnings"][0]["got"], got);
    assert!(
        trial["share"]["mount"].as_str().unwrap().contains("loose"),
        "{trial}"
    );
    let words = trial["share"]["qemu"].to_string();
    assert!(
        words.contains("security_model=mapped-xattr") && words.contains("multidevs=remap"),
        "{words}"
    );
}

/// A folder of the user's, with a comma and a blank in its name and links that lead out of it.
fn users_tree(place: &Place) -> std::path::PathBuf {
    place.put("secret", "nobody's business");
    let folder = place.path("a,b c");
    place.put("a,b c/small/file", "content");
    fs::create_dir(folder.join("scratch")).unwrap();
    symlink("../secret", folder.join("small/up")).unwrap();
    symlink(place.path("secret"), folder.join("small/out")).unwrap();
    symlink("/", folder.join("small/root")).unwrap();
    folder
}

/// Names, kinds, lengths and times of everything below.
fn state(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let m = entry.metadata().unwrap();
        all.push(format!(
            "{:?} {:?} {} {:?}",
            entry.path(),
            m.file_type(),
            m.len(),
            m.modified().unwrap()
        ));
        if m.is_dir() {
            all.extend(state(&entry.path()));
        }
    }
    all.sort();
    all
}

#[test]
fn a_folder_of_the_users_is_read_and_never_written() {
    let place = Place::new();
    let folder = users_tree(&place);
    let tree = format!("path = \"{}\"", folder.display());
    let before = state(&folder);
    // Links out of it are the guest's own to follow, so a walk that follows none gets through.
    let workloads = "name = \"bonnie\"\noptions = { files = 16 }\n[[workload]]\nname = \"tree\"";
    let reports = run_each_fastest(&place, "--machine native", &tree, &served(), workloads);
    let trials_of = |workload| {
        let trials = reports.iter().flat_map(|(_, report)| trials(report));
        trials.filter(move |trial| trial["workload"]["name"] == workload)
    };
    for trial in trials_of("bonnie") {
        let result = &trial["result"];
        assert!(
            result["measures"].as_array().is_some_and(Vec::is_empty),
            "it wrote: {trial}"
        );
        assert_eq!(
            result["unsupported"][0]["reason"], "the share is read-only",
            "{trial}"
        );
    }
    assert_eq!(
        trials_of("tree")
            .filter(|trial| trial["machine"] != "native")
            .count(),
        served().len()
    );
    trials_of("tree").for_each(has_one_file);
    assert_eq!(state(&folder), before);
    assert_eq!(
        fs::read_to_string(place.path("secret")).unwrap(),
        "nobody's business"
    );
    let disk = plan(
        &tree,
        &[("disk", "share = \"disk\", \"share.aio\" = \"threads\"")],
        "name = \"tree\"",
    );
    trials(&json(&run_fast(&place, &disk).exits(0).stdout))
        .iter()
        .for_each(has_one_file);
}

fn has_one_file(trial: &Value) {
    let operations = trial["result"]["operations"].as_array().unwrap();
    assert!(
        operations
            .iter()
            .any(|o| o["summary"]["count"].as_u64() == Some(1)),
        "{trial}"
    );
}

/// Beginnings of the names of the kernel modules that shares need.
const SHARES: [&str; 12] = [
    "9p",
    "net",
    "failover",
    "fscache",
    "fuse",
    "virtiofs",
    "erofs",
    "nfs",
    "sunrpc",
    "grace",
    "lockd",
    "dns_resolver",
];

#[test]
fn an_ordinary_user_has_the_ways_that_need_no_root_and_the_rest_are_named() {
    let place = Place::new();
    let kernel = kernel().copy_with(&place, &SHARES, &[]);

    place.put("theirs/small/file", "content");
    let ways = [
        ("9p", "share = \"9p\""),
        ("virtiofs", "share = \"virtiofs\""),
        ("nfs3", "share = \"nfs3\""),
        ("nfs4", "share = \"nfs4\""),
        ("disk", "share = \"disk\""),
        ("erofs", "share = \"erofs\""),
    ];
    for tree in [
        SMALL_TREE.to_owned(),
        format!("path = \"{}\"", place.path("theirs").display()),
    ] {
        let text =
            plan(&tree, &ways, "name = \"tree\"").replace("[\"tcg\"]", "[\"native\", \"tcg\"]");
        let run = place
            .vmtax_as_ordinary_user("run --json --dir")
            .arg(place.runs())
            .arg(place.put("plan.toml", text));
        let run = run.words(&kernel.options()).env("HOME", place.path("home"));
        let report = json(&run.start(240).outcome().exits(2).stdout);
        for trial in trials(&report) {
            let (name, failed) = (
                &trial["variant"],
                trial["error"].as_str().unwrap_or_default(),
            );
            if name.as_str().is_some_and(|name| name.starts_with("nfs")) {
                assert!(failed.contains("needs root"), "{trial}");
            } else if failed.contains("supplementary groups") {
                // QEMU's own virtiofsd, of a user who is a member of some; who runs as nobody is not.
                assert!(
                    name == "virtiofs" && !is_root() && failed.contains("share.server"),
                    "{trial}"
                );
            } else {
                assert_eq!(trial["outcome"], "done", "{trial}");
            }
        }
    }
}

#[test]
fn whoever_serves_a_folder_of_the_users_cannot_write_to_it() {
    let place = Place::new();
    let folder = place.path("theirs");
    fs::create_dir(&folder).unwrap();
    let serve = |namespaces: serde_json::Value| {
        // The lifeline is descriptor 3, and stays open for a second.
        let (vmtax, dir) = (binary(), folder.display());
        let settings = serde_json::json!({ "namespaces": namespaces });
        let line = format!("sleep 1 | {vmtax} watchdog '{settings}' -- touch {dir}/new 3<&0");
        place.program("sh").arg("-c").arg(line).outcome()
    };
    serve(serde_json::json!({ "read_only": folder })).shows("Read-only file system");
    assert!(!folder.join("new").exists());
    serve(serde_json::json!({})).exits(0);
    assert!(folder.join("new").exists());
}

#[test]
#[ignore = "needs root"]
fn a_device_that_a_guest_made_on_a_share_is_not_opened() {
    let place = Place::new();
    let (tree, vmtax) = (place.path("tree"), binary());
    fs::create_dir(&tree).unwrap();
    place
        .program("mknod")
        .arg(tree.join("device"))
        .words("c 1 3")
        .succeeds();
    let open = |settings: &str| {
        let line = format!(
            "sleep 1 | {vmtax} watchdog '{settings}' -- sh -c 'echo > {}/device' 3<&0",
            tree.display()
        );
        place.program("sh").arg("-c").arg(line).outcome()
    };
    open("{}").exits(0);
    open(&format!(
        r#"{{"namespaces":{{"no_devices":["{}"]}}}}"#,
        tree.display()
    ))
    .shows("Permission denied");
}

#[test]
#[ignore = "needs root"]
fn a_root_that_is_no_mount_point_is_named_with_its_fix() {
    let place = Place::new();
    fs::create_dir_all(place.path("root/tree")).unwrap();
    fs::copy(binary(), place.path("root/vmtax")).unwrap();
    for namespace in [r#""no_devices":["/tree"]"#, r#""read_only":"/tree""#] {
        let settings = format!(r#"{{"namespaces":{{{namespace}}}}}"#);
        let line =
            format!("sleep 1 | chroot root /vmtax watchdog '{settings}' -- /vmtax --version 3<&0");
        place
            .program("sh")
            .arg("-c")
            .arg(line)
            .outcome()
            .exits(2)
            .says("mount --bind DIR DIR");
    }
}

#[test]
#[ignore = "needs root"]
fn what_is_mounted_in_a_folder_of_the_users_cannot_be_written_to_either() {
    let place = Place::new();
    // So that it can be run by others too.
    place.vmtax_as_ordinary_user("--version").succeeds();
    fs::create_dir(place.path("theirs")).unwrap();
    for user in ["", "setpriv --reuid=65534 --regid=65534 --clear-groups --"] {
        let line = format!(
            "mount -t tmpfs -o nosuid,mode=777 none theirs && mkdir -m 777 'theirs/a b' && mount -t tmpfs -o nodev,mode=777 \
             none 'theirs/a b' && cd 'theirs/a b' && sleep 2 | {user} {vmtax} watchdog '{{\"namespaces\":{{\"read_only\":\"{theirs}\"}}}}' -- sh -c \"touch \
             {theirs}/new; touch '{theirs}/a b/new'; touch here\" 3<&0",
            vmtax = place.path("vmtax").display(),
            theirs = place.path("theirs").display(),
        );
        let said = place
            .program("unshare")
            .words("-m sh -c")
            .arg(line)
            .outcome()
            .stdout;
        assert_eq!(
            said.matches("Read-only file system").count(),
            3,
            "{user}: {said}"
        );
    }
}

/// The guest notifies the controller of its batches of requests, which counts the CPU time of QEMU's main thread in them.
#[test]
fn requests_that_qemu_serves_have_its_cpu_time() {
    let place = Place::new();
    let workload = "name = \"open-fids\"\noptions = { count = 60, samples = 20 }";
    let (guest, words) = fast_guest();
    let text = plan(SMALL_TREE, &[("9p", "share = \"9p\"")], workload);
    let run = place
        .run(&format!("--json --machine native {words}"))
        .arg(place.put("plan.toml", text));
    let report = json(&run.start(240).outcome().exits(0).stdout);
    let measured = |machine: &str| {
        let trial = trials(&report)
            .iter()
            .find(|trial| trial["machine"] == machine)
            .unwrap();
        assert_eq!(trial["outcome"], "done", "{trial}");
        let measures = trial["result"]["measures"].as_array().unwrap();
        measures
            .iter()
            .any(|measure| measure["metric"] == "open-fids.stat_cpu")
    };
    assert_eq!(
        [measured("native"), measured(guest)],
        [false, true],
        "{report}"
    );
}

/// `vmtax share` with these words on a host without these programs: among mounts that only this run sees.
fn share_without(place: &Place, programs: &[&str], words: &str) -> Outcome {
    let hidden = programs
        .iter()
        .map(|name| format!("$(command -v {name})"))
        .collect::<Vec<_>>()
        .join(" ");
    let line = format!(
        "for f in {hidden}; do mount --bind /dev/null $f; done; exec \"$0\" share --dir \"$@\""
    );
    let run = place
        .program("unshare")
        .words("-m sh -c")
        .arg(line)
        .arg(binary())
        .arg(place.runs());
    run.env(
        "PATH",
        format!(
            "{}:/usr/lib/qemu:/usr/libexec",
            std::env::var("PATH").unwrap()
        ),
    )
    .words(words)
    .start(240)
    .outcome()
}

#[test]
#[ignore = "needs root"]
fn what_the_host_lacks_is_left_out_with_its_package_and_the_rest_is_measured() {
    let place = Place::new();
    let words = format!(
        "--quick --rounds 1 --files 20 --bytes 1M {}",
        fast_guest().1
    );
    let mut outcome =
        share_without(&place, &["ganesha.nfsd", "mkfs.erofs", "virtiofsd"], &words).exits(0);
    for (method, program, package, arch) in [
        (
            "nfs4",
            "ganesha.nfsd",
            "nfs-ganesha nfs-ganesha-vfs",
            "nfs-ganesha",
        ),
        ("erofs", "mkfs.erofs", "erofs-utils", "erofs-utils"),
    ] {
        let said = format!(
            "{method}: share={method} needs {program}, which is not installed. → `apt-get install {package}` (Fedora: `dnf install {package}`; Arch: `pacman -S {arch}`)"
        );
        assert!(
            outcome.stderr.contains(&format!("Not measured: {said}")),
            "{outcome}"
        );
        outcome = outcome.shows("Not measured").shows(package);
    }
    assert!(!outcome.to_string().contains("failed to boot"), "{outcome}");
    let recording = place.recording();
    let report = json(
        &place
            .vmtax("report --json")
            .arg(&recording)
            .succeeds()
            .stdout,
    );
    let mut measured: Vec<&str> = trials(&report)
        .iter()
        .filter_map(|trial| trial["variant"].as_str())
        .collect();
    measured.sort_unstable();
    measured.dedup();
    measured.retain(|name| !name.is_empty());
    assert_eq!(
        measured,
        ["9p", "9p,msize=512000,cache=loose", "disk"],
        "{report}"
    );
    assert!(
        trials(&report)
            .iter()
            .all(|trial| trial["outcome"] == "done"),
        "{report}"
    );
    assert!(!report.to_string().contains("msize-capped"), "{report}");
}

#[test]
#[ignore = "needs root"]
fn a_named_method_that_the_host_lacks_ends_the_command_before_anything_runs() {
    let place = Place::new();
    let outcome = share_without(&place, &["ganesha.nfsd"], "9p nfs4").exits(2);
    outcome
        .says("nfs4 cannot be measured on this host: share=nfs4 needs ganesha.nfsd")
        .says("nfs-ganesha-vfs");
    assert!(!place.runs().exists(), "nothing is recorded");
}
