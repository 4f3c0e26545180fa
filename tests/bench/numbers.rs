//! Numbers that are the same in every run.

/// A sequence of numbers that is the same in every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// The next one, from 0 to `limit` - 1.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
