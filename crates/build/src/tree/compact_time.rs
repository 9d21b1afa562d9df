//! A time in 12 bytes, where [`Timestamp`] takes 16: a tree has one for each inode, and inodes are many.

use ferofs_format::inode::Timestamp;

/// A [`Timestamp`] in less memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactTime {
    low_secs: u32,
    high_secs: i32,
    nanos: u32,
}

impl From<Timestamp> for CompactTime {
    fn from(time: Timestamp) -> Self {
        Self { low_secs: time.secs as u32, high_secs: (time.secs >> 32) as i32, nanos: time.nanos }
    }
}

impl From<CompactTime> for Timestamp {
    fn from(time: CompactTime) -> Self {
        Self { secs: i64::from(time.high_secs) << 32 | i64::from(time.low_secs), nanos: time.nanos }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_kept() {
        for secs in [0, 1, -1, i64::MIN, i64::MAX, 1 << 32, -(1 << 32), u32::MAX.into(), -5_000_000_001] {
            let time = Timestamp { secs, nanos: 999_999_999 };
            assert_eq!(Timestamp::from(CompactTime::from(time)), time);
        }
        assert_eq!(size_of::<CompactTime>(), 12);
    }
}
