//! What a guest sends of its own samples: whatever is taken can be brought onto a clock, folded and summed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use vmtax_profile::fold::fold;
use vmtax_profile::inside::{GuestProfile, join, summary};

fuzz_target!(|bytes: &[u8]| {
    let Ok(guest) = GuestProfile::parse(bytes) else { return };
    fold(&guest.profile);
    let joined = join(&guest.profile, &guest.profile, guest.hz, &[]);
    assert_eq!(joined.profile.total(), guest.profile.total());
    summary(&guest, Some(&joined));
});
