//! Raw pages of the kernel's ring buffer, merged into one stream.

mod folder;
mod merge;
#[cfg(test)]
mod merge_tests;
mod page;
#[cfg(test)]
mod page_tests;
mod stats;
mod stream;
mod writer;

pub use folder::{Folder, RawFile};
pub(crate) use merge::Merge;
pub use page::PageLayout;
pub use stats::{CpuStats, parse as cpu_stats};
pub use stream::Input;
pub use writer::{FolderWriter, Keep};
