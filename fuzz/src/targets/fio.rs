//! A job of fio that somebody pasted, and fio's own output: what is run has no option but those that were understood.

use vmtax_workload::FioPaste;

pub fn run(data: &[u8]) {
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
