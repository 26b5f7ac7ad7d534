//! `vmtax compare` as people use it: planted differences are found, and what cannot be told is not said.

use crate::common::{
    Place, Signal, fast_guest, files_below, json, read_delaying_qemu, skipped, trials,
};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The micro-guest reads for milliseconds, and comes up in less.
const QUICK: &str = "--machine micro-tcg --seed 3 --repeats 1";
const READS: &str = "-- disk disk.count=40 disk.time=0";
/// Of the bare host, in a second.
pub const RUN: &str = "--machine native --rounds 6 cpu cpu.max-prime=2000 cpu.time=0.02";
const THP: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

fn compare<'a>(place: &'a Place, words: &str) -> crate::common::Start<'a> {
    place
        .vmtax("compare")
        .arg("--dir")
        .arg(place.runs())
        .words(words)
}

fn row<'a>(report: &'a Value, metric: &str) -> &'a Value {
    let rows = report["findings"]["against"][0]["rows"].as_array().unwrap();
    rows.iter()
        .find(|r| r["metric"] == metric)
        .unwrap_or_else(|| panic!("{metric}: {rows:?}"))
}

#[test]
fn a_planted_slowdown_is_found_and_ends_the_comparison() {
    let place = Place::new();
    // 100 requests a second: ten milliseconds each, if QEMU's throttle is to be believed.
    let words = format!("default throttling.iops-total=100 {QUICK} {READS}");
    let shown = compare(&place, &words).start(200).outcome().exits(0);
    shown
        .shows("times as high")
        .shows("every result is conclusive");
    let recording = place.recording();
    let report = json(
        &place
            .vmtax("report --json")
            .arg(&recording)
            .succeeds()
            .stdout,
    );
    let slow = row(&report, "disk.latency-p50");
    assert_eq!(slow["verdict"], "slower", "{slow}");
    assert!(slow["other"]["median"].as_f64().unwrap() > 5e6, "{slow}");
    let rounds = report["findings"]["rounds"].as_u64().unwrap();
    assert!((8..40).contains(&rounds), "{rounds}");
    // Both sides in each round, and the host's control beside each.
    assert_eq!(trials(&report).len() as u64, rounds * 2);
    assert!(
        trials(&report)
            .iter()
            .all(|t| t["control_s"].as_f64().is_some_and(|s| s > 0.0))
    );
    let page = fs::read_to_string(recording.join("report.html")).unwrap();
    assert!(
        page.contains("row slower")
            && page.trim_end().ends_with("</html>")
            && !page.contains("://")
    );
    let narrow = place.vmtax("report").arg(&recording).succeeds().stdout;
    assert!(narrow.contains("vs. baseline default"), "{narrow}");
}

/// Boots differ by more than what is planted: within a boot it is found, from boot to boot it is not.
#[test]
fn variants_that_differ_in_the_workload_take_turns_in_one_boot() {
    let measured = |how: &str| {
        let place = Place::new();
        let qemu = read_delaying_qemu(&place, 8192, 4_000_000, 6_000_000);
        let words = format!(
            "bs=4K bs=8K --qemu {} --rounds 11 --min-effect 5% {how} {QUICK}",
            qemu.display()
        );
        let shown = compare(
            &place,
            &format!("{words} -- disk disk.count=12 disk.time=0"),
        )
        .start(200)
        .outcome()
        .exits(0);
        let turns = "the variants take turns";
        assert_eq!(
            shown.stdout.contains(turns),
            how.is_empty(),
            "{}",
            shown.stdout
        );
        let recording = place.recording();
        (
            json(
                &place
                    .vmtax("report --json")
                    .arg(&recording)
                    .succeeds()
                    .stdout,
            ),
            recording,
            place,
        )
    };
    let boots = |recording: &Path| fs::read_dir(recording.join("turns")).unwrap().count() as u64;
    let (report, recording, place) = measured("");
    let rounds = report["findings"]["rounds"].as_u64().unwrap();
    let slow = row(&report, "disk.latency-p50");
    assert_eq!(
        (slow["verdict"].as_str(), slow["rounds"].as_u64()),
        (Some("slower"), Some(rounds)),
        "{slow}"
    );
    assert_eq!(
        (report["findings"]["one_boot"].as_bool(), boots(&recording)),
        (Some(true), rounds)
    );
    assert_eq!(report["plan"]["compare"]["one-boot"], true);
    for round in 0..rounds {
        let of_round: Vec<&Value> = trials(&report)
            .iter()
            .filter(|trial| trial["round"] == round)
            .collect();
        let order: Vec<&str> = of_round
            .iter()
            .map(|trial| trial["variant"].as_str().unwrap())
            .collect();
        assert!(
            order == ["bs=4K", "bs=8K", "bs=8K", "bs=4K"]
                || order == ["bs=8K", "bs=4K", "bs=4K", "bs=8K"],
            "{order:?}"
        );
        assert!(
            of_round
                .iter()
                .zip(0..)
                .all(|(trial, turn)| trial["turn"] == turn)
        );
        let asked = |trial: &Value| {
            format!(
                "bs={}",
                trial["workload"]["options"]["block-size"].as_str().unwrap()
            )
        };
        assert!(
            of_round
                .iter()
                .all(|trial| trial["variant"] == asked(trial).as_str())
        );
    }
    // The same plan again, as a regression check does.
    let again = place
        .vmtax("compare --dry-run --check")
        .arg(&recording)
        .succeeds();
    again
        .shows("one-boot = true")
        .shows("\"disk.block-size\" = \"8K\"");

    let (report, recording, _place) = measured("--fresh-boots");
    let open = row(&report, "disk.latency-p50");
    assert_eq!(
        (open["verdict"].as_str(), open["rounds"].as_u64()),
        (Some("inconclusive"), Some(11)),
        "{open}"
    );
    assert!(
        report["findings"]["one_boot"].is_null()
            && trials(&report).iter().all(|trial| trial["turn"].is_null())
    );
    assert_eq!(boots(&recording), 2 * 11);
}

#[test]
fn attributes_of_the_guests_request_queue_change_from_turn_to_turn() {
    let place = Place::new();
    // A read of 64 KiB becomes sixteen requests.
    let words =
        "default block-queue.max_sectors_kb=4 --machine tcg --rounds 8 --repeats 1 --budget 4m";
    let read = "disk disk.bs=64K disk.count=30 disk.time=0";
    compare(&place, &format!("{words} -- {read}"))
        .start(300)
        .outcome()
        .exits(0);
    let recording = place.recording();
    let boots = fs::read_dir(recording.join("turns")).unwrap().count() as u64;
    let report = json(
        &place
            .vmtax("report --json")
            .arg(&recording)
            .succeeds()
            .stdout,
    );
    assert_eq!(
        Some(boots),
        report["findings"]["rounds"].as_u64(),
        "a boot a round"
    );
    let slow = row(&report, "disk.latency-p50");
    assert_eq!(slow["verdict"], "slower", "{slow}");
    // The attribute has its value again in the turns without it: else these would be slow in three of four.
    let latency = |variant: &str| -> Vec<f64> {
        let of = trials(&report)
            .iter()
            .filter(|trial| trial["variant"] == variant);
        of.map(|trial| {
            trial["result"]["operations"][0]["summary"]["p50_ns"]
                .as_f64()
                .unwrap()
        })
        .collect()
    };
    let (usual, cut) = (latency("default"), latency("block-queue.max_sectors_kb=4"));
    let faster = usual
        .iter()
        .flat_map(|usual| cut.iter().map(move |cut| usual < cut))
        .filter(|is| *is)
        .count();
    assert!(
        faster * 10 > usual.len() * cut.len() * 8,
        "{usual:?} {cut:?}"
    );

    let words = format!("default block-queue.no-such=1 {} -- disk", fast_guest().1);
    compare(&place, &words)
        .start(100)
        .outcome()
        .exits(2)
        .says("refused an attribute of its disk's request queue");
}

#[test]
fn a_boot_is_shared_only_where_that_is_possible() {
    let place = Place::new();
    let plan = |words: &str| {
        compare(&place, &format!("--dry-run {words}"))
            .succeeds()
            .stdout
    };
    let shares = |words: &str| plan(words).contains("one-boot = true");
    for (words, one_boot) in [
        ("rw=randread rw=randwrite -- disk", true),
        ("disk.bs=4K disk.bs=8K disk", true),
        ("default disk.bs=8K disk", true),
        ("--set aio=native bs=4K bs=8K -- disk cpu", true),
        ("bs=4K bs=8K --fresh-boots -- disk", false),
        ("rw=read rw=write --set cache=writeback -- disk", false),
        (
            "rw=read rw=write --set cache=writeback --one-boot -- disk",
            true,
        ),
        ("default block-queue.scheduler=none -- disk", true),
        (
            "default block-queue.scheduler=none,aio=native -- disk",
            false,
        ),
        ("name=a name=b -- disk", false),
        ("name=a name=b --one-boot -- disk", true),
        ("default aio=native -- disk disk.bs=8K", false),
    ] {
        assert_eq!(shares(words), one_boot, "{words}");
    }
    assert!(
        plan("aio=threads aio=native disk.bs=8K disk").contains("block-size = \"8K\""),
        "an option of both variants"
    );
    for (words, why) in [
        (
            "default aio=native --one-boot -- disk",
            "differ in aio, which a running guest cannot change",
        ),
        (
            "bs=4K bs=8K --one-boot --fresh-boots -- disk",
            "cannot be used with",
        ),
        (
            "name=a name=b --one-boot -- exec true",
            "writes stay in its guest",
        ),
        (
            "default block-queue.scheduler=none --machine micro-tcg -- disk",
            "the micro-guest has no kernel",
        ),
        ("bs=4K bs=5 -- disk", "block-size"),
        ("time=1 time=2 -- disk cpu", "disk.time or cpu.time"),
        (
            "disk.depth=1 disk.depth=2 -- cpu",
            "disk, which the plan does not run",
        ),
    ] {
        compare(&place, words).fails(&[why]);
    }
}

#[test]
#[ignore = "needs root"]
fn each_side_is_looked_at_once_more_and_drawn_against_the_baseline() {
    let place = Place::new();
    let words = "default aio=native --machine micro-tcg --rounds 1 --repeats 1 --profile -- disk disk.count=4000";
    let outcome = compare(&place, words).start(60).outcome().exits(0);
    outcome.says("profile of default").says("what differs");
    let files = files_below(&place.runs());
    let named = |name: &str| files.iter().filter(|file| file.ends_with(name)).count();
    assert_eq!(
        (named("profile.json"), named("difference.svg")),
        (2, 1),
        "{files:?}"
    );
    let of_profile = |file: &&std::path::PathBuf| file.ends_with("on-cpu.folded");
    for folded in files.iter().filter(of_profile) {
        assert!(
            fs::read_to_string(folded)
                .unwrap()
                .contains("[translated code]"),
            "{}",
            folded.display()
        );
    }
    let mixed = "default aio=native --profile -- disk cpu";
    compare(&place, mixed)
        .start(60)
        .outcome()
        .exits(2)
        .says("--profile is of one workload");
}

#[test]
fn a_budget_ends_it_with_what_can_be_told_by_then() {
    let place = Place::new();
    compare(
        &place,
        &format!("name=a name=b --budget 1s --min-effect 0.1% {QUICK} {READS}"),
    )
    .start(60)
    .outcome()
    .exits(0);
    let report = json(
        &place
            .vmtax("report --json")
            .arg(place.recording())
            .succeeds()
            .stdout,
    );
    let rounds = report["findings"]["rounds"].as_u64().unwrap();
    assert!((6..40).contains(&rounds), "{rounds}");
    assert_eq!(report["findings"]["baseline"], "a");
    let row = row(&report, "disk.latency-p50");
    assert!(
        row["ratio"]["interval"]["coverage"].as_f64().unwrap() >= 0.95
            && row["p"].as_f64().unwrap() > 0.0,
        "{row}"
    );
}

#[test]
fn sides_have_kernels_words_and_sizes_of_their_own() {
    let place = Place::new();
    let words = "default,memory-mib=512 default --rounds 1 --repeats 2 --duration 0.05 -- cpu";
    compare(&place, words).fails(&["'default' is not KEY=VALUE"]);
    let sides = |second: &str| {
        format!(
            "memory-mib=512,kernel-args=vmtax.planted=1 {second} --machine tcg --rounds 1 --repeats 2 \
             -- cpu cpu.max-prime=1000 cpu.time=0.05"
        )
    };
    // QEMU's -S starts no guest.
    compare(&place, &sides("name=b,qemu-args=-S"))
        .arg("--boot-timeout")
        .arg("3")
        .outcome()
        .exits(2);
    let place = Place::new();
    compare(&place, &sides("name=b"))
        .start(60)
        .outcome()
        .exits(0)
        .shows("too few rounds");
    let commands: Vec<String> = files_below(&place.recording())
        .iter()
        .filter(|file| file.ends_with("qemu.command"))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    assert_eq!(commands.len(), 2);
    let own = commands
        .iter()
        .find(|c| c.contains("vmtax.planted=1"))
        .unwrap();
    assert!(own.contains("-m 512M"), "{own}");
    assert!(
        commands
            .iter()
            .any(|c| c.contains("-m 1024M") && !c.contains("vmtax.planted"))
    );
    let report = json(
        &place
            .vmtax("report --json")
            .arg(place.recording())
            .succeeds()
            .stdout,
    );
    assert_eq!(trials(&report).len(), 4, "two repeats a side");
    assert_eq!(row(&report, "cpu.events")["rounds"], 1);
}

#[test]
fn what_is_no_comparison_is_refused() {
    let place = Place::new();
    for (words, why) in [
        ("default", "takes two variants"),
        ("default default", "'default' is given twice"),
        ("default aio", "'aio' is not KEY=VALUE"),
        ("default machine=native", "native is not a variant"),
        ("default machine=vax", "unknown machine 'vax'"),
        ("default cpus=many", "cpus is 'many'"),
        ("default modules=/x", "modules is given without kernel"),
        ("default host.turbo=off --machine micro-tcg", "host.thp"),
        ("default share=9p", "a table [tree]"),
        ("default aio=threads -- nothing", "nor a workload"),
        ("default aio=threads --layers -- cpu", "disk alone"),
        ("/nowhere/a /nowhere/b", "/nowhere/a"),
        (
            "default /nowhere/b",
            "recordings can only be compared with recordings",
        ),
        ("--check /nowhere", "/nowhere"),
    ] {
        compare(&place, words).fails(&[why]);
    }
    compare(&place, "default aio=threads --min-effect 0")
        .outcome()
        .exits(2);
}

#[test]
fn recordings_are_compared_as_what_they_are() {
    let place = Place::new();
    place.run(RUN).succeeds();
    let first = planted(&place, &place.recording(), "first", 1.0);
    let slower = planted(&place, &first, "slower", 1.5);
    let shown = place.vmtax("compare").arg(&first).arg(&slower).succeeds();
    shown.shows("lower").shows("made at different times");
    // One run a side tells nothing, however far apart.
    let one = |name: &str, factor: f64| {
        let copy = planted(&place, &first, name, factor);
        for file in files_below(&copy.join("trials"))
            .iter()
            .filter(|f| f.ends_with("trial.json"))
        {
            if json(&fs::read_to_string(file).unwrap())["round"] != 0 {
                fs::remove_dir_all(file.parent().unwrap()).unwrap();
            }
        }
        copy
    };
    let shown = place
        .vmtax("compare")
        .arg(one("before", 1.0))
        .arg(one("after", 0.94))
        .succeeds();
    shown.shows("inconclusive").shows("n = 1 per variant");
    let other =
        place.vmtax("run --machine native --rounds 1 mutex mutex.loops=10 mutex.num=10 --dir");
    other.arg(place.path("other")).succeeds();
    let other = fs::read_dir(place.path("other"))
        .unwrap()
        .flatten()
        .find(|e| e.path().join("run.json").is_file())
        .unwrap()
        .path();
    place
        .vmtax("compare")
        .arg(&first)
        .arg(&other)
        .fails(&["no metric in common"]);
    // What cannot be read is named.
    let lost = planted(&place, &first, "lost", 1.0);
    for file in files_below(&lost.join("trials"))
        .iter()
        .filter(|f| f.ends_with("trial.json"))
    {
        fs::write(file, "{").unwrap();
    }
    for words in ["compare", "compare --check"] {
        let start = place.vmtax(words).arg(&first).arg(&lost);
        start.fails(&[
            "no metric in common",
            "not counted: trial 0000",
            "restore it from where",
        ]);
    }
}

#[test]
fn a_check_fails_where_a_metric_is_worse_and_says_so_to_pipelines() {
    let place = Place::new();
    place.run(RUN).succeeds();
    let first = planted(&place, &place.recording(), "first", 1.0);
    let slower = planted(&place, &first, "slower", 1.5);
    let (junit, markdown) = (place.path("check.xml"), place.path("check.md"));
    let check = |now: &Path| {
        place
            .vmtax("compare --check")
            .arg(&first)
            .arg(now)
            .arg("--junit")
            .arg(&junit)
    };
    check(&slower)
        .arg("--github")
        .arg("--markdown")
        .arg(&markdown)
        .outcome()
        .exits(1)
        .shows("::error title=cpu.events");
    assert!(
        fs::read_to_string(&junit)
            .unwrap()
            .contains("failures=\"1\"")
    );
    assert!(fs::read_to_string(&markdown).unwrap().contains("**worse**"));
    check(&planted(&place, &first, "same", 1.0))
        .outcome()
        .exits(0);
    assert!(
        fs::read_to_string(&junit)
            .unwrap()
            .contains("failures=\"0\"")
    );
    let lenient = place.put("lenient.toml", "[metrics]\n\"cpu.events\" = 1.0\n");
    check(&slower)
        .arg("--thresholds")
        .arg(&lenient)
        .outcome()
        .exits(0);
    // One round each cannot show anything: no success.
    let single = place.path("single");
    place
        .vmtax("run")
        .arg("--output")
        .arg(&single)
        .words(&RUN.replace("--rounds 6", "--rounds 1"))
        .succeeds();
    check(&single)
        .outcome()
        .exits(3)
        .shows("could be tested: too few rounds");
    assert!(
        fs::read_to_string(&junit)
            .unwrap()
            .contains("skipped=\"1\"")
    );
    let broken = place.put("broken.toml", "worse = 5 %\n");
    check(&slower)
        .arg("--thresholds")
        .arg(&broken)
        .fails(&["broken.toml", "line 1"]);
    // Without a recording the baseline's plan is measured again.
    let again = place
        .vmtax("compare --check")
        .arg(&first)
        .arg("--dir")
        .arg(place.path("again"));
    let status = again.outcome();
    assert!(place.path("again").exists(), "{status:?}");
}

#[test]
#[ignore = "needs root"]
fn a_setting_of_the_host_is_put_back_even_by_a_killed_controller() {
    let Ok(before) = fs::read_to_string(THP) else {
        return skipped("no transparent huge pages");
    };
    let other = if before.contains("[never]") {
        "madvise"
    } else {
        "never"
    };
    let place = Place::new();
    let words =
        format!("default host.thp={other} {QUICK} --rounds 6 -- disk disk.count=20000 disk.time=0");
    let mut run = compare(&place, &words).start(60);
    run.until("the setting is made", |_| {
        fs::read_to_string(THP).ok().filter(|now| *now != before)
    });
    run.until("its guest is up", |place| {
        place
            .processes()
            .iter()
            .any(crate::common::Process::is_qemu)
            .then_some(())
    });
    run.signal(Signal::KILL);
    run.outcome();
    place.nothing_is_left();
    assert_eq!(fs::read_to_string(THP).unwrap(), before);
    let words = format!("default host.thp={other} {QUICK} --rounds 1 {READS}");
    compare(&place, &words).succeeds();
    assert_eq!(fs::read_to_string(THP).unwrap(), before);
}

/// A copy of a recording in which everything took so many times as long as in one where nothing disturbed it.
pub fn planted(place: &Place, recording: &Path, name: &str, factor: f64) -> std::path::PathBuf {
    let copy = place.path(name);
    for file in files_below(recording) {
        let to = copy.join(file.strip_prefix(recording).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        if !file.ends_with("trial.json") {
            fs::copy(&file, to).unwrap();
            continue;
        }
        let mut trial = json(&fs::read_to_string(&file).unwrap());
        let quiet = 20_000.0 + 40.0 * trial["round"].as_f64().unwrap();
        for measure in trial["result"]["measures"].as_array_mut().unwrap() {
            measure["value"] = (quiet / factor).into();
        }
        fs::write(to, trial.to_string()).unwrap();
    }
    copy
}
