//! A tree shared with a guest: QEMU's arguments for it, the server behind it, what the guest mounts, and what took effect.

mod effect;
mod ganesha;
mod image;
pub(crate) mod jail;
mod mount;
mod portmapper;
mod program_files;
mod programs;
mod qemu_arguments;
mod server;
mod server_command;
mod sharing;
mod virtiofsd;

pub(crate) use effect::effect;
pub use image::{image_mib, make_image};
pub(crate) use mount::mount;
pub use programs::{check_share, portmapper_program, share_program};
pub(crate) use qemu_arguments::{ServerLink, arguments, machine, shares_memory};
pub use server::check_rights;
pub(crate) use server::{Server, ServerAddress};
pub use sharing::{RootExtras, Sharing};
