//! Every target, with its corpus and inputs mutated from it: `VMTAX_FUZZ_INPUTS` of them, or a few thousand.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use vmtax_fuzz::{corpus, run::run, targets::TARGETS};

const INPUTS: u64 = 3000;

#[test]
fn each_target_survives_mutated_inputs() {
    let given = std::env::var("VMTAX_FUZZ_INPUTS")
        .ok()
        .map(|inputs| inputs.parse().unwrap());
    let inputs: u64 = given.unwrap_or(INPUTS);
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let work = || {
                while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = Instant::now();
                    let corpus = corpus(target.name).unwrap();
                    assert!(!corpus.is_empty(), "{}: no corpus", target.name);
                    if let Err(fault) = run(target.run, &corpus, 0, 0..inputs) {
                        let number = fault
                            .number
                            .map_or("of the corpus".to_owned(), |number| number.to_string());
                        faults
                            .lock()
                            .unwrap()
                            .push(format!("{}: input {number}: {}", target.name, fault.what));
                    }
                    println!("{}: {:.1} s", target.name, begun.elapsed().as_secs_f64());
                }
            };
            std::thread::Builder::new()
                .spawn_scoped(scope, work)
                .unwrap();
        }
    });
    let faults = faults.into_inner().unwrap();
    assert!(
        faults.is_empty(),
        "see one again with `vmtax-fuzz TARGET --from NUMBER --count 1`:\n{}",
        faults.join("\n")
    );
}

#[test]
fn each_corpus_has_a_target() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folders = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = TARGETS
        .iter()
        .map(|target| target.name.to_owned())
        .collect();
    assert_eq!(folders.collect::<BTreeSet<_>>(), names);
}
