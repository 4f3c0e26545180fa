//! Kubernetes quantities as whole numbers of thousandths: `100m`, `2`, `1536Mi`, `1e3`.

/// A quantity in thousandths of its unit. Finer parts are rounded up, as Kubernetes does.
pub type Milli = i128;

const SUFFIXES: [(&str, i128, i128); 15] = [
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
    ("Pi", 1 << 50, 1),
    ("Ei", 1 << 60, 1),
    ("n", 1, 1_000_000_000),
    ("u", 1, 1_000_000),
    ("m", 1, 1000),
    ("k", 1000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("P", 1_000_000_000_000_000, 1),
    ("E", 1_000_000_000_000_000_000, 1),
];

/// Reads a quantity; `None` if it is none.
pub fn parse_quantity(text: &str) -> Option<Milli> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (multiply, divide) = parse_suffix_scale(suffix)?;
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || all.len() > 30 || !all.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let unscaled: i128 = all.parse().ok()?;
    let numerator = unscaled.checked_mul(multiply)?.checked_mul(1000)?;
    let denominator = 10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?.checked_mul(divide)?;
    let rounded_up = numerator.checked_add(denominator - 1)? / denominator;
    Some(if negative { -rounded_up } else { rounded_up })
}

fn parse_suffix_scale(suffix: &str) -> Option<(i128, i128)> {
    if suffix.is_empty() {
        return Some((1, 1));
    }
    if let Some((_, multiply, divide)) = SUFFIXES.iter().find(|(name, ..)| *name == suffix) {
        return Some((*multiply, *divide));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = 10i128.checked_pow(exponent.unsigned_abs())?;
    Some(if exponent < 0 { (1, power) } else { (power, 1) })
}

/// Writes a quantity of `resource` canonically: CPU in `m` or whole, amounts of memory in `Ki` where they are whole
/// ones, everything else plain.
pub fn format_quantity(resource: &str, value: Milli) -> String {
    let value = value.max(0);
    if value % 1000 != 0 {
        return format!("{value}m");
    }
    let whole = value / 1000;
    let is_bytes = ["memory", "ephemeral-storage", "storage"].contains(&resource) || resource.starts_with("hugepages-");
    if is_bytes && whole > 0 && whole % 1024 == 0 { format!("{}Ki", whole / 1024) } else { whole.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (text, milli) in [
            ("0", 0),
            ("1", 1000),
            ("100m", 100),
            ("1.5", 1500),
            (".5", 500),
            ("0.1m", 1),
            ("1n", 1),
            ("1e3", 1_000_000),
            ("1E-1", 100),
            ("2Ki", 2_048_000),
            ("1.5Gi", 1_610_612_736_000),
            ("1k", 1_000_000),
            ("1E", 1_000_000_000_000_000_000_000),
            ("-1", -1000),
            ("+1", 1000),
        ] {
            assert_eq!(parse_quantity(text), Some(milli), "{text}");
        }
        for text in ["", "m", "1x", "1 ", "--1", "1.2.3", "1e", "1Kib", "9".repeat(40).as_str()] {
            assert_eq!(parse_quantity(text), None, "{text}");
        }
    }

    #[test]
    fn quantities_are_written_canonically() {
        assert_eq!(format_quantity("cpu", 399), "399m");
        assert_eq!(format_quantity("cpu", 2000), "2");
        assert_eq!(format_quantity("memory", parse_quantity("2332068Ki").unwrap()), "2332068Ki");
        assert_eq!(format_quantity("memory", 1_000_001_000), "1000001");
        assert_eq!(format_quantity("nvidia.com/gpu", 2000), "2");
        assert_eq!(format_quantity("cpu", -5), "0", "what is overcommitted is not free");
    }
}
