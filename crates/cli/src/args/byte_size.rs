//! Parses and prints numbers of bytes.

#[cfg(target_os = "linux")]
use ferofs::build::{BlockSize, PCLUSTER_MAX};
use indicatif::HumanBytes;

/// The forms that every option for a number of bytes takes, for messages.
const WRONG: &str = "not a number of bytes, for example 65536, 64K, 1M or 1MiB";

/// Parses a number of bytes for an option of the command line.
///
/// # Errors
/// The problem: the form is wrong, or the number is larger than `T` can hold.
pub(crate) fn argument<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let most = u64::MAX >> (u64::BITS as usize - 8 * size_of::<T>().clamp(1, size_of::<u64>()));
    let bytes = limited(text, most)?;
    T::try_from(bytes).map_err(|_| too_large(most))
}

/// The same with at most `most` bytes.
pub(crate) fn limited(text: &str, most: u64) -> Result<u64, String> {
    match bytes(text) {
        Parsed::Bytes(bytes) if bytes <= most => Ok(bytes),
        Parsed::Bytes(_) | Parsed::TooLarge => Err(too_large(most)),
        Parsed::Wrong => Err(WRONG.to_owned()),
    }
}

/// The size of a block.
#[cfg(target_os = "linux")]
pub(crate) fn block(text: &str) -> Result<BlockSize, String> {
    let bytes = argument(text)?;
    BlockSize::from_bytes(bytes).ok_or_else(|| {
        "not a power of two from 512 to 65536; -C is the size of clusters".to_owned()
    })
}

/// The size of a pcluster, at most the largest that Linux reads.
#[cfg(target_os = "linux")]
pub(crate) fn pcluster(text: &str) -> Result<u32, String> {
    limited(text, PCLUSTER_MAX.into()).map(|bytes| bytes as u32)
}

fn too_large(most: u64) -> String {
    format!("too large: at most {}", exact(most))
}

/// Parses a number of bytes as mount(8) does: `512`, `0x200`, `1K` and `1KiB` (1024), `1KB` (1000), and so on to E. Upper and lower case mean
/// the same. `None` also for a number that `T` cannot hold.
pub(crate) fn parse<T: TryFrom<u64>>(text: &str) -> Option<T> {
    match bytes(text) {
        Parsed::Bytes(bytes) => T::try_from(bytes).ok(),
        Parsed::TooLarge | Parsed::Wrong => None,
    }
}

/// The meaning of a text.
enum Parsed {
    Bytes(u64),
    /// A number that 64 bits cannot hold.
    TooLarge,
    /// Not a number of bytes.
    Wrong,
}

fn bytes(text: &str) -> Parsed {
    match number(text) {
        Some(bytes) => u64::try_from(bytes).map_or(Parsed::TooLarge, Parsed::Bytes),
        None => Parsed::Wrong,
    }
}

/// The number, or the largest one for a number that has too many digits; `None` if `text` is not a number of bytes.
fn number(text: &str) -> Option<u128> {
    let saturated = |digits: &str, radix| match u128::from_str_radix(digits, radix) {
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => Some(u128::MAX),
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

/// Prints `bytes` as an option takes them, with the largest unit that needs no fraction: `64K`, `1M`, `1000`.
pub(crate) fn exact(bytes: u64) -> String {
    let unit = ["E", "P", "T", "G", "M", "K"].into_iter().zip([60, 50, 40, 30, 20, 10]);
    unit.into_iter()
        .find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift))
        .map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// Prints `bytes` with a binary unit and two decimals, as progress bars do.
pub(crate) fn human(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
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
    fn a_number_that_is_too_large_is_told_from_a_wrong_one() {
        let wrong = |text: &str| argument::<u32>(text).unwrap_err();
        assert_eq!(wrong("1T"), "too large: at most 4294967295");
        assert_eq!(wrong(&"9".repeat(50)), "too large: at most 4294967295");
        assert_eq!(wrong("0x10000000000000000"), "too large: at most 4294967295");
        assert_eq!(argument::<u64>("16E").unwrap_err(), format!("too large: at most {}", u64::MAX));
        assert_eq!(limited("2M", 1 << 20).unwrap_err(), "too large: at most 1M");
        assert_eq!((wrong("-1"), wrong("1X")), (WRONG.to_owned(), WRONG.to_owned()));
    }

    #[test]
    fn prints_numbers_with_a_unit() {
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1536), "1.50 KiB");
        assert_eq!([0, 1000, 64 << 10, 3 << 20].map(exact), ["0", "1000", "64K", "3M"]);
    }

    #[test]
    fn pclusters_have_at_most_a_megabyte() {
        assert_eq!(pcluster("1M"), Ok(1 << 20));
        assert_eq!(pcluster("1T").unwrap_err(), "too large: at most 1M");
        assert!(pcluster("-1").unwrap_err().starts_with("not a number of bytes"));
    }

    #[test]
    fn block_sizes_are_powers_of_two() {
        assert_eq!(block("4096"), Ok(BlockSize::DEFAULT));
        assert_eq!(block("4K"), Ok(BlockSize::DEFAULT));
        assert!(block("4095").is_err() && block("256").is_err() && block("x").is_err());
    }
}
