//! Counts what is read from the block device that holds a file, by /proc/diskstats.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Bytes of a sector in /proc/diskstats: a constant of Linux's interface.
const SECTOR: u64 = 512;

/// All reads of a device so far, or those between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DeviceReads {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

impl DeviceReads {
    /// The reads so far of the device that holds `file`; none if the file is in memory (tmpfs).
    pub(crate) fn of(file: &Path) -> Result<Self> {
        let device = fs::metadata(file)?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Self::parse(&fs::read_to_string("/proc/diskstats")?, major, minor)
    }

    fn parse(stats: &str, major: u32, minor: u32) -> Result<Self> {
        for line in stats.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
            if number(0) == Some(major.into()) && number(1) == Some(minor.into()) {
                let (requests, sectors) =
                    number(3).zip(number(5)).context("/proc/diskstats has too few fields")?;
                return Ok(Self { requests, bytes: sectors * SECTOR });
            }
        }
        Ok(Self::default())
    }

    /// The reads since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_device_is_counted() {
        let stats = "  7  0 loop0 1 2 3 4 5\n 254  0 vda 100 7 800 9 1 2 3\n 254 1 vda1 5 0 8 0\n";
        assert_eq!(DeviceReads::parse(stats, 254, 0).unwrap(), DeviceReads { requests: 100, bytes: 409_600 });
        assert_eq!(DeviceReads::parse(stats, 254, 1).unwrap(), DeviceReads { requests: 5, bytes: 4096 });
        assert_eq!(DeviceReads::parse(stats, 0, 30).unwrap(), DeviceReads::default());
        assert!(DeviceReads::parse("254 0 vda 1\n", 254, 0).is_err());
    }
}
