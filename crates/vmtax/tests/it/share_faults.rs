//! Faults of a shared tree: unavailable methods, servers that die, guests that damage it, limits.

use crate::common::{
    Place, Signal, binary, fast_guest, files_below, is_root, json, kernel, send, trials,
};
use crate::share::{
    CPU, LONG, SMALL_TREE, Variants, by_guest, fastest, plan, run, run_fast, served, trial,
};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

#[test]
fn a_guest_that_spoils_its_folder_does_not_spoil_the_next() {
    let place = Place::new();
    // While a guest is up, what its root could do is done to its tree.
    let workloads = "name = \"bonnie\"\noptions = { size = 0, files = 16 }\n[[workload]]\nname = \"cpu\"\noptions = { \
                     time = 4 }";
    let text = plan(SMALL_TREE, &[("9p", "share = \"9p\"")], workloads)
        .replace("rounds = 1", "rounds = 3");
    let words = format!("--json {}", fast_guest().1);
    let mut run = place
        .run(&words)
        .arg(place.put("plan.toml", text))
        .start(240);
    let mut tree_after = |trials: usize| {
        run.until("a trial's end", |place| {
            let run = fs::read_dir(place.runs()).ok()?.flatten().next()?.path();
            (place.trials() >= trials).then(|| run.join("scratch/tree"))
        })
    };
    let tree = tree_after(1);
    fs::rename(tree.join("scratch"), tree.join("gone")).unwrap();
    tree_after(3);
    fs::rename(tree.join("scratch"), tree.join("gone too")).unwrap();
    symlink("/", tree.join("scratch")).unwrap();
    let report = json(&run.outcome().exits(0).stdout);
    assert_eq!(
        trials(&report)
            .iter()
            .filter(|t| t["outcome"] == "done")
            .count(),
        6,
        "{report}"
    );
}

#[test]
fn what_a_run_writes_into_its_tree_is_seen_to_beforehand() {
    let place = Place::new();
    let nine_p = [("9p", "share = \"9p\"")];
    let refused = |workload: &str| run(&place, &plan(SMALL_TREE, &nine_p, workload)).exits(2);
    refused("name = \"bonnie\"\noptions = { size = \"1024T\" }")
        .says("MiB are free")
        .says("bonnie.size");
    refused("name = \"open-fids\"\noptions = { count = 1000000, how = \"held\" }")
        .says("--memory")
        .says("how=cached");
}

#[test]
fn too_few_open_files_are_told_and_the_trial_is_made() {
    let place = Place::new();
    let plan = plan(
        SMALL_TREE,
        &[("9p", "share = \"9p\"")],
        "name = \"open-fids\"\noptions = { count = 900, how = \"held\", samples = 10 }",
    );
    let plan = place.put("plan.toml", plan);
    let line = "ulimit -n 800; exec \"$0\" run --json --dir \"$@\"";
    let run = place.program("sh").arg("-c").arg(line).arg(binary());
    let report = json(
        &run.arg(place.runs())
            .arg(plan)
            .words(&fast_guest().1)
            .start(120)
            .outcome()
            .exits(0)
            .stdout,
    );
    let trial = trial(&report, "9p");
    let few = trial["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|w| w["warning"] == "few-open-files");
    let limit = few.map(|warning| &warning["limit"]);
    assert_eq!(
        (limit, &trial["share"]["open_files"]),
        (Some(&800.into()), &800.into()),
        "{trial}"
    );
}

#[test]
fn a_tree_that_cannot_be_shared_is_refused_with_a_fix() {
    let place = Place::new();
    let nine_p = [("9p", "share = \"9p\"")];
    run(&place, &plan("path = \"/no/such/folder\"", &nine_p, CPU))
        .exits(2)
        .says("/no/such/folder")
        .says("can read");
    run(&place, &plan("bytes = 1000000000000000", &nine_p, CPU))
        .exits(2)
        .says("MiB are free")
        .says("the plan's tree");
    let file = place.put("file", "");
    let tree = format!("path = \"{}\"", file.display());
    run(&place, &plan(&tree, &nine_p, CPU))
        .exits(2)
        .says("Not a directory");
    let without = plan("", &nine_p, CPU).replace("[tree]\n", "");
    run(&place, &without).exits(2).says("[tree]");
    run(&place, &plan("", &[("a", "share = \"smb\"")], CPU))
        .exits(2)
        .says("9p, virtiofs");
    run(
        &place,
        &plan("", &[("a", "share = \"9p\", \"share.mszie\" = \"1\"")], CPU),
    )
    .exits(2)
    .says("'mszie'")
    .says("msize");
    run(
        &place,
        &plan("", &[("a", "share = \"9p\", qemu = \"0.1.2\"")], CPU),
    )
    .exits(2)
    .says("0.1.2");
}

#[test]
fn a_way_that_cannot_be_had_is_named_and_the_rest_runs() {
    let place = Place::new();
    let failing = place.script("failing", "echo 'it broke' >&2; exit 3");
    let bad = format!(
        "share = \"virtiofs\", \"share.server\" = \"{}\"",
        failing.display()
    );
    let variants = [
        (
            "none",
            "share = \"virtiofs\", \"share.server\" = \"/no/virtiofsd\"",
        ),
        ("bad", bad.as_str()),
        ("v3", "share = \"nfs3\", \"share.server\" = \"/no/ganesha\""),
        ("tiny", "share = \"9p\", \"share.msize\" = \"1\""),
        ("9p", "share = \"9p\""),
    ];
    let report = json(
        &run_fast(&place, &plan(SMALL_TREE, &variants, CPU))
            .exits(2)
            .stdout,
    );
    let error = |name| {
        trial(&report, name)["error"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(error("none").contains("/no/virtiofsd"), "{}", error("none"));
    assert!(
        error("bad").contains("failing ended") && error("bad").contains("it broke"),
        "{}",
        error("bad")
    );
    assert!(error("bad").contains("exit status 3"), "{}", error("bad"));
    assert!(
        error("v3").contains(if is_root() {
            "/no/ganesha"
        } else {
            "needs root"
        }),
        "{}",
        error("v3")
    );
    assert!(
        error("tiny").contains("Invalid argument") && error("tiny").contains("msize=1"),
        "{}",
        error("tiny")
    );
    assert_eq!(trial(&report, "9p")["outcome"], "done");
}

#[test]
fn a_kernel_without_9p_is_named_and_the_rest_runs() {
    let place = Place::new();
    // The copy has what a guest takes in any case, and nothing for shares.
    let lame = kernel().copy(&place, &[]);
    let text = plan(
        SMALL_TREE,
        &[("9p", "share = \"9p\""), ("disk", "share = \"disk\"")],
        CPU,
    );
    let run = place
        .run("--json")
        .arg(place.put("plan.toml", text))
        .words(&lame.options());
    let report = json(&run.start(120).outcome().exits(2).stdout);
    let error = trial(&report, "9p")["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("9p") && error.contains(&lame.release),
        "{error}"
    );
    assert_eq!(trial(&report, "disk")["outcome"], "done");
}

fn is_server(command: &str) -> bool {
    !command.contains("watchdog")
        && !command.contains(" jail ")
        && (command.contains("virtiofsd") || command.contains("ganesha.nfsd"))
}

#[test]
#[ignore = "needs root"]
fn a_server_that_dies_costs_its_trials_and_no_others() {
    by_guest(&served()).into_iter().for_each(servers_die);
}

/// A run of these, in which each server that there is dies during the second trial of its guest.
fn servers_die(variants: Variants<'_>) {
    let place = Place::new();
    let workloads = format!("{}\n[[workload]]\n{}", CPU.replace("cpu", "memory"), LONG);
    let text = plan(SMALL_TREE, &variants, &workloads).replace("time = 60", "time = 4");
    let mut run = place
        .run(&format!("--json --seed 3 {}", fastest(variants[0].1)))
        .arg(place.put("plan.toml", text))
        .start(120);
    let with_server: Vec<_> = variants.iter().filter(|(name, _)| *name != "9p").collect();
    let mut killed = Vec::new();
    while killed.len() < with_server.len() {
        let server = run.until("a server at work", |place| {
            let is_new = |pid: &u32| !killed.contains(pid);
            let here = || {
                place
                    .processes()
                    .into_iter()
                    .filter(|p| is_server(&p.command))
                    .map(|p| p.pid)
                    .find(is_new)
            };
            let is_asked = |path: &PathBuf| {
                path.ends_with("trial.json")
                    && fs::read_to_string(path)
                        .is_ok_and(|t| t.contains("\"memory\"") && !t.contains("\"9p\""))
            };
            let asked = files_below(&place.runs())
                .into_iter()
                .filter(is_asked)
                .count();
            (asked > killed.len()).then(here).flatten()
        });
        send(server, Signal::KILL);
        killed.push(server);
    }
    let report = json(&run.outcome().exits(2).stdout);
    assert_eq!(
        trials(&report)
            .iter()
            .filter(|trial| trial["outcome"] == "done")
            .count(),
        2 * variants.len() - killed.len(),
        "{report}"
    );
    for (name, _) in with_server {
        let failed = |trial: &&Value| trial["variant"] == *name && trial["outcome"] == "failed";
        let failed: Vec<&Value> = trials(&report).iter().filter(failed).collect();
        let error = failed[0]["error"].as_str().unwrap();
        assert!(
            failed.len() == 1 && error.contains("ended while running cpu"),
            "{error}"
        );
        assert!(error.contains("server.log"), "{error}");
    }
}

#[test]
fn a_killed_controller_takes_its_server_along() {
    for (name, set) in served() {
        let place = Place::new();
        let workloads = format!("{}\n[[workload]]\n{}", CPU.replace("cpu", "memory"), LONG);
        let text = plan(SMALL_TREE, &[(name, set)], &workloads);
        let run = place
            .run(&fastest(set))
            .arg(place.put("plan.toml", text))
            .start(120)
            .until_trials(1);
        let servers = place
            .processes()
            .iter()
            .filter(|p| is_server(&p.command))
            .count();
        assert_eq!(servers > 0, name != "9p", "{name}");
        run.signal(Signal::KILL);
        assert_eq!(run.outcome().status, None);
        place.nothing_is_left();
    }
}

#[test]
#[ignore = "needs root"]
fn nfs_without_what_it_needs_of_the_host_is_named_and_the_rest_runs() {
    let ways = [
        ("nfs3", "share = \"nfs3\""),
        ("nfs4", "share = \"nfs4\""),
        ("9p", "share = \"9p\""),
    ];
    let hide = |what: &str, guest: &str| {
        let place = Place::new();
        let plan = place.put("plan.toml", plan(SMALL_TREE, &ways, CPU));
        // Among mounts that only this run sees.
        let line = format!(
            "for f in {what}; do mount --bind /dev/null $f; done; exec \"$0\" run --json --dir \"$@\""
        );
        let run = place
            .program("unshare")
            .words("-m sh -c")
            .arg(line)
            .arg(binary());
        json(
            &run.arg(place.runs())
                .arg(plan)
                .words(guest)
                .start(120)
                .outcome()
                .exits(2)
                .stdout,
        )
    };
    let report = hide("$(command -v rpcbind)", "");
    let error = |report: &_, name| {
        trial(report, name)["error"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(error(&report, "nfs3").contains("needs rpcbind"), "{report}");
    assert_eq!(
        [
            trial(&report, "nfs4")["outcome"].as_str(),
            trial(&report, "9p")["outcome"].as_str()
        ],
        [Some("done"); 2]
    );
    let report = hide("/dev/loop*", &fast_guest().1);
    for name in ["nfs3", "nfs4"] {
        let error = error(&report, name);
        assert!(
            error.contains("loop device") && error.contains("the server's root directory"),
            "{error}"
        );
    }
    assert_eq!(trial(&report, "9p")["outcome"], "done");
}
