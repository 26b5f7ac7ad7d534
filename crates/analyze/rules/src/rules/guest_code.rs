//! Rules about avoidable costs in a guest's code.

use crate::evidence::CodePattern;
use crate::rule::instruction;
use crate::{Evidence, Finding, Rule};

/// Fewer samples, or a smaller part of all, are not worth a finding.
const MIN_SAMPLES: u64 = 5;
const MIN_SHARE: f64 = 0.01;

pub(super) const DIVISION: Rule = Rule {
    id: "division",
    finds: "vCPUs right behind a division by 64 bits",
    remedies: &[instruction(
        "Where the divisor stays the same, as a clock's rate does, multiply and shift: mult = (10^9 << 32) / rate, made once, \
         then ns = (ticks * mult) >> 32",
        "",
    )],
    source: "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar): two divisions, some 100 cycles, became one \
             multiplication of some 6",
    evaluate: |evidence| {
        samples_at(
            evidence,
            CodePattern::Division,
            "behind a division by 64 bits",
        )
    },
};

pub(super) const LOCK_SAVES_INTERRUPTS: Rule = Rule {
    id: "lock-saves-interrupts",
    finds: "vCPUs behind a `pushf` with a `cli`, up to the `popf`, with an atomic access between them",
    remedies: &[instruction(
        "Leave the flag alone around locks that no interrupt handler takes (in Linux: spin_lock instead of \
         spin_lock_irqsave)",
        "",
    )],
    source: "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar): a read of /dev/null went from 391 to 311 ns",
    evaluate: |evidence| {
        let place = "where the interrupt flag is saved, cleared and restored around a lock";
        samples_at(evidence, CodePattern::LockSavesInterrupts, place)
    },
};

pub(super) const SMALL_COPIES: Rule = Rule {
    id: "small-copies",
    finds: "vCPUs in a function that copies one word and calls nothing, where that is called twice in a row, or between such \
            calls",
    remedies: &[instruction(
        "Copy all of it in one call: the call and its check are then made once",
        "",
    )],
    source: "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar): 16 bytes in one copy halved the overhead of \
             two",
    evaluate: |evidence| {
        let place = "in a function that copies one word, or at two calls of it in a row";
        samples_at(evidence, CodePattern::SmallCopies, place)
    },
};

fn samples_at(evidence: &Evidence<'_>, pattern: CodePattern, place: &str) -> Vec<Finding> {
    let Some(code) = evidence.code else {
        return Vec::new();
    };
    let at = code.patterns.iter().filter(|(of, share, _)| {
        *of == pattern && share.samples >= MIN_SAMPLES && share.share >= MIN_SHARE
    });
    let finding = |share: f64, address: u64| {
        let text = format!(
            "{:.1} % of {} samples found the guest's vCPUs {place}, most at {address:#x}.",
            share * 100.0,
            code.samples
        );
        Finding::with_gain(text, share)
    };
    at.map(|(_, share, address)| finding(share.share, *address))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GuestCodeSamples;
    use crate::test_evidence::findings;
    use vmtax_findings::SampleShare;

    #[test]
    fn each_pattern_fires_on_its_samples_from_five_and_a_hundredth_on() {
        let findings_for = |pattern, id, samples: u64, all: u64| {
            let share = SampleShare {
                samples,
                share: samples as f64 / all as f64,
                ..SampleShare::default()
            };
            let code = GuestCodeSamples {
                samples: all,
                patterns: vec![(pattern, share, 0x100048)],
            };
            findings(
                id,
                &Evidence {
                    code: Some(&code),
                    ..Evidence::default()
                },
            )
        };
        let division = findings_for(CodePattern::Division, "division", 10, 20);
        assert_eq!(
            division,
            [
                "50.0 % of 20 samples found the guest's vCPUs behind a division by 64 bits, most at 0x100048."
            ]
        );
        assert_eq!(
            findings_for(
                CodePattern::LockSavesInterrupts,
                "lock-saves-interrupts",
                10,
                20
            )
            .len(),
            1
        );
        assert_eq!(
            findings_for(CodePattern::SmallCopies, "small-copies", 10, 20).len(),
            1
        );
        assert_eq!(
            findings_for(CodePattern::Division, "small-copies", 10, 20),
            [""; 0],
            "another pattern"
        );
        assert_eq!(
            findings_for(CodePattern::Division, "division", 4, 20),
            [""; 0],
            "too few"
        );
        assert_eq!(
            findings_for(CodePattern::Division, "division", 10, 2000),
            [""; 0],
            "half a percent"
        );
    }
}
