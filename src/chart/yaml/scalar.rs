//! Meaning of plain YAML scalars, also of those about which readers of YAML disagree.
//!
//! Kubernetes' reader follows YAML 1.1 (`yes` is a boolean, `010` is 8), others YAML 1.2. Where all agree the meaning
//! is taken; where they do not, the text is kept and the schema decides: a string keeps it, anything else is an error.

use serde_json::Number;

/// The meaning of a plain scalar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Meaning {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number on which all readers agree.
    Number(Number),
    /// Text.
    Text,
    /// Readers disagree.
    Unclear(Unclear),
}

/// Reason that the meaning of a plain scalar is not clear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unclear {
    /// `yes`, `on`, `y` and so on: a boolean in YAML 1.1, text in YAML 1.2.
    Bool(bool),
    /// `010`: 8, 10 or text.
    LeadingZero,
    /// `0x1f`, `0o17`, `0b1`, `1_000`, `+1`: numbers for some readers only.
    NumberForm,
    /// Digits beyond 64 bits.
    TooLarge,
    /// `.inf` or `.nan`: no number in JSON.
    NotFinite,
}

impl Unclear {
    /// Returns the problem where a value of another type is wanted, and advice on what to write.
    pub(crate) fn explain_problem(self, raw: &str) -> (String, String) {
        match self {
            Self::Bool(value) => (
                format!("`{raw}` is a boolean in YAML 1.1 and text in YAML 1.2"),
                format!("write `{value}` for the boolean or `\"{raw}\"` for the text"),
            ),
            Self::LeadingZero => (
                format!("`{raw}` starts with a zero: YAML parsers read it as octal, decimal or text"),
                format!("write the decimal number, or `\"{raw}\"` for the text"),
            ),
            Self::NumberForm => (
                format!("`{raw}` is a number for some YAML parsers and text for others"),
                format!("write the decimal number, or `\"{raw}\"` for the text"),
            ),
            Self::TooLarge => (
                format!("`{}` does not fit into 64 bits", shorten_text(raw)),
                "write a smaller number, or quote it if it is text".to_owned(),
            ),
            Self::NotFinite => {
                (format!("`{raw}` is not a finite number"), format!("write a number, or `\"{raw}\"` for the text"))
            }
        }
    }
}

/// A text short enough for a message.
pub(crate) fn shorten_text(text: &str) -> String {
    const LIMIT: usize = 40;
    if text.chars().count() <= LIMIT {
        return text.to_owned();
    }
    let head: String = text.chars().take(LIMIT).collect();
    format!("{head}…")
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// An integer in a form that only some readers know: other bases, underscores, a plus sign.
fn odd_integer(unsigned: &str) -> bool {
    has_digits_after(unsigned, "0x", |b| b.is_ascii_hexdigit())
        || has_digits_after(unsigned, "0X", |b| b.is_ascii_hexdigit())
        || has_digits_after(unsigned, "0o", |b| matches!(b, b'0'..=b'7'))
        || has_digits_after(unsigned, "0O", |b| matches!(b, b'0'..=b'7'))
        || has_digits_after(unsigned, "0b", |b| matches!(b, b'0' | b'1'))
        || has_digits_after(unsigned, "0B", |b| matches!(b, b'0' | b'1'))
        || (unsigned.starts_with(|c: char| c.is_ascii_digit())
            && unsigned.contains('_')
            && unsigned.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'e' | b'E' | b'+' | b'-')))
}

fn has_digits_after(unsigned: &str, prefix: &str, fits: fn(u8) -> bool) -> bool {
    unsigned.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b == b'_' || fits(b)))
}

/// `1.5`, `1e3`, `1.5e-3`, `.5`, `1.`: digits around a point, perhaps an exponent; not an integer.
fn looks_like_float(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let exponent_fits = exponent.is_none_or(|text| is_digits(text.strip_prefix(['+', '-']).unwrap_or(text)));
    let mantissa_fits = match mantissa.split_once('.') {
        Some((whole, part)) => {
            (is_digits(whole) || whole.is_empty()) && (is_digits(part) || part.is_empty()) && mantissa != "."
        }
        None => is_digits(mantissa) && exponent.is_some(),
    };
    exponent_fits && mantissa_fits
}

fn parse_number(raw: &str) -> Option<Meaning> {
    let unsigned = raw.strip_prefix(['-', '+']).unwrap_or(raw);
    let plus = raw.starts_with('+');
    if is_digits(unsigned) {
        if unsigned.len() > 1 && unsigned.starts_with('0') {
            return Some(Meaning::Unclear(Unclear::LeadingZero));
        }
        if plus {
            return Some(Meaning::Unclear(Unclear::NumberForm));
        }
        let parsed = raw.parse::<i64>().map(Number::from).or_else(|_| raw.parse::<u64>().map(Number::from));
        return Some(parsed.map_or(Meaning::Unclear(Unclear::TooLarge), Meaning::Number));
    }
    if odd_integer(unsigned) {
        return Some(Meaning::Unclear(Unclear::NumberForm));
    }
    if looks_like_float(unsigned) {
        let whole = unsigned.split(['.', 'e', 'E']).next().unwrap_or_default();
        if whole.len() > 1 && whole.starts_with('0') {
            return Some(Meaning::Unclear(Unclear::LeadingZero));
        }
        if plus || whole.is_empty() {
            return Some(Meaning::Unclear(Unclear::NumberForm));
        }
        let finite = raw.parse::<f64>().ok().and_then(Number::from_f64);
        return Some(finite.map_or(Meaning::Unclear(Unclear::TooLarge), Meaning::Number));
    }
    let lower = unsigned.to_ascii_lowercase();
    (lower == ".inf" || (lower == ".nan" && unsigned.len() == raw.len()))
        .then_some(Meaning::Unclear(Unclear::NotFinite))
}

/// The meaning of a plain scalar.
pub(crate) fn parse_plain_scalar(raw: &str) -> Meaning {
    match raw {
        "" | "~" | "null" | "Null" | "NULL" => return Meaning::Null,
        "true" | "True" | "TRUE" => return Meaning::Bool(true),
        "false" | "False" | "FALSE" => return Meaning::Bool(false),
        "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => return Meaning::Unclear(Unclear::Bool(true)),
        "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => return Meaning::Unclear(Unclear::Bool(false)),
        _ => {}
    }
    if raw.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
        && let Some(meaning) = parse_number(raw)
    {
        return meaning;
    }
    Meaning::Text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number_meaning(value: serde_json::Value) -> Meaning {
        Meaning::Number(value.as_number().unwrap().clone())
    }

    #[test]
    fn scalars_mean_what_all_readers_agree_on_and_the_rest_is_unclear() {
        let cases = [
            ("", Meaning::Null),
            ("~", Meaning::Null),
            ("nULL", Meaning::Text),
            ("true", Meaning::Bool(true)),
            ("False", Meaning::Bool(false)),
            ("yes", Meaning::Unclear(Unclear::Bool(true))),
            ("N", Meaning::Unclear(Unclear::Bool(false))),
            ("0", number_meaning(0.into())),
            ("-7", number_meaning((-7).into())),
            ("18446744073709551615", number_meaning(u64::MAX.into())),
            ("18446744073709551616", Meaning::Unclear(Unclear::TooLarge)),
            ("1e999", Meaning::Unclear(Unclear::TooLarge)),
            ("1.10", number_meaning(1.1.into())),
            ("1e3", number_meaning(1000.0.into())),
            ("010", Meaning::Unclear(Unclear::LeadingZero)),
            ("-01", Meaning::Unclear(Unclear::LeadingZero)),
            ("00.5", Meaning::Unclear(Unclear::LeadingZero)),
            ("0x1F", Meaning::Unclear(Unclear::NumberForm)),
            ("0o17", Meaning::Unclear(Unclear::NumberForm)),
            ("1_000", Meaning::Unclear(Unclear::NumberForm)),
            ("+1", Meaning::Unclear(Unclear::NumberForm)),
            (".5", Meaning::Unclear(Unclear::NumberForm)),
            (".inf", Meaning::Unclear(Unclear::NotFinite)),
            ("-.INF", Meaning::Unclear(Unclear::NotFinite)),
            (".nan", Meaning::Unclear(Unclear::NotFinite)),
            (".", Meaning::Text),
            ("-", Meaning::Text),
            ("1.2.3", Meaning::Text),
            ("v1.2", Meaning::Text),
            ("12:30:45", Meaning::Text),
            ("2024-01-01", Meaning::Text),
            ("1e", Meaning::Text),
            ("0x", Meaning::Text),
            ("None", Meaning::Text),
            ("1-2", Meaning::Text),
            ("10Gi", Meaning::Text),
        ];
        for (raw, expected) in cases {
            assert_eq!(parse_plain_scalar(raw), expected, "{raw}");
        }
    }
}
