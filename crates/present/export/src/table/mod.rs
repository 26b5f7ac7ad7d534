//! Flat Parquet tables: rows written as a file that is there whole or not at all, and the columns of any file read back as far
//! as its size and its types allow.

mod footer;
mod pages;
mod read;
mod rows;
mod texts;
mod whole_file;
mod write;

pub use read::{Group, Problem, for_each_group};
pub use rows::{Rows, maybe, words};
pub use texts::Texts;
pub use whole_file::{Change, write_whole};
pub(crate) use write::Table;
pub use write::{Cell, Column, text};
