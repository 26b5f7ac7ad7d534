//! Studies: kinds of questions, end to end. Each has one place, with its options, the plan that they mean, what it finds in a
//! recording and what that says about claims of published results, and one line in `registry.rs`.

mod analysis;
mod compare;
mod decisions;
mod diagnose;
mod exec;
mod exits;
pub mod history;
mod import;
mod layers;
mod options;
mod overhead;
mod profile;
mod registry;
pub mod reproduce;
mod scale;
mod share;
mod tune;
mod tune_guest;

pub use analysis::{ReportFile, StudyError};
pub use compare::{CompareOptions, Compared, check, compare_recordings, forecast};
pub use decisions::Decisions;
pub use diagnose::DiagnoseOptions;
pub use exec::ExecOptions;
pub use exits::ExitsOptions;
pub use import::imported;
pub use layers::LayersOptions;
pub use options::{
    CommonOptions, GuestOptions, GuestSettings, LazyHost, MeasurementOptions, OptionsError,
    StudyOptions, duration, fraction, key_value,
};
pub use overhead::OverheadOptions;
pub use profile::{ProfileOptions, attached, changes, draw_difference, profiles_of_guests};
pub use registry::{Answer, analyze};
pub use scale::ScaleOptions;
pub use share::ShareOptions;
pub use tune::{LimitAnswer, TuneOptions, diagnosed};
pub use tune_guest::{layers_of_tuned, moved_layer};
