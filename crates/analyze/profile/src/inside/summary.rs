//! Findings from inside a guest, in figures.

use super::Joined;
use crate::share::share;
use crate::summary::{functions, threads};
use vmtax_model::samples::GuestProfile;
use vmtax_model::{CallCounts, GuestCall, GuestFindings, JoinFindings};
use vmtax_trace::system_call_name;

/// Returns the findings from the guest's samples.
pub fn summary(guest: &GuestProfile, joined: Option<&Joined>) -> GuestFindings {
    let [begin, end] = guest.beats.map(|beat| beat.monotonic_ns);
    let seconds = end.saturating_sub(begin) as f64 / 1e9;
    let (profile, unwound) = (&guest.profile, guest.unwound);
    GuestFindings {
        seconds,
        hz: guest.hz,
        trigger: guest.trigger.clone(),
        samples: profile.total(),
        lost: guest.lost,
        user_samples: unwound.outside,
        unwound: share(unwound.to_root, unwound.outside),
        threads: threads(profile, f64::from(guest.hz) * seconds),
        functions: functions(profile),
        joined: joined.map(|joined| JoinFindings {
            in_guest: joined.in_guest,
            joined: share(joined.joined, joined.in_guest),
            apart_ns: joined.apart_ns,
        }),
        calls: None,
    }
}

/// Returns the findings from the counts of system calls, with names.
pub fn calls(counts: &CallCounts) -> CallCounts<GuestCall> {
    let row = |row: &vmtax_model::CallCount| GuestCall {
        call: row.call,
        name: system_call_name(row.call.into()).into_owned(),
        pid: row.pid,
        calls: row.count,
        avg_ns: row.total_ns as f64 / row.count.max(1) as f64,
        min_ns: row.min_ns,
        max_ns: row.max_ns,
        total_ns: row.total_ns,
    };
    let rows = counts.rows.iter().map(row).collect();
    CallCounts {
        method: counts.method,
        rows,
        lost: counts.lost,
        added_ns: counts.added_ns,
    }
}
