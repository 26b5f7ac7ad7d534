//! Sampled stacks as code locations, without duplicates.

use crate::stacks::location::{CodeLocation, CodeOwner, UnwindEnd};
use std::collections::HashMap;
use vmtax_model::samples::{Sample, Unwound};

/// Samples taken so far, with their stacks and threads.
#[derive(Debug, Default)]
pub struct SampledStacks {
    /// Stacks, innermost place first.
    pub stacks: Vec<Vec<CodeLocation>>,
    numbers: HashMap<Vec<CodeLocation>, usize>,
    /// Threads by host TID, with their names.
    pub threads: Vec<(i32, Option<String>)>,
    by_tid: HashMap<i32, usize>,
    /// The kernel's functions that threads waited in.
    pub waits: Vec<String>,
    /// Samples taken so far.
    pub samples: Vec<Sample>,
    /// Numbers of samples by how far their stacks unwound.
    pub unwound: Unwound,
    /// Samples lost for lack of buffer space.
    pub lost: u64,
}

impl SampledStacks {
    /// The number of a thread here.
    pub fn thread(&mut self, tid: i32) -> usize {
        *self.by_tid.entry(tid).or_insert_with(|| {
            self.threads.push((tid, None));
            self.threads.len() - 1
        })
    }

    /// The number of a stack here.
    pub fn stack(&mut self, places: &[CodeLocation]) -> usize {
        if let Some(&number) = self.numbers.get(places) {
            return number;
        }
        self.stacks.push(places.to_vec());
        self.numbers.insert(places.to_vec(), self.stacks.len() - 1);
        self.stacks.len() - 1
    }

    /// The location that stands for waiting in a kernel function.
    pub fn wait(&mut self, name: &str) -> CodeLocation {
        let known = self.waits.iter().position(|wait| wait == name);
        let at = known.unwrap_or_else(|| {
            self.waits.push(name.to_owned());
            self.waits.len() - 1
        });
        CodeLocation {
            owner: CodeOwner::Wait,
            at: at as u64,
        }
    }

    /// Counts how the user's part of a sample ended.
    pub fn ended(&mut self, user: &[CodeLocation], end: UnwindEnd) {
        let Some(leaf) = user.first() else { return };
        let unwound = &mut self.unwound;
        let root = u64::from(end == UnwindEnd::Root);
        if leaf.owner == CodeOwner::Jit {
            unwound.translated += 1;
            unwound.translated_to_root += root;
        } else {
            unwound.outside += 1;
            unwound.to_root += root;
            unwound.cut += u64::from(end == UnwindEnd::Cut);
        }
    }
}
