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
    /// The Parquet library needs random numbers for its hash tables.
    #[error(
        "the {what} cannot be written: /dev/urandom cannot be read ({source}). Mount /dev, or allow more open files: ulimit -n 4096"
    )]
    Random {
        /// Which export.
        what: &'static str,
        /// Why not.
        source: getrandom::Error,
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
