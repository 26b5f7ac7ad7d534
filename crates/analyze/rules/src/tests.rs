//! Tests of properties that every rule has to have.

use crate::{Evidence, rules};
use std::collections::BTreeSet;
use std::path::Path;
use vmtax_model::{Remedy, SettingPlace};

#[test]
fn every_rule_has_an_identifier_of_its_own() {
    let ids: BTreeSet<&str> = rules().map(|rule| rule.id).collect();
    assert_eq!(ids.len(), rules().count());
    let kebab = |id: &&str| {
        id.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    assert_eq!(ids.iter().find(|id| !kebab(id)), None);
}

#[test]
fn no_rule_fires_without_evidence() {
    assert_eq!(crate::evaluate(&Evidence::default()), []);
}

#[test]
fn every_setting_can_be_applied_read_back_and_undone() {
    for rule in rules() {
        for remedy in rule.remedies {
            let settable = remedy.place != SettingPlace::Instruction;
            let complete = !remedy.value.is_empty()
                && remedy.cost.is_some()
                && !remedy.line.is_empty()
                && !remedy.read_back.is_empty()
                && !remedy.undo.is_empty();
            assert!(
                !remedy.action.is_empty() && !remedy.action.ends_with('.'),
                "{}: {remedy:?}",
                rule.id
            );
            assert!(
                remedy.setting.is_empty() || (settable && complete),
                "{}: {remedy:?}",
                rule.id
            );
            let command = remedy.place == SettingPlace::Vmtax && !remedy.line.is_empty();
            assert!(
                !settable || command || !remedy.setting.is_empty(),
                "{}: {remedy:?}",
                rule.id
            );
        }
    }
}

/// `make test` fails where the page is out of date; with VMTAX_WRITE_DOCS set, this writes it.
#[test]
fn the_page_of_rules_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/rules.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, _) = page.split_once("| rule |").unwrap();
    let current = format!("{head}{}", table());
    if std::env::var_os("VMTAX_WRITE_DOCS").is_some() {
        std::fs::write(&path, &current).unwrap();
    } else {
        assert!(
            page == current,
            "docs/rules.md is out of date: VMTAX_WRITE_DOCS=1 cargo test -p vmtax-rules"
        );
    }
}

fn table() -> String {
    let cell = |text: &str| text.replace('\n', " ").replace('|', "\\|");
    let remedy = |remedy: &Remedy<&str>| {
        let cost = remedy
            .cost
            .map_or(String::new(), |cost| format!("; {cost}"));
        let setting = match remedy.setting {
            "" => String::new(),
            setting => format!(" `{setting}={}`", remedy.value),
        };
        format!("{} ({}{setting}{cost})", cell(remedy.action), remedy.place)
    };
    let row = |rule: &crate::Rule| {
        let remedies: Vec<String> = rule.remedies.iter().map(remedy).collect();
        let remedies = if remedies.is_empty() {
            "none".to_owned()
        } else {
            remedies.join("<br>")
        };
        let source = if rule.source.is_empty() {
            "its own figures"
        } else {
            rule.source
        };
        format!(
            "| `{}` | {} | {remedies} | {} |\n",
            rule.id,
            cell(rule.finds),
            cell(source)
        )
    };
    let rows: String = rules().map(row).collect();
    format!(
        "| rule | finds | remedies (where `setting`; what applying costs) | source |\n|---|---|---|---|\n{rows}"
    )
}
