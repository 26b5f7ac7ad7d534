//! `trace-events-all`: lines such as `virtio_queue_notify(void *vdev, int n, void *vq) "vdev %p n %d vq %p"`.

use super::template::Template;
use crate::Format;
use crate::import::record::{self, ArgumentKind};

/// One event of the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub name: String,
    pub arguments: Vec<Argument>,
    /// Template of the event's text in QEMU's log.
    pub template: Template,
}

/// One argument of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Argument {
    pub name: String,
    pub kind: ArgumentKind,
}

/// Tracetool's own limit.
const MAX_ARGUMENTS: usize = 10;

pub(super) fn parse(text: &str) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    for (n, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            events.push(
                event(line)
                    .ok_or_else(|| format!("line {n} is not an event declaration of QEMU"))?,
            );
        }
    }
    if events.is_empty() {
        Err("no event declaration of QEMU".to_owned())
    } else {
        Ok(events)
    }
}

fn event(line: &str) -> Option<Event> {
    let (head, rest) = line.split_once('(')?;
    let (arguments, format) = rest.split_once(')')?;
    let mut words = head.split_whitespace().rev();
    let name = words
        .next()
        .filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))?;
    // An event of a guest's vCPU has that before its own arguments (up to QEMU 8.0).
    let vcpu = words.any(|property| property == "vcpu");
    let arguments = if vcpu {
        format!("void *__cpu, {arguments}")
    } else {
        arguments.to_owned()
    };
    let arguments: Vec<Argument> = arguments
        .split(',')
        .filter(|a| a.trim() != "void")
        .map(argument)
        .collect::<Option<_>>()?;
    let format = if vcpu {
        format!("\"cpu=%p \" {format}")
    } else {
        format.to_owned()
    };
    let template = Template::parse(&format, arguments.len());
    (arguments.len() <= MAX_ARGUMENTS).then(|| Event {
        name: name.to_owned(),
        arguments,
        template,
    })
}

fn argument(declaration: &str) -> Option<Argument> {
    let declaration = declaration.trim();
    let of = declaration.trim_end_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let name = &declaration[of.len()..];
    let words: String = of
        .split_whitespace()
        .filter(|&word| word != "const")
        .collect();
    let kind = match words.as_str() {
        "char*" => ArgumentKind::Text,
        "int" | "long" | "longint" | "longlong" | "short" | "char" | "signed" | "ssize_t"
        | "ptrdiff_t" => ArgumentKind::Signed,
        word if word.starts_with("int") && word.ends_with("_t") => ArgumentKind::Signed,
        _ => ArgumentKind::Unsigned,
    };
    (!of.is_empty() && !name.is_empty()).then(|| Argument {
        name: name.to_owned(),
        kind,
    })
}

impl Event {
    /// Where the arguments lie in the records that we make.
    pub fn format(&self) -> Format {
        let own = self
            .arguments
            .iter()
            .enumerate()
            .map(|(n, a)| (a.name.clone(), record::field(n, a.kind)));
        record::format("qemu", &self.name, own)
    }
}
