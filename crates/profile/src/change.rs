//! What changed between two profiles, function by function.

use crate::profile::Profile;
use crate::summary::share;
use std::collections::{BTreeSet, HashMap};
use vmtax_model::FunctionChange;

/// The functions whose share of the samples, in themselves, differs by more than sampling leaves open: their intervals at
/// 95 % do not meet, which chance does to one in some two hundred that did not change. The largest change first.
pub fn changes(before: &Profile, after: &Profile) -> Vec<FunctionChange> {
    let (old, new) = (inside(before), inside(after));
    let names: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
    let of = |counts: &HashMap<&str, u64>, name, profile: &Profile| {
        share(counts.get(name).copied().unwrap_or(0), profile.total())
    };
    let changes = names.into_iter().map(|name| FunctionChange {
        name: name.to_owned(),
        before: of(&old, name, before),
        after: of(&new, name, after),
    });
    let apart = |c: &FunctionChange| c.before.high < c.after.low || c.after.high < c.before.low;
    let mut changes: Vec<FunctionChange> = changes.filter(apart).collect();
    let size = |c: &FunctionChange| (c.after.share - c.before.share).abs();
    changes.sort_by(|a, b| size(b).total_cmp(&size(a)));
    changes
}

/// Samples by the function that they were in.
fn inside(profile: &Profile) -> HashMap<&str, u64> {
    let mut counts = HashMap::new();
    for sample in &profile.samples {
        if let Some(&leaf) = profile.stacks[sample.stack].last() {
            *counts.entry(profile.functions[leaf].name.as_str()).or_default() += sample.weight;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::unfold;
    use std::path::Path;

    #[test]
    fn what_is_gone_is_named_and_what_may_be_chance_is_not() {
        let of = |text: &str| unfold(text, Path::new("x")).unwrap();
        let before = of("t;main;look_up 400\nt;main;other 300\nt;main 300\n");
        let after = of("t;main;other 230\nt;main 260\nt;main;new 10\n");
        let found = changes(&before, &after);
        let names: Vec<&str> = found.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["look_up", "main", "other", "new"]);
        assert_eq!((found[0].before.share, found[0].after.samples), (0.4, 0));
        assert_eq!(changes(&before, &before), []);
        // 5 against 8 of a hundred say nothing.
        assert_eq!(changes(&of("t;a 95\nt;b 5\n"), &of("t;a 92\nt;b 8\n")), []);
    }
}
