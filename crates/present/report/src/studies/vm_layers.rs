//! `layers --vm`: where the time of a running VM's requests or packets goes, as its host sees them.

use super::layers::{self, largest_layers, largest_states, words};
use crate::engine::{Block, Column, Notice, Report, Section, Table};
use crate::number::{NONE, count, counted, nanoseconds};
use crate::text::when;
use crate::view::{host, layers as view, origin, vm};
use vmtax_model::{
    DeviceClass, Layer, LayerColumn, Missing, RequestKind, State, Study, Summary, VmLayers,
    VmPackets, VmRequests, VmTraced,
};
use vmtax_recording::Recording;

/// Makes the report of the block requests of a running VM, or of its packets where the plan traces those, layer by
/// layer.
pub fn report<'a>(recording: &'a Recording, found: &'a VmLayers) -> Report<'a> {
    let is_net =
        matches!(&recording.plan.study, Study::VmLayers(vm) if vm.device == DeviceClass::Net);
    let (title, traced, answer) = if is_net {
        ("Packets", "packets", packets(found))
    } else {
        ("Block requests", "requests", requests(found))
    };
    let (origin, name) = (origin(recording), vm::name(&found.vm));
    let time = format!("traced for {:.1} s", found.seconds);
    let ended = || {
        format!(
            "{name} ended after {:.1} s: the figures are of the {traced} until then.",
            found.seconds
        )
    };
    Report {
        study: "layers",
        title: format!("{title} of {name}, by layer and state"),
        answer,
        sections: sections(found),
        basis: [
            vm::basis(&found.vm),
            vec![time, when(&recording.manifest.started)],
            host(recording),
        ]
        .concat(),
        next: vec![
            format!("{} --details", origin.command),
            format!("vmtax profile --vm {}", found.vm.pid),
        ],
        advice: found.layers.advice.clone(),
        notices: vec![
            Notice::missing("Not observed", vm::missing(missing(found))),
            Notice::warnings(found.ended.then(ended).into_iter().collect()),
        ],
        method: if found.layers.columns.is_empty() {
            Vec::new()
        } else {
            vec![found.layers.method.clone()]
        },
        origin,
        ..Report::default()
    }
}

/// Returns the data that could not be observed of the VM's requests.
pub(super) fn missing(found: &VmLayers) -> impl Iterator<Item = &Missing> {
    let columns = found.layers.columns.iter();
    columns
        .flat_map(|column| &column.missing)
        .chain(&found.missing)
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

pub(super) fn time(ns: f64) -> String {
    nanoseconds(ns).replace(' ', "\u{a0}")
}

/// "Of this 75 % is service time. Largest layer: device (35 %)."
fn of_this(column: &LayerColumn) -> String {
    if let Some(part) = not_distinguished(column) {
        return part;
    }
    format!(
        "Of this {}. {}",
        largest_states(column),
        largest_layers(column)
    )
}

/// "100 % of this is below QEMU's virtqueue: QEMU and all beneath, not distinguished." where an imported trace does not say more.
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
    part(Layer::BelowVirtqueue, "QEMU and all beneath")
        .or_else(|| part(Layer::BelowGuest, "KVM, QEMU and the host"))
}

/// "A read of vda takes 412 µs on the host (GAVG, mean): 250 µs at the device (DAVG), 162 µs above it (KAVG). …".
fn of_requests(requests: &VmRequests, column: &LayerColumn) -> String {
    let (disk, kind) = (&requests.disk, requests.traced.kind);
    if requests.traced.followed == 0 {
        return format!(
            "None of {} to {disk} could be followed: below is why.",
            kind.label()
        );
    }
    let parts = match (&requests.kavg, &requests.davg) {
        (Some(k), Some(d)) => format!(
            ": {} at the host's device (DAVG) and {} above it (KAVG)",
            time(d.mean_ns),
            time(k.mean_ns)
        ),
        // Where only the guest's trace shows them, the host's device does not.
        _ if !column.from_host => String::new(),
        _ => "; its time at the host's device is not observed".to_owned(),
    };
    let scope = if column.from_host {
        "on the host (GAVG, mean)"
    } else {
        "from the guest's block layer on (GAVG, mean)"
    };
    let one = one(kind);
    let gavg = time(requests.gavg.mean_ns);
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
        .collect::<Vec<_>>()
        .join(" ")
}

/// "A packet that the guest sends takes 62 µs on the host, from the doorbell to the host's stack (vnet0, mean). Of this …".
fn direction(packets: &VmPackets, column: &LayerColumn) -> String {
    let (tap, kind) = (&packets.tap, packets.traced.kind);
    if packets.traced.followed == 0 {
        return format!(
            "None of the {} of {tap} could be followed: below is why.",
            kind.label()
        );
    }
    let (verb, way) = match kind {
        RequestKind::Transmit => ("sends", "from the doorbell to the host's stack"),
        _ => ("receives", "from its stack to the interrupt"),
    };
    format!(
        "A packet that the guest {verb} takes {} on the host, {way} ({tap}, mean). {}",
        time(packets.time.mean_ns),
        of_this(column)
    )
}

fn sections(found: &VmLayers) -> Vec<Section<'_>> {
    if found.layers.columns.is_empty() {
        return Vec::new();
    }
    let (class, table, what) = match found.packets.is_empty() {
        true => (DeviceClass::Disk, latencies(found), "requests"),
        false => (DeviceClass::Net, packet_latencies(found), "packets"),
    };
    let mut all = vec![Section::new(table.label.clone(), vec![Block::Table(table)])];
    let requests = found.requests.iter();
    let requests = requests.map(|requests| (&requests.traced, &[][..]));
    let packets = found.packets.iter();
    let packets = packets.map(|packets| (&packets.traced, &*packets.batching));
    let traced = requests.chain(packets).zip(&found.layers.columns);
    let quality = traced.map(|((traced, batching), column)| {
        let batches = words::batches(batching);
        quality(traced, column) + &batches
    });
    let untraced = format!("a running VM has no untraced run of the same {what}");
    all.extend(layers::of_runs(&found.layers, class, quality, &untraced));
    all
}

/// Returns the number of requests followed, by which thread, and the accuracy.
fn quality(traced: &VmTraced, column: &LayerColumn) -> String {
    let thread = match &*traced.thread {
        "" => String::new(),
        thread => format!(" ({thread})"),
    };
    let clock = if column.from_host {
        String::new()
    } else {
        format!(" Clock error: {}.", words::clock(column))
    };
    let matched = words::matched(column, 1);
    format!("{}{thread}: {matched}.{clock}", column.variant)
}

/// The columns of an average.
fn heads(name: &str) -> [Column; 3] {
    [
        Column::figures(format!("{name} mean").trim_start()),
        Column::figures("p50").spare(2),
        Column::figures("p99").spare(1),
    ]
}

fn times(average: Option<&Summary>) -> [String; 3] {
    average.map_or([NONE; 3].map(str::to_owned), |a| {
        [a.mean_ns, a.p50_ns, a.p99_ns].map(nanoseconds)
    })
}

/// The short form: a line for each disk and kind.
pub(super) fn latencies(found: &VmLayers) -> Table {
    Table::of("Latency by disk", &found.requests)
        .column(Column::words("disk").broken(16, 8), |row| row.disk.clone())
        .column(Column::words("requests"), |row| row.traced.kind.label())
        .column(Column::figures("per s"), |row| rate(row.traced.per_s))
        .column(Column::figures("in flight").spare(3), |row| {
            format!("{:.2}", row.in_flight)
        })
        .columns(heads("GAVG"), |row| times(Some(&row.gavg)))
        .columns(heads("KAVG"), |row| times(row.kavg.as_ref()))
        .columns(heads("DAVG"), |row| times(row.davg.as_ref()))
        .done()
        .naming_left_out()
        .notes(notes(found))
}

/// The short form: a line for each card and direction.
fn packet_latencies(found: &VmLayers) -> Table {
    let note = "Transmitted: from the doorbell to the receipt by the host's stack; received: from the tap's queue to the interrupt's delivery. \
         The guest's own part is outside.";
    let idle = idle(found, "tap", "packets");
    Table::of("Latency by tap", &found.packets)
        .column(Column::words("tap").broken(16, 8), |row| row.tap.clone())
        .column(Column::words(""), |row| row.traced.kind.label())
        .column(Column::figures("packets"), |row| {
            count(row.traced.count.number())
        })
        .column(Column::figures("per s"), |row| rate(row.traced.per_s))
        .columns(heads(""), |row| times(Some(&row.time)))
        .done()
        .notes([note.to_owned()].into_iter().chain(idle).collect())
}

pub(super) fn rate(per_s: f64) -> String {
    if per_s < 10.0 {
        format!("{per_s:.1}")
    } else {
        count(per_s.round() as u64)
    }
}

/// Returns the meaning of the columns, a description of the disks, and the disks that were not used.
fn notes(found: &VmLayers) -> Vec<String> {
    let main = found.layers.columns.first();
    let scope = if main.is_none_or(|column| column.from_host) {
        "GAVG = KAVG + DAVG: from the guest's kick to the interrupt's delivery, as far as they are seen; DAVG the part at the host's device, KAVG the rest: \
         notification, QEMU, host kernel, interrupt. The guest's own part is outside."
    } else if found
        .requests
        .iter()
        .any(|requests| requests.davg.is_some())
    {
        "GAVG = KAVG + DAVG: from the guest's block layer taking a request to its completion there; DAVG the part at the host's \
         device, KAVG the rest: guest kernel, notification, QEMU, host kernel, interrupt."
    } else {
        "GAVG: from the guest's block layer taking a request to its completion there."
    };
    let mut notes = vec![scope.to_owned()];
    let mut disks: Vec<&VmRequests> = Vec::new();
    for requests in &found.requests {
        if !disks.iter().any(|known| known.disk == requests.disk) {
            disks.push(requests);
        }
    }
    let named = disks.into_iter().filter_map(|requests| {
        let format = requests
            .format
            .as_ref()
            .map_or(String::new(), |format| format!(" ({format})"));
        Some(format!(
            "{}: {}{format}.",
            requests.disk,
            requests.file.as_ref()?
        ))
    });
    notes.extend(named);
    notes.extend(idle(found, "disk", "requests"));
    notes
}

/// Returns the devices that were not used.
fn idle(found: &VmLayers, device: &str, what: &str) -> Option<String> {
    let number = found.idle.len() as u64;
    let names = found.idle.join(", ");
    (number > 0).then(|| format!("{} without {what}: {names}.", counted(number, device)))
}
