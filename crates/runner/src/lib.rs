//! From a plan to a recording.
