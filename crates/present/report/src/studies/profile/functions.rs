//! Functions by their own samples (self).

use super::share::{percent, range};
use crate::engine::{Cell, Column, Table};
use crate::number::NONE;
use crate::text::{fit, plain};
use vmtax_model::FunctionShare;

/// Functions that a terminal shows without details.
pub const SHOWN: usize = 12;
/// Functions that a page lists.
const LISTED: usize = 40;

/// The functions, those first in which most samples are. Those with one sample, which may be chance, are not listed.
pub fn functions(label: &str, functions: &[FunctionShare]) -> Table {
    let is_listed = |function: &&FunctionShare| function.total.samples >= 2;
    let are_all = functions.iter().all(|function| is_listed(&function));
    let note = (!are_all).then(|| "Functions with a single sample are not listed.".to_owned());
    Table::of(label, functions.iter().filter(is_listed).take(LISTED))
        .column(Column::words("function").cut(32, 12), |function| {
            function.name.as_str()
        })
        .column(Column::figures("self"), |function| {
            Cell::strong(percent(function.inside.share))
        })
        .column(Column::figures("95 % CI").spare(2), |function| {
            range(&function.inside)
        })
        .column(Column::figures("total"), |function| {
            percent(function.total.share)
        })
        .column(Column::words("component").spare(3), |function| {
            whose(function)
        })
        .column(Column::words("file").cut(24, 16).spare(1), |function| {
            file(function).to_owned()
        })
        .done()
        .most(SHOWN)
        .notes(note.into_iter().collect())
}

/// Whose a function is, shortly.
fn whose(function: &FunctionShare) -> String {
    let file = file(function);
    match function.layer.as_str() {
        "kernel" => "kernel".to_owned(),
        "program" if file.starts_with("qemu-system") => "QEMU".to_owned(),
        "translated" => "guest".to_owned(),
        "guest-kernel" => "guest kernel".to_owned(),
        _ if file.is_empty() => NONE.to_owned(),
        // "libc.so.6" is libc.
        _ => fit(&plain(file.split(".so").next().unwrap_or(file)), 16),
    }
}

/// The file it is in, without its folder.
fn file(function: &FunctionShare) -> &str {
    function.module.rsplit('/').next().unwrap_or_default()
}
