//! Pages compared whole with files beside the tests.

use expect_test::expect_file;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Compares one page, or all pages of a directory, with the files there, by name; `UPDATE_EXPECT=1` writes them. Fails with the
/// lines that differ.
pub fn compare(directory: &Path, pages: &BTreeMap<String, String>) {
    let is_update = env::var_os("UPDATE_EXPECT").is_some();
    let found = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("pages")
        .join(directory.file_name().unwrap());
    for folder in [directory, &found] {
        fs::create_dir_all(folder).unwrap();
    }
    let mut differences = String::new();
    for (name, page) in pages {
        let [expected, found] = [directory.join(name), found.join(name)];
        let file = expect_file![&expected];
        if is_update || file.data() == *page {
            file.assert_eq(page);
            continue;
        }
        fs::write(&found, page).unwrap();
        let diff = Command::new("diff")
            .args(["-N", "-U2"])
            .args([expected, found])
            .output()
            .unwrap();
        differences += &String::from_utf8_lossy(&diff.stdout);
    }
    let files = fs::read_dir(directory)
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_type().unwrap().is_file());
    let is_stale = |name: &str| pages.len() > 1 && !pages.contains_key(name);
    for stale in files.filter(|file| is_stale(file.file_name().to_str().unwrap())) {
        match is_update {
            true => fs::remove_file(stale.path()).unwrap(),
            false => {
                differences += &format!("{}: no test makes this page\n", stale.path().display())
            }
        }
    }
    assert!(
        differences.is_empty(),
        "\n{differences}`UPDATE_EXPECT=1` writes the pages as they are now"
    );
}

/// JSON whose figures have ten digits: the rest depends on the C library.
pub fn rounded(json: &str) -> String {
    fn round(value: &mut Value) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(round),
            Value::Object(fields) => fields.values_mut().for_each(round),
            Value::Number(number) if number.is_f64() => {
                *value = json!(
                    format!("{:.9e}", number.as_f64().unwrap())
                        .parse::<f64>()
                        .unwrap()
                );
            }
            _ => {}
        }
    }
    let mut value = serde_json::from_str(json).unwrap();
    round(&mut value);
    serde_json::to_string_pretty(&value).unwrap() + "\n"
}
