//! What can go wrong: only writing.

use ::parquet::errors::ParquetError;

/// An export could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The file cannot be written.
    #[error("the {what} cannot be written ({source}): name a file on a disk with free space")]
    Write {
        /// Which export.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The Parquet library refuses.
    #[error("the {what} cannot be written ({source}): name a file on a disk with free space")]
    Parquet {
        /// Which export.
        what: &'static str,
        /// Why.
        source: ParquetError,
    },
}
