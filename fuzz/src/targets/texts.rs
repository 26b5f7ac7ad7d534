//! Texts that people write or paste: plans, thresholds, configurations, output of tools.

use vmtax_findings::Thresholds;
use vmtax_mcp::{Form, Line, Message, Parameter, Tool, reply};
use vmtax_model::{Metric, Plan, SECRET_REMOVED, without_secrets};
use vmtax_workload::FioPaste;

/// A plan that a person wrote: a plan or an error, and a plan reads back as itself.
pub fn plan(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    let Ok(plan) = Plan::from_toml(text) else {
        return;
    };
    let written = plan.to_toml().expect("what was read can be written");
    assert_eq!(Plan::from_toml(&written).as_ref(), Ok(&plan));
    if plan.rounds <= 100 {
        let in_rounds = plan
            .schedule()
            .into_iter()
            .filter(|slot| !plan.is_after_rounds(*slot))
            .count();
        assert_eq!(
            in_rounds,
            plan.rounds as usize * plan.columns().len() * plan.steps()
        );
    }
}

/// Thresholds that a person wrote for a check: thresholds within their bounds, or an error.
pub fn thresholds(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    let Ok(thresholds) = Thresholds::from_toml(text) else {
        return;
    };
    assert!((0.5..1.0).contains(&thresholds.confidence));
    assert!(
        Metric::ALL
            .iter()
            .all(|metric| (0.0..=100.0).contains(&thresholds.for_metric(*metric)))
    );
}

/// A job of fio that somebody pasted, and fio's own output: what is run has no option but those that were understood.
pub fn fio(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = vmtax_workload::fio_output(&text);
    let Ok(read) = FioPaste::read(&text, None) else {
        return;
    };
    let line = read.job.command_line();
    assert!(!line.contains('$') && !line.contains(';') && !line.contains('#'));
    let again = FioPaste::read(&line, None);
    assert_eq!(again.map(|again| again.job), Ok(read.job));
}

/// Lines of a client of `vmtax mcp`: messages or errors of one line, and arguments of which none is an option.
pub fn mcp(data: &[u8]) {
    let text = |name: &str, is_required| Parameter {
        name: name.to_owned(),
        description: String::new(),
        form: Form::Text,
        is_required,
    };
    let tool = Tool {
        name: "diagnose".to_owned(),
        description: String::new(),
        is_read_only: false,
        parameters: vec![text("vm", true), text("duration", false)],
    };
    let mut reader = data;
    while let Ok(Line::Whole(line)) = vmtax_mcp::read_line(&mut reader) {
        match Message::parse(&line) {
            Ok(Message::CallTool { id, arguments, .. }) => match tool.check(&arguments) {
                Ok(values) => assert!(
                    values
                        .values()
                        .all(|value| !value.starts_with('-') && !value.contains('\0'))
                ),
                Err(why) => assert!(!reply::failure(&id, &why).contains('\n')),
            },
            Ok(_) => {}
            Err(refused) => assert!(!reply::refused(&refused).contains('\n')),
        }
    }
}

/// A secret that no input has.
const SECRET: &str = "Q7zT9secretless0w";

/// A text that somebody pastes for a review: a VM's configuration, an output of fio or of `perf kvm stat report`.
pub fn review(data: &[u8]) {
    if let Ok(read) = vmtax_configuration::read_text(data) {
        let _ = vmtax_configuration::configuration(&read);
    }
    let text = String::from_utf8_lossy(data);
    let place = (0..=text.len() / 2)
        .rev()
        .find(|at| text.is_char_boundary(*at));
    let (before, behind) = text.split_at(place.unwrap_or(0));
    for form in [
        format!("{before} --token {SECRET} {behind}"),
        format!("{before}\nPG_PASSWORD={SECRET}\n{behind}"),
        format!("{before} nbd://bob:{SECRET}@h/x {behind}"),
    ] {
        // A second reading of broken markup may find more, and change what the first one left.
        let cleared = without_secrets(&form);
        assert!(
            cleared.contains(SECRET_REMOVED) && !cleared.contains(SECRET),
            "{form}"
        );
        let found = vmtax_configuration::configuration(&cleared);
        assert!(!format!("{found:?}").contains(SECRET));
    }
    if let Ok(Some(found)) = vmtax_configuration::configuration(&text) {
        let most = text.len() + 1; // QEMU's own network card
        assert!(found.disks.len() <= most && found.nics.len() <= most);
    }
    assert!(vmtax_runner::fio_jobs(&text).len() <= text.len());
    let rows = vmtax_runner::exit_report(&text).len();
    assert!(rows <= text.len());
}

/// A domain's XML or a QEMU command line that somebody gives as the original of a twin, and the header of its image.
pub fn twin(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let set = vmtax_configuration::read_twin(&text);
    assert!(
        set <= text.len() + 8,
        "{set} settings of {} bytes",
        text.len()
    );
}

/// Output of a command: never a panic, and only figures that a table can hold.
pub fn tools(data: &[u8]) {
    let figures = vmtax_runner::tool_output::figures(&String::from_utf8_lossy(data));
    assert!(figures.len() <= 200);
    for (i, figure) in figures.iter().enumerate() {
        assert!(figure.value.is_finite() && figure.name.len() < 256 && figure.of.len() < 256);
        assert!(!figures[..i].iter().any(|other| other.is_like(figure)));
    }
}
