//! A format file of a kernel that nobody knows: fields that read any record, or an error.

use vmtax_trace::{Formats, PageLayout};

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

pub fn run(data: &[u8]) {
    let at = data.iter().position(|&b| b == 0).unwrap_or(data.len());
    let (text, record) = data.split_at(at);
    let text = String::from_utf8_lossy(text);
    let _ = PageLayout::parse(&text);
    let reasons = vmtax_trace::ExitReasons::from_tables(&vmtax_trace::symbols(&text));
    assert_eq!(reasons.name(0, 12), "unknown (0xc)");
    let _ = Formats::default().add("fuzz", &text);

    // With the fields that every event has, which a fuzzer would have to guess.
    let mut formats = Formats::default();
    if formats
        .add(
            "fuzz",
            &format!("name: x\nID: 7\nformat:\n{COMMON}\n{text}"),
        )
        .is_err()
    {
        return;
    }
    for (_, format) in formats.iter() {
        for (name, field) in &format.fields {
            assert!(!name.is_empty());
            let _ = (
                field.unsigned(record),
                field.signed(record),
                field.text(record),
                field.bytes(record),
            );
            for index in [0, 1, 7, u32::MAX] {
                let _ = field
                    .element(index)
                    .and_then(|element| element.signed(record));
            }
        }
    }
}
