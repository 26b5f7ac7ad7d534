//! Settings common to all plans of profiles.

use vmtax_model::{
    CommandSpec, CountBy, Inside, Machine, Plan, Probes, ProfileSettings, ProfileSpec, Study,
    Variant,
};

/// A guest of vmtax's own may be stopped: it serves nobody.
pub(super) const OWN_STOP_LIMIT_MS: u64 = 1000;
/// Bytes copied of a guest's stacks: workloads' own are shallow.
const GUEST_STACK: u32 = 8192;

/// A plan that observes what is there already; `of` names it.
pub fn attached(settings: ProfileSettings, of: &str) -> Plan {
    let plain: String = of
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .take(48)
        .collect();
    let study = Study::Profile(ProfileSpec {
        settings,
        command: None,
    });
    Plan {
        study,
        ..Plan::new(&format!("profile-{plain}"), 1, Vec::new(), Vec::new())
    }
}

/// Returns the probes that sample a guest with a kernel from its inside, at `hz` samples per second; none where `hz`
/// is 0 and no calls are counted.
pub(super) fn inside(hz: u32, calls: Option<CountBy>) -> Probes {
    let inside = Inside {
        hz,
        stack: GUEST_STACK,
        calls,
    };
    if hz == 0 && calls.is_none() {
        Probes::None
    } else {
        Probes::Inside(inside)
    }
}

/// A profile of each of the plan's guests, named by its side or machine: its trial once more, so that no sampling is in a
/// figure.
pub fn profiles_of_guests(plan: &Plan) -> Vec<(String, Plan)> {
    let settings = ProfileSettings {
        stop_limit_ms: Some(OWN_STOP_LIMIT_MS),
        // Which functions differ is asked for; events would take the first second of a short command.
        events_ms: 0,
        ..ProfileSettings::default()
    };
    // One observer of requests or of QEMU at a time.
    let command = plan.command().map(|command| {
        Box::new(CommandSpec {
            layers: false,
            ..command.clone()
        })
    });
    let guests = plan
        .columns()
        .into_iter()
        .filter(|(machine, _)| machine.is_guest());
    let profile = |(machine, side): (Machine, &str)| {
        let probes = vec![if machine.has_kernel() {
            inside(ProfileSettings::HZ, None)
        } else {
            Probes::None
        }];
        let variant = plan.variants.iter().position(|v| v.name == side);
        let workloads = variant.map_or_else(
            || plan.workloads.clone(),
            |variant| plan.workloads_of(variant),
        );
        let mut variants: Vec<Variant> = variant
            .map(|variant| plan.variants[variant].clone())
            .into_iter()
            .collect();
        // They are the plan's own now.
        variants.iter_mut().for_each(|variant| {
            variant
                .set
                .retain(|key, _| Variant::workload_option(key).is_none())
        });
        let study = Study::Profile(ProfileSpec {
            settings: settings.clone(),
            command: command.clone(),
        });
        let (name, machines) = (format!("{}-profile", plan.name), vec![machine]);
        let of = if side.is_empty() {
            machine.as_str()
        } else {
            side
        };
        (
            of.to_owned(),
            Plan {
                name,
                study,
                machines,
                variants,
                probes,
                workloads,
                rounds: 1,
                ..plan.clone()
            },
        )
    };
    guests.map(profile).collect()
}
