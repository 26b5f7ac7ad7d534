//! A rule: what it finds, what helps, and how it evaluates evidence.

use crate::Evidence;
use crate::in_effect::{VmPart, is_to_do};
use vmtax_model::{
    Advice, ChangeCost, LiveChange, Manager, Remedy, Setting, SettingPlace, shell_line,
};

/// A known cost.
#[derive(Debug)]
pub struct Rule {
    /// Stable and unique, in kebab-case.
    pub id: &'static str,
    /// Description of the finding and its condition, a noun phrase for docs/rules.md.
    pub finds: &'static str,
    /// Remedies, best first. Words in capitals (`ROUNDS`) are filled in by [`Finding::values`], or by the reader.
    pub remedies: &'static [Remedy<&'static str>],
    /// Who published the cost or the mechanism; empty where the measured figures are all that it rests on.
    pub source: &'static str,
    /// Function that returns the findings for this evidence, one for each machine or configuration it applies to.
    pub evaluate: fn(&Evidence<'_>) -> Vec<Finding>,
}

/// Result of a rule for one piece of evidence.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Finding {
    /// One sentence with its figure.
    pub text: String,
    /// Gain of the remedy, as [`Advice::gain`].
    pub gain: f64,
    /// Words of the remedies, each with its replacement.
    pub values: Vec<(&'static str, String)>,
    /// Live change, as [`Advice::change`].
    pub change: Option<LiveChange>,
    /// Where a remedy must not be set with this evidence.
    pub unfit: Option<SettingPlace>,
    /// The part of the VM that it is about.
    pub part: VmPart,
}

impl Finding {
    /// A finding whose remedy gives back an amount that nobody knows.
    pub fn new(text: String) -> Finding {
        Finding {
            text,
            ..Finding::default()
        }
    }
}

impl Rule {
    /// Returns the rule's findings, with its remedies.
    pub(crate) fn advice(&self, evidence: &Evidence<'_>) -> impl Iterator<Item = Advice> {
        (self.evaluate)(evidence)
            .into_iter()
            .map(|finding| self.advice_on(finding, evidence))
    }

    /// A finding with the remedies that are left to do.
    pub(crate) fn advice_on(&self, finding: Finding, evidence: &Evidence<'_>) -> Advice {
        let Finding {
            text,
            gain,
            values,
            change,
            unfit,
            part,
        } = finding;
        let fitting = (self.remedies.iter())
            .filter(|remedy| Some(remedy.place) != unfit)
            .map(|remedy| remedy.filled(&with_former_value(&values, remedy, evidence)))
            .filter(|remedy| is_to_do(evidence, &part, remedy))
            .map(|remedy| for_manager(remedy, evidence))
            .map(|remedy| on_same_guests(remedy, evidence));
        let mut remedies: Vec<Remedy> = fitting.collect();
        if let Some(first) = remedies.first_mut() {
            first.action = as_first(&first.action);
        }
        Advice {
            rule: self.id.to_owned(),
            finding: text,
            gain,
            remedies,
            change,
            source: self.source.to_owned(),
        }
    }
}

/// The words with `BEFORE`, the value of a file of the host, where the finding says none: as it was read, else the kernel's own.
fn with_former_value(
    values: &[(&'static str, String)],
    remedy: &Remedy<&'static str>,
    evidence: &Evidence<'_>,
) -> Vec<(&'static str, String)> {
    let is_of_host = remedy.place == SettingPlace::HostSysfs;
    let of_host = evidence.host.filter(|_| is_of_host);
    // A recording may be somebody else's, and the line is for root's shell.
    let read = of_host
        .and_then(|host| host.settings.get(remedy.read_back))
        .map(|value| shell_line(std::slice::from_ref(value)));
    let usual = Setting::listed(remedy.setting)
        .map(|setting| setting.usual)
        .filter(|usual| is_of_host && !usual.is_empty());
    let before = read.or(usual.map(str::to_owned));
    values
        .iter()
        .cloned()
        .chain(before.map(|value| ("BEFORE", value)))
        .collect()
}

/// Comments behind a line that say what a manager has for it, in this order.
const LIBVIRT: &str = " # libvirt: ";
const PROXMOX: &str = " # Proxmox: ";

/// A remedy in the words of the VM's manager.
fn for_manager(remedy: Remedy, evidence: &Evidence<'_>) -> Remedy {
    let managed = evidence
        .facts
        .and_then(|facts| facts.managed.as_ref())
        .map(|managed| managed.manager);
    let configured = evidence.configuration.and_then(|text| text.manager);
    let manager = managed
        .or(evidence.vm.and_then(|vm| vm.manager))
        .or(configured);
    let (line, of_proxmox) = match remedy.line.split_once(PROXMOX) {
        Some((line, of_proxmox)) => (line, Some(of_proxmox)),
        None => (remedy.line.as_str(), None),
    };
    let line = match (manager, of_proxmox, line.split_once(LIBVIRT)) {
        (Some(Manager::Proxmox), Some(of_proxmox), _) => of_proxmox,
        (Some(manager), _, _) if manager.is_libvirt() => line,
        (_, _, Some((line, _))) => line,
        (_, _, None) => line,
    };
    Remedy {
        line: line.to_owned(),
        ..remedy
    }
}

/// An action without its "Or", which refers to one before it.
fn as_first(action: &str) -> String {
    let Some(rest) = action.strip_prefix("Or ") else {
        return action.to_owned();
    };
    let mut letters = rest.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// A proposed measurement is of the guests that were measured.
fn on_same_guests(remedy: Remedy, evidence: &Evidence<'_>) -> Remedy {
    match evidence
        .plan
        .filter(|_| remedy.place == SettingPlace::Vmtax)
    {
        Some(plan) => Remedy {
            line: plan.on_same_guests(&remedy.line),
            ..remedy
        },
        None => remedy,
    }
}

const EMPTY: Remedy<&str> = Remedy {
    place: SettingPlace::Instruction,
    setting: "",
    value: "",
    action: "",
    line: "",
    cost: None,
    read_back: "",
    undo: "",
};

/// Something that a person does; nothing can be set.
pub(crate) const fn instruction(action: &'static str, line: &'static str) -> Remedy<&'static str> {
    Remedy {
        action,
        line,
        ..EMPTY
    }
}

/// More rounds, `ROUNDS` of them.
pub(crate) const fn rounds(action: &'static str) -> Remedy<&'static str> {
    Remedy {
        place: SettingPlace::Vmtax,
        setting: "rounds",
        value: "ROUNDS",
        action,
        line: "--rounds ROUNDS",
        cost: Some(ChangeCost::Measurement),
        read_back: "plan.toml of the recording",
        undo: "leave --rounds out",
    }
}

/// A command of vmtax that measures the same more closely.
pub(crate) const fn measurement(action: &'static str, line: &'static str) -> Remedy<&'static str> {
    Remedy {
        place: SettingPlace::Vmtax,
        action,
        line,
        cost: Some(ChangeCost::Measurement),
        ..EMPTY
    }
}
