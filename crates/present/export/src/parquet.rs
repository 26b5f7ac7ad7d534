//! Joined requests as Parquet: a row for each request, and a row for each segment of one. docs/export.md is the schema.

use crate::joined::Sheet;
use crate::table::{Cell, Column, Table, text};
use crate::{ExportError, Trial};
use parquet::data_type::ByteArray;
use std::io::Write;
use vmtax_findings::State;
use vmtax_layers::Who;
use vmtax_model::Checkpoint;

/// A checkpoint's name in files.
fn name(checkpoint: Checkpoint) -> String {
    checkpoint.id().replace('-', "_")
}

/// The columns that hold when a request passed each checkpoint.
fn checkpoint_columns() -> [String; Checkpoint::COUNT] {
    Checkpoint::ALL.map(|checkpoint| format!("{}_ns", name(checkpoint)))
}

/// A state's name in files, and the column of the time in it.
const STATES: [(State, &str, &str); 9] = [
    (State::Running, "running", "running_ns"),
    (State::Runnable, "runnable", "runnable_ns"),
    (State::GuestRunnable, "guest_runnable", "guest_runnable_ns"),
    (State::CpuWakeUp, "cpu_wake_up", "cpu_wake_up_ns"),
    (
        State::GuestCpuWakeUp,
        "guest_cpu_wake_up",
        "guest_cpu_wake_up_ns",
    ),
    (State::Lock, "lock", "lock_ns"),
    (State::Waiting, "waiting", "waiting_ns"),
    (State::InRing, "in_ring", "in_ring_ns"),
    (State::Queued, "queued", "queued_ns"),
];

/// Returns the columns with which both tables begin: the trial and the request.
fn identity<'n>() -> Vec<(&'n str, Column)> {
    vec![
        text("run"),
        text("machine"),
        text("variant"),
        ("round", Column::Int(vec![])),
        ("trial", Column::Int(vec![])),
        ("request", Column::Int(vec![])),
    ]
}

/// The cells of [`identity`].
fn identify(sheet: &Sheet) -> impl Fn(u32) -> [Cell; 6] + use<> {
    let [run, machine, variant] =
        [&sheet.run, sheet.machine.as_str(), &sheet.variant].map(ByteArray::from);
    let (round, trial) = (sheet.round, sheet.number);
    let text = |t: &ByteArray| Cell::Text(t.clone());
    move |request| {
        [
            text(&run),
            text(&machine),
            text(&variant),
            Cell::Int(round),
            Cell::Int(trial),
            Cell::Int(request),
        ]
    }
}

/// A table with a row for each joined request.
pub struct Requests<W: Write + Send>(Table<W>);

impl<W: Write + Send> Requests<W> {
    /// Begins the table.
    ///
    /// # Errors
    /// [`ExportError`] when it cannot be written.
    pub fn new(out: W) -> Result<Self, ExportError> {
        let time = |i: usize| {
            // Every request has the workload's own stamps.
            let is_stamp = i == 0 || i + 1 == Checkpoint::COUNT;
            if is_stamp {
                Column::Long(vec![])
            } else {
                Column::Maybe(vec![])
            }
        };
        let mut columns = identity();
        columns.push(("offset", Column::Long(vec![])));
        let names = checkpoint_columns();
        let times = names.iter().enumerate();
        columns.extend(times.map(|(i, name)| (name.as_str(), time(i))));
        columns.extend(STATES.map(|(_, _, column)| (column, Column::Long(vec![]))));
        columns.push(("unexplained_ns", Column::Long(vec![])));
        Table::new("table of requests", out, columns).map(Requests)
    }

    /// Adds a trial's requests.
    ///
    /// # Errors
    /// [`ExportError`] when they cannot be written.
    pub fn add(&mut self, trial: &Trial) -> Result<(), ExportError> {
        self.sheet(&Sheet::of_trial(trial, |_| true))
    }

    pub(crate) fn sheet(&mut self, sheet: &Sheet) -> Result<(), ExportError> {
        let identity = identify(sheet);
        for r in &sheet.requests {
            let between = &r.checkpoints[1..Checkpoint::COUNT - 1];
            let between = between.iter().map(|at| Cell::Maybe(*at));
            let begin = [Cell::Long(r.begin())].into_iter();
            let times = begin.chain(between).chain([Cell::Long(r.end())]);
            let mut states = [0; STATES.len()];
            for slice in &r.slices {
                if let Some(at) = STATES.iter().position(|(state, ..)| *state == slice.state) {
                    states[at] += slice.end - slice.begin;
                }
            }
            let states = states.map(Cell::Long);
            let row = identity(r.number).into_iter().chain([Cell::Long(r.offset)]);
            let row = row.chain(times).chain(states);
            self.0.push(row.chain([Cell::Long(r.unexplained())]))?;
        }
        Ok(())
    }

    /// Ends the table.
    ///
    /// # Errors
    /// [`ExportError`] when it cannot be written.
    pub fn finish(self) -> Result<(), ExportError> {
        self.0.finish()
    }
}

/// A table with a row for each segment of a joined request.
pub struct Segments<W: Write + Send>(Table<W>);

impl<W: Write + Send> Segments<W> {
    /// Begins the table.
    ///
    /// # Errors
    /// [`ExportError`] when it cannot be written.
    pub fn new(out: W) -> Result<Self, ExportError> {
        let mut columns = identity();
        columns.extend(["from_checkpoint", "to_checkpoint", "state", "thread"].map(text));
        columns.extend(["begin_ns", "end_ns"].map(|name| (name, Column::Long(vec![]))));
        Table::new("table of segments", out, columns).map(Segments)
    }

    /// Adds the segments of a trial's requests.
    ///
    /// # Errors
    /// [`ExportError`] when they cannot be written.
    pub fn add(&mut self, trial: &Trial) -> Result<(), ExportError> {
        self.sheet(&Sheet::of_trial(trial, |_| true))
    }

    pub(crate) fn sheet(&mut self, sheet: &Sheet) -> Result<(), ExportError> {
        let identity = identify(sheet);
        // Each text once: a row has copies that point to it.
        let checkpoints =
            Checkpoint::ALL.map(|checkpoint| ByteArray::from(name(checkpoint).as_str()));
        let states = STATES.map(|(_, name, _)| ByteArray::from(name));
        let text_of_state = |state| {
            let at = STATES.iter().position(|(s, ..)| *s == state);
            at.map(|at| states[at].clone())
        };
        let [guest, host] = [Who::Guest, Who::Host].map(|who| ByteArray::from(sheet.name(who)));
        let thread = |i: u16| ByteArray::from(sheet.name(Who::Thread(i)));
        let threads: Vec<ByteArray> = (0..sheet.threads.len())
            .filter_map(|i| u16::try_from(i).ok())
            .map(thread)
            .collect();
        for r in &sheet.requests {
            for s in &r.slices {
                let who = match s.who {
                    Who::Guest => guest.clone(),
                    Who::Host => host.clone(),
                    Who::Thread(i) => {
                        let known = threads.get(usize::from(i)).cloned();
                        known.unwrap_or_else(|| thread(i))
                    }
                };
                let state = text_of_state(s.state).unwrap_or_default();
                let [from, to] = [s.from, s.to].map(|at| checkpoints[at as usize].clone());
                let words = [from, to, state, who].map(Cell::Text);
                let times = [Cell::Long(s.begin), Cell::Long(s.end)];
                let row = identity(r.number).into_iter().chain(words);
                self.0.push(row.chain(times))?;
            }
        }
        Ok(())
    }

    /// Ends the table.
    ///
    /// # Errors
    /// [`ExportError`] when it cannot be written.
    pub fn finish(self) -> Result<(), ExportError> {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::joined::specimen::sheet;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::{Field, Row};
    use std::fs::File;
    use std::process::Command;
    use vmtax_model::testing::python_with;

    fn requests(sheets: &[Sheet]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut table = Requests::new(&mut bytes).unwrap();
        sheets.iter().for_each(|s| table.sheet(s).unwrap());
        table.finish().unwrap();
        bytes
    }

    fn segments(sheets: &[Sheet]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut table = Segments::new(&mut bytes).unwrap();
        sheets.iter().for_each(|s| table.sheet(s).unwrap());
        table.finish().unwrap();
        bytes
    }

    fn rows(bytes: Vec<u8>) -> Vec<Row> {
        reader(&bytes)
            .get_row_iter(None)
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    fn reader(bytes: &[u8]) -> SerializedFileReader<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        SerializedFileReader::new(file).unwrap()
    }

    fn field<'a>(row: &'a Row, name: &str) -> &'a Field {
        row.get_column_iter()
            .find(|(n, _)| *n == name)
            .unwrap_or_else(|| panic!("no column {name}"))
            .1
    }

    fn long(row: &Row, name: &str) -> i64 {
        match field(row, name) {
            Field::Long(v) => *v,
            Field::Int(v) => i64::from(*v),
            other => panic!("{name} is {other}"),
        }
    }

    #[test]
    fn requests_read_back_and_their_sums_close() {
        let sheets = [sheet(0, "aio=native", 3, 200_000), sheet(5, "", 2, 10_000)];
        let rows = rows(requests(&sheets));
        let all: Vec<_> = sheets
            .iter()
            .flat_map(|s| s.requests.iter().map(move |r| (s, r)))
            .collect();
        assert_eq!(rows.len(), all.len());
        for (row, (sheet, record)) in rows.iter().zip(all) {
            assert_eq!(field(row, "machine"), &Field::Str("tcg".into()));
            assert_eq!(field(row, "variant"), &Field::Str(sheet.variant.clone()));
            assert_eq!(
                (long(row, "trial"), long(row, "round")),
                (sheet.number.into(), sheet.round.into())
            );
            assert_eq!(
                (long(row, "request"), long(row, "offset")),
                (record.number.into(), i64::from(record.number) * 4096)
            );
            for (name, at) in checkpoint_columns().iter().zip(record.checkpoints) {
                let expected = at.map_or(Field::Null, |at| Field::Long(at as i64));
                assert_eq!(field(row, name), &expected, "{name}");
            }
            assert_eq!(field(row, "kvm_notify_ns"), &Field::Null);
            let states: i64 = STATES.iter().map(|(_, _, column)| long(row, column)).sum();
            assert_eq!(
                states + long(row, "unexplained_ns"),
                long(row, "end_ns") - long(row, "begin_ns")
            );
            assert_eq!(
                (
                    long(row, "runnable_ns"),
                    long(row, "lock_ns"),
                    long(row, "in_ring_ns")
                ),
                (11_000, 2_000, 0)
            );
            assert_eq!(long(row, "unexplained_ns"), 1_200);
        }
    }

    #[test]
    fn segments_follow_each_other_without_a_gap() {
        let sheets = [sheet(1, "", 2, 200_000)];
        let rows = rows(segments(&sheets));
        assert_eq!(rows.len(), 20);
        let text = |row: &Row, name: &str| match field(row, name) {
            Field::Str(s) => s.clone(),
            other => panic!("{name} is {other}"),
        };
        assert_eq!(text(&rows[3], "from_checkpoint"), "guest_notify");
        assert_eq!(
            (text(&rows[3], "to_checkpoint"), text(&rows[3], "state")),
            ("qemu_wake".into(), "runnable".into())
        );
        assert_eq!(text(&rows[3], "thread"), "main loop");
        assert_eq!(text(&rows[5], "thread"), "worker");
        for pair in rows
            .windows(2)
            .filter(|p| long(&p[0], "request") == long(&p[1], "request"))
        {
            assert_eq!(long(&pair[0], "end_ns"), long(&pair[1], "begin_ns"));
        }
    }

    #[test]
    fn more_rows_than_a_group_holds_and_none_at_all() {
        let many = sheet(0, "", 70_000, 200_000);
        let bytes = requests(std::slice::from_ref(&many));
        // 31 numbers a row, most of them times that grow.
        assert!(bytes.len() < 70_000 * 31 * 8 / 2, "{} bytes", bytes.len());
        let reader = reader(&bytes);
        let metadata = reader.metadata();
        assert_eq!(
            (
                metadata.num_row_groups(),
                metadata.file_metadata().num_rows()
            ),
            (2, 70_000)
        );
        let schema = metadata.file_metadata().key_value_metadata().unwrap();
        assert!(schema.iter().any(|kv| kv.key == "vmtax.schema"));
        assert!(rows(requests(&[])).is_empty());
    }

    #[test]
    fn others_read_the_tables_alike() {
        let Some(python) = python_with("pyarrow.parquet, duckdb") else {
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let sheets = [
            sheet(0, "aio=native", 300, 200_000),
            sheet(5, "", 200, 10_000),
        ];
        std::fs::write(folder.path().join("requests.parquet"), requests(&sheets)).unwrap();
        std::fs::write(folder.path().join("segments.parquet"), segments(&sheets)).unwrap();
        let script = "
import duckdb, pyarrow.parquet as pq
t = pq.read_table('requests.parquet')
assert t.num_rows == 500 and t.num_columns == 74, (t.num_rows, t.num_columns)
assert str(t.schema.field('machine').type) == 'string' and str(t.schema.field('round').type) == 'int32', t.schema
assert t.column('kvm_notify_ns').null_count == 500 and t.column('qemu_pop_ns').null_count == 0
assert not t.schema.field('begin_ns').nullable and t.schema.field('qemu_pop_ns').nullable
q = lambda s: duckdb.sql(s).fetchall()
assert q(\"select variant, count(*), avg(end_ns - begin_ns) from 'requests.parquet' group by 1 order by 1\") == [('', 200, 156200.0), ('aio=native', 300, 156200.0)]
assert q(\"select sum(running_ns + runnable_ns + guest_runnable_ns + cpu_wake_up_ns + guest_cpu_wake_up_ns + lock_ns + waiting_ns + in_ring_ns + queued_ns + unexplained_ns - end_ns + begin_ns) from 'requests.parquet'\") == [(0,)]
assert q(\"select sum(p.end_ns - p.begin_ns) from 'segments.parquet' p where state = 'runnable' and to_checkpoint = 'qemu_wake'\") == [(500 * 11000,)]
";
        let out = Command::new(&python)
            .args(["-c", script])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }

    #[test]
    fn columns_are_named_after_their_checkpoints() {
        let columns = checkpoint_columns();
        assert_eq!(
            (
                columns[0].as_str(),
                columns[4].as_str(),
                columns[vmtax_model::Checkpoint::COUNT - 1].as_str()
            ),
            ("begin_ns", "kvm_notify_ns", "end_ns")
        );
        for (_, name, column) in STATES {
            assert_eq!(column, format!("{name}_ns"));
        }
    }

    /// Run by hand: `cargo test --release -p vmtax-export rows_a_second -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn by_hand_rows_a_second() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut sheet = sheet(0, "aio=native", 1 << 20, 200_000);
        for request in &mut sheet.requests {
            // No two take the same time.
            let (begin, factor) = (request.begin(), 0.5 + random.f64());
            let moved = |at: u64| begin + ((at - begin) as f64 * factor) as u64;
            request
                .checkpoints
                .iter_mut()
                .for_each(|at| *at = at.map(moved));
            request
                .slices
                .iter_mut()
                .for_each(|s| (s.begin, s.end) = (moved(s.begin), moved(s.end)));
        }
        let rows = sheet.requests.len();
        let sheets = [sheet];
        for (table, rows, write) in [
            ("requests", rows, &requests as &dyn Fn(&[Sheet]) -> Vec<u8>),
            (
                "segments",
                sheets[0].requests.iter().map(|r| r.slices.len()).sum(),
                &segments,
            ),
        ] {
            let began = std::time::Instant::now();
            let bytes = write(&sheets).len();
            let seconds = began.elapsed().as_secs_f64();
            println!(
                "{table}: {rows} rows in {seconds:.2} s, {:.0} a second, {:.1} bytes each",
                rows as f64 / seconds,
                bytes as f64 / rows as f64
            );
        }
    }
}
