//! Output of a command: never a panic, and only figures that a table can hold.

pub fn run(data: &[u8]) {
    let figures = vmtax_runner::tool_output::figures(&String::from_utf8_lossy(data));
    assert!(figures.len() <= 200);
    for (i, figure) in figures.iter().enumerate() {
        assert!(figure.value.is_finite() && figure.name.len() < 256 && figure.of.len() < 256);
        assert!(!figures[..i].iter().any(|other| other.is_like(figure)));
    }
}
