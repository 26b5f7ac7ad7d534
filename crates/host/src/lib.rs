//! What this machine is and can do.
