//! A terminal for a program under test.

use std::fs::File;
use std::os::fd::FromRawFd;

/// A terminal of so many columns: the end to read, the end to write.
pub fn terminal(columns: u16) -> (File, File) {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: both descriptors are written before they are read, the null pointers ask for defaults, and each
    // descriptor that came back has no other owner.
    unsafe {
        let made = libc::openpty(
            &mut ours,
            &mut theirs,
            std::ptr::null_mut(),
            std::ptr::null(),
            &size,
        );
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        let ours = File::from_raw_fd(ours);
        // A program that had it, too, would keep its own terminal open.
        rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC).unwrap();
        (ours, File::from_raw_fd(theirs))
    }
}
