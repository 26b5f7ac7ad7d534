//! What is run: sysbench's five tests, system calls, sequential reads, each operation timed.
