//! Whole pages of each study's sample findings, as files: tests/pages. A page larger than 60 kB has no file.

use crate::common::layers::{column, corrected, layers_recording, plain, varied};
use crate::common::many_runs::{fleet, history, imported};
use crate::common::studies::{
    antipatterns, command, compared, exits, grown, regressed, reproduced, shared, states,
    worker_states,
};
use crate::common::traced::{
    command_traced, diagnosed, guest_tuned, tuned, vm_idle, vm_packets, vm_requests,
};
use crate::common::{self, THREE, few, findings, recording, trial_mut, vm};
use crate::snapshot;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use vmtax_analysis::{Side, check, compare, compare_recordings, growth, shares};
use vmtax_findings::{Advice, CheckFindings, Estimate, LayerFindings, State, Summary, Thresholds};
use vmtax_model::{
    AbilityName, DeviceClass, ImportedFiles, Interval, Machine, ObservedVm, Outcome, Readiness,
    RunState, Study, VmFacts, VmIdentity, VmStudy, WorkloadName,
};
use vmtax_recording::Recording;
use vmtax_report::{self as report, COMMENT_LINES, Report, Style, findings_json};

const WITH_TCG: &[Machine] = &[Machine::NATIVE, Machine::TCG];

#[derive(Default)]
struct Pages(BTreeMap<String, String>);

impl Pages {
    fn put(&mut self, name: &str, format: &str, page: String) {
        assert!(
            self.0.insert(format!("{name}.{format}"), page).is_none(),
            "two pages {name}.{format}"
        );
    }

    fn terminal(&mut self, name: &str, report: &Report) {
        self.put(
            name,
            "80.txt",
            report.terminal(
                Style {
                    width: 80,
                    color: false,
                },
                false,
            ),
        );
    }

    /// The formats that are not too large for a person to review.
    fn all(&mut self, name: &str, report: &Report, findings: &impl Serialize) {
        self.terminal(name, report);
        let page = report.html();
        let body = page
            .split_once("<body>")
            .unwrap()
            .1
            .split_once("</body>")
            .unwrap()
            .0;
        for (format, page) in [
            (
                "132.txt",
                report.terminal(
                    Style {
                        width: 132,
                        color: false,
                    },
                    true,
                ),
            ),
            ("details.md", report.markdown_details()),
            ("json", snapshot::rounded(&findings_json(findings).unwrap())),
            // An element a line, so that a change is one.
            ("html", body.replace("><", ">\n<")),
        ] {
            if page.len() < 60_000 {
                self.put(name, format, page);
            }
        }
        self.comment(name, report);
    }

    /// A comment for an issue; of each kind it fits a screen.
    fn comment(&mut self, name: &str, report: &Report) {
        let page = report.markdown();
        let lines = page.lines().count();
        assert!(lines <= COMMENT_LINES, "{name}: {lines} lines\n{page}");
        assert!(page.starts_with("**"), "{name}: {page}");
        self.put(name, "md", page);
    }

    /// A terminal's page, a comment, and JSON.
    fn short(&mut self, name: &str, report: &Report, findings: &impl Serialize) {
        self.terminal(name, report);
        self.comment(name, report);
        let json = snapshot::rounded(&findings_json(findings).unwrap());
        self.put(name, "json", json);
    }

    fn layers(&mut self, name: &str, findings: &LayerFindings) {
        self.all(
            name,
            &report::layers::report(&layers_recording(6), findings),
            findings,
        );
    }
}

fn overheads(pages: &mut Pages) {
    let r = few(recording(WITH_TCG, 6));
    let found = findings(&r);
    pages.all("overhead", &report::overhead::report(&r, &found), &found);
    for (name, rounds) in [("overhead-all-metrics", 6), ("overhead-preliminary", 3)] {
        let r = recording(THREE, rounds);
        pages.terminal(name, &report::overhead::report(&r, &findings(&r)));
    }
    let mut r = few(recording(WITH_TCG, 6));
    r.manifest.ended = None;
    r.damaged.push("trials/0007: not JSON".into());
    let mut found = findings(&r);
    found.advice = (0..9)
        .map(|i| Advice {
            finding: format!("advice {i}"),
            ..Advice::default()
        })
        .collect();
    pages.terminal("overhead-cut-off", &report::overhead::report(&r, &found));
    r.trials.clear();
    found.rows.clear();
    pages.all(
        "overhead-nothing",
        &report::overhead::report(&r, &found),
        &found,
    );
    let mut r = few(recording(WITH_TCG, 1));
    trial_mut(&mut r, 0, Machine::NATIVE, WorkloadName::Cpu).outcome = Outcome::Failed {
        error: "no memory: give the guest more".into(),
    };
    pages.put("sysbench", "txt", report::sysbench(&r, None));
}

fn comparisons(pages: &mut Pages) {
    let r = few(compared(7, &[1.0, 1.3, 0.7]));
    let found = compare(&r.plan, &r.trials);
    pages.all(
        "compare",
        &report::compare::report(Some(&r), &found, None),
        &found,
    );
    let [then, now] = regressed().map(few);
    fn side<'a>(name: &'a str, recording: &'a Recording) -> Side<'a> {
        Side {
            name,
            plan: &recording.plan,
            trials: &recording.trials,
        }
    }
    let sides = [side("then", &then), side("now", &now)];
    let found = compare_recordings(&sides, 0.02);
    pages.all(
        "compare-recordings",
        &report::compare::report(None, &found, None),
        &found,
    );
    let found: CheckFindings = check(&sides[0], &sides[1], &Thresholds::default());
    pages.all("check", &report::check::report(&found), &found);
    let r = few(grown(7).0);
    let mut found = growth(&r.plan, &r.trials);
    found.growths.truncate(3);
    let mut page = report::growth::report(&r, &found);
    pages.all("growth", &page, &found);
    report::reproduction::put_first(&mut page, &reproduced(), &r);
    pages.all("reproduction", &page, &reproduced());
    for (name, rounds, costs) in [
        ("shares", 9, [0.5, 1.3]),
        ("shares-none-faster", 9, [1.5, 1.3]),
        ("shares-undecided", 3, [0.5, 1.3]),
        ("shares-undecided-base", 3, [1.5, 1.3]),
    ] {
        let r = few(shared(rounds, &costs));
        let found = shares(&r.plan, &r.trials);
        let page = report::shares::report(&r, &found);
        if name == "shares" {
            pages.all(name, &page, &found)
        } else {
            pages.terminal(name, &page)
        }
    }
}

fn causes(pages: &mut Pages) {
    let (r, found) = command(7);
    pages.all("exec", &report::exec::report(&r, &found, None), &found);
    let (r, found) = antipatterns(7);
    pages.all(
        "antipatterns",
        &report::antipatterns::report(&r, &found),
        &found,
    );
    let mut found = exits();
    pages.all("exits", &report::exits::report(&found), &found);
    found.machines.clear();
    pages.terminal("exits-nothing", &report::exits::report(&found));
    let found = states();
    let pictures = report::profile::Pictures::default();
    let origin = report::Origin {
        command: "vmtax report runs/20261120T140211Z-profile".into(),
        ..report::Origin::default()
    };
    let page = report::profile::report(&found, &pictures, origin.clone());
    pages.all("profile", &page, &found);
    let found = worker_states();
    let page = report::profile::report(&found, &pictures, origin);
    pages.terminal("profile-workers", &page);
}

fn layers(pages: &mut Pages) {
    let mut micro = plain(6);
    micro.columns.remove(0);
    micro.columns[0].waterfalls.truncate(1);
    micro.columns[0].heat.counts.truncate(20);
    for (name, found) in [
        ("layers", plain(6)),
        ("layers-micro", micro),
        ("layers-varied", varied(6)),
    ] {
        pages.layers(name, &found);
    }
    let narrow = report::layers::report(&layers_recording(6), &plain(6)).terminal(
        Style {
            width: 60,
            color: false,
        },
        false,
    );
    pages.put("layers", "60.txt", narrow);
    let interval = Some(Interval {
        low: 0.97,
        high: 1.03,
        coverage: 0.97,
    });
    let mut uncontrolled = plain(6);
    uncontrolled
        .columns
        .push(column(Machine::MICRO_TCG, "", 6, 30.0));
    let first = &mut uncontrolled.columns[0];
    (first.control, first.observer) = (None, None);
    (first.matched.operations, first.matched.joined) = (100_000, 99_999);
    (first.clock.drift_ns, first.clock.violations) = (900.0, 1);
    first.tail[0].slowest_ns = 50.0 * first.traced.mean_ns;
    first
        .rows
        .iter_mut()
        .filter(|row| row.state == State::Lock)
        .for_each(|row| row.count = 0);
    let mut unmatched = plain(6);
    unmatched.columns.truncate(1);
    let first = &mut unmatched.columns[0];
    (
        first.matched.operations,
        first.matched.joined,
        first.matched.lost_events,
    ) = (2000, 0, 0);
    first.matched.rejected = vec![("no packet of it in the guest's network stack".into(), 2000)];
    first.traced = Summary {
        n: 0,
        mean_ns: 0.0,
        p50_ns: 0.0,
        ..first.traced
    };
    first.rows.clear();
    let mut of_fio = plain(6);
    of_fio.columns.truncate(1);
    // Some of them the page cache answered.
    of_fio.columns[0].fio_requests = Some(12_345);
    let mut lost = unmatched.clone();
    (lost.columns[0].control, lost.columns[0].matched.lost_events) = (None, 7);
    for (name, found) in [
        (
            "layers-corrected",
            corrected(Some(Estimate {
                median: 1.01,
                interval,
            })),
        ),
        ("layers-few-rounds", varied(2)),
        ("layers-fio", of_fio),
        ("layers-uncontrolled", uncontrolled),
        ("layers-unmatched", unmatched),
        ("layers-unmatched-lost", lost),
    ] {
        pages.terminal(name, &report::layers::report(&layers_recording(6), &found));
    }
}

/// Of a command's guests, and of a running VM.
fn traced_runs(pages: &mut Pages) {
    let (r, found) = command(7);
    let requests = command_traced();
    pages.short(
        "exec-traced",
        &report::exec::report(&r, &found, Some(&requests)),
        &requests,
    );
    let mut r = layers_recording(1);
    for (name, found, device) in [
        ("vm-requests", vm_requests(true), DeviceClass::Disk),
        (
            "vm-requests-in-guest",
            vm_requests(false),
            DeviceClass::Disk,
        ),
        ("vm-requests-none", vm_idle(), DeviceClass::Disk),
        ("vm-packets", vm_packets(), DeviceClass::Net),
        ("vm-packets-none", vm_idle(), DeviceClass::Net),
    ] {
        let observed = ObservedVm {
            process: VmIdentity {
                pid: 7,
                started: None,
                name: None,
            },
            time_ms: 10_000,
            guest_vmtax: None,
            no_probes: false,
            device,
            level: ObservedVm::ALL_LEVELS,
        };
        r.plan.study = Study::Vm(VmStudy::VmLayers, observed);
        pages.short(name, &report::vm_layers::report(&r, &found), &found);
    }
}

/// Of a VM with a cause, and of a healthy one.
fn diagnoses(pages: &mut Pages) {
    let mut r = layers_recording(1);
    r.folder = "runs/20261120T140211Z-diagnose".into();
    for (name, is_starved) in [("diagnose", true), ("diagnose-healthy", false)] {
        let found = diagnosed(is_starved);
        let page = report::vm_diagnosis::report(&r, &found);
        pages.terminal(name, &page);
        pages.comment(name, &page);
    }
}

fn tunings(pages: &mut Pages) {
    let mut r = layers_recording(1);
    r.folder = "runs/20261120T140211Z-tune".into();
    for (name, is_done) in [("tune", true), ("tune-plan", false)] {
        let found = tuned(is_done);
        let page = report::tune::vm::report(&r, &found);
        if is_done {
            pages.all(name, &page, &found);
        } else {
            pages.short(name, &page, &found);
        }
    }
    for (name, is_kept) in [("tune-guest", true), ("tune-guest-nothing", false)] {
        let found = guest_tuned(is_kept);
        pages.short(name, &report::tune::guest::report(&r, &found), &found);
    }
}

fn hosts(pages: &mut Pages) {
    let mut host = common::host();
    pages.all("doctor", &report::doctor(&host), &host);
    host.checks
        .iter_mut()
        .for_each(|check| check.state = Readiness::Ok);
    pages.terminal("doctor-ok", &report::doctor(&host));
    use AbilityName::{CountExits, GuestAgent, Monitor, QemuGuestAgent, SetCgroup};
    // What changes a VM, what TCG has not, and what is an addition restrict nothing.
    let full = vm(7, "a", &[GuestAgent, SetCgroup, CountExits, QemuGuestAgent]);
    let poor = vm(8, "b", &[Monitor]);
    let named = |names: &[&str]| {
        names
            .iter()
            .zip(100..)
            .map(|(name, pid)| vm(pid, name, &[Monitor]))
            .collect()
    };
    for (name, vms) in [
        ("vms-none", vec![]),
        ("vms-one-in-full", vec![full.clone()]),
        ("vms-one-of-two-in-full", vec![full, poor.clone()]),
        ("vms-none-in-full", vec![poor, vm(9, "c", &[Monitor])]),
        (
            "vms-unsafe-and-common-names",
            named(&["b c", "$(x)", "-d", "same", "same"]),
        ),
        (
            "vms-that-do-not-run",
            ["paused", "io-error", "guest-panicked"]
                .into_iter()
                .zip(200..)
                .map(|(state, pid)| VmFacts {
                    state: Some(RunState::Stopped(state.to_owned())),
                    ..vm(pid, &format!("vm-{pid}"), &[])
                })
                .collect(),
        ),
        ("vms-many", named(&["a", "b", "c", "d", "e", "f"])),
    ] {
        pages.terminal(name, &report::vms(&vms));
    }
}

/// Many runs and hosts, and traces of other tools.
fn others(pages: &mut Pages) {
    for (name, runs) in [("history", 12), ("history-few-runs", 3)] {
        let found = history(runs);
        let page = report::history::report(&found, &[], "0.1.0", "vmtax history cpu.events");
        pages.terminal(name, &page);
    }
    let found = fleet();
    let page = report::fleet::report(&found, "dataset", "0.1.0", "vmtax fleet dataset");
    pages.terminal("fleet", &page);
    let mut r = layers_recording(1);
    r.plan.study = Study::Import(ImportedFiles {
        files: vec!["host.txt".into(), "guest.txt".into()],
    });
    pages.terminal("import", &report::import::report(&r, &imported()));
}

#[test]
fn reports_are_the_pages_beside_the_tests() {
    let mut pages = Pages::default();
    [
        overheads,
        comparisons,
        causes,
        layers,
        traced_runs,
        diagnoses,
        tunings,
        hosts,
        others,
    ]
    .iter()
    .for_each(|add| add(&mut pages));
    snapshot::compare(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages"),
        &pages.0,
    );
}
