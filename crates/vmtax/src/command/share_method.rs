//! A share method with its options, as it stands in command lines.

use super::setting::setting;
use crate::fault::Fault;
use std::collections::BTreeMap;
use vmtax_model::Variant;

/// `9p,msize=524288,cache=loose`, as a variant of that name.
pub(super) fn variant(way: &str) -> Result<Variant, Fault> {
    let mut words = way.split(',');
    let method = words.next().unwrap_or_default();
    let mut set = BTreeMap::from([("share".to_owned(), method.to_owned())]);
    for word in words {
        let (key, value) = setting(word, "OPTION=VALUE, as in 9p,cache=loose")?;
        // A QEMU of its own may be part of a way.
        let key = if key == "qemu" { key.to_owned() } else { format!("share.{key}") };
        set.insert(key, value.to_owned());
    }
    Ok(Variant { name: way.to_owned(), set })
}
