//! Parses and prints numbers of bytes.

/// What every option that takes a number of bytes understands, for messages.
const WRONG: &str = "not a number of bytes, for example 65536, 64K, 1M or 1MiB";

/// Parses a number of bytes for an option of the command line.
pub(crate) fn argument<T: TryFrom<u64>>(text: &str) -> Result<T, &'static str> {
    parse(text).ok_or(WRONG)
}

/// Parses a number of bytes as mount(8) does: `512`, `0x200`, `1K` and `1KiB` (1024), `1KB` (1000), and so on to E. Upper and lower case mean
/// the same. `None` also for a number that `T` cannot hold.
pub(crate) fn parse<T: TryFrom<u64>>(text: &str) -> Option<T> {
    T::try_from(bytes(text)?).ok()
}

fn bytes(text: &str) -> Option<u64> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        return u64::from_str_radix(digits, 16).ok().filter(|_| is_number);
    }
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().ok()?;
    let unit = unit.to_ascii_uppercase();
    let Some(letter) = unit.chars().next() else { return Some(number) };
    let power = u32::try_from("KMGTPE".find(letter)?).ok()?.checked_add(1)?;
    let base: u64 = match unit.get(1..)? {
        "" | "IB" => 1024,
        "B" => 1000,
        _ => return None,
    };
    number.checked_mul(base.checked_pow(power)?)
}

/// Prints `bytes` as an option takes them, with the largest unit that needs no fraction: `64K`, `1M`, `1000`.
pub(crate) fn exact(bytes: u64) -> String {
    let unit = ["E", "P", "T", "G", "M", "K"].into_iter().zip([60, 50, 40, 30, 20, 10]);
    unit.into_iter()
        .find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift))
        .map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
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
    }

    #[test]
    fn prints_numbers_with_a_unit() {
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.5 KiB");
        assert_eq!([0, 1000, 64 << 10, 3 << 20].map(exact), ["0", "1000", "64K", "3M"]);
    }
}
