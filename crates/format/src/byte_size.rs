//! Numbers of bytes as text: `512`, `64K`, `1MiB`.

use alloc::format;
use alloc::string::{String, ToString};

/// Parses a number of bytes as mount(8) does: `512`, `0x200`, `1K` and `1KiB` (1024), `1KB` (1000),
/// and so on to E. Upper and lower case mean the same. `None` also for a number that `T` cannot
/// hold.
#[must_use]
pub fn parse<T: TryFrom<u128>>(text: &str) -> Option<T> {
    T::try_from(number(text)?).ok()
}

/// The number, or the largest one for a number that has too many digits; `None` if `text` is not a
/// number of bytes.
#[must_use]
pub fn number(text: &str) -> Option<u128> {
    let saturated = |digits: &str, radix| match u128::from_str_radix(digits, radix) {
        Err(error) if *error.kind() == core::num::IntErrorKind::PosOverflow => Some(u128::MAX),
        number => number.ok(),
    };
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        return saturated(digits, 16).filter(|_| is_number);
    }
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number = saturated(number, 10)?;
    let unit = unit.to_ascii_uppercase();
    let Some(letter) = unit.chars().next() else { return Some(number) };
    let power = u32::try_from("KMGTPE".find(letter)?).ok()?.checked_add(1)?;
    let base: u128 = match unit.get(1..)? {
        "" | "IB" => 1024,
        "B" => 1000,
        _ => return None,
    };
    Some(number.saturating_mul(base.saturating_pow(power)))
}

/// Prints `bytes` as an option takes them, with the largest unit that needs no fraction: `64K`,
/// `1M`, `1000`.
#[must_use]
pub fn exact(bytes: u64) -> String {
    const UNITS: [(&str, u64); 6] = [
        ("E", 1 << 60),
        ("P", 1 << 50),
        ("T", 1 << 40),
        ("G", 1 << 30),
        ("M", 1 << 20),
        ("K", 1 << 10),
    ];
    UNITS
        .into_iter()
        .find(|(_, size)| bytes > 0 && bytes.is_multiple_of(*size))
        .and_then(|(unit, size)| Some(format!("{}{unit}", bytes.checked_div(size)?)))
        .unwrap_or_else(|| bytes.to_string())
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
        assert_eq!(parse::<u64>("0x200"), Some(512));
        assert_eq!((parse::<u64>("1MiB"), parse::<u64>("1mb")), (Some(1 << 20), Some(1_000_000)));
        assert_eq!((parse::<u64>("20T"), parse::<u64>("15EiB")), (Some(20 << 40), Some(15 << 60)));
        for wrong in [
            "",
            "K",
            "1KK",
            "-1",
            "+1",
            "1.5M",
            "1 K",
            "1iB",
            "1KiBs",
            "16E",
            "0x",
            "0x+1",
            "1µ",
            "99999999999G",
        ] {
            assert_eq!(parse::<u64>(wrong), None, "{wrong}");
        }
        assert_eq!([0, 1000, 64 << 10, 3 << 20].map(exact), ["0", "1000", "64K", "3M"]);
    }
}
