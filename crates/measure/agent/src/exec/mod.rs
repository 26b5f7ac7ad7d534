//! A command of the user's: started as the one who asks would start it, in a guest on the host's own files; watched to
//! its end; accounted for.

mod end;
mod pump;
mod root;
mod start;
mod terminal;
mod usage;

use crate::AgentError;
use crate::outbox::{Failure, send, send_frame, ship};
use crate::trace::GuestTracer;
use crate::trial::kernel;
use pump::{End, Pump};
pub(crate) use root::{ROOT, prepare};
use rustix::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use vmtax_model::{
    Execution, Places, Probes, TIMED_OUT, Timer, TimerSource, TrialResult, WorkloadName,
    WorkloadSpec,
};
use vmtax_observe::ProbeSet;
use vmtax_wire::{Decoder, Launch, Reply, SHARE_MAC};

/// Time for which background processes of a shell line may hold the pipes without output.
const PIPE_TIMEOUT: Duration = Duration::from_millis(100);

/// Runs a command and gives the reply that ends it; what it prints is sent as it comes.
///
/// # Errors
/// [`AgentError`] when the channel breaks.
pub(crate) fn run(
    launch: &Launch,
    places: &Places,
    probes: Probes,
    channel: BorrowedFd<'_>,
    decoder: &mut Decoder,
) -> Result<Reply, AgentError> {
    let guest = std::process::id() == 1;
    let root = guest.then(|| Path::new(root::ROOT));
    let mut trace = match probes {
        Probes::None => None,
        _ => {
            let set = ProbeSet::guest_of_command(probes.checkpoints());
            match GuestTracer::begin(places, SHARE_MAC, probes, Some(set)) {
                Ok(trace) => Some(trace),
                Err(error) => return Ok(Reply::Failed { error }),
            }
        }
    };
    end::adopt();
    let stay = vmtax_observe::descendants(std::process::id() as i32, &[]);
    send(channel, &Reply::Began)?;
    let before = usage::Counters::now(guest);
    if let Some(Err(error)) = trace.as_ref().map(GuestTracer::on) {
        return Ok(Reply::Failed { error });
    }
    let began = Instant::now();
    let started = match start::start(launch, root) {
        Ok(started) => started,
        Err(start::NotStarted { status, error }) => return Ok(Reply::NotRun { status, error }),
    };
    let deadline = began + Duration::from_secs(u64::from(launch.timeout_s));
    let mut pump = Pump::new(channel, decoder, started, deadline)?;
    if launch.stays {
        pump.pipe_timeout = PIPE_TIMEOUT;
    }
    let ended = pump.until_end();
    let (wall, after) = (began.elapsed(), usage::Counters::now(guest));
    let switched_off = trace.as_ref().map_or(Ok(()), GuestTracer::off);
    pump.send_reply(&Reply::Ended)?;
    let left = if launch.stays {
        0
    } else {
        end::kill_all_but(&stay)
    };
    let rest = pump.drain();
    let End { status, usage } = ended?;
    rest?;
    let timed_out = pump.timed_out;
    // From here on the channel waits for the controller again.
    drop(pump);
    if timed_out {
        let error = format!(
            "the command was killed after {} s: use a longer --timeout",
            launch.timeout_s
        );
        return Ok(Reply::NotRun {
            status: TIMED_OUT,
            error,
        });
    }
    let counted = after.since(&before);
    let execution = Execution {
        status,
        left,
        busy_s: counted.busy_s,
        stolen_s: counted.stolen_s,
        ..Execution::default()
    };
    let (measures, unsupported) = usage::measures(wall, &usage, &counted);
    let notes = if guest {
        root::notes(places)
    } else {
        Vec::new()
    };
    let result = TrialResult {
        measures,
        unsupported,
        notes,
        ..result(wall)
    };
    let shipped = switched_off
        .map_err(Failure::Trial)
        .and_then(|()| match &mut trace {
            Some(trace) => ship(&mut |frame| send_frame(channel, frame), |ship| {
                trace.save(ship)
            }),
            None => Ok(()),
        });
    match shipped {
        Ok(()) => {
            let observed = trace.map(|trace| trace.observed);
            Ok(Reply::Ran {
                execution,
                result: Box::new(result),
                observed,
            })
        }
        Err(failure) => failure.reply(),
    }
}

fn result(wall: Duration) -> TrialResult {
    let timer = Timer {
        source: TimerSource::ClockGettime,
        mhz: 1000.0,
        error: 0.0,
        pair_ns: 0.0,
        reason: Some("a command is timed as a whole".to_owned()),
    };
    let new = TrialResult::new(WorkloadSpec::new(WorkloadName::Exec), timer, kernel());
    TrialResult {
        total_s: wall.as_secs_f64(),
        ..new
    }
}
