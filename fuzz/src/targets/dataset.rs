//! A stranger's dataset: one of its two tables is the input, the other one as it should be.

use crate::scratch;
use jiff::civil::date;
use std::fs;

const TABLES: [(&str, &[u8]); 2] = [
    ("figures", include_bytes!("../../corpus/dataset/figures")),
    ("facts", include_bytes!("../../corpus/dataset/facts")),
];

pub fn run(data: &[u8]) {
    let Some((which, content)) = data.split_first() else {
        return;
    };
    let dataset = scratch::folder().join("dataset");
    for (i, (table, sound)) in TABLES.iter().enumerate() {
        let folder = dataset.join(table).join("schema=1/date=2026-11-26/host=a");
        fs::create_dir_all(&folder).expect("a temporary folder");
        // The first byte of an input says which table it is.
        let content = if usize::from(*which) % TABLES.len() == i {
            content
        } else {
            &sound[1..]
        };
        scratch::write(&folder.join("run.parquet"), content);
    }
    match vmtax_export::read_dataset(&dataset, date(2026, 11, 27)) {
        Ok(data) => {
            assert!(
                data.figures
                    .iter()
                    .all(|figure| figure.value.is_finite() && figure.value > 0.0)
            );
            assert!(
                data.figures
                    .iter()
                    .all(|figure| (figure.run as usize) < data.runs.len())
            );
            assert!(data.warnings.iter().all(|warning| !warning.is_empty()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
