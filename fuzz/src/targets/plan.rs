//! A plan that a person wrote: a plan or an error, and a plan reads back as itself.

use vmtax_model::Plan;

pub fn run(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    let Ok(plan) = Plan::from_toml(text) else {
        return;
    };
    let written = plan.to_toml().expect("what was read can be written");
    assert_eq!(Plan::from_toml(&written).as_ref(), Ok(&plan));
    if plan.rounds <= 100 {
        let in_rounds = plan
            .schedule()
            .into_iter()
            .filter(|slot| !plan.is_after_rounds(*slot))
            .count();
        assert_eq!(
            in_rounds,
            plan.rounds as usize * plan.columns().len() * plan.steps()
        );
    }
}
