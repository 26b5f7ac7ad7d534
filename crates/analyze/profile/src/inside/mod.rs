//! A guest from its inside: [`parse`] reads what its agent sampled there, and [`join`] puts the guest's stacks onto the
//! threads that ran them.

mod clock;
mod join;
mod summary;

pub use clock::GuestClock;
pub use join::{Joined, join};
pub use summary::{calls, summary};

use vmtax_model::samples::GuestProfile;

/// Reads a guest's data, which is not trusted: every number in it has to make sense.
///
/// # Errors
/// Description of what is wrong with the data.
pub fn parse(bytes: &[u8]) -> Result<GuestProfile, String> {
    let guest: GuestProfile = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    guest.check().map(|()| guest)
}

/// Brings what was seen onto the host's clock.
pub fn by_host_clock(guest: &mut GuestProfile, clock: &GuestClock) {
    guest
        .profile
        .samples
        .iter_mut()
        .for_each(|sample| sample.time = clock.host(sample.time));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vmtax_model::ClockReading;
    use vmtax_model::samples::{CodeOrigin, Function, Profile, Sample, Thread, Unwound};

    fn guest() -> GuestProfile {
        let function = |name: &str, origin| Function {
            name: name.to_owned(),
            module: String::new(),
            origin,
            named: true,
        };
        let functions = vec![
            function("main", CodeOrigin::GuestUser),
            function("do_idle", CodeOrigin::GuestKernel),
        ];
        let sample = |stack, time| Sample {
            thread: 0,
            stack,
            time,
            weight: 1,
            cpu: 0,
        };
        let profile = Profile {
            functions,
            stacks: vec![vec![0], vec![0, 1]],
            threads: vec![Thread {
                tid: 7,
                name: "work".to_owned(),
            }],
            samples: vec![sample(0, 5), sample(1, 9)],
        };
        let beat = |ticks| ClockReading {
            ticks,
            monotonic_ns: ticks,
        };
        let (trigger, unwound) = ("cpu-clock".to_owned(), Unwound::default());
        GuestProfile {
            profile,
            hz: 99,
            trigger,
            unwound,
            lost: 0,
            beats: [beat(1), beat(2)],
        }
    }

    #[test]
    fn it_comes_back_as_it_went_and_numbers_that_lead_nowhere_do_not() {
        let good = guest();
        let text = serde_json::to_vec(&good).unwrap();
        assert_eq!(parse(&text), Ok(good.clone()));
        let breaks: [fn(&mut GuestProfile); 6] = [
            |g| g.beats[1] = g.beats[0],
            |g| g.profile.stacks[0][0] = 2,
            |g| g.profile.samples[1].stack = 2,
            |g| g.profile.samples[0].thread = 1,
            |g| g.profile.samples[0].weight = u64::MAX,
            |g| g.profile.functions[0].name = "x".repeat(GuestProfile::MAX_NAME + 1),
        ];
        for (number, breaks) in breaks.iter().enumerate() {
            let mut bad = good.clone();
            breaks(&mut bad);
            let text = serde_json::to_vec(&bad).unwrap();
            assert!(parse(&text).is_err(), "break {number}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_a_guest_sends_breaks_it(at in 0usize..600, byte: u8) {
            let mut text = serde_json::to_vec(&guest()).unwrap();
            let at = at % text.len();
            text[at] = byte;
            if let Ok(guest) = parse(&text) {
                crate::fold::fold(&guest.profile);
                prop_assert!(guest.profile.total() <= 2);
            }
        }
    }
}
