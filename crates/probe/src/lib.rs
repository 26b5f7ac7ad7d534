//! What observes a trial: tracepoints and uprobes, through a tracefs instance of our own.
