//! The tables, read again: by the crate's reader, and by others' where they are.

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
