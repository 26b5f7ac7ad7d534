//! Features of the host's CPU that KVM uses, as the parameters of its modules have them.

use crate::read_text;
use std::path::Path;
use vmtax_model::samples::KvmFeatures;

/// A module of KVM: whether it is Intel's, and its parameters for nested page tables and for the local APIC.
struct Module {
    name: &'static str,
    is_intel: bool,
    nested_paging: &'static str,
    apicv: &'static str,
}

const MODULES: [Module; 2] = [
    Module {
        name: "kvm_intel",
        is_intel: true,
        nested_paging: "ept",
        apicv: "enable_apicv",
    },
    Module {
        name: "kvm_amd",
        is_intel: false,
        nested_paging: "npt",
        apicv: "avic",
    },
];

/// Returns the features of this host; unknown where none of these modules is loaded.
pub fn kvm_features() -> KvmFeatures {
    features_in(Path::new("/sys/module"))
}

fn features_in(modules: &Path) -> KvmFeatures {
    let of_module = |module: &Module| {
        let parameters = modules.join(module.name).join("parameters");
        let parameter = |name: &str| match read_text(parameters.join(name))?.as_str() {
            "Y" | "1" => Some(true),
            "N" | "0" => Some(false),
            _ => None,
        };
        parameters.is_dir().then(|| KvmFeatures {
            is_intel: Some(module.is_intel),
            nested_paging: parameter(module.nested_paging),
            apicv: parameter(module.apicv),
        })
    };
    MODULES.iter().find_map(of_module).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vmtax_model::testing::put;

    #[test]
    fn the_module_that_is_loaded_says_what_it_uses() {
        let modules = tempfile::tempdir().unwrap();
        assert_eq!(features_in(modules.path()), KvmFeatures::default());
        for (file, value) in [("npt", "Y\n"), ("avic", "0\n"), ("ept", "N\n")] {
            put(modules.path(), &format!("kvm_amd/parameters/{file}"), value).unwrap();
        }
        let amd = KvmFeatures {
            is_intel: Some(false),
            nested_paging: Some(true),
            apicv: Some(false),
        };
        assert_eq!(features_in(modules.path()), amd);
        put(modules.path(), "kvm_intel/parameters/ept", "?\n").unwrap();
        let intel = KvmFeatures {
            is_intel: Some(true),
            ..KvmFeatures::default()
        };
        assert_eq!(features_in(modules.path()), intel);
    }
}
