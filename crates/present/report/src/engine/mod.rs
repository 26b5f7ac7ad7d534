//! A report as sections of blocks, and its renderers: for a terminal, a page, Markdown. A study writes its report once.

mod format;
mod markdown;
mod page;
mod prose;
mod sections;
mod table;
mod terminal;

pub use format::FORMATS;
pub use page::prose;
pub use sections::{
    Block, Chart, Figure, Notice, NoticeKind, Origin, Report, Section, Tile, advice_text,
    remedy_text,
};
pub use table::{Cell, Column, Filled, Row, Table, Tone};
