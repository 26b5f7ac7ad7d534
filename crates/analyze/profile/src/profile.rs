//! A profile: who was seen where, when. What recording, importing and reading make, and pictures and tables are made of.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Which part of the stack a function is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// The program itself: QEMU.
    Program,
    /// A library.
    Library,
    /// The host's kernel.
    Kernel,
    /// Code that the program translated: the guest, under TCG.
    Translated,
    /// The guest's kernel, as it saw itself.
    GuestKernel,
    /// A program in the guest.
    GuestUser,
    /// Something that cannot be told.
    Unknown,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Function {
    /// Its name; where it has none, `MODULE:NEAREST+0xOFFSET`.
    pub name: String,
    /// The file it is in; empty for the kernel and translated code.
    pub module: String,
    /// Whose it is.
    pub layer: Layer,
    /// Whether the name is its own.
    pub named: bool,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number, on the machine where it was seen.
    pub tid: i32,
    /// Its name.
    pub name: String,
}

/// A stack that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Of [`Profile::threads`].
    pub thread: usize,
    /// Of [`Profile::stacks`].
    pub stack: usize,
    /// When, ns of the monotonic clock; 0 where that is unknown.
    pub time: u64,
    /// How often.
    pub weight: u64,
    /// On which processor; 0 where that is unknown.
    pub cpu: u32,
}

/// Who was seen where, when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Each function once.
    pub functions: Vec<Function>,
    /// Stacks, outermost function first, as numbers of [`Profile::functions`].
    pub stacks: Vec<Vec<usize>>,
    /// Threads.
    pub threads: Vec<Thread>,
    /// What was seen, by time.
    pub samples: Vec<Sample>,
}

impl Profile {
    /// Samples in all.
    pub fn total(&self) -> u64 {
        self.samples.iter().map(|sample| sample.weight).sum()
    }

    /// How often each thread was seen in each stack, by their numbers here.
    pub fn counts(&self) -> BTreeMap<(usize, usize), u64> {
        let mut counts = BTreeMap::new();
        for sample in &self.samples {
            *counts.entry((sample.thread, sample.stack)).or_default() += sample.weight;
        }
        counts
    }

    /// Several as one, samples in the order of time. `as_layer` says which layer a function of theirs is in it.
    pub fn together(all: impl Iterator<Item = Profile>, as_layer: impl Fn(Layer) -> Layer) -> Profile {
        let (mut one, mut known) = (Profile::default(), HashMap::new());
        for other in all {
            let mut functions = Vec::new();
            for function in other.functions {
                let function = Function { layer: as_layer(function.layer), ..function };
                functions.push(*known.entry(function).or_insert_with_key(|function| {
                    one.functions.push(function.clone());
                    one.functions.len() - 1
                }));
            }
            let (stacks, threads) = (one.stacks.len(), one.threads.len());
            one.stacks.extend(other.stacks.iter().map(|stack| stack.iter().map(|&at| functions[at]).collect()));
            one.threads.extend(other.threads);
            let moved = |s: &Sample| Sample { thread: threads + s.thread, stack: stacks + s.stack, ..*s };
            one.samples.extend(other.samples.iter().map(moved));
        }
        one.samples.sort_by_key(|sample| sample.time);
        one
    }
}
