//! A tree shared with real guests, each way that this machine has; what goes wrong with one, and what is left of it.

use crate::common::{Outcome, Place, Signal, is_root, json, kernel, send, trials};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A plan of one round under TCG: a tree, the variants (name and settings), the workload with its options.
fn plan(tree: &str, variants: &[(&str, &str)], workload: &str) -> String {
    let mut text = format!("rounds = 1\nmachines = [\"tcg\"]\ndeadline-s = 100\n[tree]\n{tree}\n");
    for (name, set) in variants {
        text += &format!("[[variant]]\nname = \"{name}\"\nset = {{ {set} }}\n");
    }
    text + "[[workload]]\n" + workload + "\n"
}

fn run(place: &Place, plan: &str) -> Outcome {
    place.run("--json").arg(place.put("plan.toml", plan)).start(240).outcome()
}

/// The only trial of a variant.
fn trial<'a>(report: &'a Value, variant: &str) -> &'a Value {
    trials(report).iter().find(|t| t["variant"] == variant).unwrap_or_else(|| panic!("no {variant} in {report}"))
}

const SMALL_TREE: &str = "files = 120\nbytes = 1000000";
const CPU: &str = "name = \"cpu\"\noptions = { time = 0.05 }";
/// Long enough to be disturbed.
const LONG: &str = "name = \"cpu\"\noptions = { time = 60 }";

/// The methods that serve the tree itself; those with a server only root has in full.
fn served() -> Vec<(&'static str, &'static str)> {
    let mut all = vec![("9p", "share = \"9p\"")];
    if is_root() {
        all.push(("virtiofs", "share = \"virtiofs\", \"share.cache\" = \"never\""));
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
        ("squashfs", "share = \"squashfs\", \"share.compress\" = \"gzip\""),
    ]);
    let outcome = run(&place, &plan(SMALL_TREE, &variants, "name = \"tree\"")).exits(0);
    let report = json(&outcome.stdout);
    for (name, _) in &variants {
        let trial = trial(&report, name);
        assert_eq!(trial["outcome"], "done", "{trial}");
        let share = &trial["share"];
        assert_eq!(share["method"], *name);
        let mount = share["mount"].as_str().unwrap();
        let kind = if *name == "disk" { "ext4" } else { name };
        assert!(mount.contains(&format!(" /share {kind} ")), "{mount}");
        assert!(trial["processor"]["guest"].as_f64().unwrap() > 0.0, "{trial}");
        let server = matches!(*name, "virtiofs" | "nfs4");
        assert_eq!(trial["processor"]["server"].is_number(), server, "{trial}");
        assert_eq!(share["server"].is_array(), server, "{share}");
        let image = matches!(*name, "disk" | "erofs" | "squashfs");
        assert_eq!(share["image"]["seconds"].as_f64().is_some_and(|s| s > 0.0), image, "{share}");
        // Every file is there: as many reads as files, at least.
        let counts =
            trial["result"]["operations"].as_array().unwrap().iter().filter_map(|o| o["summary"]["count"].as_u64());
        assert!(counts.max().unwrap() >= 121, "{trial}");
    }
    assert_eq!(trial(&report, "9p")["share"]["msize"], 131_072, "as negotiated, though the mount line has it not");
    if is_root() {
        let mount = trial(&report, "nfs4")["share"]["mount"].as_str().unwrap();
        assert!(mount.contains("rsize=65536"), "{mount}");
    }
}

#[test]
fn a_message_size_that_was_capped_is_said_and_switches_reach_the_mount() {
    let place = Place::new();
    let set = "share = \"9p\", \"share.msize\" = \"8388608\", \"share.cache\" = \"loose\", \
               \"share.security-model\" = \"mapped-xattr\", \"share.multidevs\" = \"remap\"";
    let report = json(&run(&place, &plan(SMALL_TREE, &[("big", set)], CPU)).exits(0).stdout);
    let trial = trial(&report, "big");
    let got = trial["share"]["msize"].as_u64().unwrap();
    assert!((131_072..8_388_608).contains(&got), "{got}");
    assert_eq!(trial["warnings"][0]["warning"], "msize-capped", "{trial}");
    assert_eq!(trial["warnings"][0]["got"], got);
    assert!(trial["share"]["mount"].as_str().unwrap().contains("loose"), "{trial}");
    let words = trial["share"]["qemu"].to_string();
    assert!(words.contains("security_model=mapped-xattr") && words.contains("multidevs=remap"), "{words}");
}

/// A folder of the user's, with links that lead out of it.
fn users_tree(place: &Place) -> std::path::PathBuf {
    place.put("secret", "nobody's business");
    place.put("theirs/small/file", "content");
    fs::create_dir(place.path("theirs/scratch")).unwrap();
    symlink("../secret", place.path("theirs/small/up")).unwrap();
    symlink(place.path("secret"), place.path("theirs/small/out")).unwrap();
    symlink("/", place.path("theirs/small/root")).unwrap();
    place.path("theirs")
}

/// Names, kinds, lengths and times of everything below.
fn state(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let m = entry.metadata().unwrap();
        all.push(format!("{:?} {:?} {} {:?}", entry.path(), m.file_type(), m.len(), m.modified().unwrap()));
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
    let machines = |text: String| text.replace("[\"tcg\"]", "[\"native\", \"tcg\"]");
    let wants_to_write = machines(plan(&tree, &served(), "name = \"bonnie\"\noptions = { files = 16 }"));
    let report = json(&run(&place, &wants_to_write).exits(0).stdout);
    for trial in trials(&report) {
        let result = &trial["result"];
        assert!(result["measures"].as_array().is_some_and(Vec::is_empty), "it wrote: {trial}");
        assert_eq!(result["unsupported"][0]["reason"], "the share may only be read", "{trial}");
    }
    assert_eq!(state(&folder), before);
    assert_eq!(fs::read_to_string(place.path("secret")).unwrap(), "nobody's business");
    // Links out of it are the guest's own to follow, so a walk that follows none gets through.
    fs::remove_dir_all(place.runs()).unwrap();
    let report = json(&run(&place, &plan(&tree, &served(), "name = \"tree\"")).exits(0).stdout);
    assert_eq!(trials(&report).len(), served().len());
    assert_eq!(state(&folder), before);
}

#[test]
fn whoever_serves_a_folder_of_the_users_cannot_write_to_it() {
    let place = Place::new();
    let folder = place.path("theirs");
    fs::create_dir(&folder).unwrap();
    let serve = |option: &str| {
        // The lifeline is descriptor 3, and stays open for a second.
        let (vmtax, dir) = (env!("CARGO_BIN_EXE_vmtax"), folder.display());
        let line = format!("sleep 1 | {vmtax} watchdog {option} -- touch {dir}/new 3<&0");
        place.program("sh").arg("-c").arg(line).outcome()
    };
    serve(&format!("--read-only {}", folder.display())).says("Read-only file system");
    assert!(!folder.join("new").exists());
    serve("").exits(0);
    assert!(folder.join("new").exists());
}

#[test]
fn a_tree_that_cannot_be_shared_is_refused_with_a_mend() {
    let place = Place::new();
    let nine_p = [("9p", "share = \"9p\"")];
    run(&place, &plan("path = \"/no/such/folder\"", &nine_p, CPU)).exits(2).says("/no/such/folder").says("may read");
    run(&place, &plan("bytes = 1000000000000000", &nine_p, CPU)).exits(2).says("MiB free").says("tree smaller");
    let file = place.put("file", "");
    let tree = format!("path = \"{}\"", file.display());
    run(&place, &plan(&tree, &nine_p, CPU)).exits(2).says("Not a directory");
    let without = plan("", &nine_p, CPU).replace("[tree]\n", "");
    run(&place, &without).exits(2).says("[tree]");
    run(&place, &plan("", &[("a", "share = \"smb\"")], CPU)).exits(2).says("9p, virtiofs");
    run(&place, &plan("", &[("a", "share = \"9p\", \"share.mszie\" = \"1\"")], CPU))
        .exits(2)
        .says("'mszie'")
        .says("msize");
    run(&place, &plan("", &[("a", "share = \"9p\", qemu = \"0.1.2\"")], CPU)).exits(2).says("0.1.2");
}

#[test]
fn a_way_that_cannot_be_had_is_named_and_the_rest_runs() {
    let place = Place::new();
    let failing = place.script("failing", "echo 'it broke' >&2; exit 3");
    let bad = format!("share = \"virtiofs\", \"share.server\" = \"{}\"", failing.display());
    let variants = [
        ("none", "share = \"virtiofs\", \"share.server\" = \"/no/virtiofsd\""),
        ("bad", bad.as_str()),
        ("v3", "share = \"nfs3\""),
        ("tiny", "share = \"9p\", \"share.msize\" = \"1\""),
        ("9p", "share = \"9p\""),
    ];
    let report = json(&run(&place, &plan(SMALL_TREE, &variants, CPU)).exits(2).stdout);
    let error = |name| trial(&report, name)["error"].as_str().unwrap_or_default().to_owned();
    assert!(error("none").contains("/no/virtiofsd"), "{}", error("none"));
    assert!(error("bad").contains("failing ended") && error("bad").contains("it broke"), "{}", error("bad"));
    assert!(error("bad").contains("exit status 3"), "{}", error("bad"));
    assert!(error("v3").contains("nfs4"), "{}", error("v3"));
    assert!(error("tiny").contains("Invalid argument") && error("tiny").contains("msize=1"), "{}", error("tiny"));
    assert_eq!(trial(&report, "9p")["outcome"], "done");
}

#[test]
fn a_kernel_without_9p_is_named_and_the_rest_runs() {
    let place = Place::new();
    // The copy has what a guest takes in any case, and nothing for shares.
    let lame = kernel().copy(&place, &[]);
    let text = plan(SMALL_TREE, &[("9p", "share = \"9p\""), ("disk", "share = \"disk\"")], CPU);
    let run = place.run("--json").arg(place.put("plan.toml", text)).words(&lame.options());
    let report = json(&run.start(120).outcome().exits(2).stdout);
    let error = trial(&report, "9p")["error"].as_str().unwrap().to_owned();
    assert!(error.contains("9p") && error.contains(&lame.release), "{error}");
    assert_eq!(trial(&report, "disk")["outcome"], "done");
}

fn is_server(command: &str) -> bool {
    !command.contains("watchdog") && (command.contains("virtiofsd") || command.contains("ganesha.nfsd"))
}

#[test]
fn a_server_that_dies_costs_its_trials_and_no_others() {
    if !is_root() {
        return;
    }
    for (name, set) in &served()[1..] {
        let place = Place::new();
        let workloads = format!("{}\n[[workload]]\n{}", CPU.replace("cpu", "memory"), LONG);
        let variants = [(*name, *set), ("9p", "share = \"9p\"")];
        let text = plan(SMALL_TREE, &variants, &workloads).replace("time = 60", "time = 8");
        let mut run = place.run("--json --seed 3").arg(place.put("plan.toml", text)).start(120);
        let server = run.until("a server at work", |place| {
            let here = || place.processes().into_iter().find(|p| is_server(&p.command)).map(|p| p.pid);
            let asked = crate::common::files_below(&place.runs()).into_iter().any(|p| {
                p.ends_with("trial.json") && fs::read_to_string(&p).is_ok_and(|t| t.contains(&format!("\"{name}\"")))
            });
            asked.then(here).flatten()
        });
        send(server, Signal::KILL);
        let report = json(&run.outcome().exits(2).stdout);
        let ends: Vec<(&str, &str)> =
            trials(&report).iter().map(|t| (t["variant"].as_str().unwrap(), t["outcome"].as_str().unwrap())).collect();
        assert_eq!(ends.iter().filter(|(_, end)| *end == "failed").count(), 1, "{ends:?}");
        let failed = trials(&report).iter().find(|t| t["outcome"] == "failed").unwrap();
        let error = failed["error"].as_str().unwrap();
        assert!(error.contains("ended while running cpu") && error.contains("server.log"), "{error}");
        assert_eq!(failed["variant"], *name);
    }
}

#[test]
fn a_killed_controller_takes_its_server_along() {
    for (name, set) in served() {
        let place = Place::new();
        let workloads = format!("{}\n[[workload]]\n{}", CPU.replace("cpu", "memory"), LONG);
        let text = plan(SMALL_TREE, &[(name, set)], &workloads);
        let run = place.run("").arg(place.put("plan.toml", text)).start(120).until_trials(1);
        let servers = place.processes().iter().filter(|p| is_server(&p.command)).count();
        assert_eq!(servers > 0, name != "9p", "{name}");
        run.signal(Signal::KILL);
        assert_eq!(run.outcome().status, None);
        place.nothing_is_left();
    }
}
