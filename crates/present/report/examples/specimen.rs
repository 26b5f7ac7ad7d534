//! Writes reports of made-up findings, to check while changing how they look:
//! `cargo run -p vmtax-report --example specimen -- FOLDER`.

#![allow(clippy::unwrap_used)] // A tool for developers of this crate.

#[path = "../tests/it/common/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod common;

use common::layers::{layers_recording, plain, varied};
use vmtax_report::{Style, exits, layers};

fn main() {
    let folder =
        std::path::PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".to_owned()));
    let found = common::studies::exits();
    std::fs::write(folder.join("exits.html"), exits::report(&found).html()).unwrap();
    std::fs::write(
        folder.join("exits.txt"),
        exits::report(&found).terminal(
            Style {
                width: 80,
                color: false,
            },
            false,
        ),
    )
    .unwrap();
    let recording = layers_recording(6);
    for (name, findings) in [("plain", plain(6)), ("varied", varied(6))] {
        for width in [40, 60, 80, 130] {
            let style = Style {
                width,
                color: false,
            };
            let text = layers::report(&recording, &findings).terminal(style, true);
            std::fs::write(folder.join(format!("layers-{name}-{width}.txt")), text).unwrap();
        }
        std::fs::write(
            folder.join(format!("layers-{name}.html")),
            layers::report(&recording, &findings).html(),
        )
        .unwrap();
    }
}
