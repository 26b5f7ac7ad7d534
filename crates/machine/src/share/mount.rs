//! What the guest mounts.

use super::Sharing;
use super::words::TAG;
use vmtax_model::ShareMethod;
use vmtax_wire::{Mount, SHARE_SERIAL};

pub(crate) fn mount(sharing: &Sharing) -> Mount {
    let method = sharing.share.method;
    let (kind, source, options) = match method {
        ShareMethod::NineP => ("9p", TAG, nine_p(sharing)),
        ShareMethod::Virtiofs => ("virtiofs", TAG, String::new()),
        ShareMethod::Nfs3 => ("nfs", TAG, String::new()),
        ShareMethod::Nfs4 => ("nfs4", TAG, String::new()),
        // As the disk with a guest's own files has it.
        ShareMethod::Disk => ("ext4", SHARE_SERIAL, String::new()),
        ShareMethod::Erofs => ("erofs", SHARE_SERIAL, String::new()),
        ShareMethod::Squashfs => ("squashfs", SHARE_SERIAL, String::new()),
    };
    Mount { method, kind: kind.to_owned(), source: source.to_owned(), options, read_only: sharing.read_only }
}

fn nine_p(sharing: &Sharing) -> String {
    let mut options = "trans=virtio,version=9p2000.L".to_owned();
    for key in ["msize", "cache", "access"] {
        if let Some(value) = sharing.share.option(key) {
            options += &format!(",{key}={value}");
        }
    }
    options
}
