//! Joined requests for other tools.
