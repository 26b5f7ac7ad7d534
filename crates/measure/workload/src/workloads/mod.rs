//! The workloads, a module each: those of the table in `vmtax-model`, which names them.

use crate::descriptor::Descriptor;
use vmtax_model::WorkloadName;

macro_rules! modules {
    ($(
        #[doc = $doc:literal]
        $workload:ident $name:literal, in $module:ident, needs $needs:ident,
        published $published:tt $metrics:tt
    )*) => {
        $(pub(crate) mod $module;)*

        /// Returns the descriptor of a workload: its options, its presets.
        pub const fn descriptor(name: WorkloadName) -> &'static Descriptor {
            match name { $(WorkloadName::$workload => &$module::WORKLOAD,)* }
        }
    };
}

vmtax_model::workloads!(modules);
