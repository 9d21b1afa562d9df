//! Parses and prints numbers of bytes.

#[cfg(target_os = "linux")]
use ferofs::build::{BlockSize, PCLUSTER_MAX};
use ferofs::byte_size::number;
pub(crate) use ferofs::byte_size::{exact, parse};
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
    let bytes = number(text).ok_or_else(|| WRONG.to_owned())?;
    u64::try_from(bytes).ok().filter(|bytes| *bytes <= most).ok_or_else(|| too_large(most))
}

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

/// Prints `bytes` with a binary unit and two decimals, as progress bars do.
pub(crate) fn human(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

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
