//! Lists of CPUs as the kernel writes them: `0-3,8`.

/// No list names a CPU beyond this.
const MAX_CPU: usize = 1 << 16;

/// The CPUs of a list; `None` for any other text.
pub fn parse(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // Parts that overlap could name more than there are.
        if last > MAX_CPU || all.len() > MAX_CPU {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// A list of CPUs in ascending order.
pub fn format(cpus: impl Iterator<Item = usize>) -> String {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => spans.push((cpu, cpu)),
        }
    }
    let text = |(first, last): (usize, usize)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    spans.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_list_is_read_as_it_is_written(cpus in proptest::collection::btree_set(0_usize..1024, 1..40)) {
            let text = format(cpus.iter().copied());
            prop_assert_eq!(parse(&text), Some(cpus.into_iter().collect::<Vec<_>>()));
        }

        #[test]
        fn any_text_is_survived(text in "[0-9,-]{0,30}") {
            let _ = parse(&text);
        }
    }
}
