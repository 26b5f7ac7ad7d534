//! The difference of two texts.

/// Lines around a change in a diff.
const CONTEXT: usize = 3;
/// Longer texts are shown as replaced as a whole.
const MAX_LINES: usize = 2000;

/// Returns the output of `diff -u`, in one hunk; empty where nothing differs.
pub(super) fn unified_diff(before: &str, after: &str) -> String {
    let (a, b): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let same = |a: &[&str], b: &[&str], from_end: bool| {
        let pairs = a.len().min(b.len());
        let is_same = |i: &usize| {
            if from_end {
                a[a.len() - 1 - i] == b[b.len() - 1 - i]
            } else {
                a[*i] == b[*i]
            }
        };
        (0..pairs).take_while(is_same).count()
    };
    let head = same(&a, &b, false);
    let tail = same(&a[head..], &b[head..], true);
    let (middle_a, middle_b) = (&a[head..a.len() - tail], &b[head..b.len() - tail]);
    if middle_a.is_empty() && middle_b.is_empty() {
        return String::new();
    }
    let (first, last) = (head.min(CONTEXT), tail.min(CONTEXT));
    let mut lines: Vec<String> = a[head - first..head]
        .iter()
        .map(|line| format!(" {line}"))
        .collect();
    lines.extend(changes(middle_a, middle_b));
    lines.extend(
        a[a.len() - tail..][..last]
            .iter()
            .map(|line| format!(" {line}")),
    );
    let begin = head - first + 1;
    let (before, after) = (first + middle_a.len() + last, first + middle_b.len() + last);
    let head =
        format!("--- domain.xml\n+++ domain.xml\n@@ -{begin},{before} +{begin},{after} @@\n");
    head + &lines
        .iter()
        .map(|line| format!("{line}\n"))
        .collect::<String>()
}

/// The lines of both, those in common once.
fn changes(a: &[&str], b: &[&str]) -> Vec<String> {
    let (removed, added) = (
        |line: &&str| format!("-{line}"),
        |line: &&str| format!("+{line}"),
    );
    if a.len() > MAX_LINES || b.len() > MAX_LINES {
        return a.iter().map(removed).chain(b.iter().map(added)).collect();
    }
    // The longest common subsequence of the rest, from each pair of lines on.
    let mut length = vec![vec![0_u16; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            length[i][j] = if a[i] == b[j] {
                length[i + 1][j + 1] + 1
            } else {
                length[i + 1][j].max(length[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            lines.push(format!(" {}", a[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == b.len() || (i < a.len() && length[i + 1][j] >= length[i][j + 1]) {
            lines.push(removed(&a[i]));
            i += 1;
        } else {
            lines.push(added(&b[j]));
            j += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_diff_makes_one_text_of_the_other(a in "([ab]\n){0,12}", b in "([ab]\n){0,12}") {
            let diff = unified_diff(&a, &b);
            let begin = diff.split("@@ -").nth(1).map_or(0, |rest| rest.split(',').next().unwrap().parse::<usize>().unwrap() - 1);
            let mut made: Vec<&str> = a.lines().take(begin).collect();
            let mut passed = begin;
            for line in diff.lines().skip(3) {
                if let Some(added) = line.strip_prefix('+') {
                    made.push(added);
                } else {
                    let old = a.lines().nth(passed).unwrap();
                    prop_assert_eq!(&line[1..], old);
                    passed += 1;
                    if line.starts_with(' ') {
                        made.push(old);
                    }
                }
            }
            made.extend(a.lines().skip(passed));
            prop_assert_eq!(made, b.lines().collect::<Vec<_>>());
        }
    }
}
