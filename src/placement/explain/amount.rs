//! Amounts as people write them.

use std::fmt::Write as _;

/// Returns whether a resource is counted in bytes.
fn is_bytes(resource: &str) -> bool {
    ["memory", "ephemeral-storage", "storage"].contains(&resource) || resource.starts_with("hugepages-")
}

/// Writes thousandths with at most `digits` places behind the point, rounded down.
fn format_decimal(thousandths: i128, digits: usize) -> String {
    let (sign, thousandths) = if thousandths < 0 { ("-", -thousandths) } else { ("", thousandths) };
    let mut text = format!("{sign}{}", thousandths / 1000);
    let fraction = format!("{:03}", thousandths % 1000);
    let shown = fraction[..digits.min(3)].trim_end_matches('0');
    if !shown.is_empty() {
        // Writing to a String cannot fail.
        _ = write!(text, ".{shown}");
    }
    text
}

/// Writes an amount in thousandths: `6`, `1.5`, `24Gi`, `2.5Mi`.
pub fn format_amount(resource: &str, thousandths: i64) -> String {
    let value = i128::from(thousandths);
    if !is_bytes(resource) {
        return format_decimal(value, 3);
    }
    let units = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let unit = units.iter().find(|(_, power)| value.abs() >= 1000_i128 << power);
    unit.map_or_else(
        || format_decimal(value, 0),
        |(name, power)| format!("{}{name}", format_decimal(value >> power, 1)),
    )
}

/// Writes an amount with the resource that it is of, where the number alone does not say it: `12 CPU`, `24Gi`, `14 pods`.
pub(super) fn amount_of(resource: &str, thousandths: i64) -> String {
    let amount = format_amount(resource, thousandths);
    match resource {
        "cpu" => format!("{amount} CPU"),
        "memory" => amount,
        "pods" if thousandths == 1000 => "1 pod".to_owned(),
        _ => format!("{amount} {resource}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        for (resource, thousandths, text) in [
            ("cpu", 6000, "6 CPU"),
            ("cpu", 1500, "1.5 CPU"),
            ("cpu", -250, "-0.25 CPU"),
            ("memory", (24 << 30) * 1000, "24Gi"),
            ("memory", (3 << 29) * 1000, "1.5Gi"),
            ("memory", 500_000, "500"),
            ("memory", 0, "0"),
            ("pods", 1000, "1 pod"),
            ("pods", 14000, "14 pods"),
            ("nvidia.com/gpu", 2000, "2 nvidia.com/gpu"),
        ] {
            assert_eq!(amount_of(resource, thousandths), text);
        }
    }
}
