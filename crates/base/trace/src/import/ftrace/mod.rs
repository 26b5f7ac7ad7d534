//! Events as text: tracefs's `trace` and `trace_pipe`, what `trace-cmd report` and `perf script` print.
//!
//! Source: `kernel/trace/trace_output.c` and `include/trace/events` of Linux, libtraceevent and its plugins.

mod arguments;
mod file;
mod line;
mod tracepoints;

#[cfg(test)]
mod tests;

pub use file::TraceText;
