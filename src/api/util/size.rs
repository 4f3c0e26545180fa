//! Sizes for people.

/// A size in bytes, rounded up to a tenth of its unit.
pub fn format_size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1024 => return format!("{bytes} B"),
        1024..1_048_576 => (1024, "KiB"),
        1_048_576..1_073_741_824 => (1_048_576, "MiB"),
        _ => (1_073_741_824, "GiB"),
    };
    let tenths = (u128::from(bytes) * 10).div_ceil(unit);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up() {
        let sizes = [0, 1023, 1024, 1025, 40 << 20, (16 << 30) + 1].map(format_size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.1 KiB", "40.0 MiB", "16.1 GiB"]);
    }
}
