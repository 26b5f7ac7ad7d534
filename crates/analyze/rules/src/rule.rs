//! A rule: what it finds, what helps, and how it evaluates evidence; with what the findings and remedies of many rules have in
//! common.

use crate::in_effect::{VmPart, is_to_do};
use crate::{Evidence, Exits};
use serde_json::{Value, json};
use std::path::Path;
use vmtax_findings::{Advice, VmRates};
use vmtax_model::{
    ChangeCost, LiveChange, LiveSetting, Manager, Remedy, Setting, SettingPlace, SettingValue, Vmm,
    shell_line,
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

    /// A finding whose remedy gives back so much.
    pub(crate) fn with_gain(text: String, gain: f64) -> Finding {
        Finding {
            gain,
            ..Finding::new(text)
        }
    }

    /// A finding about a running VM, whose remedy gives back so much; 0 where nobody knows.
    pub(crate) fn of_vm(vm: &VmRates, text: String, gain: f64) -> Finding {
        Finding {
            values: vec![("VM", vm.argument())],
            ..Finding::with_gain(text, gain)
        }
    }
}

/// The finding about a running VM; none where no VM was observed.
pub(crate) fn about_vm<'a>(
    evidence: &Evidence<'a>,
    find: impl FnOnce(&'a VmRates) -> Option<Finding>,
) -> Vec<Finding> {
    evidence.vm.and_then(find).into_iter().collect()
}

/// The finding about VM exits; none where they were not counted.
pub(crate) fn about_exits<'a>(
    evidence: &Evidence<'a>,
    find: impl FnOnce(&'a Exits<'a>) -> Option<Finding>,
) -> Vec<Finding> {
    evidence.exits.and_then(find).into_iter().collect()
}

/// A change of one setting of a running VM, which `vmtax tune` can try.
pub(crate) fn live_change(action: String, setting: LiveSetting, value: String) -> LiveChange {
    LiveChange {
        action,
        cost: ChangeCost::Live,
        metric: None,
        disk: None,
        settings: vec![SettingValue { setting, value }],
    }
}

/// A QMP command as a line for a shell: through libvirt for its domains, else over the QMP socket.
pub(crate) fn qmp(vm: &VmRates, execute: &str, arguments: &Value) -> String {
    let command = json!({ "execute": execute, "arguments": arguments }).to_string();
    if is_libvirts(vm) {
        return virsh(vm, &["qemu-monitor-command", "DOMAIN", &command]);
    }
    qmp_line(vm, &command)
}

/// A line for a shell that passes QMP commands, JSON objects one after the other, to the VM's QMP socket; `QMP_SOCKET` stands for
/// a path that is not known. socat keeps the connection open for a second, since QEMU drops commands of a client that has left.
pub(crate) fn qmp_line(vm: &VmRates, commands: &str) -> String {
    const CLIENT: &str = "socat -t1 -";
    let path = vm.settings.qmp_socket.as_deref();
    let path = path.map_or("QMP_SOCKET".into(), Path::to_string_lossy);
    // Letters that socat reads otherwise in an address.
    let is_special = |letter: &char| "\\,:!\"'([{".contains(*letter);
    let escape = |letter: char| {
        is_special(&letter)
            .then_some('\\')
            .into_iter()
            .chain([letter])
    };
    let path: String = path.chars().flat_map(escape).collect();
    let json = format!("{{\"execute\":\"qmp_capabilities\"}}{commands}");
    // The echo of some shells changes backslashes, unless a quotation mark is behind them.
    let echo: &[&str] = match json.replace("\\\"", "").contains('\\') {
        true => &["printf", "%s"],
        false => &["echo"],
    };
    let echo: Vec<String> = echo.iter().map(|word| (*word).to_owned()).collect();
    let echo = shell_line(&[echo, vec![json]].concat());
    let address = shell_line(&[format!("UNIX-CONNECT:{path},shut-none")]);
    format!("{echo} | {CLIENT} {address}")
}

/// A command of virsh, in which `DOMAIN` stands for the VM.
pub(crate) fn virsh(vm: &VmRates, words: &[impl AsRef<str>]) -> String {
    let word = |word: &_| match (AsRef::as_ref(word), &vm.name) {
        ("DOMAIN", Some(name)) => name.clone(),
        (word, _) => word.to_owned(),
    };
    let words = words.iter().map(word);
    shell_line(
        &["virsh".to_owned()]
            .into_iter()
            .chain(words)
            .collect::<Vec<_>>(),
    )
}

/// Returns true if libvirt has the VM's monitor.
pub(crate) fn is_libvirts(vm: &VmRates) -> bool {
    vm.manager.is_some_and(|manager| manager.is_libvirt())
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
        let vmm = evidence.vmm();
        let text_of_vm = evidence.like.map(|like| ("TEXT", like.to_owned()));
        let values: Vec<_> = values.into_iter().chain(text_of_vm).collect();
        let fitting = (self.remedies.iter())
            .filter(|remedy| Some(remedy.place) != unfit)
            .filter(|remedy| evidence.like.is_some() || **remedy != TUNE_TWIN)
            .map(|remedy| remedy.filled(&with_former_value(&values, remedy, evidence)))
            .filter(|remedy| is_to_do(evidence, &part, remedy))
            .map(|remedy| for_manager(remedy, evidence))
            .filter(|remedy| vmm.is_qemu() || is_of_any_vmm(remedy))
            .map(|remedy| Remedy {
                action: in_words_of(vmm, &remedy.action),
                ..remedy
            })
            .map(|remedy| on_same_guests(remedy, evidence));
        let mut remedies: Vec<Remedy> = fitting.collect();
        if let Some(first) = remedies.first_mut() {
            first.action = as_first(&first.action);
        }
        Advice {
            rule: self.id.to_owned(),
            finding: in_words_of(vmm, &text),
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
    let of_host = evidence.settings_of_host().filter(|_| is_of_host);
    // A recording may be somebody else's, and the line is for root's shell.
    let read = of_host
        .and_then(|settings| settings.get(remedy.read_back))
        .map(|value| shell_line(std::slice::from_ref(value)));
    let usual = Setting::listed(remedy.setting)
        .map(|setting| setting.usual)
        .filter(|usual| is_of_host && !usual.is_empty());
    let before = read.or(usual.map(str::to_owned));
    let before = before.map(|value| ("BEFORE", value));
    values.iter().cloned().chain(before).collect()
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

/// Returns true for a remedy that does not take QEMU, its monitor or libvirt.
fn is_of_any_vmm(remedy: &Remedy) -> bool {
    let is_of_qemu = match remedy.place {
        SettingPlace::QemuArgument | SettingPlace::Qmp | SettingPlace::LibvirtXml => true,
        // Both follow requests by QEMU's functions, or start a QEMU.
        SettingPlace::Vmtax => ["vmtax layers", "vmtax tune"]
            .iter()
            .any(|command| remedy.line.starts_with(command)),
        _ => ["qemu-system", "virsh ", "socat "]
            .iter()
            .any(|word| remedy.line.contains(word)),
    };
    !is_of_qemu
}

/// A text about a VM, which names its VMM where rules that are about any VMM say QEMU.
fn in_words_of(vmm: Vmm, text: &str) -> String {
    if vmm.is_qemu() {
        return text.to_owned();
    }
    let named = text.replace("QEMU", vmm.subject());
    let mut letters = named.chars();
    match letters.next() {
        Some(first) if text.starts_with("QEMU") => first.to_uppercase().chain(letters).collect(),
        _ => named,
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
    let is_measurement = remedy.place == SettingPlace::Vmtax;
    match evidence.plan.filter(|_| is_measurement) {
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

/// Measurement of what changes of the VM's disk give, on a test guest like it.
pub(crate) const TUNE_TWIN: Remedy<&str> = measurement(
    "Measure the gain of other disk settings",
    "vmtax tune --like TEXT -- disk",
);

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
