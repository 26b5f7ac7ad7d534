//! `layers --vm`: where the time of a running VM's requests or packets goes, as its host sees them.

use super::layers::{self, largest_layers, largest_states, sentences, unbroken};
use super::profile::exits::per_s;
use crate::engine::{Column, Notice, Report, Section, Table, figures, words};
use crate::number::{NONE, count, counted, nanoseconds};
use crate::text::{Joined, grouped, only_if};
use crate::view::{layers as view, origin, vm};
use vmtax_findings::{
    LayerColumn, RequestKind, State, Summary, VmLayers, VmPackets, VmRequests, VmTraced,
};
use vmtax_model::{DeviceClass, Layer, Missing, Study};
use vmtax_recording::Recording;

/// Makes the report of the block requests of a running VM, or of its packets where the plan traces those, layer by
/// layer.
pub fn report<'a>(recording: &'a Recording, found: &'a VmLayers) -> Report<'a> {
    let observed = recording.plan.observed_vm();
    let is_net = observed.is_some_and(|vm| vm.device == DeviceClass::Net);
    let (title, traced, answer) = match is_net {
        true => ("Packets", "packets", packets(found)),
        false => ("Block requests", "requests", requests(found)),
    };
    let (origin, name, seconds) = (origin(recording), vm::name(&found.vm), found.seconds);
    let time = format!("traced for {seconds:.1} s");
    let ended =
        format!("{name} exited after {seconds:.1} s: the figures are of the {traced} until then.");
    let has_columns = !found.layers.columns.is_empty();
    Report {
        study: "layers",
        title: format!("{title} of {name}, by layer and state"),
        answer,
        sections: sections(recording, found),
        basis: vm::recorded(recording, &found.vm, Some(time)),
        next: vm::next(&origin, &found.vm),
        advice: found.layers.advice.clone(),
        notices: vec![
            Notice::not_observed(vm::missing(missing(found))),
            Notice::warnings(only_if(found.ended, vec![ended])),
        ],
        method: only_if(has_columns, vec![found.layers.method.clone()]),
        origin,
        ..Report::default()
    }
}

/// Returns the data that could not be observed of the VM's requests.
pub(super) fn missing(found: &VmLayers) -> impl Iterator<Item = &Missing> {
    let of_columns = found
        .layers
        .columns
        .iter()
        .flat_map(|column| &column.missing);
    of_columns.chain(&found.missing)
}

/// The answer about requests. That there is nothing to follow is one, too.
fn requests(found: &VmLayers) -> String {
    let main = found.requests.first().zip(found.layers.columns.first());
    if let Some((requests, column)) = main {
        return of_requests(requests, column);
    }
    let (name, seconds) = (vm::name(&found.vm), found.seconds);
    let mut missing = found.missing.iter();
    if missing.any(|missing| missing.what == VmLayers::REQUESTS) {
        return format!(
            "The requests of {name} cannot be followed in this build of QEMU: below is why."
        );
    }
    if !found.not_followed.is_empty() && found.idle.is_empty() {
        let disks = found.not_followed.join(", ");
        return format!(
            "The requests of {name} cannot be followed: the trace does not show those of {disks}."
        );
    }
    let why =
        vm::stopped(&found.vm, &name).unwrap_or_else(|| "none of its disks was used".to_owned());
    format!("No requests of {name} in {seconds:.1} s: {why}.")
}

/// "Of this 75 % is service time. Largest layer: device (35 %)."
fn of_this(column: &LayerColumn) -> String {
    if let Some(part) = not_distinguished(column) {
        return part;
    }
    let (states, layers) = (largest_states(column), largest_layers(column));
    format!("Of this {states}. {layers}")
}

/// "100 % of this is below QEMU's virtqueue: QEMU and everything below it, not distinguished." where an imported trace does not say more.
fn not_distinguished(column: &LayerColumn) -> Option<String> {
    let part = |layer, what: &str| {
        let part = view::percent_in(column, layer, State::NotDistinguished);
        let layer = layer.label();
        (part >= 0.5).then(|| {
            // Of one layer alone there is no more to say.
            let others = (part < 99.5).then(|| format!(" {}", largest_layers(column)));
            let others = others.unwrap_or_default();
            format!("{part:.0}\u{a0}% of this is {layer}: {what}, not distinguished.{others}")
        })
    };
    part(Layer::BelowVirtqueue, "QEMU and everything below it")
        .or_else(|| part(Layer::BelowGuest, "KVM, QEMU and the host"))
}

/// "A read of vda takes 412 µs on the host (GAVG, mean): 250 µs at the device (DAVG), 162 µs above it (KAVG). …".
fn of_requests(requests: &VmRequests, column: &LayerColumn) -> String {
    let (disk, kind) = (&requests.disk, requests.traced.kind);
    if requests.traced.followed == 0 {
        let requests = kind.label();
        return format!("None of {requests} to {disk} could be followed: below is why.");
    }
    let parts = match (&requests.kavg, &requests.davg) {
        (Some(k), Some(d)) => {
            let [davg, kavg] = [d, k].map(|average| unbroken(average.mean_ns));
            format!(": {davg} at the host's device (DAVG) and {kavg} above it (KAVG)")
        }
        // Where only the guest's trace shows them, the host's device does not.
        _ if !column.from_host => String::new(),
        _ => "; its time at the host's device is not observed".to_owned(),
    };
    let scope = match column.from_host {
        true => "on the host (GAVG, mean)",
        false => "in the guest's block layer and below (guest await, mean)",
    };
    let (one, gavg) = (one(kind), unbroken(requests.gavg.mean_ns));
    format!(
        "{one} of {disk} takes {gavg} {scope}{parts}. {}",
        of_this(column)
    )
}

/// "A read".
pub(super) fn one(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Read => "A read",
        RequestKind::Write => "A write",
        RequestKind::Flush => "A flush",
        RequestKind::Discard => "A discard",
        RequestKind::Other | RequestKind::Transmit | RequestKind::Receive => "A request",
    }
}

/// The answer about packets: a sentence or two for each direction of the card with most packet time.
fn packets(found: &VmLayers) -> String {
    let (name, seconds) = (vm::name(&found.vm), found.seconds);
    let Some(first) = found.packets.first() else {
        let why = vm::stopped(&found.vm, &name).map_or(String::new(), |why| format!(": {why}"));
        return format!("No packet of {name} passed its taps in {seconds:.1} s{why}.");
    };
    let all = found.packets.iter().zip(&found.layers.columns);
    let of_card = all.filter(|(packets, _)| packets.tap == first.tap);
    of_card
        .map(|(packets, column)| direction(packets, column))
        .joined(" ")
}

/// "A packet that the guest sends takes 62 µs on the host, from the doorbell to the host's stack (vnet0, mean). Of this …".
fn direction(packets: &VmPackets, column: &LayerColumn) -> String {
    let (tap, kind) = (&packets.tap, packets.traced.kind);
    if packets.traced.followed == 0 {
        let packets = kind.label();
        return format!("None of the {packets} of {tap} could be followed: below is why.");
    }
    let (verb, way) = match kind {
        RequestKind::Transmit => ("sends", "from the doorbell to the host's stack"),
        _ => ("receives", "from its stack to the interrupt"),
    };
    let (time, of_this) = (unbroken(packets.time.mean_ns), of_this(column));
    format!(
        "A packet that the guest {verb} takes {time} on the host, {way} ({tap}, mean). {of_this}"
    )
}

fn sections<'a>(recording: &Recording, found: &'a VmLayers) -> Vec<Section<'a>> {
    if found.layers.columns.is_empty() {
        return Vec::new();
    }
    let (class, table, what) = match found.packets.is_empty() {
        true => (DeviceClass::Disk, latencies(found), "requests"),
        false => (DeviceClass::Net, packet_latencies(found), "packets"),
    };
    let mut all = vec![Section::new(table.label.clone(), [table])];
    let requests = found.requests.iter().map(|one| (&one.traced, &[][..]));
    let packets = found
        .packets
        .iter()
        .map(|one| (&one.traced, &*one.batching));
    let traced = requests.chain(packets).zip(&found.layers.columns);
    let quality = traced.map(|((traced, batching), column)| {
        quality(traced, column) + &sentences::batches(batching)
    });
    let untraced = match recording.plan.study {
        Study::Import(_) => "unknown, an imported trace has no untraced run".to_owned(),
        _ => format!("not measured, a running VM has no untraced run of the same {what}"),
    };
    all.extend(layers::of_runs(&found.layers, class, quality, &untraced));
    all
}

/// Returns the number of requests followed, by which thread, and the accuracy.
fn quality(traced: &VmTraced, column: &LayerColumn) -> String {
    let thread = only_if(!traced.thread.is_empty(), format!(" ({})", traced.thread));
    let clock = only_if(
        !column.from_host,
        format!(" Clock error: {}.", sentences::clock(column)),
    );
    let matched = sentences::matched(column, 1);
    format!("{}{thread}: {matched}.{clock}", column.variant)
}

/// The columns of an average.
fn heads(name: &str) -> [Column; 3] {
    let [mean, p50, p99] =
        ["mean", "p50", "p99"].map(|figure| figures(format!("{name} {figure}").trim_start()));
    [mean, p50.spare(2), p99.spare(1)]
}

fn times(average: Option<&Summary>) -> [String; 3] {
    let times = |one: &Summary| [one.mean_ns, one.p50_ns, one.p99_ns].map(nanoseconds);
    average.map_or([NONE; 3].map(str::to_owned), times)
}

/// The short form: a line for each disk and kind.
pub(super) fn latencies(found: &VmLayers) -> Table {
    Table::of("Latency by disk", &found.requests)
        .column(words("disk").broken(16, 8), |row| row.disk.clone())
        .column(words("requests"), |row| row.traced.kind.label())
        .column(figures("per s"), |row| per_s(row.traced.per_s))
        .column(figures("in flight").spare(3), |row| {
            format!("{:.2}", row.in_flight)
        })
        .columns(heads(total(found)), |row| times(Some(&row.gavg)))
        .columns(heads("KAVG"), |row| times(row.kavg.as_ref()))
        .columns(heads("DAVG"), |row| times(row.davg.as_ref()))
        .done()
        .naming_left_out()
        .notes(notes(found))
}

/// The name of the total latency: the host's, or the guest's where the guest was traced, too.
fn total(found: &VmLayers) -> &'static str {
    let main = found.layers.columns.first();
    match main.is_none_or(|column| column.from_host) {
        true => "GAVG",
        false => "guest await",
    }
}

/// The short form: a line for each card and direction.
fn packet_latencies(found: &VmLayers) -> Table {
    let note = "Transmitted: from the doorbell to the receipt by the host's stack; received: from the tap's queue to the interrupt's delivery. \
         The guest's own part is not included.";
    let idle = idle(found, "tap", "packets");
    Table::of("Latency by tap", &found.packets)
        .column(words("tap").broken(16, 8), |row| row.tap.clone())
        .column(words(""), |row| row.traced.kind.label())
        .column(figures("packets").samples(), |row| {
            count(row.traced.count.number())
        })
        .column(figures("per s"), |row| per_s(row.traced.per_s))
        .columns(heads(""), |row| times(Some(&row.time)))
        .done()
        .notes([note.to_owned()].into_iter().chain(idle).collect())
}

/// Returns the meaning of the columns, a description of the disks, and the disks that were not used.
fn notes(found: &VmLayers) -> Vec<String> {
    let has_davg = found
        .requests
        .iter()
        .any(|requests| requests.davg.is_some());
    let scope = match total(found) {
        "GAVG" => {
            "GAVG = KAVG + DAVG: from kick to interrupt delivery, or the first and last event traced; DAVG: at the host's device; KAVG: the rest \
             (notification, QEMU, host kernel, interrupt). The guest's own part is not included."
        }
        _ if has_davg => {
            "guest await = KAVG + DAVG: from issue to completion in the guest's block layer; DAVG: at the host's device; KAVG: the rest \
             (guest kernel, notification, QEMU, host kernel, interrupt)."
        }
        _ => "guest await: from issue to completion in the guest's block layer.",
    };
    let disks = grouped(
        found
            .requests
            .iter()
            .map(|requests| (&requests.disk, requests)),
    );
    let named = disks.into_iter().filter_map(|(disk, requests)| {
        let (file, format) = (requests[0].file.as_ref()?, requests[0].format.as_ref());
        let format = format.map_or(String::new(), |format| format!(" ({format})"));
        Some(format!("{disk}: {file}{format}."))
    });
    let all = [scope.to_owned()].into_iter().chain(named);
    all.chain(idle(found, "disk", "requests")).collect()
}

/// Returns the devices that were not used.
fn idle(found: &VmLayers, device: &str, what: &str) -> Option<String> {
    let number = found.idle.len() as u64;
    let names = found.idle.join(", ");
    (number > 0).then(|| format!("{} without {what}: {names}.", counted(number, device)))
}
