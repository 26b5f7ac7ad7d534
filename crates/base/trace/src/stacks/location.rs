//! Where code is, and where a stack begins and ends.

/// The owner of code: a module, by its index in [`crate::stacks::space::Space::modules`], or one of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeOwner {
    /// A program or library.
    Module(u32),
    /// Kernel of the host.
    Kernel,
    /// Translated code, which QEMU generates.
    Jit,
    /// The guest's kernel, whose addresses say nothing on its host.
    GuestKernel,
    /// A program in the guest, likewise.
    GuestUser,
    /// A system call, by its number.
    Call,
    /// A function of the kernel that a thread waits in, by its number in [`crate::stacks::sampled::SampledStacks::waits`].
    Wait,
    /// Nothing that is mapped from a file.
    Nowhere,
}

/// Where code is: in which module, and at which address as that was linked, or as it is where there is no module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeLocation {
    /// Owner of the code.
    pub owner: CodeOwner,
    /// Where in it.
    pub at: u64,
}

/// End of a stack's unwinding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnwindEnd {
    /// Where the thread, or the coroutine, begins.
    Root,
    /// Where the copy of the stack ends.
    Cut,
    /// In code without unwind information.
    Lost,
}

/// The registers that unwinding begins from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer (`rip`).
    pub ip: u64,
    /// Stack pointer (`rsp`).
    pub sp: u64,
    /// Frame pointer (`rbp`).
    pub bp: u64,
}
