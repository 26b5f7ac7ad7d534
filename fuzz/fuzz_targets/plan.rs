//! A plan that a person wrote: a plan or an error, and a plan reads back as itself.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmtax_model::Plan;

fuzz_target!(|text: &str| {
    let Ok(plan) = Plan::from_toml(text) else { return };
    let written = plan.to_toml().expect("what was read can be written");
    assert_eq!(Plan::from_toml(&written).as_ref(), Ok(&plan));
    if plan.rounds <= 100 {
        assert_eq!(plan.schedule().len(), plan.rounds as usize * plan.columns().len() * plan.steps());
    }
});
