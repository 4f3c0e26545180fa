//! Digests, to see whether something changed.

use sha2::digest::Output;
use sha2::{Digest as _, Sha256};

/// The first 64 bits of the SHA-256 digest, as 16 hexadecimal digits.
pub fn short_digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let first: [u8; 8] = std::array::from_fn(|i| digest[i]);
    format!("{:016x}", u64::from_be_bytes(first))
}

/// The whole SHA-256 digest, as 64 hexadecimal digits.
pub fn full_digest(bytes: &[u8]) -> String {
    format_digest(&Sha256::digest(bytes))
}

/// A SHA-256 digest as 64 hexadecimal digits.
pub fn format_digest(digest: &Output<Sha256>) -> String {
    let halves: [[u8; 16]; 2] = std::array::from_fn(|half| std::array::from_fn(|i| digest[half * 16 + i]));
    halves.map(|half| format!("{:032x}", u128::from_be_bytes(half))).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_sha256() {
        // The digest of nothing, as FIPS 180-4 test vectors give it.
        assert_eq!(full_digest(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(short_digest(b""), "e3b0c44298fc1c14");
    }
}
