//! The binary as people use it: real guests under TCG, real faults, and what comes out.

mod common;

mod agent;
mod cli;
mod console;
mod doctor;
mod faults;
mod run;
