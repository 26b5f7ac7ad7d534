//! `layers --vm`: where the time of a running VM's requests or packets goes, as its host sees them.

use super::layers::{self, largest_layer, largest_layers, largest_states, sentences, unbroken};
use super::profile::exits::per_s;
use crate::engine::{Column, Notice, Report, Section, Table, Tile, figures, words};
use crate::number::{NONE, count, counted, nanoseconds};
use crate::text::{grouped, only_if};
use crate::view::{layers as view, origin, vm};
use vmtax_findings::{
    LayerColumn, RequestKind, State, Summary, VmLayers, VmPackets, VmRequests, VmTraced,
};
use vmtax_model::{Checkpoint, DeviceClass, Layer, Missing, Study};
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
        tiles: tiles(found),
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

/// " Of the mean, 75 % is service time. Largest layer: device (35 %)."; nothing where the answer says all that is known of the parts.
fn of_this(column: &LayerColumn) -> String {
    let layers = largest_layers(column);
    match not_distinguished(column) {
        Some(all) if all.percent >= WHOLE => String::new(),
        Some(part) => format!(" {}. {layers}", part.text),
        None => format!(" Of the mean, {}. {layers}", largest_states(column)),
    }
}

/// "; largest layer: device (35 %)."
fn cause(column: &LayerColumn) -> String {
    match not_distinguished(column) {
        Some(all) if all.percent >= WHOLE => format!("; {}.", all.text),
        _ => format!("{}.", largest_layer(column)),
    }
}

/// From this part of a request on, percent, there is no more to say than that its layers are not distinguished.
const WHOLE: f64 = 99.5;

/// Layers of a request that an imported trace does not distinguish.
struct NotDistinguished {
    percent: f64,
    /// "100 % of the mean is below QEMU's virtqueue: QEMU and all beneath, not distinguished".
    text: String,
}

/// Returns the layers that an imported trace does not distinguish; `None` where it does.
fn not_distinguished(column: &LayerColumn) -> Option<NotDistinguished> {
    let part = |layer, what: &str| {
        let percent = view::percent_in(column, layer, State::NotDistinguished);
        let layer = layer.label();
        (percent >= 0.5).then(|| NotDistinguished {
            percent,
            text: format!("{percent:.0}\u{a0}% of the mean is {layer}: {what}, not distinguished"),
        })
    };
    part(Layer::BelowVirtqueue, "QEMU and everything below it")
        .or_else(|| part(Layer::BelowGuest, "KVM, QEMU and the host"))
}

/// "A read of vda takes 380 µs on the host (median); largest layer: guest kernel (25 %)."
fn of_requests(requests: &VmRequests, column: &LayerColumn) -> String {
    let (disk, kind) = (&requests.disk, requests.traced.kind);
    if requests.traced.followed == 0 {
        let requests = kind.label();
        return format!("None of {requests} to {disk} could be followed: below is why.");
    }
    let scope = match column.from_host {
        true => "on the host",
        false => "from the guest's block layer on",
    };
    let (one, median) = (one(kind), unbroken(requests.gavg.p50_ns));
    let cause = cause(column);
    format!("{one} of {disk} takes {median} {scope} (median){cause}")
}

/// "Mean (GAVG): 412 µs, of it 250 µs at the host's device (DAVG) and 162 µs above it (KAVG). Of the mean, 75 % is service time. …".
fn mean_of_requests(requests: &VmRequests, column: &LayerColumn) -> String {
    let parts = match (&requests.kavg, &requests.davg) {
        (Some(k), Some(d)) => {
            let [davg, kavg] = [d, k].map(|average| unbroken(average.mean_ns));
            format!(", of it {davg} at the host's device (DAVG) and {kavg} above it (KAVG)")
        }
        // Where only the guest's trace shows them, the host's device does not.
        _ if !column.from_host => String::new(),
        _ => "; its time at the host's device is not observed".to_owned(),
    };
    let (gavg, of_this) = (unbroken(requests.gavg.mean_ns), of_this(column));
    let name = if column.from_host {
        "GAVG"
    } else {
        "guest await"
    };
    format!("Mean ({name}): {gavg}{parts}.{of_this}")
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

/// The answer about packets: the direction whose packets take longest, of the card with most packet time.
fn packets(found: &VmLayers) -> String {
    let (name, seconds) = (vm::name(&found.vm), found.seconds);
    match directions(found).first() {
        Some((packets, column)) => direction(packets, column),
        None => {
            let why = vm::stopped(&found.vm, &name).map_or(String::new(), |why| format!(": {why}"));
            format!("No packet of {name} passed its taps in {seconds:.1} s{why}.")
        }
    }
}

/// Returns the directions of the card with most packet time; first those whose packets were followed, the slowest of them first.
fn directions(found: &VmLayers) -> Vec<(&VmPackets, &LayerColumn)> {
    let tap = found.packets.first().map(|first| &first.tap);
    let all = found.packets.iter().zip(&found.layers.columns);
    let mut of_card: Vec<_> = all
        .filter(|(packets, _)| Some(&packets.tap) == tap)
        .collect();
    let median = |packets: &VmPackets| match packets.traced.followed {
        0 => -1.0,
        _ => packets.time.p50_ns,
    };
    of_card.sort_by(|(a, _), (b, _)| median(b).total_cmp(&median(a)));
    of_card
}

/// "A packet that the guest sends takes 58 µs on the host, from the doorbell to the host's stack (vnet0, median); largest layer: …".
fn direction(packets: &VmPackets, column: &LayerColumn) -> String {
    let (tap, kind) = (&packets.tap, packets.traced.kind);
    if packets.traced.followed == 0 {
        let packets = kind.label();
        return format!("None of the {packets} of {tap} could be followed: below is why.");
    }
    let has = |one: Checkpoint| {
        let mut rows = column.rows.iter();
        rows.any(|row| row.from == one || row.to == one)
    };
    // Where no packet has its first or its last checkpoint, it begins or ends in the VMM.
    let lacks = |end, other| has(other) && !has(end);
    let (verb, way) = match kind {
        RequestKind::Transmit if lacks(Checkpoint::NetKvmKick, Checkpoint::NetTapReceive) => {
            ("sends", "from the VMM to the host's stack")
        }
        RequestKind::Transmit => ("sends", "from the doorbell to the host's stack"),
        _ if lacks(Checkpoint::NetInject, Checkpoint::NetTapRead) => {
            ("receives", "from its stack to the VMM")
        }
        _ => ("receives", "from its stack to the interrupt"),
    };
    let (time, cause) = (unbroken(packets.time.p50_ns), cause(column));
    format!("A packet that the guest {verb} takes {time} on the host, {way} ({tap}, median){cause}")
}

/// Sentences below the answer: the means and their parts, and the other direction of a card.
fn tiles(found: &VmLayers) -> Vec<Tile> {
    let requests = found.requests.first().zip(found.layers.columns.first());
    let requests = requests.filter(|(requests, _)| requests.traced.followed > 0);
    let mut texts: Vec<String> = requests
        .map(|(requests, column)| mean_of_requests(requests, column))
        .into_iter()
        .collect();
    for (number, (packets, column)) in directions(found).into_iter().enumerate() {
        // The answer has the first one's.
        let own = only_if(number > 0, direction(packets, column) + " ");
        let (kind, mean) = (packets.traced.kind.label(), unbroken(packets.time.mean_ns));
        let parts = of_this(column);
        let mean = only_if(
            packets.traced.followed > 0,
            format!("Mean of {kind}: {mean}.{parts}"),
        );
        texts.push((own + &mean).trim_end().to_owned());
    }
    texts.retain(|text| !text.is_empty());
    let tile = |text| Tile {
        text,
        ..Tile::default()
    };
    texts.into_iter().map(tile).collect()
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
    let note = "Transmitted: from the doorbell to the receipt by the host's stack; received: from the tap's queue to the interrupt's delivery; \
         or the first and last event traced. The guest's own part is not included.";
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
