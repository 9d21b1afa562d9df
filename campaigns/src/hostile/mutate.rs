//! Changes a valid image: one field, several fields, or a whole structure that is copied over
//! another one.

use std::sync::Arc;

use ferofs::check;
use ferofs::read::OpenOptions;
use ferofs_format::superblock;
use ferofs_tests::rng::Rng;

use super::base_images::TestImage;
use super::content::{Content, read_content};
use super::fields::{self, Field};

/// Values that have caused defects in readers: limits of integer types, and sizes whose sums or
/// products overflow.
pub(super) const EXTREMES: [u64; 18] = [
    0,
    1,
    0x7F,
    0xFF,
    0x7FF,
    0x800,
    0xFFFF,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    1 << 53,
    1 << 60,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// A valid image to start from.
pub(crate) struct BaseImage {
    pub(crate) name: String,
    pub(crate) bytes: Arc<Vec<u8>>,
    pub(crate) device: Option<Arc<Vec<u8>>>,
    pub(crate) sound: Content,
    fields: Vec<Field>,
    kinds: Vec<&'static str>,
    /// Bytes up to the last field.
    metadata: usize,
    /// Bytes that the superblock's checksum covers.
    covered: usize,
}

impl BaseImage {
    /// Fails when the image is not valid.
    pub(crate) fn new(name: &str, bytes: Vec<u8>, device: Option<Vec<u8>>) -> Result<Self, String> {
        let (bytes, device) = (Arc::new(bytes), device.map(Arc::new));
        let image = TestImage { device: device.clone(), ..TestImage::new(Arc::clone(&bytes)) };
        let image = image.open(&OpenOptions::default());
        let image = image.map_err(|error| format!("{name}: {error}"))?;
        let fields = fields::fields(&image, &bytes);
        let mut kinds: Vec<_> = fields.iter().map(|field| field.name).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let metadata = fields
            .iter()
            .map(|field| field.at + field.len)
            .max()
            .unwrap_or(superblock::OFFSET + 128);
        let (covered, sound) = (image.superblock().checksum_len(), read_content(&image));
        let report =
            check::check(&image, &check::Options::default()).map_err(|error| error.to_string())?;
        match report.findings.first() {
            None if !sound.failed => Ok(Self {
                name: name.to_owned(),
                bytes,
                device,
                sound,
                fields,
                kinds,
                metadata,
                covered,
            }),
            finding => Err(format!("{name} is damaged before any change: {finding:?}")),
        }
    }

    /// Returns a changed copy, a description of the changes, and whether only one field is changed.
    pub(crate) fn change(&self, rng: &mut Rng) -> (String, TestImage, bool) {
        let mut image =
            TestImage { device: self.device.clone(), ..TestImage::new(Arc::clone(&self.bytes)) };
        let mut what = Vec::new();
        // Half of the images have one change, so that a change that `check` misses can be
        // attributed to a field.
        let changes = [1, 1, 1, 1, 2, 2, 3, 6][rng.below(8) as usize];
        for _ in 0..changes {
            let (name, at, bytes) = self.change_one(rng);
            what.push(name);
            image.changes.push((at, bytes));
        }
        if rng.below(50) == 0 {
            image.size = self.bytes.len() as u64 + (1 << (12 + rng.below(29)));
            what.push("a long hole at the end");
        }
        self.update_checksum(&mut image);
        (what.join(" + "), image, changes == 1)
    }

    fn change_one(&self, rng: &mut Rng) -> (&'static str, usize, Vec<u8>) {
        match rng.below(20) {
            0 => {
                let at = rng.below(self.bytes.len() as u64) as usize;
                ("random bytes anywhere", at, self.random(at, rng))
            }
            1 => {
                let at = superblock::OFFSET
                    + rng.below((self.metadata - superblock::OFFSET) as u64) as usize;
                ("random bytes in metadata", at, self.random(at, rng))
            }
            2 => self.copy(rng, "one structure over another", 32),
            3 => self.copy(rng, "a dirent or record over another", 12),
            4 => self.copy(rng, "a block over another", 4096),
            _ => {
                // Kinds of fields have equal chances, whatever their number.
                let kind = self.kinds[rng.below(self.kinds.len() as u64) as usize];
                let of_kind: Vec<_> =
                    self.fields.iter().filter(|field| field.name == kind).collect();
                let field = *of_kind[rng.below(of_kind.len() as u64) as usize];
                let other = *of_kind[rng.below(of_kind.len() as u64) as usize];
                (kind, field.at, self.value(field, other, rng))
            }
        }
    }

    /// `len` bytes from one field's place to another's: loops, duplicates, overlaps.
    fn copy(
        &self,
        rng: &mut Rng,
        what: &'static str,
        len: usize,
    ) -> (&'static str, usize, Vec<u8>) {
        let mut place = || self.fields[rng.below(self.fields.len() as u64) as usize].at;
        let (from, to) = (place(), place());
        let len = len.min(self.bytes.len() - from).min(self.bytes.len() - to);
        (what, to, self.bytes[from..from + len].to_vec())
    }

    fn random(&self, at: usize, rng: &mut Rng) -> Vec<u8> {
        let len = (1 + rng.below(8) as usize).min(self.bytes.len() - at);
        (0..len).map(|_| rng.next_u64() as u8).collect()
    }

    /// A new value for `field`: extreme, a little larger or smaller, one flipped bit, random, or
    /// the value of the `other` field.
    fn value(&self, field: Field, other: Field, rng: &mut Rng) -> Vec<u8> {
        let read = |field: Field| {
            let mut bytes = [0; 8];
            bytes[..field.len].copy_from_slice(&self.bytes[field.at..][..field.len]);
            u64::from_le_bytes(bytes)
        };
        let old = read(field);
        let new = match rng.below(8) {
            0 | 1 => EXTREMES[rng.below(EXTREMES.len() as u64) as usize],
            2 => old.wrapping_add(1 + rng.below(4)),
            3 => old.wrapping_sub(1 + rng.below(4)),
            4 => rng.next_u64(),
            5 => read(other),
            6 => rng.next_u64() >> rng.below(64),
            _ => old ^ 1 << rng.below(field.len as u64 * 8),
        };
        new.to_le_bytes()[..field.len].to_vec()
    }

    /// Updates the superblock's checksum, if the image still declares one.
    fn update_checksum(&self, image: &mut TestImage) {
        let all = image.bytes();
        let mut covered = all[superblock::OFFSET..][..self.covered].to_vec();
        if covered[8] & 1 != 0 {
            superblock::write_checksum(&mut covered);
            image.changes.push((superblock::OFFSET + 4, covered[4..8].to_vec()));
        }
    }
}
