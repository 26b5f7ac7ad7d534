//! Which way to share a tree: by what was shown, never by a median alone.

use vmtax_model::{Estimate, Plan, Share, ShareColumn, ShareFindings, ShareMethod, shell_line};

const MOST: usize = 5;
/// Faster by less than this is not worth another way to share.
const WORTH: f64 = 0.95;

/// Where a run has what it made for itself.
const SCRATCH: &str = "/scratch/";

/// Who changes the tree while the guest has it: not every way is fit for that. In the order of what it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Nobody,
    TheGuest,
    Others,
}

impl Use {
    const ALL: [Use; 3] = [Use::Nobody, Use::TheGuest, Use::Others];

    fn allows(self, share: &Share) -> bool {
        let written = !share.is_read_only();
        match self {
            Use::Nobody => true,
            Use::TheGuest => written,
            Use::Others => written && sees_others(share),
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Use::Nobody => "if nobody changes the tree",
            Use::TheGuest => "if the guest alone changes the tree",
            Use::Others => "also if others change the tree meanwhile",
        }
    }
}

/// Whether a guest comes to see what others change. An image is a copy; a cache that never asks again does not.
fn sees_others(share: &Share) -> bool {
    let cache = share.option("cache");
    match share.method {
        ShareMethod::NineP => matches!(cache, None | Some("none" | "mmap")),
        ShareMethod::Virtiofs => cache != Some("always"),
        // The kernel's own longest, in seconds.
        ShareMethod::Nfs3 | ShareMethod::Nfs4 => {
            share.option("actimeo").is_none_or(|s| s.parse().is_ok_and(|s: u32| s <= 60))
        }
        method => !method.is_image(),
    }
}

/// The advice, most important first.
pub(crate) fn advice(plan: &Plan, findings: &ShareFindings) -> Vec<String> {
    let mut all = Vec::new();
    for score in &findings.scores {
        let Some(base) = findings.columns.get(findings.base) else { continue };
        let guests = findings.columns.iter().zip(&score.cells).enumerate();
        let ways = guests.filter(|(i, (c, _))| *i != findings.base && c.machine.is_guest());
        let known: Vec<(&ShareColumn, Estimate)> = ways.filter_map(|(_, (c, e))| Some((c, (*e)?))).collect();
        let best = |purpose: Use| best(plan, &known, purpose);
        // What is best for much is best for little too, and is named once.
        let mut named: Vec<(Use, &(&ShareColumn, Estimate))> = Vec::new();
        for (purpose, way) in Use::ALL.into_iter().filter_map(|u| Some((u, best(u)?))) {
            match named.last_mut().filter(|(_, last)| std::ptr::eq(*last, way)) {
                Some((most, _)) => *most = purpose,
                None => named.push((purpose, way)),
            }
        }
        let shown = !named.is_empty();
        all.extend(named.iter().map(|(purpose, way)| take(plan, score.workload.as_str(), *purpose, base, way)));
        if !shown && known.iter().any(|(_, e)| e.interval.is_some()) {
            let (workload, base) = (score.workload, base.variant.escape_default());
            all.push(format!("For {workload} no way is shown to be faster than {base}."));
        }
    }
    all.extend(findings.columns.iter().filter_map(failed));
    if all.is_empty() && plan.rounds < crate::FEWEST_ROUNDS {
        all.push(format!("Take {} rounds or more to know which way is faster: --rounds {0}.", crate::FEWEST_ROUNDS));
    }
    all.truncate(MOST);
    all
}

/// The way that is shown to cost least of those that are fit.
fn best<'a, 'b>(
    plan: &Plan,
    known: &'b [(&'a ShareColumn, Estimate)],
    purpose: Use,
) -> Option<&'b (&'a ShareColumn, Estimate)> {
    let fit = |column: &ShareColumn| {
        let variant = plan.variants.iter().find(|v| v.name == column.variant);
        variant.and_then(|v| v.share().ok().flatten()).is_some_and(|share| purpose.allows(&share))
    };
    let shown = known.iter().filter(|(c, e)| fit(c) && e.interval.is_some_and(|i| i.high < WORTH));
    // By the interval's upper end: what it costs at most.
    let at_most = |e: &Estimate| e.interval.map_or(e.median, |i| i.high);
    shown.min_by(|a, b| at_most(&a.1).total_cmp(&at_most(&b.1)))
}

fn take(
    plan: &Plan,
    workload: &str,
    purpose: Use,
    base: &ShareColumn,
    (column, cost): &(&ShareColumn, Estimate),
) -> String {
    let own = plan.tree.as_ref().is_none_or(|tree| tree.path.is_none());
    let range = cost.interval.map_or(String::new(), |i| format!(" ({:.2} to {:.2})", i.low, i.high));
    let mut text = format!(
        "For {workload}, {}, share by {}: it takes {:.2} times as long as {}{range}.",
        purpose.words(),
        column.variant.escape_default(),
        cost.median,
        base.variant.escape_default()
    );
    if let Some(facts) = &column.facts {
        if let Some(image) = &facts.image {
            text += &format!("\n# image, made in {:.1} s\n{}", image.seconds, copied(&image.command, own));
        }
        if !facts.server.is_empty() {
            text += &format!("\n# server\n{}", copied(&facts.server, own));
        }
        text += &format!("\n# QEMU\n{}", copied(&facts.qemu, own));
        text += &format!("\n# in the guest\n{}", facts.mount_command);
    }
    text
}

/// Words as a person can use them: without those that only let us watch, with a socket for the stream that server and QEMU were
/// started with, and where the tree is the run's `own` with a folder and an image of theirs for those that went with the run.
fn copied(words: &[String], own: bool) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-trace" => drop(words.next()),
            stream if stream.starts_with("--fd=") => shown.push("--socket-path=SOCKET".to_owned()),
            stream if stream.starts_with("socket,id=server,fd=") => {
                shown.push("socket,id=server,path=SOCKET".to_owned())
            }
            memory if memory.starts_with("memory-backend-memfd,id=ram,") => {
                // What the machine itself needs for it.
                shown.extend([memory, "-machine", "memory-backend=ram"].map(str::to_owned));
            }
            word if own => shown.push(replaced(word)),
            word => shown.push(word.to_owned()),
        }
    }
    shell_line(&shown)
}

/// A word with the user's folder or image for the run's.
fn replaced(word: &str) -> String {
    let Some(at) = word.find(SCRATCH) else { return word.to_owned() };
    let start = word[..at].rfind(['=', '"', ' ']).map_or(0, |at| at + 1);
    let rest = &word[at + SCRATCH.len()..];
    let (name, after) = rest.split_at(rest.find([',', '"', ' ']).unwrap_or(rest.len()));
    let theirs = if name == "tree" { "FOLDER" } else { "IMAGE" };
    format!("{}{theirs}{after}", &word[..start])
}

fn failed(column: &ShareColumn) -> Option<String> {
    let reason = column.failed.as_ref()?;
    let name = if column.variant.is_empty() { column.machine.as_str() } else { &column.variant };
    Some(format!("{} could not be measured: {}", name.escape_default(), reason.lines().next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use vmtax_model::{Interval, Machine, SCHEMA, ShareScore, Variant, WorkloadName, WorkloadSpec};

    /// Ways with what each costs over the first.
    fn told(ways: &[(&str, f64)]) -> Vec<String> {
        let workload = WorkloadSpec::new(WorkloadName::Tree);
        let variant = |(way, _): &(&str, f64)| {
            let mut words = way.split(',');
            let mut set = BTreeMap::from([("share".to_owned(), words.next().unwrap().to_owned())]);
            set.extend(words.map(|w| w.split_once('=').unwrap()).map(|(k, v)| (format!("share.{k}"), v.to_owned())));
            Variant { name: (*way).to_owned(), set }
        };
        let variants = ways.iter().map(variant).collect();
        let plan = Plan { variants, ..Plan::new("share", 6, vec![Machine::TCG], vec![workload]) };
        let column = |(way, _): &(&str, f64)| ShareColumn {
            machine: Machine::TCG,
            variant: (*way).to_owned(),
            rounds: 6,
            facts: None,
            processor: Vec::new(),
            kept: Vec::new(),
            failed: None,
        };
        let cost = |(_, cost): &(&str, f64)| {
            let interval = Interval { low: cost * 0.98, high: cost * 1.02, coverage: 0.96 };
            Some(Estimate { median: *cost, interval: Some(interval) })
        };
        let findings = ShareFindings {
            schema: SCHEMA,
            rounds_planned: 6,
            method: String::new(),
            base: 0,
            columns: ways.iter().map(column).collect(),
            rows: Vec::new(),
            scores: vec![ShareScore { workload: WorkloadName::Tree, cells: ways.iter().map(cost).collect() }],
            warnings: Vec::new(),
            advice: Vec::new(),
        };
        advice(&plan, &findings)
    }

    #[test]
    fn each_use_has_the_way_that_is_fit_for_it() {
        let ways =
            [("9p", 1.0), ("erofs", 0.1), ("9p,cache=loose", 0.3), ("virtiofs", 0.5), ("virtiofs,cache=always", 0.4)];
        let told = told(&ways);
        assert_eq!(told.len(), 3, "{told:?}");
        for (line, start) in told.iter().zip([
            "For tree, if nobody changes the tree, share by erofs: it takes 0.10 times as long as 9p (0.10 to 0.10).",
            "For tree, if the guest alone changes the tree, share by 9p,cache=loose: it takes 0.30",
            "For tree, also if others change the tree meanwhile, share by virtiofs: it takes 0.50",
        ]) {
            assert!(line.starts_with(start), "{line}");
        }
    }

    #[test]
    fn what_is_best_for_much_is_named_once() {
        let told = told(&[("9p", 1.0), ("9p,cache=loose", 0.3), ("9p,msize=524288", 0.2), ("disk", 0.25)]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("For tree, also if others change the tree meanwhile, share by 9p,msize=524288:"));
    }

    #[test]
    fn what_is_not_shown_is_not_advised() {
        let told = told(&[("9p", 1.0), ("virtiofs", 0.96), ("9p,readonly=on", 0.94)]);
        assert_eq!(told, ["For tree no way is shown to be faster than 9p."]);
    }

    #[test]
    fn words_can_be_copied() {
        let words =
            "-fsdev local,id=share,path=/r/1/scratch/tree,security_model=none -trace v9fs_version_return -device x";
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        assert_eq!(copied(&words, true), "-fsdev local,id=share,path=FOLDER,security_model=none -device x");
        let words = ["mkfs.erofs", "-b 4096", "/r/scratch/share-1.erofs", "/r/scratch/tree"].map(str::to_owned);
        assert_eq!(copied(&words, true), "mkfs.erofs '-b 4096' IMAGE FOLDER");
        let words =
            ["v", "--fd=4", "-object", "memory-backend-memfd,id=ram,size=1M", "-chardev", "socket,id=server,fd=8"];
        let shown = "v --socket-path=SOCKET -object memory-backend-memfd,id=ram,size=1M -machine memory-backend=ram -chardev \
                     socket,id=server,path=SOCKET";
        assert_eq!(copied(&words.map(str::to_owned), true), shown);
        let users = ["path=/scratch/mine,ro".to_owned()];
        assert_eq!(copied(&users, false), "path=/scratch/mine,ro");
    }
}
