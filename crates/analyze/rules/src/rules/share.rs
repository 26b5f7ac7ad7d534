//! Configurations of a shared tree: by what was shown, never by a median alone.

use crate::rule::rounds;
use crate::{Finding, Rule};
use vmtax_findings::{Estimate, ShareColumn, ShareFindings, ShareScore};
use vmtax_model::number::counted;
use vmtax_model::{
    ChangeCost, Plan, Remedy, SettingPlace, Share, ShareMethod, Warning, shell_line,
};

/// A configuration that takes more than this part of the baseline's time is not worth a change.
const MAX_COST: f64 = 0.95;

/// Where a run has what it made for itself.
const SCRATCH: &str = "/scratch/";

pub(super) const FASTER_SHARE: Rule = Rule {
    id: "faster-share",
    finds: "for each workload and use of the tree the configuration that is shown to be fastest of those fit for it",
    remedies: &[Remedy {
        place: SettingPlace::QemuArgument,
        setting: "share",
        value: "VALUE",
        action: "Share the tree by SHARE",
        line: "COMMANDS",
        cost: Some(ChangeCost::VmRestart),
        read_back: "findmnt in the guest",
        undo: "share the tree by BASE",
    }],
    source: "",
    evaluate: |evidence| {
        let (Some(plan), Some(shares)) = (evidence.plan, evidence.shares) else {
            return Vec::new();
        };
        shares
            .scores
            .iter()
            .flat_map(|score| faster_shares(plan, shares, score))
            .collect()
    },
};

pub(super) const NO_FASTER_SHARE: Rule = Rule {
    id: "no-faster-share",
    finds: "a workload for which no configuration is shown to be faster than the baseline",
    remedies: &[],
    source: "",
    evaluate: |evidence| {
        let (Some(plan), Some(shares)) = (evidence.plan, evidence.shares) else {
            return Vec::new();
        };
        let Some(base) = shares.columns.get(shares.base) else {
            return Vec::new();
        };
        let base = base.variant.escape_default();
        let compared =
            |score: &&ShareScore| guests(shares, score).any(|(_, cost)| cost.interval.is_some());
        let scores = shares.scores.iter().filter(compared);
        let without = scores.filter(|s| faster_shares(plan, shares, s).is_empty());
        let text = |score: &ShareScore| {
            let workload = &score.workload;
            format!("For {workload} no share method is shown to be faster than {base}.")
        };
        without.map(|score| Finding::new(text(score))).collect()
    },
};

pub(super) const SHARE_FAILED: Rule = Rule {
    id: "share-failed",
    finds: "a configuration that could not be measured",
    remedies: &[],
    source: "",
    evaluate: |evidence| {
        let columns = evidence.shares.map_or(&[][..], |shares| &shares.columns);
        columns
            .iter()
            .filter_map(failed)
            .map(Finding::new)
            .collect()
    },
};

pub(super) const TOO_FEW_SHARE_ROUNDS: Rule = Rule {
    id: "too-few-share-rounds",
    finds: "too few rounds to show which configuration is faster",
    remedies: &[rounds("Use ROUNDS rounds or more")],
    source: "",
    evaluate: |evidence| {
        let (Some(plan), Some(shares)) = (evidence.plan, evidence.shares) else {
            return Vec::new();
        };
        let needed = shares.warnings.iter().find_map(|warning| match warning {
            Warning::TooFewRounds { needed, .. } if plan.rounds < *needed => Some(*needed),
            _ => None,
        });
        let mut others = [&FASTER_SHARE, &NO_FASTER_SHARE, &SHARE_FAILED].into_iter();
        let silent = others.all(|rule| (rule.evaluate)(evidence).is_empty());
        let finding = |needed: u32| Finding {
            values: vec![("ROUNDS", needed.to_string())],
            ..Finding::new(format!(
                "{} {} too few to show which share method is faster.",
                counted(plan.rounds.into(), "round"),
                if plan.rounds == 1 { "is" } else { "are" }
            ))
        };
        needed.filter(|_| silent).map(finding).into_iter().collect()
    },
};

/// Who changes the tree while the guest has it: not every configuration is fit for that. In the order of what it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TreeUse {
    ReadOnly,
    GuestWrites,
    OthersWrite,
}

impl TreeUse {
    const ALL: [TreeUse; 3] = [Self::ReadOnly, Self::GuestWrites, Self::OthersWrite];

    fn allows(self, share: &Share) -> bool {
        let written = !share.is_read_only();
        match self {
            TreeUse::ReadOnly => true,
            TreeUse::GuestWrites => written,
            TreeUse::OthersWrite => written && sees_others(share),
        }
    }

    const fn condition(self) -> &'static str {
        match self {
            TreeUse::ReadOnly => "if nobody changes the tree",
            TreeUse::GuestWrites => "if the guest alone changes the tree",
            TreeUse::OthersWrite => "also if others change the tree meanwhile",
        }
    }
}

/// Returns true if a guest comes to see what others change. An image is a copy; a cache that never asks again does
/// not.
fn sees_others(share: &Share) -> bool {
    let cache = share.option("cache");
    match share.method {
        ShareMethod::NineP => matches!(cache, None | Some("none" | "mmap")),
        ShareMethod::Virtiofs => cache != Some("always"),
        // The kernel's own longest, in seconds.
        ShareMethod::Nfs3 | ShareMethod::Nfs4 => share
            .option("actimeo")
            .is_none_or(|s| s.parse().is_ok_and(|s: u32| s <= 60)),
        method => !method.is_image(),
    }
}

/// Returns the cost of each configuration of a guest over the baseline, without the baseline itself.
fn guests<'a>(
    shares: &'a ShareFindings,
    score: &'a ShareScore,
) -> impl Iterator<Item = (&'a ShareColumn, Estimate)> {
    let columns = shares.columns.iter().zip(&score.cells).enumerate();
    let guests = columns.filter(|(i, (column, _))| *i != shares.base && column.machine.is_guest());
    guests.filter_map(|(_, (column, cost))| Some((column, (*cost)?)))
}

/// The best configuration for each use. One that is best for much is best for little too, and is named once.
fn faster_shares(plan: &Plan, shares: &ShareFindings, score: &ShareScore) -> Vec<Finding> {
    let Some(base) = shares.columns.get(shares.base) else {
        return Vec::new();
    };
    let known: Vec<(&ShareColumn, Estimate)> = guests(shares, score).collect();
    let mut named: Vec<(TreeUse, &(&ShareColumn, Estimate))> = Vec::new();
    for tree_use in TreeUse::ALL {
        let Some(share) = best(plan, &known, tree_use) else {
            continue;
        };
        let last = named.last_mut();
        match last.filter(|(_, last)| std::ptr::eq(*last, share)) {
            Some((most, _)) => *most = tree_use,
            None => named.push((tree_use, share)),
        }
    }
    named
        .iter()
        .map(|(tree_use, (column, cost))| finding(plan, score, *tree_use, base, column, cost))
        .collect()
}

/// The configuration that is shown to cost least of those that are fit.
fn best<'a, 'b>(
    plan: &Plan,
    known: &'b [(&'a ShareColumn, Estimate)],
    tree_use: TreeUse,
) -> Option<&'b (&'a ShareColumn, Estimate)> {
    let fit = |column: &ShareColumn| {
        let variant = plan.variants.iter().find(|v| v.name == column.variant);
        variant
            .and_then(|v| v.share().ok().flatten())
            .is_some_and(|share| tree_use.allows(&share))
    };
    let shown = known
        .iter()
        .filter(|(c, e)| fit(c) && e.interval.is_some_and(|i| i.high < MAX_COST));
    shown.min_by(|a, b| at_most(&a.1).total_cmp(&at_most(&b.1)))
}

/// Returns the upper bound of the cost: the interval's upper end, else the median.
fn at_most(cost: &Estimate) -> f64 {
    cost.interval.map_or(cost.median, |i| i.high)
}

fn finding(
    plan: &Plan,
    score: &ShareScore,
    tree_use: TreeUse,
    base: &ShareColumn,
    column: &ShareColumn,
    cost: &Estimate,
) -> Finding {
    let own = plan.tree.as_ref().is_none_or(|tree| tree.path.is_none());
    let range = cost.interval.map_or(String::new(), |i| {
        format!(" ({:.2} to {:.2})", i.low, i.high)
    });
    let share = column.variant.escape_default().to_string();
    let base = base.variant.escape_default().to_string();
    Finding {
        text: format!(
            "For {}, {}, {share} takes {:.2} times as long as {base}{range}.",
            score.workload,
            tree_use.condition(),
            cost.median,
        ),
        gain: 1.0 - at_most(cost),
        values: vec![
            // As a variant of a comparison has it: 9p,share.cache=loose.
            ("VALUE", share.replace(',', ",share.")),
            ("SHARE", share),
            ("BASE", base),
            ("COMMANDS", commands(column, own)),
        ],
        ..Finding::default()
    }
}

/// Returns the commands that make and serve the share, and the arguments of QEMU and the guest's mount command.
fn commands(column: &ShareColumn, own: bool) -> String {
    let Some(facts) = &column.facts else {
        return String::new();
    };
    let mut lines = String::new();
    if let Some(image) = &facts.image {
        lines += &format!(
            "# image, made in {:.1} s\n{}\n",
            image.seconds,
            copied(&image.command, own)
        );
    }
    if !facts.server.is_empty() {
        lines += &format!("# server\n{}\n", copied(&facts.server, own));
    }
    lines
        + &format!(
            "# QEMU\n{}\n# in the guest\n{}",
            copied(&facts.qemu, own),
            facts.mount_command
        )
}

/// Arguments as a person can use them: without those that only trace, with a socket for the stream that server and QEMU were
/// started with, and where the tree is the run's `own` with a folder and an image of theirs for those that went with the run.
fn copied(arguments: &[String], own: bool) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-trace" => drop(arguments.next()),
            stream if stream.starts_with("--fd=") => shown.push("--socket-path=SOCKET".to_owned()),
            stream if stream.starts_with("socket,id=server,fd=") => {
                shown.push("socket,id=server,path=SOCKET".to_owned())
            }
            memory if memory.starts_with("memory-backend-memfd,id=ram,") => {
                // What the machine itself needs for it.
                shown.extend([memory, "-machine", "memory-backend=ram"].map(str::to_owned));
            }
            argument if own => shown.push(replaced(argument)),
            argument => shown.push(argument.to_owned()),
        }
    }
    shell_line(&shown)
}

/// An argument with the user's directory or image for the run's.
fn replaced(argument: &str) -> String {
    let Some(at) = argument.find(SCRATCH) else {
        return argument.to_owned();
    };
    let start = argument[..at].rfind(['=', '"', ' ']).map_or(0, |at| at + 1);
    let rest = &argument[at + SCRATCH.len()..];
    let (name, after) = rest.split_at(rest.find([',', '"', ' ']).unwrap_or(rest.len()));
    let theirs = if name == "tree" { "DIRECTORY" } else { "IMAGE" };
    format!("{}{theirs}{after}", &argument[..start])
}

fn failed(column: &ShareColumn) -> Option<String> {
    let reason = column.failed.as_ref()?;
    let name = if column.variant.is_empty() {
        column.machine.as_str()
    } else {
        &column.variant
    };
    Some(format!(
        "{} could not be measured: {}",
        name.escape_default(),
        reason.lines().next().unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Evidence;
    use crate::test_evidence::{advice, findings};
    use std::collections::BTreeMap;
    use vmtax_findings::REPORT_SCHEMA;
    use vmtax_model::{Interval, Machine, Variant, WorkloadName, WorkloadSpec};

    /// Configurations with what each costs over the first, as evidence.
    fn evaluated<T>(ways: &[(&str, f64)], rounds: u32, look: impl Fn(&Evidence<'_>) -> T) -> T {
        let workload = WorkloadSpec::new(WorkloadName::Tree);
        let variant = |(way, _): &(&str, f64)| {
            let mut words = way.split(',');
            let mut set = BTreeMap::from([("share".to_owned(), words.next().unwrap().to_owned())]);
            set.extend(
                words
                    .map(|w| w.split_once('=').unwrap())
                    .map(|(k, v)| (format!("share.{k}"), v.to_owned())),
            );
            Variant {
                name: (*way).to_owned(),
                set,
            }
        };
        let variants = ways.iter().map(variant).collect();
        let plan = Plan {
            variants,
            ..Plan::new("share", rounds, vec![Machine::TCG], vec![workload])
        };
        let column = |(way, _): &(&str, f64)| ShareColumn {
            machine: Machine::TCG,
            variant: (*way).to_owned(),
            rounds: 6,
            facts: None,
            cpu_seconds: Vec::new(),
            kept: Vec::new(),
            failed: None,
        };
        let cost = |(_, cost): &(&str, f64)| {
            let interval = Interval {
                low: cost * 0.98,
                high: cost * 1.02,
                coverage: 0.96,
            };
            Some(Estimate {
                median: *cost,
                interval: (rounds >= 6).then_some(interval),
            })
        };
        let too_few = Warning::TooFewRounds { rounds, needed: 6 };
        let shares = ShareFindings {
            schema: REPORT_SCHEMA,
            rounds_planned: 6,
            method: String::new(),
            base: 0,
            columns: ways.iter().map(column).collect(),
            rows: Vec::new(),
            scores: vec![ShareScore {
                workload: WorkloadName::Tree,
                cells: ways.iter().map(cost).collect(),
            }],
            warnings: if rounds < 6 {
                vec![too_few]
            } else {
                Vec::new()
            },
            advice: Vec::new(),
        };
        look(&Evidence {
            plan: Some(&plan),
            shares: Some(&shares),
            ..Evidence::default()
        })
    }

    fn findings_for(id: &str, ways: &[(&str, f64)]) -> Vec<String> {
        evaluated(ways, 6, |evidence| findings(id, evidence))
    }

    #[test]
    fn each_use_has_the_way_that_is_fit_for_it() {
        let ways = [
            ("9p", 1.0),
            ("erofs", 0.1),
            ("9p,cache=loose", 0.3),
            ("virtiofs", 0.5),
            ("virtiofs,cache=always", 0.4),
        ];
        let found = evaluated(&ways, 6, |evidence| advice("faster-share", evidence));
        let texts = [
            "For tree, if nobody changes the tree, erofs takes 0.10 times as long as 9p (0.10 to 0.10).",
            "For tree, if the guest alone changes the tree, 9p,cache=loose takes 0.30 times as long as 9p (0.29 to 0.31).",
            "For tree, also if others change the tree meanwhile, virtiofs takes 0.50 times as long as 9p (0.49 to 0.51).",
        ];
        assert_eq!(found.iter().map(|a| &*a.finding).collect::<Vec<_>>(), texts);
        let remedy = &found[1].remedies[0];
        assert_eq!(
            (&*remedy.setting, &*remedy.value, &*remedy.undo),
            ("share", "9p,share.cache=loose", "share the tree by 9p")
        );
    }

    #[test]
    fn what_is_best_for_much_is_named_once() {
        let told = findings_for(
            "faster-share",
            &[
                ("9p", 1.0),
                ("9p,cache=loose", 0.3),
                ("9p,msize=524288", 0.2),
                ("disk", 0.25),
            ],
        );
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with(
            "For tree, also if others change the tree meanwhile, 9p,msize=524288 takes"
        ));
    }

    #[test]
    fn what_is_not_shown_is_not_advised() {
        let ways = [("9p", 1.0), ("virtiofs", 0.96), ("9p,readonly=on", 0.94)];
        assert_eq!(findings_for("faster-share", &ways), [""; 0]);
        assert_eq!(
            findings_for("no-faster-share", &ways),
            ["For tree no share method is shown to be faster than 9p."]
        );
        assert_eq!(
            findings_for("no-faster-share", &[("9p", 1.0), ("virtiofs", 0.5)]),
            [""; 0]
        );
    }

    #[test]
    fn few_rounds_say_how_many_it_takes_and_nothing_else() {
        let ways = [("9p", 1.0), ("virtiofs", 0.5)];
        let findings_after =
            |id: &str, rounds| evaluated(&ways, rounds, |evidence| findings(id, evidence));
        assert_eq!(
            findings_after("too-few-share-rounds", 3),
            ["3 rounds are too few to show which share method is faster."]
        );
        assert_eq!(findings_after("too-few-share-rounds", 6), [""; 0]);
        assert_eq!(
            [
                findings_after("faster-share", 3),
                findings_after("no-faster-share", 3)
            ],
            [vec![""; 0], vec![]]
        );
    }

    #[test]
    fn a_failed_configuration_is_named_with_the_first_line_of_its_reason() {
        let mut column = ShareColumn {
            machine: Machine::TCG,
            variant: "virtiofs".into(),
            rounds: 0,
            facts: None,
            cpu_seconds: Vec::new(),
            kept: Vec::new(),
            failed: Some("virtiofsd is missing\nmore".into()),
        };
        assert_eq!(
            failed(&column).as_deref(),
            Some("virtiofs could not be measured: virtiofsd is missing")
        );
        column.failed = None;
        assert_eq!(failed(&column), None);
    }

    #[test]
    fn words_can_be_copied() {
        let words = "-fsdev local,id=share,path=/r/1/scratch/tree,security_model=none -trace v9fs_version_return -device x";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        assert_eq!(
            copied(&words, true),
            "-fsdev local,id=share,path=DIRECTORY,security_model=none -device x"
        );
        let words = [
            "mkfs.erofs",
            "-b 4096",
            "/r/scratch/share-1.erofs",
            "/r/scratch/tree",
        ]
        .map(str::to_owned);
        assert_eq!(copied(&words, true), "mkfs.erofs '-b 4096' IMAGE DIRECTORY");
        let words = [
            "v",
            "--fd=4",
            "-object",
            "memory-backend-memfd,id=ram,size=1M",
            "-chardev",
            "socket,id=server,fd=8",
        ];
        let shown = "v --socket-path=SOCKET -object memory-backend-memfd,id=ram,size=1M -machine memory-backend=ram -chardev \
                     socket,id=server,path=SOCKET";
        assert_eq!(copied(&words.map(str::to_owned), true), shown);
        let users = ["path=/scratch/mine,ro".to_owned()];
        assert_eq!(copied(&users, false), "path=/scratch/mine,ro");
    }
}
