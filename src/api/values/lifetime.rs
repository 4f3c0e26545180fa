//! Lengths of time as values have them.

use std::time::Duration;

/// Limit that every length of time has to stay below: ten years.
const LIMIT: Duration = Duration::from_secs(3650 * 86_400);

/// Reason that a text is no length of time that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LifetimeError {
    /// The text cannot be read.
    #[error("expected a duration such as `30d`, `12h` or `600s`")]
    Form,
    /// The length is below this minimum.
    #[error("expected at least {}s", .0.as_secs())]
    TooShort(Duration),
    /// The length is ten years or more.
    #[error("expected less than {}d", LIMIT.as_secs() / 86_400)]
    TooLong,
}

/// Reads `30d`, `12h`, `90m` or `600s`.
///
/// # Errors
/// [`LifetimeError`], which says what is expected instead.
pub fn parse_lifetime(text: &str, at_least: Duration) -> Result<Duration, LifetimeError> {
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        _ => return Err(LifetimeError::Form),
    };
    let number = &text[..text.len() - 1];
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(LifetimeError::Form);
    }
    let seconds =
        number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).ok_or(LifetimeError::TooLong)?;
    match Duration::from_secs(seconds) {
        length if length < at_least => Err(LifetimeError::TooShort(at_least)),
        length if length >= LIMIT => Err(LifetimeError::TooLong),
        length => Ok(length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::values::agent_certificate_lifetime::CERTIFICATE_AT_LEAST;
    use crate::api::values::token_lifetime::TOKEN_AT_LEAST;

    fn parse_token_length(text: &str) -> Result<Duration, LifetimeError> {
        parse_lifetime(text, TOKEN_AT_LEAST)
    }

    #[test]
    fn lengths_of_time_have_a_unit() {
        assert_eq!(parse_token_length("30d"), Ok(Duration::from_secs(2_592_000)));
        assert_eq!(parse_token_length("90m"), Ok(Duration::from_secs(5400)));
        for text in ["", "d", "30", "-1d", "+1d", "1.5h", "1w", "1ä"] {
            assert_eq!(parse_token_length(text), Err(LifetimeError::Form), "{text}");
        }
    }

    #[test]
    fn lengths_of_time_have_bounds() {
        assert_eq!(parse_token_length("0d"), Err(LifetimeError::TooShort(TOKEN_AT_LEAST)));
        assert!(parse_token_length("3649d").is_ok());
        for text in ["3650d", "9999d", "999999999d", "99999999999999999999d"] {
            assert_eq!(parse_token_length(text), Err(LifetimeError::TooLong), "{text}");
        }
        assert!(parse_lifetime("600s", CERTIFICATE_AT_LEAST).is_ok());
        assert_eq!(parse_lifetime("599s", CERTIFICATE_AT_LEAST).unwrap_err().to_string(), "expected at least 600s");
    }
}
