//! A text that somebody pastes for a review: a VM's configuration, an output of fio or of `perf kvm stat report`.

use vmtax_model::{SECRET_REMOVED, without_secrets};

/// A secret that no input has.
const SECRET: &str = "Q7zT9secretless0w";

pub fn run(data: &[u8]) {
    let _ = vmtax_configuration::read_text(data);
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
    let rows = vmtax_runner::exit_report(&text).map_or(0, |report| report.rows.len());
    assert!(rows <= text.len());
}
