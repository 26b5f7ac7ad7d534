//! A text that somebody pastes for a review: a VM's configuration, an output of fio or of `perf kvm stat report`.

pub fn run(data: &[u8]) {
    let _ = vmtax_configuration::read_text(data);
    let _ = vmtax_model::without_secrets(&String::from_utf8_lossy(data));
    let text = String::from_utf8_lossy(data);
    if let Ok(Some(found)) = vmtax_configuration::configuration(&text) {
        let most = text.len() + 1; // QEMU's own network card
        assert!(found.disks.len() <= most && found.nics.len() <= most);
    }
    assert!(vmtax_runner::fio_jobs(&text).len() <= text.len());
    let rows = vmtax_runner::exit_report(&text).map_or(0, |report| report.rows.len());
    assert!(rows <= text.len());
}
