//! A profile: who was seen where, when. What recording, importing and reading make, and pictures and tables are made of.

/// Which part of the stack a function is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// The program itself: QEMU.
    Program,
    /// A library.
    Library,
    /// The host's kernel.
    Kernel,
    /// Code that the program translated: the guest, under TCG.
    Translated,
    /// Something that cannot be told.
    Unknown,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Its number on the host.
    pub tid: i32,
    /// Its name.
    pub name: String,
}

/// A stack that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Of [`Profile::threads`].
    pub thread: usize,
    /// Of [`Profile::stacks`].
    pub stack: usize,
    /// When, ns of the monotonic clock; 0 where that is unknown.
    pub time: u64,
    /// How often.
    pub weight: u64,
}

/// Who was seen where, when.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
}
