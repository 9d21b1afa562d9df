//! Numbers on the command lines of erofs-utils.

/// A number as erofs-utils reads it: decimal, octal after 0, or hexadecimal after 0x, perhaps with
/// a minus sign.
pub(super) fn number<T: TryFrom<i128>>(text: &str) -> Result<T, String> {
    let number = match text.strip_prefix('-') {
        Some(rest) => digits(rest).map(|number| -i128::from(number)),
        None => digits(text).map(i128::from),
    };
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
        let (min, max) = range::<T>();
        format!("not a number from {min} to {max}")
    })
}

/// The smallest and the largest value of a type of integers.
fn range<T: TryFrom<i128>>() -> (i128, i128) {
    let values = 1_i128 << (8 * size_of::<T>());
    match T::try_from(-1) {
        Ok(_) => (-values / 2, values / 2 - 1),
        Err(_) => (0, values - 1),
    }
}

/// A number of bytes as erofs-utils reads it: a number as above, then optionally K, M or G.
pub(super) fn size<T: TryFrom<u64>>(text: &str) -> Result<T, &'static str> {
    let (number, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits(number).and_then(|bytes| bytes.checked_mul(unit));
    bytes.and_then(|bytes| T::try_from(bytes).ok()).ok_or("not a number of bytes")
}

fn digits(text: &str) -> Option<u64> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let octal = text.strip_prefix('0').filter(|digits| !digits.is_empty());
    let (digits, radix) = match (hexadecimal, octal) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) => (digits, 8),
        (None, None) => (text, 10),
    };
    // `from_str_radix` takes a plus sign.
    u64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_bases_of_c() {
        assert_eq!(
            [number("10"), number("0x10"), number("0XA"), number("010")],
            [Ok(10u32), Ok(16), Ok(10), Ok(8)]
        );
        assert_eq!([number("-5"), number("-0x10"), number("0")], [Ok(-5i64), Ok(-16), Ok(0)]);
        for wrong in ["", "x", "0x", "08", "+1", "0x+1", "1K", "--1", "99999999999999999999"] {
            assert!(number::<i64>(wrong).is_err(), "{wrong}");
        }
        assert!(number::<u32>("-1").is_err() && number::<u32>("0x100000000").is_err());
        assert_eq!(
            number::<u32>("-1").unwrap_err(),
            format!("not a number from 0 to {}", u32::MAX)
        );
        let of_time = format!("not a number from {} to {}", i64::MIN, i64::MAX);
        assert_eq!(number::<i64>("x").unwrap_err(), of_time);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            [size("64K"), size("0x10k"), size("1m"), size("2G")],
            [Ok(65536u64), Ok(16384), Ok(1 << 20), Ok(2 << 30)]
        );
        for wrong in ["", "K", "64KB", "64KiB", "1T", "-1", "99999999999G"] {
            assert!(size::<u64>(wrong).is_err(), "{wrong}");
        }
        assert!(size::<u32>("4G").is_err());
    }
}
