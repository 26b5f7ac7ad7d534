//! The micro-guest: a ROM of ours without an operating system, the floor under every guest figure.
