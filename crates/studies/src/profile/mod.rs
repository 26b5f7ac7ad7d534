//! Where the time of a guest's VMM, or of any process, goes.

mod analysis;
mod difference;
mod options;
mod settings;

pub(crate) use analysis::Profile;
pub use difference::{changes, draw_difference};
pub use options::ProfileOptions;
pub use settings::{attached, profiles_of_guests};
