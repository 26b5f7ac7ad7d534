//! docs/workloads.md against the workloads themselves.

use std::fmt::Write;
use vmtax_model::WorkloadName;
use vmtax_workload::descriptor;

fn table() -> String {
    let mut table =
        "| workload | what it measures | options | figures |\n|---|---|---|---|\n".to_owned();
    for &name in WorkloadName::ALL {
        let workload = descriptor(name);
        let options: Vec<String> = workload
            .options
            .iter()
            .map(|o| format!("`{}={}`", o.name, o.default))
            .collect();
        let figures: Vec<String> = name
            .metrics()
            .map(|m| {
                format!("`{}` {}", m.id(), m.unit().symbol())
                    .trim_end()
                    .to_owned()
            })
            .collect();
        let (options, figures) = (options.join(" "), figures.join(", "));
        writeln!(
            table,
            "| `{name}` | {} | {options} | {figures} |",
            workload.about
        )
        .unwrap();
    }
    table
}

#[test]
fn the_table_in_the_docs_is_that_of_the_program() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/workloads.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once("<!-- workloads -->\n").unwrap();
    let (shown, _) = rest.split_once("<!-- end of workloads -->").unwrap();
    let table = table();
    assert!(
        shown == table,
        "put this table into docs/workloads.md:\n{table}"
    );
}
