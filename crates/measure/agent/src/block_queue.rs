//! Attributes of a disk's request queue.

use crate::AgentError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Changing it resets other attributes, so it is written first.
const SCHEDULER: &str = "scheduler";

/// The attributes that were changed.
pub(crate) struct BlockQueue {
    folder: PathBuf,
    /// Values of the attributes before the change; `None` of one that cannot be read.
    before: BTreeMap<String, Option<String>>,
}

impl BlockQueue {
    /// The request queue of a disk, of which nothing is changed yet.
    pub fn of_disk(disk: &Path) -> BlockQueue {
        let name = disk.file_name().unwrap_or_default();
        BlockQueue {
            folder: Path::new("/sys/block").join(name).join("queue"),
            before: BTreeMap::new(),
        }
    }

    /// Restores what the last call changed, then sets these attributes.
    pub fn set(&mut self, attributes: &BTreeMap<String, String>) -> Result<(), AgentError> {
        for (name, before) in scheduler_first(&std::mem::take(&mut self.before)) {
            match before {
                Some(value) => self.write(name, value)?,
                // It is about to have another value.
                None if attributes.contains_key(name) => {}
                None => {
                    let why = io::Error::other("its value from before is not known");
                    return Err(AgentError::system(
                        format!("restoring {} of the guest", self.file(name).display()),
                        why,
                    ));
                }
            }
        }
        // All of them before any is written: another scheduler changes the others.
        self.before = attributes
            .keys()
            .map(|name| (name.clone(), self.read(name)))
            .collect();
        scheduler_first(attributes)
            .into_iter()
            .try_for_each(|(name, value)| self.write(name, value))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.file(name))
            .ok()
            .map(|text| chosen(&text).to_owned())
    }

    fn write(&self, name: &str, value: &str) -> Result<(), AgentError> {
        let file = self.file(name);
        fs::write(&file, value).map_err(|e| {
            AgentError::system(
                format!("writing {value} to {} of the guest", file.display()),
                e,
            )
        })
    }
}

fn scheduler_first<Value>(attributes: &BTreeMap<String, Value>) -> Vec<(&String, &Value)> {
    let (first, rest): (Vec<_>, Vec<_>) =
        attributes.iter().partition(|(name, _)| *name == SCHEDULER);
    first.into_iter().chain(rest).collect()
}

/// The value that an attribute has: the one in brackets where it lists all.
fn chosen(attribute: &str) -> &str {
    let in_brackets = attribute
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    in_brackets.map_or(attribute.trim(), |(chosen, _)| chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(text: &str) -> BTreeMap<String, String> {
        text.split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(k, v)| (k.into(), v.into()))
            .collect()
    }

    #[test]
    fn attributes_are_set_and_have_their_values_again_when_others_are() {
        let queue = tempfile::tempdir().unwrap();
        let attribute_value = |name: &str| fs::read_to_string(queue.path().join(name)).unwrap();
        fs::write(queue.path().join(SCHEDULER), "none [mq-deadline] kyber\n").unwrap();
        fs::write(queue.path().join("nr_requests"), "256\n").unwrap();
        let mut changed = BlockQueue {
            folder: queue.path().into(),
            before: BTreeMap::new(),
        };
        changed
            .set(&attributes("nr_requests=4 scheduler=none"))
            .unwrap();
        assert_eq!(
            (attribute_value(SCHEDULER), attribute_value("nr_requests")),
            ("none".into(), "4".into())
        );
        changed.set(&attributes("nr_requests=8")).unwrap();
        assert_eq!(
            (attribute_value(SCHEDULER), attribute_value("nr_requests")),
            ("mq-deadline".into(), "8".into())
        );
        changed.set(&BTreeMap::new()).unwrap();
        assert_eq!(
            (attribute_value(SCHEDULER), attribute_value("nr_requests")),
            ("mq-deadline".into(), "256".into())
        );
        let error = changed
            .set(&attributes("no-such/x=1"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("writing 1 to ") && error.contains("no-such/x of the guest"),
            "{error}"
        );
        // One that could not be read can change, but not go back.
        let mut changed = BlockQueue {
            folder: queue.path().into(),
            before: BTreeMap::new(),
        };
        changed.set(&attributes("new=1")).unwrap();
        changed.set(&attributes("new=2")).unwrap();
        assert_eq!(attribute_value("new"), "2");
        changed.before.insert("new".into(), None);
        assert!(
            changed
                .set(&BTreeMap::new())
                .unwrap_err()
                .to_string()
                .contains("restoring")
        );
    }

    #[test]
    fn what_another_scheduler_changes_has_its_value_again() {
        let queue = tempfile::tempdir().unwrap();
        let scheduler = queue.path().join(SCHEDULER);
        fs::write(&scheduler, "[mq-deadline] none\n").unwrap();
        // One file stands for an attribute that changes with the scheduler.
        std::os::unix::fs::symlink(&scheduler, queue.path().join("nr_requests")).unwrap();
        let mut changed = BlockQueue {
            folder: queue.path().into(),
            before: BTreeMap::new(),
        };
        changed
            .set(&attributes("nr_requests=4 scheduler=none"))
            .unwrap();
        changed.set(&BTreeMap::new()).unwrap();
        assert_eq!(fs::read_to_string(&scheduler).unwrap(), "mq-deadline");
    }

    #[test]
    fn the_scheduler_comes_first_since_it_changes_the_others() {
        let all = attributes("nr_requests=4 read_ahead_kb=0 scheduler=none wbt_lat_usec=0");
        let names: Vec<&str> = scheduler_first(&all)
            .into_iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(
            names,
            [SCHEDULER, "nr_requests", "read_ahead_kb", "wbt_lat_usec"]
        );
    }
}
