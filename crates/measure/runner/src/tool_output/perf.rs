//! `perf bench`, each benchmark under a line with its name.

use crate::tool_output::figures::{Figures, number};

pub(crate) fn read(output: &str, figures: &mut Figures) {
    let mut of = String::new();
    for line in output.lines().map(str::trim) {
        if let Some(name) = line
            .strip_prefix("# Running '")
            .and_then(|rest| rest.split_once("' benchmark"))
        {
            of = format!("perf bench {}", name.0);
        } else if !of.is_empty() {
            read_line(line, &of, figures);
        }
    }
}

fn read_line(line: &str, of: &str, figures: &mut Figures) {
    if let Some(seconds) = line.strip_prefix("Total time:").and_then(number) {
        return figures.time(of, "total time", seconds);
    }
    if let Some(rate) = line
        .strip_prefix("Averaged ")
        .filter(|rest| rest.contains("operations/sec"))
        .and_then(number)
    {
        return figures.rate(of, "operations", rate);
    }
    let Some((figure, unit)) = line.split_once(' ') else {
        return;
    };
    let Ok(figure) = figure.parse::<f64>() else {
        return;
    };
    match unit.trim() {
        "nsecs/op" => figures.time(of, "an operation", figure / 1e9),
        "usecs/op" => figures.time(of, "an operation", figure / 1e6),
        "msecs/op" => figures.time(of, "an operation", figure / 1e3),
        "ops/sec" => figures.rate(of, "operations", figure),
        "B/sec" => figures.bandwidth(of, "moved", figure / 1_048_576.0),
        "KB/sec" => figures.bandwidth(of, "moved", figure / 1024.0),
        "MB/sec" => figures.bandwidth(of, "moved", figure),
        "GB/sec" => figures.bandwidth(of, "moved", figure * 1024.0),
        _ => {}
    }
}
