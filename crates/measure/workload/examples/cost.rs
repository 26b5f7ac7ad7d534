//! Cost of measuring itself: `name value` lines for `bench/native.py`.
//!
//! Each figure is the best of many batches, in nanoseconds: the time that the work takes when nothing disturbs it.

use std::arch::x86_64::__rdtscp;
use std::hint::black_box;
use std::time::Instant;
use vmtax_model::Latency;
use vmtax_workload::Clock;

const BATCHES: usize = 400;
const OPERATIONS: u64 = 5_000;

fn best(mut batch: impl FnMut()) -> f64 {
    (0..BATCHES)
        .map(|_| {
            let began = Instant::now();
            batch();
            began.elapsed().as_nanos() as f64 / OPERATIONS as f64
        })
        .fold(f64::INFINITY, f64::min)
}

fn main() {
    let clock = Clock::calibrate();
    let mut latency = Latency::new();
    let mut seed = 1u64;
    let mut draw = move || {
        // Spread over six decades, as latencies are; an LCG is the least that cannot be foreseen.
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 44) + 20
    };
    let drawing = best(|| (0..OPERATIONS).for_each(|_| _ = black_box(draw())));
    let update = best(|| (0..OPERATIONS).for_each(|_| latency.record(black_box(draw()))));
    let pair = best(|| {
        for _ in 0..OPERATIONS {
            let began = clock.start();
            black_box(clock.ns(began, clock.stop()));
        }
    });
    let mut cpu = 0;
    // SAFETY: RDTSCP writes the CPU's number; a machine without it stops here, as a bench may.
    let bare = best(|| (0..OPERATIONS).for_each(|_| _ = black_box(unsafe { __rdtscp(&mut cpu) })));
    println!("histogram_update {:.2}", update - drawing);
    println!("timer_pair {pair:.2}");
    println!("rdtscp {bare:.2}");
}
