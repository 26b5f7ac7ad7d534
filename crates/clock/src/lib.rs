//! Guest and host ticks brought onto one clock, with the error of that.
