//! One part of a campaign: a target, and the numbers of its inputs.

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use vmtax_fuzz::{corpus, run, targets::TARGETS};

/// Gives mutated inputs to a parser; exit status 1 at a fault, 2 where it cannot.
#[derive(Parser)]
struct Options {
    /// The target; without it all are listed.
    target: Option<String>,
    /// The sequence of inputs.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The number of the first input.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// Where an input at fault is written.
    #[arg(long, default_value = "fault")]
    fault: PathBuf,
    /// This file alone, instead of the corpus and mutated inputs.
    #[arg(long)]
    input: Option<PathBuf>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let Some(name) = options.target else {
        TARGETS
            .iter()
            .for_each(|target| println!("{}", target.name));
        return ExitCode::SUCCESS;
    };
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        eprintln!("Error: no target {name}: vmtax-fuzz lists all");
        return ExitCode::from(2);
    };
    let (inputs, count) = match &options.input {
        Some(file) => (std::fs::read(file).map(|input| vec![input]), 0),
        None => (corpus(target.name), options.count),
    };
    let inputs = match inputs {
        Ok(inputs) => inputs,
        Err(error) => {
            eprintln!("Error: reading the inputs of {name}: {error}");
            return ExitCode::from(2);
        }
    };
    let begun = Instant::now();
    match run::run(
        target.run,
        &inputs,
        options.seed,
        options.from..options.from.saturating_add(count),
    ) {
        Ok(()) => {
            println!(
                "{name}: {count} inputs in {:.1} s",
                begun.elapsed().as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(fault) => {
            let at = fault
                .number
                .map_or("one of the corpus".to_owned(), |number| {
                    format!("number {number}")
                });
            eprintln!("{name}: input {at}: {}", fault.what);
            match std::fs::write(&options.fault, &fault.input) {
                Ok(()) => eprintln!(
                    "again: vmtax-fuzz {name} --input {}",
                    options.fault.display()
                ),
                Err(error) => eprintln!("Error: writing {}: {error}", options.fault.display()),
            }
            ExitCode::from(1)
        }
    }
}
