//! The threads that a `perf.data` names: each sample has its thread and process, and the kernel tells of names.

use linux_perf_event_reader::{EventRecord, RecordType};
use std::path::Path;
use vmtax_trace::{MAX_THREADS, PerfRecords, TraceError, TracedThreads};

pub(crate) fn read(path: &Path) -> Result<TracedThreads, TraceError> {
    let mut threads = TracedThreads::new();
    PerfRecords::open(path, |_, record| {
        let named = matches!(record.record_type, RecordType::COMM).then(|| record.parse());
        let (process, tid, name) = match named {
            Some(Ok(EventRecord::Comm(comm))) => (
                comm.pid,
                comm.tid,
                String::from_utf8_lossy(&comm.name.as_slice()).into_owned(),
            ),
            _ => match record
                .common_data()
                .ok()
                .and_then(|common| Some((common.pid?, common.tid?)))
            {
                Some((process, tid)) => (process, tid, String::new()),
                None => return,
            },
        };
        if threads.len() < MAX_THREADS || threads.contains_key(&tid) {
            let thread = threads.entry(tid).or_default();
            thread.process = Some(process);
            if !name.is_empty() {
                thread.name = name;
            }
        }
    })?;
    Ok(threads)
}
