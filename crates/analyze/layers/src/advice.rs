//! At most five sentences of what to do, each from what was measured.

use vmtax_model::{Difference, Layer, LayerColumn, Plan, Role, State};

const MOST: usize = 5;
/// Below this share of a request nothing is worth advice, percent.
const WORTH: f64 = 5.0;

/// The advice, most important first.
pub(crate) fn advice(plan: &Plan, columns: &[LayerColumn], differences: &[Difference]) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(best_variant(differences));
    // The rest is of one column each: where one asks for the slowest guest, that is the Linux guest.
    let slowest =
        columns.iter().filter(|c| c.matched.joined > 0).max_by(|a, b| a.traced.mean_ns.total_cmp(&b.traced.mean_ns));
    if let Some(column) = slowest {
        all.extend(runnable(column));
        all.extend(idle(column));
        all.extend(locks(column));
        all.extend(largest(column));
        all.extend(notify(plan, column));
    }
    all.extend(observer(columns));
    all.truncate(MOST);
    all
}

fn title(column: &LayerColumn) -> String {
    match column.variant.as_str() {
        "" => column.machine.to_string(),
        variant => format!("{} ({variant})", column.machine),
    }
}

/// A time for people.
fn time(ns: f64) -> String {
    match ns {
        _ if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        _ if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.1} s", ns / 1e9),
    }
}

/// The mean time and share of the rows that a filter lets pass.
fn share(column: &LayerColumn, of: impl Fn(&vmtax_model::Row) -> bool) -> Option<(f64, f64)> {
    let ns: f64 = column.rows.iter().filter(|r| of(r)).map(|r| r.time.mean_ns).sum();
    let percent = 100.0 * ns / column.traced.mean_ns;
    (percent >= WORTH).then_some((ns, percent))
}

fn best_variant(differences: &[Difference]) -> Option<String> {
    let shown = differences.iter().filter(|d| d.faster == Some(true));
    let best = shown.min_by(|a, b| a.ratio.median.total_cmp(&b.ratio.median))?;
    let interval = best.ratio.interval?;
    Some(format!(
        "On {} use {}: a request takes {:.2} times as long as with {} ({:.2} to {:.2}), {} less.",
        best.machine,
        best.variant.escape_default(),
        best.ratio.median,
        best.base.escape_default(),
        interval.low,
        interval.high,
        time(-best.difference_ns.median)
    ))
}

fn runnable(column: &LayerColumn) -> Option<String> {
    let (ns, percent) = share(column, |r| r.state == State::Runnable)?;
    Some(format!(
        "On {} a request waits {} ({percent:.0} %) for a host processor while one of QEMU's threads could run: give \
         QEMU's threads processors of their own (`taskset`, cgroup cpusets), or take other load away.",
        title(column),
        time(ns)
    ))
}

fn idle(column: &LayerColumn) -> Option<String> {
    let (ns, percent) = share(column, |r| r.state == State::IdleWakes)?;
    let guest = column.rows.iter().filter(|r| r.state == State::IdleWakes && r.layer == Layer::GuestKernel);
    let (host, guest) = (ns, guest.map(|r| r.time.mean_ns).sum::<f64>());
    Some(format!(
        "On {} a request waits {} ({percent:.0} %) for idle processors to wake up, {} of it for the guest's: where latency \
         matters more than power, keep the host's awake (`cpupower idle-set -D 10`) and the guest's (boot it with \
         `idle=poll`).",
        title(column),
        time(host),
        time(guest)
    ))
}

fn locks(column: &LayerColumn) -> Option<String> {
    let (ns, percent) = share(column, |r| r.state == State::Lock)?;
    let has_iothread = column.calls.iter().any(|c| matches!(c.role, Role::Iothread(_)));
    let mend = if has_iothread {
        "see which thread holds it with `perf trace -s -e futex`"
    } else {
        "an iothread of its own takes the disk out of the main loop's lock: compare with --vary iothread=off,on"
    };
    Some(format!("On {} a request waits {} ({percent:.0} %) for a lock in QEMU: {mend}.", title(column), time(ns)))
}

fn largest(column: &LayerColumn) -> Option<String> {
    let layers = [
        (Layer::GuestKernel, "the guest's kernel"),
        (Layer::Notify, "notifying QEMU"),
        (Layer::Kvm, "KVM"),
        (Layer::Qemu, "QEMU"),
        (Layer::HostKernel, "the host's kernel"),
        (Layer::Interrupt, "interrupting the guest"),
    ];
    let works = |r: &vmtax_model::Row| {
        !matches!(r.state, State::Runnable | State::GuestRunnable | State::IdleWakes | State::Lock)
    };
    let of = |(layer, name)| share(column, |r| r.layer == layer && works(r)).map(|(ns, percent)| (ns, percent, name));
    let (ns, percent, name) = layers.into_iter().filter_map(of).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let device = column.rows.iter().filter(|r| r.layer == Layer::Device).map(|r| r.time.mean_ns).sum::<f64>();
    let beside = if device > 0.0 { format!(", the disk itself takes {}", time(device)) } else { String::new() };
    Some(format!(
        "On {} most beyond the disk, waits for processors and locks aside, goes to {name}: {} of {} ({percent:.0} \
         %){beside}.",
        title(column),
        time(ns),
        time(column.traced.mean_ns)
    ))
}

/// A way to QEMU that is worth to be compared with another, unless it was.
fn notify(plan: &Plan, column: &LayerColumn) -> Option<String> {
    let (ns, percent) =
        share(column, |r| r.layer == Layer::Notify && r.state != State::Runnable && r.state != State::IdleWakes)?;
    let has_iothread = column.calls.iter().any(|c| matches!(c.role, Role::Iothread(_)));
    let varied = plan.variants.iter().any(|v| v.set.contains_key("iothread"));
    (!has_iothread && !varied).then(|| {
        format!(
            "On {} it takes {} ({percent:.0} %) from the guest's notification to QEMU's main loop: \
             `vmtax layers --vary iothread=off,on` shows whether a thread that does nothing else is quicker.",
            title(column),
            time(ns)
        )
    })
}

/// Probes that change what they measure.
fn observer(columns: &[LayerColumn]) -> Option<String> {
    const MUCH: f64 = 1.10;
    let heavy = columns.iter().filter_map(|c| Some((c, c.observer?)));
    let (column, ratio) =
        heavy.filter(|(_, r)| r.at_least() > MUCH).max_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
    Some(format!(
        "Probes made requests on {} {:.2} times as long, so take shares from the rows and times from the control beside \
         them.",
        title(column),
        ratio.median
    ))
}
