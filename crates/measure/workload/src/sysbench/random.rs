//! sysbench's random numbers: xoroshiro128+ (Blackman and Vigna, public domain) turned into a double. Drawing one is
//! part of what some tests time, so the generator has to cost the same.

/// A seeded generator.
pub(crate) struct Random(u64, u64);

impl Random {
    /// The sequence of a thread: the same in every run and on every machine.
    pub fn of_thread(thread: u32) -> Random {
        let mut seeds = fastrand::Rng::with_seed(u64::from(thread) + 1);
        Random(seeds.u64(1..), seeds.u64(..))
    }

    /// Uniform in [0, 1).
    #[inline(always)]
    pub fn unit(&mut self) -> f64 {
        let sum = self.0.wrapping_add(self.1);
        let mix = self.0 ^ self.1;
        self.0 = self.0.rotate_left(55) ^ mix ^ (mix << 14);
        self.1 = mix.rotate_left(36);
        // The upper 52 bits as the fraction of a double in [1, 2).
        f64::from_bits(0x3ff << 52 | sum >> 12) - 1.0
    }

    /// Uniform in 0..n.
    #[inline(always)]
    pub fn below(&mut self, n: u64) -> u64 {
        (self.unit() * n as i64 as f64) as i64 as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_sequence_is_that_of_xoroshiro128plus() {
        let mut random = Random(1, 2);
        let fraction = |sum: u64| (sum >> 12) as f64 / (1u64 << 52) as f64;
        assert_eq!(random.unit(), fraction(1 + 2));
        // By hand: 1 turned left by 55, with 1 ^ 2 and that shifted by 14; 1 ^ 2 turned left by 36.
        assert_eq!((random.0, random.1), ((1 << 55) ^ 3 ^ (3 << 14), 3 << 36));
        assert_eq!(
            random.unit(),
            fraction(((1 << 55) ^ 3 ^ (3 << 14)) + (3 << 36))
        );
    }

    #[test]
    fn draws_are_uniform_and_in_range() {
        let mut random = Random::of_thread(0);
        let mut seen = [0u32; 10];
        for _ in 0..100_000 {
            seen[random.below(10) as usize] += 1;
        }
        // Each bin expects 10 000 with a standard deviation of 95.
        assert!(seen.iter().all(|n| n.abs_diff(10_000) < 600), "{seen:?}");
    }

    #[test]
    fn threads_draw_differently_and_the_same_again() {
        let three = |thread| {
            let mut random = Random::of_thread(thread);
            [
                random.below(1 << 30),
                random.below(1 << 30),
                random.below(1 << 30),
            ]
        };
        assert_eq!(three(1), three(1));
        assert_ne!(three(1), three(2));
    }
}
