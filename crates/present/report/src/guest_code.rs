//! The part of `profile`'s answer that is about what a guest's processors execute.

use crate::number::{count, counted, nanoseconds};
use crate::profile::{fitted, percent};
use crate::table::{self, right};
use crate::text::{fit, plain};
use comfy_table::{Attribute, Cell};
use vmtax_model::{CodePlace, GuestCode};

/// Places that a terminal shows.
const SHOWN: usize = 8;

/// "What the guest's processors execute: 190 looks".
pub(crate) fn title(code: &GuestCode) -> String {
    format!("What the guest's processors execute: {}", counted(code.looks, "look"))
}

/// Whose code it is.
pub(crate) fn mode(place: &CodePlace) -> String {
    match place.level {
        0 => "kernel".to_owned(),
        3 => "program".to_owned(),
        ring => format!("ring {ring}"),
    }
}

/// The places for a terminal.
pub(crate) fn terminal(code: &GuestCode, width: usize, color: bool) -> String {
    if code.places.is_empty() {
        return "The guest's processors were halted at each of them.\n".to_owned();
    }
    let shown = || code.places.iter().take(SHOWN);
    let build = |room: usize, color: bool| {
        let mut table = table::empty(color);
        let head = [Cell::new("in"), right("looks"), right("share"), Cell::new("just done"), Cell::new("next")];
        table.set_header([Cell::new("address")].into_iter().chain(head));
        for place in shown() {
            let instruction = |text: &str| Cell::new(fit(&plain(text), room));
            table.add_row([
                Cell::new(format!("{:#x}", place.address)),
                Cell::new(mode(place)),
                right(count(place.share.samples)),
                right(percent(place.share.share)).add_attribute(Attribute::Bold),
                instruction(&place.done),
                instruction(&place.next),
            ]);
        }
        table::lines(table)
    };
    let widest = shown().flat_map(|place| [place.done.as_str(), place.next.as_str()]);
    let mut text = fitted(widest, width, color, build);
    let more = code.places.len().saturating_sub(SHOWN);
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text
}

/// How it was seen.
pub(crate) fn method(code: &GuestCode) -> String {
    let halted = if code.halted.samples == 0 {
        String::new()
    } else {
        format!(", {} of them at a halted one", percent(code.halted.share))
    };
    format!(
        "{} at the guest's processors through QEMU's monitor{halted}; each was answered in {} at the median.",
        counted(code.looks, "look"),
        nanoseconds(code.look_ns)
    )
}
