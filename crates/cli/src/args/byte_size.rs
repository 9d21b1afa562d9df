//! Parses and prints numbers of bytes.

/// Parses a number of bytes: `65536`, or with a binary unit, `64K`, `1M` or `2G`.
pub(crate) fn parse<T: TryFrom<u64>>(text: &str) -> Option<T> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    T::try_from(digits.parse::<u64>().ok()?.checked_mul(1 << shift)?).ok()
}

/// Parses a number of bytes as mount(8) does: `512`, `0x200`, `1K` and `1KiB` (1024), `1KB` (1000), and so on to T.
pub(crate) fn parse_as_mount(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let mut unit = unit.chars();
    let power = match unit.next().map(|c| c.to_ascii_uppercase()) {
        None => return number.parse().ok(),
        Some(letter) => u32::try_from("KMGT".find(letter)?).ok()?.checked_add(1)?,
    };
    let base: u64 = match unit.as_str() {
        "" | "iB" => 1024,
        "B" => 1000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(base.checked_pow(power)?)
}

/// Prints `bytes` with a binary unit and one decimal.
pub(crate) fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} EiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_may_have_a_unit() {
        assert_eq!(parse::<usize>("4096"), Some(4096));
        assert_eq!(parse::<usize>("256K"), Some(256 << 10));
        assert_eq!(parse::<u32>("16m"), Some(16 << 20));
        assert_eq!(parse::<u32>("4G"), None);
        for wrong in ["", "K", "1KK", "-1", "1.5M", "99999999999G"] {
            assert_eq!(parse::<u64>(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn prints_numbers_with_a_unit() {
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.5 KiB");
    }
}
